"""Runs a `.om` on the simulator by hand: aclmdlLoadFromMem, aclmdlExecuteAsync, and the bytes of the outputs."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

import aioacl
from aioacl.lowlevel import ffi, on
from tests.models.corpus import Value

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from aioacl.simulator._om import Description

TO_DEVICE, TO_HOST = 1, 2
ANY_POLICY = 0


class Simulator:
    """A simulated device with one stream, for many models one after the other."""

    def __init__(self) -> None:
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        aioacl.use_library("simulator")
        device = self._exit.enter_context(aioacl.open_device())
        self._acl: Any = on(device)
        self._stream = self._exit.enter_context(device.create_stream())
        return self

    def __exit__(self, *exc: object) -> None:
        self._exit.close()

    def run(
        self, content: bytes, description: Description, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> list[Value]:
        """Executes the model and returns its outputs.

        Args:
            content: the bytes of the file.
            description: its description.
            inputs: the values of the inputs.
            outputs: the expected values. They give the sizes of outputs whose shape the description does not state.
        """
        sizes = [
            len(value.content) if -1 in tensor.shape else tensor.nbytes
            for tensor, value in zip(description.outputs, outputs, strict=True)
        ]
        with self._loaded(content) as model, ExitStack() as exit_:
            source = exit_.enter_context(self._dataset([len(value.content) for value in inputs]))
            target = exit_.enter_context(self._dataset(sizes))
            for value, memory in zip(inputs, source.memory, strict=True):
                if value.content:
                    size = len(value.content)
                    self._acl.aclrtMemcpy(memory, size, value.content, size, TO_DEVICE)
            self._acl.aclmdlExecuteAsync(model, source.handle, target.handle, self._stream)
            self._acl.aclrtSynchronizeStream(self._stream)
            return [
                Value(self._shape(target.handle, place, tensor.shape), self._bytes(memory, size))
                for place, (tensor, memory, size) in enumerate(
                    zip(description.outputs, target.memory, sizes, strict=True)
                )
            ]

    @contextmanager
    def _loaded(self, content: bytes) -> Generator[int]:
        model = ffi.new("uint32_t *")
        self._acl.aclmdlLoadFromMem(content, len(content), model)
        try:
            yield model[0]
        finally:
            self._acl.aclmdlUnload(model[0])

    @contextmanager
    def _dataset(self, sizes: Sequence[int]) -> Generator[_Dataset]:
        """A dataset with device memory for each size. A tensor without elements has no memory."""
        acl = self._acl
        with ExitStack() as exit_:
            made = _Dataset(acl.aclmdlCreateDataset(), [])
            exit_.callback(acl.aclmdlDestroyDataset, made.handle)
            for size in sizes:
                place = ffi.new("void **")
                if size:
                    acl.aclrtMalloc(place, size, ANY_POLICY)
                    exit_.callback(acl.aclrtFree, place[0])
                buffer = acl.aclCreateDataBuffer(place[0], size)
                exit_.callback(acl.aclDestroyDataBuffer, buffer)
                acl.aclmdlAddDatasetBuffer(made.handle, buffer)
                made.memory.append(place[0])
            yield made

    def _bytes(self, memory: Any, size: int) -> bytes:
        if not size:
            return b""
        host = ffi.new("char[]", size)
        self._acl.aclrtMemcpy(host, size, memory, size, TO_HOST)
        return bytes(ffi.buffer(host, size))

    def _shape(self, dataset: Any, place: int, stated: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of an output: the stated one, or that which the execution has put into the dataset."""
        if -1 not in stated:
            return stated
        described = self._acl.aclmdlGetDatasetTensorDesc(dataset, place)
        dim = ffi.new("int64_t *")
        dims: list[int] = []
        for index in range(self._acl.aclGetTensorDescNumDims(described)):
            self._acl.aclGetTensorDescDimV2(described, index, dim)
            dims.append(dim[0])
        return tuple(dims)


class _Dataset:
    """A dataset, and the memory of its buffers."""

    def __init__(self, handle: Any, memory: list[Any]) -> None:
        self.handle = handle
        self.memory = memory
