"""The cache of a device: closed memory and streams that later requests use again.

A handle gives its memory or stream to the cache when no work uses it any more. The next request of the same size class
takes it, without a call of ACL and without another thread. aioacl/_binding/cache.c keeps the lists.

The cache holds native objects without a Python handle, so the leak checks count them apart. If the items of a kind
exceed their limit, the maintenance thread frees those that were given first. All items of a kind are freed if an
allocation fails for lack of memory. A reset and the last close free everything.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final, Protocol

from aioacl._base.codes import DEVICE_ACTIONS
from aioacl._base.errors import AclError, AclWarning, DeviceFault
from aioacl._base.ffi import Cache, ffi, lib, make_pass
from aioacl._base.states import State
from aioacl._library.runtime import is_told_of_resets
from aioacl._lifecycle.gate import error_of

if TYPE_CHECKING:
    from aioacl._base.ffi import Core, HandleBase
    from aioacl._lifecycle.admission import Admission
    from aioacl._lifecycle.deferred import Deferred
    from aioacl._lifecycle.failures import Failures
    from aioacl._wait.workers import WorkerThread

STREAMS: Final = 0  # the kinds of items, as in cache.c
DEVICE_MEMORY: Final = 1
PINNED_MEMORY: Final = 2
MOST_STREAMS: Final = 256
MOST_BYTES: Final = {DEVICE_MEMORY: 256 << 20, PINNED_MEMORY: 256 << 20}
LARGEST: Final = 64 << 20  # the largest block that is kept; see cache.c
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


def concerns_device(error: AclError) -> bool:
    """Returns True for a fault of the device, which only a reset ends; False for the failure of one task."""
    return isinstance(error, DeviceFault) and error.action in DEVICE_ACTIONS


def warn_of_failure(host: Host, call: str, code: int, what: str) -> None:
    """Emits an AclWarning for a failed clean-up, because no caller can get an exception. Stores a device fault."""
    error = error_of(code, call, host.index, host.generation)
    # Without the maintenance thread, a finalizer may run this function on a thread that holds the lock.
    if concerns_device(error) and host.maintenance.running:
        host.failures.note_fault(error)
    sentence = f"{call} returned {code} on device {host.index}: {what} is not freed until a reset"
    warnings.warn(sentence, AclWarning, stacklevel=3)


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
    def usable(self) -> bool:
        """Whether memory and streams may be given and taken. After a device fault, the reset frees the objects."""
        return self._host.failures.last_fault is None

    @property
    def accepts(self) -> bool:
        """Whether the cache takes memory and streams now.

        If the library does not report resets by other code, it takes nothing, because a request could not notice that
        such a reset has ended what was kept.
        """
        return self.enabled and self.usable and self._host.maintenance.running and is_told_of_resets()

    def takes(self, block: int) -> bool:
        """Whether the cache takes a block of this size now. It takes only blocks of the whole size of a class."""
        return 0 < block <= LARGEST and self.accepts and self.block_size(block) == block

    def keep_buffer(self, buffer: HandleBase) -> bool:
        """Keeps the memory of a closed device buffer that no work uses.

        Returns False if the caller has to free it, or if DLPack tensors refer to it.
        """
        return self.accepts and self.give_buffer(buffer) and self._kept(DEVICE_MEMORY)

    def _kept(self, kind: int) -> bool:
        if self.sizes[kind] > MOST_BYTES[kind]:
            self._host.deferred.leave_note(self._trim)
        return True

    def keep_memory(self, kind: int, generation: int, address: int, block: int) -> bool:
        """Keeps a block of memory that nothing uses any more. Returns False if the caller has to free it.

        Finalizers may call it: it takes no lock.
        """
        return self.accepts and self.give(kind, generation, address, block) and self._kept(kind)

    def keep_idle(self, stream: HandleBase, ended: object) -> bool:
        """Keeps the record of a closed stream, if its work has succeeded and no other object needs the record.

        `ended` takes the place of the stream's StreamCore.
        """
        if not (self.accepts and self.give_idle(stream, ended)):
            return False
        if self.counts[STREAMS] > MOST_STREAMS:
            self._host.deferred.leave_note(self._trim)
        return True

    def keep_stream(self, generation: int, priority: int, core: Core) -> bool:
        """Keeps an idle native stream. Returns False if the caller has to destroy it."""
        if not self.give_stream(generation, priority, core):
            return False
        if self.counts[STREAMS] > MOST_STREAMS:
            self._host.deferred.leave_note(self._trim)
        return True

    def _trim(self) -> None:
        """Frees what was given first, down to the limits. Runs on the maintenance thread."""
        for kind, most in MOST_BYTES.items():
            while self.sizes[kind] > most and self._free_oldest(kind):
                pass
        while self.counts[STREAMS] > MOST_STREAMS and self._free_oldest(STREAMS):
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
