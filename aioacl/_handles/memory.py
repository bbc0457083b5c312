"""Device memory, and the base of all buffers.

A slice of a buffer is a view: a buffer object without memory of its own. It shares the Uses with its buffer, so
work that uses a view counts as a use of the buffer, and it is closed when its buffer is closed.

A buffer has references to the work that uses it. If the buffer is closed while copies run, the maintenance thread gives
its memory back when the copies are done: to the cache of the device, or to the runtime. If another thread is enqueueing
a copy when the buffer is closed, the end of the enqueue passes the buffer to the maintenance thread. The end of an
upload or download does so too. No memory is given back twice, because `_claim` returns True only once.

A reset frees the memory of its device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from aioacl._base.codes import Family, is_of
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import Exporter, Uses, bind_maker, ffi, lib, make_pass, pointer
from aioacl._base.origin import warn_of_drop
from aioacl._base.public import publish
from aioacl._handles.dlpack import ASCEND, EXTENSION, Exportable
from aioacl._handles.in_flight import UNKNOWN, leave_until_reset, wait_for_enqueue
from aioacl._handles.operation import Operation
from aioacl._handles.slices import bounds_of
from aioacl._lifecycle.cache import DEVICE_MEMORY
from aioacl._lifecycle.gate import error_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from aioacl._base.ffi import CData
    from aioacl._lifecycle.manager import Manager


class Buffer(Exportable):
    """The base of DeviceBuffer and PinnedBuffer."""

    __slots__ = ()
    _noun = "buffer"
    _memory = 0  # enum memory_kind of aioacl/_binding/binding.h

    def __init__(self, manager: Manager, generation: int, address: int, size: int) -> None:
        self._be_at(manager, generation, address, size)
        self._uses = Uses()

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
                f"expected a copy to the {self._noun}, got an assignment; use stream.copy(buffer[start:stop], data), "
                "or the `view` of a PinnedBuffer"
            )

        def __delitem__(self, _: object) -> NoReturn:
            raise TypeError(
                f"expected a {self._noun} of a fixed size, got a deletion of a part; call close() to free the whole "
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
                f"expected a {self._noun} to close, got a view of one; use the view without `{keyword}`"
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
                leave_until_reset(self._manager, self._free_when_unused, self._unused)
            return
        self._free()

    def _check_again(self, result: int) -> None:
        """Runs on the maintenance thread when a wait has ended.

        If the wait failed, the copy may still run, until the next reset.
        """
        if result >= 0 or self._unused():
            self._free_when_unused()
        else:
            leave_until_reset(self._manager, self._free_when_unused, self._unused)

    def _unused(self) -> bool:
        uses = self._uses
        return not uses or all(reference.core.passed(reference.position) for reference in uses)

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
                f"expected a {self._noun}, got a view of one",
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
                f"a {self._noun} of {self._size} bytes was not closed: close it, or make it with `async with`",
                depth=5,
            )


if TYPE_CHECKING:

    class _Refuser: ...
else:
    _Refuser = Exporter


class DeviceBuffer(Buffer, _Refuser):
    """Device memory, made by `device.allocate(nbytes)` (aclrtMalloc). Its contents are undefined at first.

    The host cannot read the memory: `bytes()`, `memoryview()` and `numpy.array()` of a DeviceBuffer raise TypeError.
    Copy the memory with `stream.copy` or `stream.download`.
    """

    __slots__ = ()
    _noun = "device buffer"
    _memory = 1
    _factory = "device.allocate(nbytes)"

    def __init__(self, manager: Manager, generation: int, address: int, size: int, block: int) -> None:
        super().__init__(manager, generation, address, size)
        self._block = block

    def _can_be_freed(self) -> bool:
        return not self.stale

    def _give_back(self) -> bool:
        if not self._address:
            return self._claim() or True
        return self._unused() and self._manager.cache.keep_buffer(self)

    def _free(self) -> None:
        if self._bytes is None:
            self._manager.cache.keep_or_free(self._generation, self._address, self._block)
        else:  # DLPack tensors may refer to the memory
            del self._bytes
            self._manager.cache.free_left()

    def _keeper(self) -> object:
        keeper = self._manager.cache.lend(self)
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
        """Raises TypeError when code requests the object's buffer; see exporter.c."""
        self.__array__()

    def __repr__(self) -> str:
        return f"<DeviceBuffer of {self._shown_size()}, {self._state()}>"


# --- allocating -------------------------------------------------------------------------------------------------------


def make_device(manager: Manager, generation: int, size: int) -> DeviceBuffer:
    """Allocates device memory (aclrtMalloc). Runs on the maintenance thread. 0 bytes need no memory."""
    target: CData = ffi.new("void **")

    def allocate() -> int:
        shown = make_pass(manager.index, generation)
        return lib.aio_g_aclrtMalloc(shown, target, block, lib.ACL_MEM_MALLOC_HUGE_FIRST)

    block = manager.cache.block_size(size) if size else 0
    if size:
        setups = manager.blocks.setups
        must_allocate(manager, generation, DEVICE_MEMORY, "aclrtMalloc", allocate)
        manager.blocks.add(pointer(target[0]), block, setups)
    return DeviceBuffer._make(manager, generation, pointer(target[0]), size, block)


def must_allocate(
    manager: Manager, generation: int, kind: int, call: str, allocate: Callable[[], int]
) -> None:
    """Allocates memory. If there is too little, frees the cache and tries again. Raises the error of the last try."""
    code = allocate()
    if is_of(code, Family.OUT_OF_MEMORY) and manager.cache.empty(kind):
        code = allocate()
    if code:
        raise error_of(code, call, manager.index, generation)


def discard(buffer: Buffer) -> None:
    """Closes a buffer that was made for a caller that no longer waits."""
    buffer._closed = True
    buffer._free_once()


bind_maker(DEVICE_MEMORY, DeviceBuffer)


publish("aioacl", ["DeviceBuffer"], of=__name__)
