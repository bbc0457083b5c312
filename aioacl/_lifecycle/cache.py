"""The cache of a device: closed memory and streams that later requests use again.

A handle gives its memory or stream to the cache when no work uses it any more. The next request of the same size class
takes it, without a call of ACL and without another thread. aioacl/_binding/cache_lists.c keeps the lists.

Memory also comes from finalizers, and from code that an exception of a signal handler has interrupted. If the cache
does not take it, it is *left*: the maintenance thread frees it, or the end of the running reset or close.

The cache holds native objects without a Python handle, so the leak checks count them apart. If the items of a kind
exceed their limit, the maintenance thread frees those that were given first. All items of a kind are freed if an
allocation fails for lack of memory. A reset and the last close free everything.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import Cache, Core, ffi, lib, make_pass
from aioacl._base.states import State
from aioacl._lifecycle.failures import warn_of_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import HandleBase
    from aioacl._lifecycle.manager import Manager

STREAMS: Final = 0  # the kinds of items, as in cache.c
DEVICE_MEMORY: Final = 1
PINNED_MEMORY: Final = 2
# The limits: the number of streams, and the bytes of each kind of memory.
MOST: Final = {STREAMS: 256, DEVICE_MEMORY: 256 << 20, PINNED_MEMORY: 256 << 20}
# What destroys a stream that was left; aioacl/_handles/stream.py adds it.
DESTROY: Final[list[Callable[[Any], object]]] = []
NAMES: Final = {DEVICE_MEMORY: "device_blocks", PINNED_MEMORY: "host_blocks", STREAMS: "streams"}


def free_device(manager: Manager, generation: int, address: int) -> None:
    """Frees device memory (aclrtFree).

    After a reset or a fault it does nothing, because a reset frees the memory.
    """
    if generation != manager.generation or manager.failures.last_fault is not None:
        return
    taken = manager.blocks.take(address)
    code = lib.aio_g_aclrtFree(make_pass(manager.index, generation), ffi.cast("void *", address))
    if code:
        manager.blocks.put_back(address, taken)
    if code > 0 and not manager.admission.found_reset(generation, code):
        warn_of_failure(manager, "aclrtFree", code, "the memory")


class HandleCache(Cache):
    """The closed memory and streams of one device that later requests use again.

    Attributes:
        enabled: whether handles give anything to the cache: no open of the device forbids it.
    """

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager.index, manager.failures, manager.admission.leases, MOST, manager.maintenance)
        self._manager = manager
        self._forbidden: dict[object, None] = {}  # by the opens that forbid it

    def forbid(self, user: object) -> None:
        """Switches the cache off until `allow` is called for the same open, and frees what is kept."""
        self._forbidden[user] = None
        self.enabled = False
        if any(self.counts):
            self._manager.deferred.leave_note(self.empty)

    def allow(self, user: object) -> None:
        """Ends `forbid`, if it was called for this open. The cache is on again if no other open forbids it."""
        self._forbidden.pop(user, None)
        self.enabled = not self._forbidden

    def takes(self, block: int) -> bool:
        """Whether the cache takes a block of this size now. It takes only blocks of the whole size of a class."""
        return self.accepts and self.fits(block)

    def keep_memory(self, generation: int, address: int, block: int) -> bool:
        """Keeps a block of device memory that nothing uses any more. Returns False if the caller has to free it."""
        return self.accepts and self.give(generation, address, block) and self._kept(DEVICE_MEMORY)

    def keep_buffer(self, buffer: HandleBase) -> bool:
        """Keeps the memory of a closed device buffer that no work uses.

        Returns False if the caller has to free it, or if DLPack tensors refer to it.
        """
        return self.accepts and self.give_buffer(buffer) and self._kept(DEVICE_MEMORY)

    def keep_idle(self, stream: HandleBase, ended: object) -> bool:
        """Keeps the record of a closed stream, if its work has succeeded and no other object needs the record.

        `ended` takes the place of the stream's StreamCore.
        """
        return self.accepts and self.give_idle(stream, ended) and self._kept(STREAMS)

    def end_stream(self, core: Core) -> int:
        """Ends the record of a stream that may be used again, if the stream is idle, and keeps the native stream.

        Returns the code of aio_stream_release.
        """
        code = self.release(core)
        self._kept(STREAMS)
        return code

    def _kept(self, kind: int) -> bool:
        if self._exceeds(kind):
            self._manager.deferred.leave_note(self._trim)
        return True

    def _exceeds(self, kind: int) -> bool:
        return (self.counts if kind == STREAMS else self.sizes)[kind] > MOST[kind]

    def _trim(self) -> None:
        """Frees what was given first, down to the limits. Runs on the maintenance thread."""
        for kind in NAMES:
            while self._exceeds(kind) and self._free_oldest(kind):
                pass

    def empty(self, *kinds: int) -> int:
        """Frees all items of the kinds, or of all kinds, and returns their number.

        Runs on the maintenance thread, or on the control thread after a reset or close.
        """
        freed = 0
        for kind in kinds or NAMES:
            while self._free_oldest(kind):
                freed += 1
        return freed

    def _free_oldest(self, kind: int) -> bool:
        """Frees the item of the kind that was given first. Returns False if there is none."""
        manager, generation, found = self._manager, self._manager.generation, self.oldest(kind)
        if found is None:
            return False
        if kind == STREAMS:
            found.dispose()
        elif kind == DEVICE_MEMORY:
            free_device(manager, generation, found)
        else:
            self.warn_of_free(found)
        return True

    def keep_or_free(self, generation: int, address: int, block: int) -> None:
        """Keeps or frees a block of device memory. A buffer of 0 bytes has none, and a reset frees stale memory."""
        stale = generation != self._manager.generation
        if address and not stale and not self.keep_memory(generation, address, block):
            free_device(self._manager, generation, address)

    # --- what was left ---------------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Frees what was left, and what exceeds the limits. Runs on the maintenance thread."""
        self.free_left()
        self._trim()

    def free_left(self) -> None:
        """Frees what was left, all of it even if a warning is raised as an exception.

        Runs on the maintenance thread, or on the control thread after a reset or close. After a device fault it frees
        nothing, until a reset or close has ended it.
        """
        manager = self._manager
        if manager.failures.last_fault is not None and manager.admission.state is not State.CLOSED:
            return
        with ExitStack() as steps:
            for _ in range(self.left):
                steps.callback(self._free_first_left)

    def _free_first_left(self) -> None:
        found: Any = self.end_left()
        if isinstance(found, int):
            self.warn_of_free(found)
        elif isinstance(found, Core):
            self._destroy(found)
        elif found is not None:
            self.keep_or_free(*found)

    @staticmethod
    def _destroy(core: Any) -> None:
        if not core.stale:
            for destroy in DESTROY:
                destroy(core)

    def warn_of_free(self, code: int) -> None:
        """Emits an AclWarning if this is a failure of aclrtFreeHost. A negative code is a refusal during a reset."""
        if code > 0:
            warn_of_failure(self._manager, "aclrtFreeHost", code, "the memory")
