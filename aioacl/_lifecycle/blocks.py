"""The blocks of device memory that aioacl has allocated and not freed.

A reset frees memory only if it releases the device. The device is not released while an explicit context exists: a
context of other code, or one of aioacl's own. Then the memory stays allocated, and aioacl frees it after the next set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aioacl._base.codes import DEVICE_ACTIONS, lookup
from aioacl._base.ffi import ffi, lib, make_pass
from aioacl._library import runtime

if TYPE_CHECKING:
    from aioacl._lifecycle.own_context import OwnContext


class Block(NamedTuple):
    """The bytes of a block, and the number of set-ups of the device when it was allocated."""

    nbytes: int
    setups: int


class DeviceBlocks:
    """The blocks of one device, each with its bytes and the number of set-ups of the device when it was allocated.

    Only the two threads of the device use it, and `free_kept` runs while no call is inside the gate.
    """

    def __init__(self, index: int, own_context: OwnContext) -> None:
        self._index = index
        self._own_context = own_context
        self._blocks: dict[int, Block] = {}

    @property
    def setups(self) -> int:
        """How often the device was set up. Read it before an allocation: a reset may follow before `add`."""
        setups: int = lib.aio_device_setups(self._index)
        return setups

    @property
    def nbytes(self) -> int:
        """The bytes of all blocks. Any thread may read it."""
        return sum(block.nbytes for block in tuple(self._blocks.values()))

    def add(self, address: int, nbytes: int, setups: int) -> None:
        """Called when a block was allocated."""
        self._blocks[address] = Block(nbytes, setups)

    def take(self, address: int) -> Block | None:
        """Called before a block is freed; the result is for `put_back`."""
        return self._blocks.pop(address, None)

    def put_back(self, address: int, taken: Block | None) -> None:
        """Called when a block could not be freed."""
        if taken is not None:
            self._blocks[address] = taken

    @property
    def any(self) -> bool:
        """Whether any block is allocated."""
        return bool(self._blocks)

    def forget(self) -> None:
        """Called when the device is closed."""
        self._blocks.clear()

    def _exists(self, setups: int) -> bool:
        """Whether a block still exists after a set. It does if the device was not set up again since the block.

        Without the callback this is not known, except with a context of aioacl's own, which keeps the device.
        """
        if not runtime.is_told_of_resets():
            return self._own_context.wanted
        return setups == self.setups

    def free_kept(self, foreign_resets: int) -> int:
        """Frees the blocks of earlier generations that still exist, and forgets the others. Returns how many existed.

        To be called after the device was set, on the control thread. If a foreign reset is reported meanwhile, the rest
        is left to the next set.
        """
        kept: list[int] = []
        for address, block in tuple(self._blocks.items()):  # the other thread may put a block back meanwhile
            if self._exists(block.setups):
                kept.append(address)
            else:
                self._blocks.pop(address, None)
        if not kept or lib.aio_helper_count(self._index):
            return len(kept)
        try:
            for address in kept:
                if lib.aio_device_foreign(self._index) != foreign_resets:
                    break
                code = lib.aio_u_aclrtFree(ffi.cast("void *", address))
                if lookup(code).action not in DEVICE_ACTIONS:  # otherwise a later call may free the memory
                    self._blocks.pop(address, None)
        finally:
            lib.aio_leave(make_pass(self._index, 0), lib.AIO_LIFETIME)
        return len(kept)
