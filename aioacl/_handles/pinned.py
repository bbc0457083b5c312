"""Pinned host memory.

Pinned memory belongs to the host and outlives a reset. A ctypes array owns the memory. The buffer refers to the array
until the buffer is closed, and each view and DLPack tensor refers to the array while it exists. When the last of these
references is gone, the cache takes the memory, or it is freed. No memory is freed twice: the list `_owed` of an
allocation has only one item to take.
"""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import bind_maker, ffi, lib, make_pass, owner, pointer
from aioacl._base.states import State
from aioacl._handles.dlpack import CPU
from aioacl._handles.in_flight import leave_until_reset
from aioacl._handles.memory import Buffer, allocated, exporter
from aioacl._library import runtime
from aioacl._lifecycle.cache import PINNED_MEMORY, free_pinned

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._lifecycle.manager import Manager

    class _Exporter:
        def __buffer__(self, flags: int, /) -> memoryview: ...
else:
    _Exporter = exporter


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
    _noun = "pinned buffer"
    _memory = 2
    _factory = "device.pinned(nbytes)"

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


def make_pinned(manager: Manager, generation: int, size: int) -> PinnedBuffer:
    """Allocates pinned memory (aclrtMallocHost). Runs on the maintenance thread. 0 bytes need no memory."""

    def allocate(target: CData, whole: int) -> int:
        return lib.aio_g_aclrtMallocHost(make_pass(manager.index, generation), target, whole)

    address, block = allocated(manager, generation, size, PINNED_MEMORY, "aclrtMallocHost", allocate)
    return PinnedBuffer._make(manager, generation, address, size, block)


bind_maker(PINNED_MEMORY, PinnedBuffer._make, _was_passed)
