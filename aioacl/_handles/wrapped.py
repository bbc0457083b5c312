"""Device memory of other libraries: `device.wrap_memory`, and DLPack tensors that aioacl takes over.

aioacl never frees such memory. A WrappedBuffer refers to the memory's owner until the buffer is closed and no work uses
it. The owner of a DLPack tensor is the tensor itself: its deleter runs when no reference to it is left. A reset or the
close of the device ends all work. After it, `_Wrapped` drops the references of stale buffers too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, SupportsIndex

from aioacl._base import origin, sync
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import dlpack_take, lib, pointer
from aioacl._base.options import repr_of, whole_of
from aioacl._handles.capsule import (
    ADDRESSES,
    HOST,
    READ_ONLY,
    Producer,
    address_of,
    device_of,
    fields_of,
    is_producer,
    request,
    size_of,
    was_taken,
)
from aioacl._handles.dlpack import ASCEND, EXTENSION
from aioacl._handles.in_flight import leave_until_reset
from aioacl._handles.memory import DeviceBuffer
from aioacl._handles.npu_tensor import NpuTensor, is_npu_tensor
from aioacl._handles.stream import Stream
from aioacl._handles.stream_core import NOTHING_OLDER_RUNS
from aioacl._wait.current import current_holder

if TYPE_CHECKING:
    from aioacl._lifecycle.manager import Manager


class WrappedBuffer(DeviceBuffer):
    """A DeviceBuffer whose memory belongs to another library."""

    __slots__ = ("_owner",)
    _factory = "device.wrap_memory(address, nbytes)"

    def __init__(self, manager: Manager, generation: int, address: int, size: int, owner: object) -> None:
        super().__init__(manager, generation, address, size, 0)
        self._owner = owner

    def _can_be_freed(self) -> bool:
        return self._owner is not None

    def _give_back(self) -> bool:
        return False  # the memory belongs to the owner

    def _free(self) -> None:
        """Drops the reference to the owner, once no work uses the memory."""
        if self.stale and self._manager.admission.shown not in NOTHING_OLDER_RUNS:
            leave_until_reset(self._manager, self._free)  # the reset has not ended the work yet
        else:
            self._owner = None

    def _keeper(self) -> object:
        owner = self._owner
        self._check()  # after the read, because a close drops the reference
        return owner

    def __del__(self) -> None:
        if not hasattr(self, "_owner") or not self._owed or lib.aio_forked():
            return
        if self._can_be_freed():
            self._manager.deferred.leave_note(self._free_once)
            if self.stale and not self._manager.maintenance.running:
                self._free_once()  # the device is closed, so no thread reads notes
        try:
            if not self.stale:
                self._warn_if_open()
        finally:
            self._closed = True

    def _refuse_block(self, keyword: str) -> NoReturn:
        if self._base is not None:
            super()._refuse_block(keyword)
        raise TypeError(
            f"expected an object that `{keyword}` can close, got a DeviceBuffer that is not allocated by aioacl; "
            "call its close() in a `finally` block"
        )


class ReadOnlyBuffer(WrappedBuffer):
    """A WrappedBuffer that may be the source of a copy, but not a target."""

    __slots__ = ()
    _readonly = True
    _memory = 3  # READ_ONLY_MEMORY


# --- the owners that a reset releases -------------------------------------------------------------------------------


class _Wrapped:
    """The wrapped buffers of a device. After a reset, or the close of the device, `_sweep` releases their owners."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._buffers: sync.WeakSet[WrappedBuffer] = sync.WeakSet()
        self._planned: dict[str, object] = {}  # has an entry if the next reset or close calls `_sweep`

    def add(self, buffer: WrappedBuffer) -> None:
        self._buffers.add(buffer)
        self._plan()

    def _plan(self) -> None:
        mine = object()
        if self._planned.setdefault("sweep", mine) is mine:
            self._manager.deferred.leftovers.append(self._sweep)

    def _sweep(self) -> None:
        self._planned.clear()
        left = [buffer for buffer in self._buffers.members() if buffer._can_be_freed()]
        for buffer in left:
            if buffer.stale:
                buffer._free()
        if any(buffer._can_be_freed() for buffer in left):
            self._plan()


_wrapped: Final[dict[Manager, _Wrapped]] = {}


def _make(
    manager: Manager,
    kind: type[WrappedBuffer],
    address: int,
    size: int,
    owner: object,
    born: int,
    call: str,
) -> WrappedBuffer:
    """Makes the buffer. Raises an error if the device is not open for the caller.

    `born` is the generation at the start of the call. A reset since then has freed the memory.
    """
    admission = manager.admission
    with admission.changed:  # so no force reset begins before the buffer is registered
        # Before the check, so that a foreign reset after the check makes the buffer stale.
        generation = manager.generation
        if not admission.may_pass(current_holder()):
            raise admission.resetting()
        if born != generation:
            raise admission.was_ended(born, call)
        buffer = kind._make(manager, generation, address, size, owner)
        if owner is not None:
            _wrapped.setdefault(manager, _Wrapped(manager)).add(buffer)
    buffer._site = origin.site()
    if origin.keeper is not None:
        origin.keeper.made(buffer)
    return buffer


