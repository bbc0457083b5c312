"""Pinned host memory.

Pinned memory belongs to the host and outlives a reset. A Keeper owns the memory; see aioacl/_binding/keeper.c. The
buffer refers to the Keeper until the buffer is closed, and each view and DLPack tensor refers to it while it exists.
When the last of these references is gone, the cache takes the memory, or it is freed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aioacl._base.ffi import Exporter, Keeper, bind_maker, lib
from aioacl._base.public import publish
from aioacl._base.states import State
from aioacl._handles.dlpack import CPU
from aioacl._handles.memory import Buffer, must_allocate
from aioacl._library import runtime
from aioacl._lifecycle.cache import PINNED_MEMORY

if TYPE_CHECKING:
    from aioacl._lifecycle.manager import Manager

    class _Exporter:
        def __buffer__(self, flags: int, /) -> memoryview: ...
else:
    _Exporter = Exporter


class PinnedBuffer(Buffer, _Exporter):
    """Pinned host memory, made by `device.pinned(nbytes)` (aclrtMallocHost). Copies of any size need no staging memory.

    `numpy.frombuffer(pinned)` works, and `pinned.view` is a memoryview of the bytes. The buffer outlives a reset of its
    device. A closed buffer refuses further copies and views. Closing frees the memory (aclrtFreeHost). If views of the
    buffer exist, the memory is freed when the last view is gone, because a view cannot be invalidated.
    """

    __slots__ = ()
    _noun = "pinned buffer"
    _memory = 2
    _factory = "device.pinned(nbytes)"

    def __init__(self, manager: Manager, generation: int, size: int, block: int, keeper: Keeper) -> None:
        super().__init__(manager, generation, keeper.address, size)
        self._block = block
        self._bytes = keeper

    @property
    def _exported(self) -> object:
        """The object that views of the buffer keep alive; see exporter.c."""
        self._check()
        base = self._base
        whole = (base or self)._bytes
        if whole is None:  # another thread has closed the buffer
            raise self._was_closed()
        if base is None:
            return whole
        first = self._address - base._address
        return memoryview(whole)[first : first + self._size]

    @property
    def view(self) -> memoryview:
        """A writable memoryview of the bytes: `pinned.view[:5] = b"hello"`. Calls no ACL function.

        The memory stays valid while the view exists.

        Raises:
            ParameterError: the buffer is closed.
        """
        return memoryview(self)

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
        if not (self._unused() and self._manager.cache.takes(self._block)):
            return False
        if self._claim():
            self._drop_bytes()
        return True

    def _drop_bytes(self) -> None:
        """Drops the reference to the bytes; if no view refers to them, the cache gets them."""
        for reference in tuple(self._uses):
            reference.core.release_done()
        del self._bytes

    def _leave_open(self) -> None:
        super()._leave_open()
        if self._manager.admission.state is State.CLOSED and self._claim():  # no thread reads the note
            self._drop_bytes()

    def _free(self) -> None:
        """Frees the memory, unless a view refers to it. Runs when no copy uses the memory."""
        self._drop_bytes()
        self._manager.cache.free_left()
        runtime.settle()

    def __del__(self) -> None:
        if self._bytes is not None and not lib.aio_forked() and not sys.is_finalizing():
            self._warn_if_open()  # the bytes are freed with this object or with the last view

    def __repr__(self) -> str:
        return f"<PinnedBuffer of {self._shown_size()}, {self._state()}>"


def make_pinned(manager: Manager, generation: int, size: int) -> PinnedBuffer:
    """Allocates pinned memory (aclrtMallocHost). Runs on the maintenance thread. 0 bytes need no memory."""
    made: list[Keeper] = []

    def allocate() -> int:
        answer = manager.cache.allocate_pinned(generation, size, block)
        if isinstance(answer, int):
            return answer
        made.append(answer)
        return 0

    block = manager.cache.block_size(size)
    must_allocate(manager, generation, PINNED_MEMORY, "aclrtMallocHost", allocate)
    return PinnedBuffer._make(manager, generation, size, block, made.pop())


bind_maker(PINNED_MEMORY, PinnedBuffer)


publish("aioacl", ["PinnedBuffer"], of=__name__)
