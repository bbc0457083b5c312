"""The operands of a copy: device memory, pinned memory or pageable memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, SupportsIndex, TypeAlias

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, lib, pointer
from aioacl._base.options import repr_of, whole_of
from aioacl._handles.formats import view_of
from aioacl._handles.handle import is_a
from aioacl._handles.memory import DeviceBuffer
from aioacl._handles.pinned import PinnedBuffer

if TYPE_CHECKING:
    from typing_extensions import Buffer  # for type checkers; in collections.abc since Python 3.12

    from aioacl._base.ffi import CData
    from aioacl._handles.capsule import Producer
    from aioacl._lifecycle.manager import Manager

    class _Array(Protocol):
        """A numpy array. The stubs of numpy declare `__buffer__` only for Python 3.12 and later."""

        @property
        def __array_interface__(self) -> dict[str, Any]: ...
        @property
        def data(self) -> memoryview: ...

    class _Tensor(Producer, Protocol):
        """A tensor of another library that may be in host memory. A DeviceBuffer has no `dtype`."""

        @property
        def dtype(self) -> Any: ...

    HostMemory: TypeAlias = Buffer | _Array | _Tensor  # a PinnedBuffer is a Buffer
    Memory: TypeAlias = DeviceBuffer | HostMemory

_BYTES: Final = (bytes, bytearray)

_WRITABLE = (
    "The target comes first: pass a DeviceBuffer, a PinnedBuffer, or an object with a contiguous, writable buffer "
    "(a bytearray or a numpy array, for instance), or a contiguous tensor in host memory."
)
_READABLE = (
    "Pass a DeviceBuffer, a PinnedBuffer, or an object with a contiguous buffer (text.encode(), "
    "numpy.ascontiguousarray(a)), or a contiguous tensor in host memory."
)


class CopyOperand(NamedTuple):
    """One end of a copy: the address, the size in bytes, the kind of memory, and the object that keeps it alive."""

    address: CData
    size: int
    owner: Any  # the Buffer, or the exporter of the pageable memory
    device: bool = False
    pageable: bool = False

    def part(self, offset: int, size: int) -> CopyOperand:
        """The `size` bytes of this memory that begin at `offset`."""
        address = ffi.cast("char *", self.address) + offset
        return CopyOperand(address, size, self.owner, self.device, self.pageable)


def operand_of(thing: object, manager: Manager, *, writable: bool = False) -> CopyOperand:
    """Returns the operand for an argument of a copy. Raises ParameterError if the argument cannot be copied."""
    if is_a(thing, DeviceBuffer) or is_a(thing, PinnedBuffer):
        return _buffer(thing, manager, writable=writable)
    try:
        source, pointers = (thing, "") if type(thing) in _BYTES else view_of(thing, writable=writable)
        memory = None if pointers else ffi.from_buffer("char[]", source, writable)
    except ParameterError:  # it is a ValueError
        raise
    except (TypeError, ValueError, BufferError) as error:
        raise ParameterError(
            f"expected memory that can be {'written to' if writable else 'copied from'}, got "
            f"{type(thing).__name__}: {error}",
            hint=_WRITABLE if writable else _READABLE,
        ) from error
    if memory is None:
        raise ParameterError(
            f"expected a buffer of plain values, got {type(thing).__name__} of the format {repr_of(pointers)}, which "
            "holds pointers",
            hint="Pass a buffer of the values that the pointers refer to, for instance array.astype(float).",
        )
    # CPython crashes when it collects a cycle in which an object of `from_buffer` refers to a memoryview. Another view
    # also keeps the memory.
    exporter: Any = source
    held = memoryview(exporter) if isinstance(source, memoryview) else memory
    return CopyOperand(ffi.cast("char *", memory), len(memory), held, pageable=True)


def fill_target(thing: object, manager: Manager) -> CopyOperand:
    """Returns the operand for the target of a fill. Raises ParameterError if it is not a buffer."""
    if is_a(thing, DeviceBuffer) or is_a(thing, PinnedBuffer):
        return _buffer(thing, manager, writable=True)
    raise ParameterError(
        f"expected a DeviceBuffer or a PinnedBuffer to fill, got {type(thing).__name__}",
        hint="Fill host memory yourself.",
    )


def _buffer(buffer: DeviceBuffer | PinnedBuffer, manager: Manager, *, writable: bool) -> CopyOperand:
    buffer._check()
    if writable and buffer._readonly:
        raise ParameterError(
            "expected a target that can be written to, got a buffer of a read-only DLPack tensor",
            hint="Copy it to a buffer of device.allocate(n), and write to that buffer.",
        )
    if isinstance(buffer, DeviceBuffer) and buffer._manager is not manager:
        raise ParameterError(
            f"expected a buffer of device {manager.index}, got one of device {buffer._manager.index}",
            hint="Copy between devices through pinned host memory.",
        )
    return CopyOperand(buffer._pointer, buffer.size, buffer, device=isinstance(buffer, DeviceBuffer))


def _size(of: CopyOperand, nbytes: SupportsIndex | None) -> int:
    size = of.size if nbytes is None else whole_of(nbytes)
    if size is None or size < 0:
        raise ParameterError(
            f"nbytes must be an int, at least 0, got {repr_of(nbytes)}", hint="Pass a number of bytes."
        )
    return size


def fill_size(to: CopyOperand, nbytes: SupportsIndex | None) -> int:
    """Returns the number of bytes that a fill writes. Raises ParameterError if the target is smaller."""
    size = _size(to, nbytes)
    if size > to.size:
        raise ParameterError(
            f"nbytes must be at most {to.size}, the size of the target, got {repr_of(size)}",
            hint=f"Pass nbytes={to.size} or less, or omit nbytes to fill the whole target.",
        )
    return size


def copy_size(to: CopyOperand, of: CopyOperand, nbytes: SupportsIndex | None) -> int:
    """Returns the number of bytes to copy. Raises ParameterError if the source or the target is smaller."""
    size = _size(of, nbytes)
    if size > of.size or size > to.size:
        raise ParameterError(
            f"expected at most {min(of.size, to.size)} bytes, got {repr_of(size)}: the source has {of.size} bytes, the "
            f"target {to.size}",
            hint="Pass nbytes=, at most the smaller of the two sizes.",
        )
    return size


def must_not_overlap(to: CopyOperand, of: CopyOperand, size: int) -> None:
    """Raises ParameterError if the operands overlap. The runtime leaves the result of such a copy undefined.

    A copy of memory to itself is legal.
    """
    if not (to.device and of.device):
        return
    distance = abs(pointer(to.address) - pointer(of.address))
    if 0 < distance < size:
        raise ParameterError(
            f"expected operands that do not overlap, got {size - distance} bytes of the source in the target",
            hint="Copy through another buffer.",
        )


def copy_kind(to: CopyOperand, of: CopyOperand) -> int:
    """The aclrtMemcpyKind of a copy. Raises ParameterError if neither operand is on the device."""
    if to.device and of.device:
        return lib.ACL_MEMCPY_DEVICE_TO_DEVICE
    if to.device:
        return lib.ACL_MEMCPY_HOST_TO_DEVICE
    if of.device:
        return lib.ACL_MEMCPY_DEVICE_TO_HOST
    raise ParameterError(
        "expected a DeviceBuffer as source or target, got host memory as both",
        hint="Copy host memory yourself.",
    )