# --- memory that an address names -----------------------------------------------------------------------------------


def wrap(manager: Manager, address: SupportsIndex, nbytes: SupportsIndex, owner: object) -> DeviceBuffer:
    """Makes a DeviceBuffer of memory at an address. Raises ParameterError for an address or a size that cannot be."""
    generation = manager.generation  # first, because `__index__` of an argument may run any code
    begin, size = whole_of(address), whole_of(nbytes)
    if begin is None or not 0 < begin < ADDRESSES:
        raise ParameterError(
            f"address must be an int from 1 to 2**64 - 1, got {repr_of(address)}",
            hint="Pass the address of device memory, for example tensor.data_ptr().",
        )
    if size is None or not 0 <= size < 1 << 63:
        raise ParameterError(
            f"nbytes must be an int from 0 to 2**63 - 1, got {repr_of(nbytes)}",
            hint="Pass a number of bytes.",
        )
    if begin + size > ADDRESSES:
        raise ParameterError(
            f"expected memory that ends at 2**64 or before, got {size} bytes at the address {begin:#x}",
            hint="Pass the size of the memory in bytes.",
        )
    return _make(manager, WrappedBuffer, begin, size, owner, generation, "wrap_memory")


# --- DLPack ---------------------------------------------------------------------------------------------------------


def from_dlpack(manager: Manager, thing: Producer, stream: Stream | int | None) -> DeviceBuffer:
    """Takes a tensor over, and makes a DeviceBuffer of its memory."""
    if is_npu_tensor(thing):
        thing = NpuTensor(manager, thing)
    if not is_producer(thing):
        raise ParameterError(
            f"expected a tensor with __dlpack__ and __dlpack_device__, got {_named(thing)}",
            hint="Pass the tensor itself, not a capsule. Pass host memory to copy, upload or download.",
        )
    generation = manager.generation  # first, because a reset during a call of the producer frees the memory
    _must_be_here(manager, *device_of(thing))
    capsule = _capsule(manager, thing, stream)
    fields = fields_of(capsule)
    _must_be_here(manager, fields.kind, fields.device)
    size = size_of(fields)
    address = address_of(fields, size)
    tensor = dlpack_take(capsule)
    if tensor is None:
        raise was_taken(capsule)
    kind = ReadOnlyBuffer if fields.flags & READ_ONLY else WrappedBuffer
    # The stream may still wait for torch's event, which the NpuTensor keeps.
    owner = (tensor, thing) if isinstance(thing, NpuTensor) else tensor
    return _make(manager, kind, address, size, owner, generation, "from_dlpack")


def _named(thing: object) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__


def _must_be_here(manager: Manager, kind: int, index: int) -> None:
    if kind in (EXTENSION, ASCEND) and index == manager.index:
        return
    here = f"({EXTENSION}, {manager.index}) or ({ASCEND}, {manager.index})"
    if kind in HOST:
        hint = "Pass the tensor itself to copy, upload or download."
    elif kind in (EXTENSION, ASCEND):
        hint = "Call from_dlpack of the device that has the tensor."
    else:
        hint = "Copy the tensor to host memory, and upload it."
    raise ParameterError(
        f"expected a tensor on the DLPack device {here}, got one on ({repr_of(kind)}, {repr_of(index)})",
        device=manager.index,
        hint=hint,
    )


def _capsule(manager: Manager, thing: Producer, stream: Stream | int | None) -> object:
    if stream is None:
        return request(thing, {})
    if isinstance(stream, Stream):
        return _capsule_after(manager, thing, stream)
    number = whole_of(stream)
    if number != -1 and (number is None or not 0 < number < ADDRESSES):
        raise ParameterError(
            f"stream must be a Stream, the address of an aclrtStream, -1 or None, got {repr_of(stream)}",
            hint="Pass the Stream that uses the buffer first.",
        )
    return request(thing, {"stream": number})


def _capsule_after(manager: Manager, thing: Producer, stream: Stream) -> object:
    """Requests a capsule for a stream of aioacl. The producer enqueues a wait on the native stream."""
    stream._check()
    if stream._manager is not manager:
        raise ParameterError(
            f"expected a stream of device {manager.index}, got one of device {stream._manager.index}",
            hint="Pass a stream of the device whose from_dlpack you call.",
        )
    core = stream._live()
    core.reusable = False  # the producer may keep the pointer
    lib.aio_stream_doubt(core.handle)  # the runtime does not report a failure of the producer's wait
    before = lib.aio_last_task()
    try:
        return request(thing, {"stream": pointer(core.native)})
    finally:  # the producer may have enqueued a wait before it raised an error
        lib.aio_stream_manual(core.handle, before)
