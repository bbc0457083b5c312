"""Device memory, and pinned host memory.

A slice of a buffer is a view: a buffer object without memory of its own. It shares the dict of uses with its buffer, so
work that uses a view counts as a use of the buffer, and it is closed when its buffer is closed.

A buffer has references to the work that uses it. If the buffer is closed while copies run, the maintenance thread frees
the memory when the copies are done. If another thread is enqueueing a copy when the buffer is closed, the end of the
enqueue passes the buffer to the maintenance thread. The end of an upload or download does so too. No memory is freed
twice: `_claim` returns True only once, and the list `_owed` of pinned memory has only one item to take.

A reset frees the memory of its device. Pinned memory belongs to the host and outlives a reset. A ctypes array owns the
pinned memory. The buffer refers to the array until the buffer is closed, and each view and DLPack tensor refers to the
array while it exists. The memory is freed when the last of these references is gone.
"""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache, partial
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioacl._base.codes import Family, is_of
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import InFlight, bind_maker, ffi, lib, make_pass, owner, pointer
from aioacl._base.origin import warn_of_drop
from aioacl._base.states import State
from aioacl._handles.dlpack import ASCEND, CPU, EXTENSION, Exportable, end_lending, keeper_of
from aioacl._handles.in_flight import UNKNOWN, leave_until_reset, wait_for_enqueue
from aioacl._handles.operation import Operation
from aioacl._handles.slices import bounds_of
from aioacl._library import runtime
from aioacl._lifecycle.cache import DEVICE_MEMORY, PINNED_MEMORY, free_device, free_pinned
from aioacl._lifecycle.gate import error_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from aioacl._base.ffi import CData
    from aioacl._lifecycle.manager import Manager


class Buffer(Exportable):
    """The base of DeviceBuffer and PinnedBuffer."""

    __slots__ = ()
    noun = "buffer"
    _memory = 0  # enum memory_kind of aioacl/_binding/binding.h

    def __init__(self, manager: Manager, generation: int, address: int, size: int) -> None:
        self._be_at(manager, generation, address, size)
        self._uses: dict[InFlight, None] = {}

    def _be_at(self, manager: Manager, generation: int, address: int, size: int) -> None:
        super().__init__(manager, generation)
        self._address = address
        self._size = size
        self._kind = self._memory

    @property
    def _pointer(self) -> CData:
        return ffi.cast("char *", self._address)

    @property
    def size(self) -> int:
        """The size in bytes, an int."""
        return self._size

    @property
    def nbytes(self) -> int:
        """The size in bytes, an int: the same as `size`, under the name that arrays use."""
        return self._size

    @property
    def address(self) -> int:
        """The address of the memory, an int, as ACL functions take it. A buffer of 0 bytes has the address 0."""
        return self._address

    @property
    def base(self) -> Self | None:
        """The buffer that this is a view of, or None. A view of a view has the same base."""
        base: Self | None = self._base
        return base

    def __getitem__(self, part: slice) -> Self:
        """Returns a view of a part of the memory: `buffer[start:stop]`, in bytes. Calls no ACL function.

        Copies and fills take a view like a buffer. Negative and omitted bounds are as for `bytes`. A view keeps its
        buffer from being garbage-collected. It is closed and stale when its buffer is, and cannot be closed by itself.

        Args:
            part: a slice with the step 1.

        Raises:
            ParameterError: `part` is not a slice of ints, or has another step; or the buffer is closed.
            StaleHandleError: the buffer is from an older generation.
        """
        self._check()
        start, stop = bounds_of(part, self._size)
        view = type(self).__new__(type(self))
        view._be_view(self._base or self, self._address + start, stop - start)
        return view

    if not TYPE_CHECKING:  # type checkers report these uses
        __iter__ = __contains__ = None  # otherwise Python would call __getitem__ with 0

        def __setitem__(self, *_: object) -> NoReturn:
            raise TypeError(
                f"expected a copy to the {self.noun}, got an assignment; use stream.copy(buffer[start:stop], data), or "
                "the `view` of a PinnedBuffer"
            )

        def __delitem__(self, _: object) -> NoReturn:
            raise TypeError(
                f"expected a {self.noun} of a fixed size, got a deletion of a part; call close() to free the whole "
                "buffer"
            )

    def _shown_size(self) -> str:
        """The size, and where a view begins in its buffer."""
        size, base = f"{self._size} bytes", self._base
        return size if base is None else f"{size} at {self._address - base._address} of {base._size}"

    def _be_view(self, base: Buffer, address: int, size: int) -> None:
        self._be_at(base._manager, base._generation, address, size)
        self._make_view_of(base)

    def _refuse_block(self, keyword: str) -> NoReturn:
        if self._base is not None:
            raise TypeError(
                f"expected a {self.noun} to close, got a view of one; use the view without `{keyword}`"
            )
        super()._refuse_block(keyword)

    def _free(self) -> None:
        raise NotImplementedError

    def _free_once(self) -> None:
        """Frees the memory when no work uses it. Runs on the maintenance thread; later calls do nothing."""
        if self._claim():
            self._free_when_unused()

    def _free_when_unused(self) -> None:
        """Frees the memory if no work uses it. Otherwise checks again when the first of that work has ended.

        Only for a caller for which `_claim` returned True.
        """
        worker = self._manager.maintenance
        for reference in tuple(self._uses):
            if reference.position == UNKNOWN and wait_for_enqueue(reference, self):
                return
            if reference.core.passed(reference.position):
                continue
            if worker.watch(reference.core.handle, reference.position, self._check_again):
                leave_until_reset(self._manager, self._free_when_unused)
            return
        self._free()

    def _check_again(self, result: int) -> None:
        """Runs on the maintenance thread when a wait has ended.

        If the wait failed, the copy may still run, until the next reset.
        """
        if result >= 0 or self._unused():
            self._free_when_unused()
        else:
            leave_until_reset(self._manager, self._free_when_unused)

    def _unused(self) -> bool:
        return all(reference.core.passed(reference.position) for reference in tuple(self._uses))

    def _closing(self) -> Callable[[], object] | None:
        self._closed = True
        if not self._owed or lib.aio_forked() or not self._can_be_freed():
            return None
        return None if self._give_back() else self._free_once

    def _close_now(self) -> bool:
        return self._closing() is None

    def _give_back(self) -> bool:
        """Gives the memory to the device's cache if no work uses it. Returns False if it must be freed.

        It reads the uses after `_closed` was set; see `StreamCore.keep`.
        """
        return False

    def _can_be_freed(self) -> bool:
        raise NotImplementedError

    def close(self) -> Operation[None]:
        """Closes the buffer and gives its memory back, to be used again or freed (aclrtFree, or aclrtFreeHost).

        If copies still use the memory, it is given back when they are done. A second close is not an error.

        Returns:
            An Operation; await it, or call its `result()`.

        Raises:
            ParameterError: this is a view of a buffer.
        """
        if self._base is not None:
            raise ParameterError(
                f"expected a {self.noun}, got a view of one",
                device=self._manager.index,
                hint="Close the buffer that it is a view of.",
            )
        return Operation("buffer.close()", self._close, self)

    def _leave(self) -> None:
        """Called by the finalizer of a buffer that was not closed. The maintenance thread frees the memory."""
        if not self._owed or lib.aio_forked() or not self._can_be_freed():
            return
        # This comes before the warning, because the warning raises an exception if warnings are errors.
        self._manager.deferred.leave_note(self._free_once)
        try:
            self._warn_if_open()
        finally:
            self._closed = True

    def _warn_if_open(self) -> None:
        if not self._closed and self._base is None:
            warn_of_drop(
                self,
                f"a {self.noun} of {self._size} bytes was not closed: close it, or make it with `async with`",
                depth=5,
            )


