"""Device memory of other libraries: `device.wrap_memory`, and DLPack tensors that aioacl takes over.

aioacl never frees such memory. A WrappedBuffer refers to the memory's owner until the buffer is closed and no work uses
it. The owner of a DLPack tensor is the tensor itself: its deleter runs when no reference to it is left. A reset or the
close of the device ends all work. After it, `_Wrapped` drops the references of stale buffers too.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol, SupportsIndex

from aioacl._base import origin, sync
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import dlpack_fields, dlpack_take, lib, pointer
from aioacl._base.options import repr_of, whole_of
from aioacl._handles.dlpack import ASCEND, EXTENSION, VERSION, pair_of
from aioacl._handles.in_flight import leave_until_reset
from aioacl._handles.memory import DeviceBuffer
from aioacl._handles.npu_tensor import NpuTensor, is_npu_tensor
from aioacl._handles.stream import Stream
from aioacl._handles.stream_core import NOTHING_OLDER_RUNS
from aioacl._wait.current import current_holder

if TYPE_CHECKING:
    from aioacl._lifecycle.manager import Manager

ADDRESSES: Final = 1 << 64


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

HOST: Final = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost
READ_ONLY: Final = 1
PADDED: Final = 4  # each value of less than a byte has a byte of its own


class Producer(Protocol):
    """An object that another library can take as a DLPack tensor."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns a DLPack capsule."""
        ...

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """Returns the device type and the index."""
        ...


class _Fields(NamedTuple):
    """What `dlpack_fields` returns."""

    kind: int
    device: int
    data: int
    offset: int
    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None
    code: int
    bits: int
    lanes: int
    flags: int


def from_dlpack(manager: Manager, thing: Producer, stream: Stream | int | None) -> DeviceBuffer:
    """Takes a tensor over, and makes a DeviceBuffer of its memory."""
    if is_npu_tensor(thing):
        thing = NpuTensor(manager, thing)
    methods = (getattr(thing, name, None) for name in ("__dlpack__", "__dlpack_device__"))
    if isinstance(thing, type) or not all(map(callable, methods)):
        raise ParameterError(
            f"expected a tensor with __dlpack__ and __dlpack_device__, got {_named(thing)}",
            hint="Pass the tensor itself, not a capsule. Pass host memory to copy, upload or download.",
        )
    generation = manager.generation  # first, because a reset during a call of the producer frees the memory
    _must_be_here(manager, *_device_of(thing))
    capsule = _capsule(manager, thing, stream)
    fields = _fields(capsule)
    _must_be_here(manager, fields.kind, fields.device)
    size = _size(fields)
    address = _address(fields, size)
    tensor = dlpack_take(capsule)
    if tensor is None:
        raise _taken(capsule)
    kind = ReadOnlyBuffer if fields.flags & READ_ONLY else WrappedBuffer
    # The stream may still wait for torch's event, which the NpuTensor keeps.
    owner = (tensor, thing) if isinstance(thing, NpuTensor) else tensor
    return _make(manager, kind, address, size, owner, generation, "from_dlpack")


def _named(thing: object) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__


def _device_of(thing: Producer) -> tuple[int, int]:
    answer = thing.__dlpack_device__()
    device = pair_of(answer)
    if device is None:
        raise ParameterError(
            f"expected __dlpack_device__ to return a tuple of two ints, got {repr_of(answer)}",
            hint="Correct the class of the tensor.",
        )
    return device


def _must_be_here(manager: Manager, kind: int, index: int) -> None:
    if kind in (EXTENSION, ASCEND) and index == manager.index:
        return
    here = f"({EXTENSION}, {manager.index}) or ({ASCEND}, {manager.index})"
    if kind in HOST:
        hint = (
            "Pass the array itself to copy, upload or download; for a tensor of torch, pass tensor.numpy()."
        )
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
        return _request(thing, {})
    if isinstance(stream, Stream):
        return _capsule_after(manager, thing, stream)
    number = whole_of(stream)
    if number != -1 and (number is None or not 0 < number < ADDRESSES):
        raise ParameterError(
            f"stream must be a Stream, the address of an aclrtStream, -1 or None, got {repr_of(stream)}",
            hint="Pass the Stream that uses the buffer first.",
        )
    return _request(thing, {"stream": number})


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
        return _request(thing, {"stream": pointer(core.native)})
    finally:  # the producer may have enqueued a wait before it raised an error
        lib.aio_stream_manual(core.handle, before)


def _request(thing: Producer, options: dict[str, int]) -> object:
    try:
        return thing.__dlpack__(max_version=VERSION, **options)
    except TypeError:  # the producer is older than DLPack 1.0
        return thing.__dlpack__(**options)


def _taken(capsule: object) -> ParameterError:
    return ParameterError(
        f"expected __dlpack__ to return a DLPack capsule that was not taken, got {repr_of(capsule)}",
        hint="Each capsule can be taken once: the producer has to make a new one at each call.",
    )


def _fields(capsule: object) -> _Fields:
    values = dlpack_fields(capsule)
    if values is None:
        raise _taken(capsule)
    if len(values) == 2:
        raise ParameterError(
            f"expected a tensor of DLPack version 1, got one of version {values[0]}.{values[1]}",
            hint="The producer must honour max_version=(1, 0): use a version of the library that does.",
        )
    return _Fields(*values)


def _size(fields: _Fields) -> int:
    """The size of the tensor in bytes. Raises ParameterError if the bytes are not in one piece, in C order."""
    shape = fields.shape
    if shape is None or min(shape, default=0) < 0:
        found = "no shape, or more dimensions" if shape is None else f"the shape {shape}"
        raise ParameterError(
            f"expected a tensor with at most 64 dimensions of at least 0, got {found}",
            hint="Reshape the tensor.",
        )
    if prod(shape) and not _is_contiguous(shape, fields.strides):
        raise ParameterError(
            f"expected a contiguous tensor in C order, got the shape {shape} with the strides {fields.strides}",
            hint="Pass a contiguous copy, for example tensor.contiguous().",
        )
    if not fields.bits or not fields.lanes:
        raise ParameterError(
            f"expected a tensor of values of at least 1 bit, got {fields.lanes} lanes of {fields.bits} bits",
            hint="Correct the producer: the type of its values has no size.",
        )
    bits = -(-fields.bits // 8) * 8 if fields.flags & PADDED else fields.bits
    total = prod(shape) * bits * fields.lanes
    if total % 8:
        raise ParameterError(
            f"expected a tensor of whole bytes, got {prod(shape)} values of {bits * fields.lanes} bits",
            hint="Pass a tensor whose values fill whole bytes.",
        )
    return total // 8


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _address(fields: _Fields, size: int) -> int:
    begin = fields.data + fields.offset if fields.data else 0
    place = f"{size} bytes at {fields.data:#x} + {fields.offset}"
    if size and not begin:
        raise ParameterError(
            f"expected a tensor with an address, got {place}", hint="Pass a tensor whose memory is allocated."
        )
    if size and (begin + size > ADDRESSES or size >= 1 << 63):
        raise ParameterError(
            f"expected a tensor of at most 2**63 - 1 bytes that ends at 2**64 or before, got {place}",
            hint="Correct the producer: no memory has these addresses.",
        )
    return begin % ADDRESSES
