"""Helpers for calls of model functions: loaded models, datasets, and the text of the last error."""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aioacl._base.ffi import ffi, lib, text_of
from tests.simulator.rawacl import good, new_memory, rc

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

TO_DEVICE, TO_HOST = 1, 2


def value(function: str, *arguments: Any) -> Any:
    """Calls a function that returns a value instead of a code."""
    return getattr(lib, f"aio_u_{function}")(*arguments)


def new(kind: str, *initial: Any) -> Any:
    """A new C object, whose members can be read and set."""
    return ffi.new(kind, *initial)


def words(memory: Any, count: int) -> tuple[int, ...]:
    """Numbers of 64 bits at the address, which the test can read because the memory is the simulator's."""
    return struct.unpack(f"{count}Q", bytes(ffi.buffer(memory, count * 8)))


def error_text() -> str:
    """The text of the thread's last failure."""
    return text_of(lib.aio_error_text())


def load_code(source: bytes | Path) -> tuple[int, int]:
    """Loads a model. Returns the code and the id.

    Clears the simulator's text first. Calls without a context do not clear it, and it has no room for many failures.
    """
    value("aclGetRecentErrMsg")
    place = ffi.new("uint32_t *")
    if isinstance(source, bytes):
        return rc("aclmdlLoadFromMem", source, len(source), place), place[0]
    return rc("aclmdlLoadFromFile", bytes(source), place), place[0]


@contextmanager
def loaded(source: bytes | Path) -> Generator[int]:
    """A loaded model, which is unloaded at the end of the block."""
    code, model = load_code(source)
    assert code == 0, error_text()
    try:
        yield model
    finally:
        good("aclmdlUnload", model)


@contextmanager
def described(source: bytes | int) -> Generator[Any]:
    """The description of a file or of a loaded model."""
    desc = value("aclmdlCreateDesc")
    try:
        if isinstance(source, bytes):
            good("aclmdlGetDescFromMem", desc, source, len(source))
        else:
            good("aclmdlGetDesc", desc, source)
        yield desc
    finally:
        good("aclmdlDestroyDesc", desc)


class Data:
    """A dataset with one buffer of device memory for each size."""

    def __init__(self, *sizes: int) -> None:
        self.dataset = value("aclmdlCreateDataset")
        self.memory = [new_memory(size) if size else ffi.NULL for size in sizes]
        self.sizes = sizes
        self.buffers = [
            value("aclCreateDataBuffer", memory, size)
            for memory, size in zip(self.memory, sizes, strict=True)
        ]
        for buffer in self.buffers:
            good("aclmdlAddDatasetBuffer", self.dataset, buffer)

    def write(self, index: int, numbers: Sequence[float]) -> None:
        """Writes floats to a buffer."""
        packed = struct.pack(f"{len(numbers)}f", *numbers)
        good("aclrtMemcpy", self.memory[index], self.sizes[index], packed, len(packed), TO_DEVICE)

    def read(self, index: int) -> list[float]:
        """Reads all floats of a buffer, whose address and size the simulator may have set."""
        buffer = self.buffers[index]
        size = value("aclGetDataBufferSizeV2", buffer)
        into = ffi.new("char[]", size)
        good("aclrtMemcpy", into, size, value("aclGetDataBufferAddr", buffer), size, TO_HOST)
        return list(struct.unpack(f"{size // 4}f", bytes(ffi.buffer(into, size))))

    def describe(self, index: int, dims: Sequence[int]) -> None:
        """Sets the shape of a buffer."""
        desc = value("aclCreateTensorDesc", 0, len(dims), list(dims), 2)
        good("aclmdlSetDatasetTensorDesc", self.dataset, desc, index)
        value("aclDestroyTensorDesc", desc)

    def shape(self, index: int) -> list[int]:
        """The shape in the description of a buffer."""
        desc = value("aclmdlGetDatasetTensorDesc", self.dataset, index)
        place = ffi.new("int64_t *")
        dims = []
        for number in range(value("aclGetTensorDescNumDims", desc)):
            good("aclGetTensorDescDimV2", desc, number, place)
            dims.append(int(place[0]))
        return dims

    def close(self) -> None:
        """Ends the dataset, its buffers and their memory."""
        good("aclmdlDestroyDataset", self.dataset)
        for buffer in self.buffers:
            memory = value("aclGetDataBufferAddr", buffer)
            good("aclDestroyDataBuffer", buffer)
            if memory != ffi.NULL:
                good("aclrtFree", memory)


@contextmanager
def data(*sizes: int) -> Generator[Data]:
    """A dataset that ends with the block."""
    made = Data(*sizes)
    try:
        yield made
    finally:
        made.close()


def execute(model: int, inputs: Data, outputs: Data) -> int:
    """Executes the model and waits. Returns the code."""
    return rc("aclmdlExecute", model, inputs.dataset, outputs.dataset)


def execute_on(stream: Any, model: int, inputs: Data, outputs: Data) -> int:
    """Enqueues an execution. Returns the code."""
    return rc("aclmdlExecuteAsync", model, inputs.dataset, outputs.dataset, stream)