if TYPE_CHECKING:

    class _Exporter:
        def __buffer__(self, flags: int, /) -> memoryview: ...

    class _Refuser: ...
else:
    _Exporter = _Refuser = ctypes.cast(pointer(lib.aio_exporter()), ctypes.py_object).value


class DeviceBuffer(Buffer, _Refuser):
    """Device memory, made by `device.allocate(nbytes)` (aclrtMalloc). Its contents are undefined at first.

    The host cannot read the memory: `bytes()`, `memoryview()` and `numpy.array()` of a DeviceBuffer raise TypeError.
    Copy the memory with `stream.copy` or `stream.download`.
    """

    __slots__ = ()
    noun = "device buffer"
    _memory = 1
    factory = "device.allocate(nbytes)"

    def __init__(self, manager: Manager, generation: int, address: int, size: int, block: int) -> None:
        super().__init__(manager, generation, address, size)
        self._block = block
        self._lent = {}

    def _can_be_freed(self) -> bool:
        return not self.stale

    def _give_back(self) -> bool:
        if not self._address:
            return self._claim() or True
        return self._unused() and self._manager.cache.keep_buffer(self)

    def _free(self) -> None:
        if end_lending(self._lent):  # else a DLPack tensor may refer to the memory
            _free_or_keep(self._manager, self._generation, self._address, self._block)

    def _keeper(self) -> object:
        free = partial(_free_or_keep, self._manager, self._generation, self._address, self._block)
        keeper = keeper_of(self._lent, self._manager, free)
        if keeper is None:
            raise self._was_closed()
        return keeper

    def _tensor_devices(self) -> tuple[tuple[int, int], ...]:
        return (EXTENSION, self._device), (ASCEND, self._device)

    def __del__(self) -> None:
        if hasattr(self, "_uses"):
            self._leave()

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """Called by NumPy. Without this method, NumPy would make an array that holds this object."""
        raise TypeError(
            "expected memory of the host, got a DeviceBuffer; copy its bytes to an array or a bytearray with "
            "`await stream.download(array, buffer)`"
        )

    @property
    def _exported(self) -> NoReturn:
        """Raises TypeError when code requests the object's buffer; see exporter.h."""
        self.__array__()

    def __repr__(self) -> str:
        return f"<DeviceBuffer of {self._shown_size()}, {self._state()}>"


