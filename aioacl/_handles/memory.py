"""Memory: on the device, and pinned on the host.

A buffer knows the work that uses it. Closing it while copies are under way hands it to the maintenance thread, which
frees it when they are done; a copy that another thread enqueues, and an operation, hand it over when they end.
The right to free is one item of a list: the function that takes it frees, so no memory is freed twice.

Device memory ends with a reset of its device. Pinned memory outlives one: it is the host's. It belongs to a ctypes
array, which the buffer keeps until it is closed, and views for as long as they live: whoever is the last of them gives
it back.
"""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioacl._base.ffi import ffi, lib, make_pass, owner, pointer
from aioacl._base.origin import warn_of_drop
from aioacl._base.states import State
from aioacl._handles.handle import Handle, warn_of_failure
from aioacl._handles.in_flight import UNKNOWN, InFlight, leave_until_reset, wait_for_enqueue
from aioacl._handles.operation import Operation
from aioacl._library import runtime
from aioacl._lifecycle.gate import error_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData
    from aioacl._lifecycle.manager import Manager


class Buffer(Handle):
    """What device and pinned buffers share."""

    __slots__ = ("_address", "_pointer", "_size", "_uses")
    noun = "buffer"

    def __init__(self, manager: Manager, generation: int, address: int, size: int) -> None:
        super().__init__(manager, generation)
        self._address = address
        self._size = size
        self._pointer = ffi.cast("char *", address)
        self._uses: dict[InFlight, None] = {}

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self._size

    @property
    def nbytes(self) -> int:
        """Size in bytes, as arrays call it."""
        return self._size

    @property
    def address(self) -> int:
        """The address, as ACL knows it."""
        return self._address

    def _free(self) -> None:
        raise NotImplementedError

    def _give_back(self) -> None:
        """On the maintenance thread: frees it when nothing uses it any more; once, however often it is called."""
        if self._claim():
            self._free_when_unused()

    def _free_when_unused(self) -> None:
        """Frees now, or leaves that to the end of the first work that still uses it. For the holder of the claim."""
        worker = self._manager.maintenance
        for reference in tuple(self._uses):
            if reference.position == UNKNOWN and wait_for_enqueue(reference, self):
                return
            if reference.core.passed(reference.position):
                continue
            if worker.watch(reference.core.handle, reference.position, self._look_again):
                leave_until_reset(self._manager, self._free_when_unused)
            return
        self._free()

    def _look_again(self, result: int) -> None:
        """On the thread: a wait has ended. If it failed, the copy may still run, until the device is reset."""
        if result >= 0 or self._unused():
            self._free_when_unused()
        else:
            leave_until_reset(self._manager, self._free_when_unused)

    def _unused(self) -> bool:
        return all(reference.core.passed(reference.position) for reference in tuple(self._uses))

    def _closing(self) -> Callable[[], object] | None:
        self._closed = True
        wanted = self._owed and not lib.aio_forked() and self._can_be_freed()
        return self._give_back if wanted else None

    def _can_be_freed(self) -> bool:
        raise NotImplementedError

    def close(self) -> Operation[None]:
        """Frees the memory; copies under way keep it until they are done. Closing twice is no error."""
        return Operation("buffer.close()", self._close, self)

    def _leave(self) -> None:
        """For the finalizer: the maintenance thread frees what nobody closed."""
        if not self._owed or lib.aio_forked() or not self._can_be_freed():
            return
        self._manager.deferred.leave_note(
            self._give_back
        )  # first: where warnings are errors, the next line raises
        try:
            self._warn_if_open()
        finally:
            self._closed = True

    def _warn_if_open(self) -> None:
        if not self._closed:
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
    """Device memory, from `device.allocate(nbytes)` (aclrtMalloc). Its contents are undefined at first.

    The host cannot read it: what asks for its bytes, as an array, `bytes()` or `memoryview()`, raises TypeError.
    """

    __slots__ = ()
    noun = "device buffer"
    factory = "device.allocate(nbytes)"

    def _can_be_freed(self) -> bool:
        return not self.stale

    def _free(self) -> None:
        manager = self._manager
        if (
            self.stale or manager.failures.last_fault is not None
        ):  # after a fault, handles are left to the reset
            return
        shown = make_pass(manager.index, self._generation)
        code = lib.aio_g_aclrtFree(shown, self._pointer)
        if code > 0 and not manager.admission.found_reset(self._generation, code):
            warn_of_failure(manager, "aclrtFree", code, "the memory")

    def __del__(self) -> None:
        if hasattr(self, "_uses"):
            self._leave()

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """For NumPy, which would make an array of one object of it."""
        raise TypeError(
            "expected memory of the host, got a DeviceBuffer; copy its bytes to an array or a bytearray with "
            "`await stream.download(array, buffer)`"
        )

    @property
    def _exported(self) -> NoReturn:
        """For what asks for its buffer; see exporter.h."""
        self.__array__()

    def __repr__(self) -> str:
        return f"<DeviceBuffer of {self._size} bytes, {self._state()}>"


