"""The slots of a loaded model: the memory and the stream of one call each; `aioacl/_native/calls.c` has the queue."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.errors import AclError
from aioacl._base.ffi import Dataset, SlotsBase, ffi, lib
from aioacl._handles.stream_core import EndedCore
from aioacl._lifecycle.failures import LAST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioacl._base.ffi import CData
    from aioacl._handles.memory import DeviceBuffer
    from aioacl._handles.pinned import PinnedBuffer
    from aioacl._handles.stream import Stream
    from aioacl._handles.stream_core import StreamCore
    from aioacl._models.description import TensorInfo

ALIGNMENT = 64


def native_dataset(data: Dataset) -> CData:
    """The aclmdlDataset of a Dataset, which the caller keeps."""
    return ffi.cast("aclmdlDataset *", data.address)


def room_for(tensors: Sequence[TensorInfo], selector_bytes: int = 0) -> tuple[list[int], int]:
    """Returns the offset of each tensor in the memory of a slot, and the size of that memory."""
    offsets, end = list[int](), 0
    for nbytes in (*(info.nbytes for info in tensors), selector_bytes):
        offsets.append(end)
        end += -(-nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, max(end, ALIGNMENT)


class Slot:
    """The memory and the stream of one call.

    Attributes:
        instance: the number of the instance that runs the call.
        stream: the stream of the call: upload, execution, download.
        parts: for each input and then for each output, the addresses of its device memory and of its pinned memory,
            which copies use, and its size.
        input_data, output_data: the datasets of the execution.
    """

    def __init__(
        self,
        instance: int,
        stream: Stream,
        device: DeviceBuffer,
        pinned: PinnedBuffer,
        tensors: tuple[Sequence[TensorInfo], Sequence[TensorInfo]],
        selector_bytes: int,
    ) -> None:
        inputs, outputs = tensors
        offsets, _ = room_for((*inputs, *outputs), selector_bytes)
        self.instance = instance
        self.stream = stream
        self.parts = tuple(
            (device.address + at, pinned.address + at, info.nbytes)
            for at, info in zip(offsets, (*inputs, *outputs), strict=False)
        )
        memory = [(address, size) for address, _, size in self.parts]
        selector = [(device.address + offsets[-1], selector_bytes)] if selector_bytes else []
        self.input_data: Any = Dataset((*memory[: len(inputs)], *selector))
        self.output_data: Any = Dataset(tuple(memory[len(inputs) :]))

    def native(self) -> tuple[int, Any, tuple[tuple[int, int, int], ...], int, int]:
        """Returns the slot as C takes it."""
        data = self.input_data.address, self.output_data.address
        return (self.instance, self.stream._core, self.parts, *data)

    def drop_data(self) -> None:
        """Destroys the datasets, because a program may keep a closed model for long."""
        self.input_data = self.output_data = None


# The slots of loads that end, until all are back. The program may have dropped the model, and no other object refers to
# the load after a reset.
_ending: Final[set[Slots]] = set()


class Slots(SlotsBase):
    """The slots of one load of a model. Calls get free slots in the order in which they asked.

    Tasks of any loop and threads wait here together. `end` ends all waits, when the model was closed or a reset has
    ended this load. `wake` also ends them, when the device is quarantined: until a reset succeeds, a slot whose work
    may still run is not given back.

    Attributes:
        error: why the newest renewal of a stream has failed; None: none has failed.
    """

    def __init__(self, *_: Any) -> None:  # pyright: ignore[reportInconsistentConstructor] - C takes the arguments
        self.error: AclError | None = None
        self._streams: tuple[Stream, ...] = ()
        self._over = False
        # What to call when all slots are back, and which call of `_end_if_back` does so. Each step is one operation of
        # a dict: two threads may take it.
        self._then: dict[str, Callable[[], object]] = {}
        self._caller: dict[str, object] = {}

    @classmethod
    def make(
        cls,
        device: int,
        generation: int,
        kind: int,
        inputs: int,
        models: tuple[int, ...],
        slots: Sequence[Slot],
    ) -> Slots:
        """Makes the slots. `_start` starts the threads of the instances, whose ids are `models`."""
        outputs = len(slots[0].parts) - inputs
        native = tuple(slot.native() for slot in slots)
        made = cls(device, generation, kind, inputs, outputs, models, native)
        made._streams = tuple(slot.stream for slot in slots)
        return made

    @property
    def cores(self) -> tuple[StreamCore | EndedCore, ...]:
        """The streams that the slots use now."""
        return tuple(stream._core for stream in self._streams)

    @property
    def ends(self) -> bool:
        """Whether the model was closed, and its memory was not freed."""
        return self in _ending

    def tend(self) -> None:
        """Frees what ended calls have left, and renews failed streams. Runs on the maintenance thread."""
        self._collect()
        with ExitStack() as steps:  # each step is taken even if one before it raises
            steps.callback(self._end_if_back)
            # All are taken first, because a slot whose renewal fails is in the list again.
            for index in iter(self._take_failed, None):
                steps.callback(self._renew, index)

    def _renew(self, index: int) -> None:
        stream, renewed = self._streams[index], False
        try:
            if not self._over:
                stream._renew_now()
                renewed = True
        except AclError as error:
            self.error = error
        finally:  # also after the warning of an uncollected failure, which may be raised
            core: StreamCore | EndedCore = stream._core
            if isinstance(core, EndedCore):  # a load that has failed has closed its streams
                self._renewed(index, None)
            else:
                usable = renewed or not lib.aio_stream_error(core.handle, LAST, ffi.NULL)
                self._renewed(index, core if usable else None)

    def wake(self) -> None:
        """Ends all waits, so that the callers look at the state of the device again."""
        self._wake(lib.AIO_QUARANTINE)

    def stop(self) -> None:
        """Ends all waits, now and later. The threads of the instances end when all slots are back."""
        self._over = True
        self._end()

    def end(self, then: Callable[[], object] | None = None) -> None:
        """Ends all waits, and calls `then` once all slots are back. Of several functions, the first one is called.

        After an interrupt, a later call goes on. It may call `then` once more.
        """
        if then is not None and self._then.setdefault("then", then) is not _done:
            _ending.add(self)
        self.stop()
        self._end_if_back()

    def _end_if_back(self) -> None:
        then, mark = self._then.get("then"), object()
        if then is None or not self._over or not self.back:
            return
        try:
            if self._caller.setdefault("of then", mark) is mark:
                then()
                self._then["then"] = _done
                _ending.discard(self)
        finally:
            if self._caller.get("of then") is mark:
                del self._caller["of then"]


def _done() -> None:
    """Takes the place of a function that was called."""