def _free_or_keep(manager: Manager, generation: int, address: int, block: int) -> None:
    """Gives a block of device memory to the cache, or frees it. A buffer of 0 bytes has no memory."""
    stale = generation != manager.generation
    if address and not stale and not manager.cache.keep_memory(DEVICE_MEMORY, generation, address, block):
        free_device(manager, generation, address)


class _Allocation:
    """Pinned memory, from aclrtMallocHost to aclrtFreeHost."""

    def __init__(self, manager: Manager, address: int, block: int) -> None:
        self._manager = manager
        self._address = address
        self._block = block
        # Gets one item when nothing refers to the memory any more. The call that takes the item frees the memory.
        self._owed: list[bool] = []

    def unreferenced(self) -> None:
        """Called by the finalizer. Nothing refers to the memory any more, so it is kept or freed."""
        self._owed.append(True)
        if self._keep():
            return
        self._manager.deferred.leave_note(self.free)
        if not self._manager.maintenance.running:  # the device is closed, so no thread reads notes
            self.free()

    def _keep(self) -> bool:
        """Gives the memory to the cache. Returns False if it must be freed, or if another thread frees it."""
        if not self._taken():
            return False
        if self._manager.cache.keep_memory(PINNED_MEMORY, 0, self._address, self._block):
            runtime.let_go(self)
            return True
        self._owed.append(True)
        return False

    def _taken(self) -> bool:
        try:
            return self._owed.pop()
        except IndexError:
            return False

    def free(self) -> None:
        """Keeps or frees the memory if nothing refers to it and no other thread frees it.

        After a device fault, the memory is freed only after the next reset.
        """
        manager = self._manager
        if manager.failures.last_fault is not None and manager.admission.state is not State.CLOSED:
            leave_until_reset(manager, self.free)
            return
        if self._keep() or not self._taken():
            return
        if free_pinned(manager, self._address):
            runtime.let_go(self)
            return
        self._owed.append(True)
        leave_until_reset(manager, self.free)


_numbers: Final = count(1)
# By the number that is the value of the owner; it is no address. An entry is removed once nothing refers to the memory.
_allocations: Final[dict[int, _Allocation]] = {}


def _unreferenced(number: CData) -> None:
    if lib.aio_forked() or sys.is_finalizing():
        return
    allocation = _allocations.pop(pointer(number), None)
    if allocation is not None:  # otherwise Ctrl-C has interrupted the making of the buffer
        allocation.unreferenced()


_own: Final = owner(_unreferenced)


def _was_passed(address: int) -> bool:
    """Whether cached memory belongs to a PinnedBuffer. Called if the making of the buffer raised an exception."""
    return any(allocation._address == address for allocation in tuple(_allocations.values()))


class _Bytes:
    """The array of a pinned buffer's bytes: the only object that views of the bytes keep alive."""

    owner: CData  # owns the bytes


@lru_cache(maxsize=256)
def _array_of(size: int) -> Any:
    """The ctypes array type for pinned buffers of that size."""
    return type("PinnedBytes", (_Bytes, ctypes.Array), {"_type_": ctypes.c_ubyte, "_length_": size})


