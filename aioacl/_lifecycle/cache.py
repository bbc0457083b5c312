"""The cache of a device: closed memory and streams that later requests use again.

A handle gives its memory or stream to the cache when no work uses it any more. The next request of the same size class
takes it, without a call of ACL and without another thread. aioacl/_binding/cache.c keeps the lists.

The cache holds native objects without a Python handle, so the leak checks count them apart. If the items of a kind
exceed their limit, the maintenance thread frees those that were given first. All items of a kind are freed if an
allocation fails for lack of memory. A reset and the last close free everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from aioacl._base.ffi import Cache, ffi, lib, make_pass
from aioacl._base.states import State
from aioacl._library.runtime import is_told_of_resets
from aioacl._lifecycle.failures import warn_of_failure

if TYPE_CHECKING:
    from aioacl._base.ffi import Core, HandleBase
    from aioacl._lifecycle.admission import Admission
    from aioacl._lifecycle.deferred import Deferred
    from aioacl._lifecycle.failures import Failures
    from aioacl._wait.workers import WorkerThread

STREAMS: Final = 0  # the kinds of items, as in cache.c
DEVICE_MEMORY: Final = 1
PINNED_MEMORY: Final = 2
# The limits: the number of streams, and the bytes of each kind of memory.
MOST: Final = {STREAMS: 256, DEVICE_MEMORY: 256 << 20, PINNED_MEMORY: 256 << 20}
NAMES: Final = {DEVICE_MEMORY: "device_blocks", PINNED_MEMORY: "host_blocks", STREAMS: "streams"}


class Host(Protocol):
    """The parts of a device's manager that the cache uses."""

    index: int
    admission: Admission
    deferred: Deferred
    failures: Failures
    maintenance: WorkerThread

    @property
    def generation(self) -> int:
        """The generation in the gate."""
        ...


def free_device(host: Host, generation: int, address: int) -> None:
    """Frees device memory (aclrtFree).

    After a reset or a fault it does nothing, because a reset frees the memory.
    """
    if generation != host.generation or host.failures.last_fault is not None:
        return
    code = lib.aio_g_aclrtFree(make_pass(host.index, generation), ffi.cast("void *", address))
    if code > 0 and not host.admission.found_reset(generation, code):
        warn_of_failure(host, "aclrtFree", code, "the memory")


def free_pinned(host: Host, address: int) -> bool:
    """Frees pinned memory (aclrtFreeHost). Returns False if it can be freed only after the next reset."""
    # The call needs no device, but must not run during a reset. Therefore it passes the gate while the device is open.
    memory, shown = ffi.cast("void *", address), make_pass(host.index, host.generation)
    code = lib.aio_g_aclrtFreeHost(shown, memory)
    if code < 0 and host.admission.state is State.CLOSED:
        code = lib.aio_u_aclrtFreeHost(memory)
    if code > 0:
        warn_of_failure(host, "aclrtFreeHost", code, "the memory")
    return code >= 0


class HandleCache(Cache):
    """The closed memory and streams of one device that later requests use again.

    Attributes:
        enabled: whether handles give anything to the cache: no open of the device forbids it.
    """

    def __init__(self, host: Host) -> None:
        super().__init__(host.index, host.failures, host.admission.leases)
        self._host = host
        self._forbidden: dict[object, None] = {}  # by the opens that forbid it

    def forbid(self, user: object) -> None:
        """Switches the cache off until `allow` is called for the same open, and frees what is kept."""
        self._forbidden[user] = None
        self.enabled = False
        if any(self.counts):
            self._host.deferred.leave_note(self.empty)

    def allow(self, user: object) -> None:
        """Ends `forbid`, if it was called for this open. The cache is on again if no other open forbids it."""
        self._forbidden.pop(user, None)
        self.enabled = not self._forbidden

    @property
    def accepts(self) -> bool:
        """Whether the cache takes memory and streams now.

        After a device fault, the reset frees the objects. If the library does not report resets by other code, a
        request could not notice that such a reset has ended what was kept.
        """
        host = self._host
        usable = host.failures.last_fault is None and host.maintenance.running
        return self.enabled and usable and is_told_of_resets()

    def takes(self, block: int) -> bool:
        """Whether the cache takes a block of this size now. It takes only blocks of the whole size of a class."""
        return self.accepts and self.fits(block)

    def keep_memory(self, kind: int, generation: int, address: int, block: int) -> bool:
        """Keeps a block of memory that nothing uses any more. Returns False if the caller has to free it.

        Finalizers may call it: it takes no lock.
        """
        return self.accepts and self.give(kind, generation, address, block) and self._kept(kind)

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
            self._host.deferred.leave_note(self._trim)
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
        host, generation, found = self._host, self._host.generation, self.oldest(kind)
        if found is None:
            return False
        if kind == STREAMS:
            found.dispose()
        elif kind == DEVICE_MEMORY:
            free_device(host, generation, found)
        elif not free_pinned(host, found):  # a reset is in progress
            host.deferred.leftovers.append(lambda: free_pinned(host, found))
        return True
