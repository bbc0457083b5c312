"""What tickets, events and buffers know of a stream: the engine's record of it, and its limbo.

*Limbo* holds the objects that the device still uses, from before they are enqueued: between the call in C and the next
line a Ctrl-C may come. An object leaves it when the copy that needs it is known to be
done, whoever awaited that or stopped to; it is swept by every wait that ends and by enqueues past a bound.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aioacl import _sync
from aioacl._errors import DeviceTimeout
from aioacl._ffi import PENDING, code_of, ffi, lib, make_pass, owner
from aioacl._handle import error_on, warn_of_failure
from aioacl._law import State
from aioacl._port import TIMED_OUT, current_port
from aioacl._runtime import must_not_be_forked

if TYPE_CHECKING:
    from aioacl._acl import CData
    from aioacl._lifecycle import Manager

LIMBO_BOUND: Final = 64
UNKNOWN: Final = 1 << 62  # the position of what is being enqueued
TEXT_BYTES: Final = 8192


_own: Final = owner(lib.aio_stream_drop)


class Kept:
    """Objects that a piece of work uses, and its position."""

    __slots__ = ("held", "position")

    def __init__(self, held: tuple[object, ...]) -> None:
        self.held = held
        self.position = UNKNOWN


class StreamCore:
    """The engine's record of a stream, and what its unfinished work needs."""

    __slots__ = ("__weakref__", "_lock", "generation", "handle", "limbo", "manager", "native")

    def __init__(self, manager: Manager, generation: int, native: CData) -> None:
        record = lib.aio_stream_new(make_pass(manager.index, generation), native)
        if not record:
            raise MemoryError
        self.handle = _own(record)
        self.native = native
        self.manager = manager
        self.generation = generation
        self.limbo: deque[Kept] = deque()
        self._lock = _sync.lock()  # of the limbo
        manager.adopt(self)

    @property
    def stale(self) -> bool:
        """Whether its device was reset since."""
        return self.generation != self.manager.generation

    def passed(self, position: int) -> bool:
        """Whether the device is done with what was enqueued up to the position."""
        return self.stale or lib.aio_stream_completed(self.handle) >= position

    def keep(self, kept: Kept) -> None:
        """Holds objects until the position is done that they get when they are enqueued."""
        with self._lock:
            self.limbo.append(kept)
            many = len(self.limbo) > LIMBO_BOUND
        if many and (oldest := self.oldest()):
            lib.aio_stream_query(self.handle, oldest)
            self.sweep()

    def forget(self, kept: Kept) -> None:
        """They were not enqueued."""
        with self._lock, suppress(ValueError):
            self.limbo.remove(kept)

    def sweep(self) -> None:
        """Lets go of what the device is done with."""
        dropped = self.stale and self.manager.shown is State.OPEN
        completed = lib.aio_stream_completed(self.handle)
        gone: list[object] = []  # let go of outside the lock: a finalizer may run then
        with self._lock:
            while self.limbo and (dropped or self.limbo[0].position <= completed):
                gone.append(self.limbo.popleft())

    def oldest(self) -> int:
        """The first position that something in limbo waits for, or 0."""
        with self._lock:
            return next((kept.position for kept in self.limbo if kept.position != UNKNOWN), 0)

    async def wait(self, position: int, deadline: float | None = None) -> int:
        """The engine's result for everything up to the position."""
        must_not_be_forked()
        result = lib.aio_stream_poll(self.handle, position)
        port = current_port()
        if result != PENDING:
            await port.breathe()
        else:
            result = await port.wait(
                lambda handle, key: lib.aio_watch(self.handle, position, handle, key),
                deadline=deadline,
                after=self.sweep,
            )
        self.sweep()
        return result

    async def arrive(self, position: int, deadline: float | None = None) -> None:
        """Returns when everything up to the position is done; raises what is known to have failed."""
        result = await self.wait(position, deadline)
        if result < 0:
            raise self.failure(result, position)

    def failure(self, result: int, position: int) -> Exception:
        """The error behind a negative result of a wait."""
        if result == TIMED_OUT:
            return DeviceTimeout(
                "the device was not done in time", device=self.manager.index, generation=self.generation
            )
        text = ffi.new("char[]", TEXT_BYTES)
        code = lib.aio_stream_error(self.handle, position, text, TEXT_BYTES)
        said = ffi.string(text).decode("utf-8", "replace") if code else ""
        return error_on(
            self.manager, self.generation, code or code_of(result), "aclrtSynchronizeStream", said
        )


def destroy(core: StreamCore) -> None:
    """On the maintenance lane: destroys the native stream now, or when its work is done."""
    manager = core.manager
    # After a fault, handles are left to the reset.
    code = 0 if manager.last_fault is not None else lib.aio_stream_destroy(core.handle)
    core.sweep()
    if code == lib.AIO_PENDING:
        # Anew, for weak references end when something becomes garbage, if for a moment.
        manager.adopt(core)
        tail = lib.aio_stream_tail(core.handle)
        manager.maintenance.watch(core.handle, tail, lambda _: destroy(core))
    elif code > 0 and not manager.found_reset(core.generation, code):
        warn_of_failure(manager, "aclrtDestroyStream", code, "it")