class _Allocation:
    """Pinned memory on its way back."""

    def __init__(self, manager: Manager, address: int) -> None:
        self._manager = manager
        self._pointer = ffi.cast("char *", address)
        self._owed: list[bool] = []  # one when nobody refers to it; whoever takes that gives it back
        runtime.keep(self)

    def unheld(self) -> None:
        """For the finalizer: the maintenance thread gives back what nobody refers to."""
        self._owed.append(True)
        self._manager.deferred.leave_note(self.give_back)
        if not self._manager.maintenance.running:  # the device is closed, and nobody reads notes
            self.give_back()

    def give_back(self) -> None:
        """Gives it back, if nobody refers to it and nobody else is about to; after a fault, not before the reset."""
        manager = self._manager
        if manager.failures.last_fault is not None and manager.admission.state is not State.CLOSED:
            leave_until_reset(manager, self.give_back)
            return
        try:
            self._owed.pop()
        except IndexError:
            return
        # It needs no device, but a reset must not run beside it: so it passes the gate while there is one.
        shown = make_pass(manager.index, manager.generation)
        code = lib.aio_g_aclrtFreeHost(shown, self._pointer)
        if code < 0 and manager.admission.state is State.CLOSED:
            code = lib.aio_u_aclrtFreeHost(self._pointer)
        if code < 0:
            self._owed.append(True)
            leave_until_reset(manager, self.give_back)
            return
        runtime.let_go(self)
        if code:
            warn_of_failure(manager, "aclrtFreeHost", code, "the memory")


_allocations: Final[dict[int, _Allocation]] = {}  # by address; what nobody refers to any more has left


def _unheld(address: CData) -> None:
    if not lib.aio_forked() and not sys.is_finalizing():
        _allocations.pop(pointer(address)).unheld()


_own: Final = owner(_unheld)


class _Bytes:
    """The array of a pinned buffer's bytes: the one object that views of them keep alive."""

    address: CData  # which owns them


@lru_cache(maxsize=256)
def _array_of(size: int) -> Any:
    """The type of the bytes of pinned buffers of that size."""
    return type("PinnedBytes", (_Bytes, ctypes.Array), {"_type_": ctypes.c_ubyte, "_length_": size})


class PinnedBuffer(Buffer, _Exporter):
    """Pinned host memory, from `device.pinned(nbytes)` (aclrtMallocHost): copies of any size, without staging.

    It has the buffer protocol, `numpy.frombuffer(pinned)` for instance, and its bytes are in `pinned.view`. It outlives
    a reset of its device. Closing it refuses further copies and views, and gives the memory back; while there is a view
    of it, an array of numpy's for instance, that waits for the last one, for a view cannot be told that its memory is
    gone.
    """

    __slots__ = ("_allocation", "_bytes")
    noun = "pinned buffer"
    factory = "device.pinned(nbytes)"

    def __init__(self, manager: Manager, generation: int, address: int, size: int) -> None:
        super().__init__(manager, generation, address, size)
        self._allocation = _Allocation(manager, address)
        self._bytes: Any = _array_of(size).from_address(address)
        _allocations[address] = self._allocation
        self._bytes.address = _own(ffi.cast("char *", address))

    @property
    def _exported(self) -> object:
        """What a view of it holds; see exporter.h."""
        self._check()
        return self._bytes

    @property
    def view(self) -> memoryview:
        """Its bytes, to read, slice and assign: `pinned.view[:5] = b"hello"`."""
        # ctypes names the byte order of single bytes ("<B"), and a memoryview refuses to index those.
        return memoryview(self).cast("B")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """For NumPy, which asks for it when there is no buffer to be had, and would make an array of one object."""
        self._check()
        numpy = import_module("numpy")  # the caller's: nothing of aioacl needs it
        return numpy.array(memoryview(self), dtype=dtype, copy=copy)

    @property
    def stale(self) -> bool:
        """False: pinned memory is the host's, and outlives a reset."""
        return False

    def _can_be_freed(self) -> bool:
        return True

    def _free(self) -> None:
        """No copy uses it any more: the streams let go of it, and so does it of its bytes. Without a view they go."""
        for reference in tuple(self._uses):
            reference.core.release_done()
        self._bytes = None
        self._allocation.give_back()
        runtime.settle()

    def __del__(self) -> None:
        if hasattr(self, "_bytes") and not lib.aio_forked() and not sys.is_finalizing():
            self._warn_if_open()  # its bytes go with it, or with the last view

    def __repr__(self) -> str:
        return f"<PinnedBuffer of {self._size} bytes, {self._state()}>"


# --- making and freeing, on the maintenance thread -----------------------------------------------------------------


def make_device(manager: Manager, generation: int, size: int) -> DeviceBuffer:
    """Allocates device memory."""
    target = ffi.new("void **")
    shown = make_pass(manager.index, generation)
    code = lib.aio_g_aclrtMalloc(shown, target, size, lib.ACL_MEM_MALLOC_HUGE_FIRST)
    if code:
        raise error_of(code, "aclrtMalloc", manager.index, generation)
    return DeviceBuffer._make(manager, generation, pointer(target[0]), size)


def make_pinned(manager: Manager, generation: int, size: int) -> PinnedBuffer:
    """Allocates pinned memory."""
    target = ffi.new("void **")
    code = lib.aio_g_aclrtMallocHost(make_pass(manager.index, generation), target, size)
    if code:
        raise error_of(code, "aclrtMallocHost", manager.index, generation)
    return PinnedBuffer._make(manager, generation, pointer(target[0]), size)


def discard(buffer: DeviceBuffer | PinnedBuffer) -> None:
    """Frees what was made for a caller that has left, unless its finalizer does."""
    buffer._closed = True
    buffer._give_back()