class PinnedBuffer(Buffer, _Exporter):
    """Pinned host memory, made by `device.pinned(nbytes)` (aclrtMallocHost). Copies of any size need no staging memory.

    `numpy.frombuffer(pinned)` works, and `pinned.view` is a memoryview of the bytes. The buffer outlives a reset of its
    device. A closed buffer refuses further copies and views. Closing frees the memory (aclrtFreeHost). If views of the
    buffer exist, the memory is freed when the last view is gone, because a view cannot be invalidated.
    """

    __slots__ = ("_allocation", "_bytes")
    noun = "pinned buffer"
    _memory = 2
    factory = "device.pinned(nbytes)"

    def __init__(self, manager: Manager, generation: int, address: int, size: int, block: int) -> None:
        super().__init__(manager, generation, address, size)
        self._allocation: _Allocation | None = None
        self._bytes: Any = None
        if not size:
            self._bytes = _array_of(0)()
            return
        number = next(_numbers)
        self._allocation = allocation = _Allocation(manager, address, block)
        self._bytes = _array_of(size).from_address(address)
        self._bytes.owner = _own(ffi.cast("char *", number))
        _allocations[number] = allocation  # from here on, the finalizer of the bytes gives the memory back
        runtime.keep(allocation)

    def _be_view(self, base: Buffer, address: int, size: int) -> None:
        super()._be_view(base, address, size)
        self._allocation, self._bytes = None, None

    @property
    def _exported(self) -> object:
        """The object that views of the buffer keep alive; see exporter.h."""
        self._check()
        base = self._base
        whole = (base or self)._bytes
        if whole is None:  # another thread has closed the buffer
            raise self._was_closed()
        if base is None or not base._size:  # a memoryview of 0 bytes cannot be cast
            return whole
        first = self._address - base._address
        return memoryview(whole).cast("B")[first : first + self._size]

    @property
    def view(self) -> memoryview:
        """A writable memoryview of the bytes: `pinned.view[:5] = b"hello"`. Calls no ACL function.

        The memory stays valid while the view exists.

        Raises:
            ParameterError: the buffer is closed.
        """
        whole = memoryview(self)
        if not self._size:  # a memoryview of 0 bytes cannot be cast
            return memoryview(bytearray())
        # ctypes gives single bytes a byte order ("<B"), and a memoryview of that format cannot be indexed.
        return whole.cast("B")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Called by NumPy if it gets no buffer. Without this, NumPy would make an array that holds this object."""
        self._check()
        numpy = import_module("numpy")  # the caller has imported it; aioacl does not need it
        return numpy.array(memoryview(self), dtype=dtype, copy=copy)

    @property
    def stale(self) -> bool:
        """Always False: pinned memory belongs to the host and outlives a reset."""
        return False

    def _keeper(self) -> object:
        return self._exported

    def _tensor_devices(self) -> tuple[tuple[int, int], ...]:
        return ((CPU, 0),)

    def _can_be_freed(self) -> bool:
        return True

    def _give_back(self) -> bool:
        allocation = self._allocation
        if allocation is None or not (self._unused() and self._manager.cache.takes(allocation._block)):
            return False
        if self._claim():
            self._free()
        return True

    def _free(self) -> None:
        """Drops the reference to the bytes; if no view refers to them, they are freed. Runs when no copy uses them."""
        for reference in tuple(self._uses):
            reference.core.release_done()
        self._bytes = None
        if self._allocation is not None:
            self._allocation.free()
            runtime.settle()

    def __del__(self) -> None:
        if hasattr(self, "_bytes") and not lib.aio_forked() and not sys.is_finalizing():
            self._warn_if_open()  # the bytes are freed with this object or with the last view

    def __repr__(self) -> str:
        return f"<PinnedBuffer of {self._shown_size()}, {self._state()}>"


# --- allocating -------------------------------------------------------------------------------------------------------


def make_device(manager: Manager, generation: int, size: int) -> DeviceBuffer:
    """Allocates device memory (aclrtMalloc). Runs on the maintenance thread. 0 bytes need no memory."""

    def allocate(target: CData, whole: int) -> int:
        shown = make_pass(manager.index, generation)
        return lib.aio_g_aclrtMalloc(shown, target, whole, lib.ACL_MEM_MALLOC_HUGE_FIRST)

    address, block = _allocated(manager, generation, size, DEVICE_MEMORY, "aclrtMalloc", allocate)
    return DeviceBuffer._make(manager, generation, address, size, block)


def make_pinned(manager: Manager, generation: int, size: int) -> PinnedBuffer:
    """Allocates pinned memory (aclrtMallocHost). Runs on the maintenance thread. 0 bytes need no memory."""

    def allocate(target: CData, whole: int) -> int:
        return lib.aio_g_aclrtMallocHost(make_pass(manager.index, generation), target, whole)

    address, block = _allocated(manager, generation, size, PINNED_MEMORY, "aclrtMallocHost", allocate)
    return PinnedBuffer._make(manager, generation, address, size, block)


def _allocated(
    manager: Manager, generation: int, size: int, kind: int, call: str, allocate: Callable[[CData, int], int]
) -> tuple[int, int]:
    """Returns the address and the size of new memory. If there is too little, frees the cache and tries again."""
    if not size:
        return 0, 0
    target, block = ffi.new("void **"), manager.cache.block_size(size)
    code = allocate(target, block)
    if is_of(code, Family.OUT_OF_MEMORY) and manager.cache.empty(kind):
        code = allocate(target, block)
    if code:
        raise error_of(code, call, manager.index, generation)
    return pointer(target[0]), block


def discard(buffer: DeviceBuffer | PinnedBuffer) -> None:
    """Closes a buffer that was made for a caller that no longer waits."""
    buffer._closed = True
    buffer._free_once()


bind_maker(DEVICE_MEMORY, DeviceBuffer)
bind_maker(PINNED_MEMORY, PinnedBuffer._make, _was_passed)
