"""What tickets, events and buffers know of a stream: the engine's record of it, and its limbo.

The *limbo* holds the in-flight references: the objects that the device still uses. A reference is taken before the
call to C, so `close()` on another thread, a signal handler or Ctrl-C finds it there whenever it comes. It is dropped
when the work that needs it is known to be done: every wait that ends and each enqueue past a bound looks for that.

No lock guards the limbo. A signal handler that interrupts one of these functions may enqueue too, and would wait for
ever for a lock that the interrupted function holds. Each step is one operation of a deque or dict, and can be repeated.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from aioacl._errors import DeviceTimeout
from aioacl._ffi import PENDING, code_of, ffi, lib, make_pass, owner
from aioacl._handle import error_on, warn_of_failure
from aioacl._law import State
from aioacl._memory import UNKNOWN, deferred, free_deferred
from aioacl._port import TIMED_OUT, current_port
from aioacl._runtime import must_not_be_forked

if TYPE_CHECKING:
    from aioacl._acl import CData
    from aioacl._lifecycle import Manager
    from aioacl._memory import Buffer

LIMBO_BOUND: Final = 64
TEXT_BYTES: Final = 8192


_own: Final = owner(lib.aio_stream_drop)


class Kept:
    """An in-flight reference: what a piece of work uses, its stream, and its position.

    The position is UNKNOWN while the work is enqueued, and 0 if it was refused. A buffer that is closed stays allocated
    until the work of each Kept that names it is done.
    """

    __slots__ = ("buffers", "core", "held", "position")

    def __init__(self, core: StreamCore, buffers: tuple[Buffer, ...], held: object) -> None:
        self.core = core
        self.buffers = buffers
        self.held = held
        self.position = UNKNOWN


class StreamCore:
    """The engine's record of a stream, and what its unfinished work needs."""

    __slots__ = ("__weakref__", "generation", "handle", "limbo", "manager", "native")

    def __init__(self, manager: Manager, generation: int, native: CData) -> None:
        record = lib.aio_stream_new(make_pass(manager.index, generation), native)
        if not record:
            raise MemoryError
        self.handle = _own(record)
        self.native = native
        self.manager = manager
        self.generation = generation
        self.limbo: deque[Kept] = deque()
        manager.adopt(self)

    @property
    def stale(self) -> bool:
        """Whether its device was reset since."""
        return self.generation != self.manager.generation

    def passed(self, position: int) -> bool:
        """Whether the device is done with what was enqueued up to the position."""
        return self.stale or lib.aio_stream_completed(self.handle) >= position

    def keep(self, kept: Kept) -> None:
        """Takes the references of work that is about to be enqueued. ParameterError if a buffer is closed.

        The reference comes first and the look at `_closed` second; `close()` does both the other way round. So one of
        the two notices the other.
        """
        self.limbo.append(kept)
        for buffer in kept.buffers:
            buffer._uses[kept] = None
            if buffer._closed:
                buffer._check()
        if len(self.limbo) > LIMBO_BOUND and (oldest := self.oldest()):
            lib.aio_stream_query(self.handle, oldest)
            self.sweep()

    def hold(self, kept: Kept) -> None:
        """As `keep`, for an operation of several enqueues, until `placed`. The limbo would wait for its end."""
        for buffer in kept.buffers:
            buffer._uses[kept] = None
            if buffer._closed:
                buffer._check()

    def placed(self, kept: Kept) -> None:
        """An operation that was held ends, and work that it has enqueued may be unfinished."""
        kept.position = lib.aio_stream_tail(self.handle)
        self.limbo.append(kept)
        if deferred:
            free_deferred(kept)
        self.sweep()

    def forget(self, kept: Kept) -> None:
        """The work was refused, or all of it is done: drops its references."""
        kept.position = 0
        self._drop(kept)
        if deferred:
            free_deferred(kept)

    def _drop(self, kept: Kept) -> None:
        for buffer in kept.buffers:
            buffer._uses.pop(kept, None)
        try:
            self.limbo.remove(kept)
        except (
            ValueError
        ):  # another sweep has removed it: of another thread, or one that a signal has interrupted
            return

    def sweep(self) -> None:
        """Drops the references of work that is done."""
        limbo = self.limbo
        if not limbo:
            return
        dropped = self.stale and self.manager.shown is State.OPEN
        last = UNKNOWN - 1 if dropped else lib.aio_stream_completed(self.handle)
        while limbo:
            try:
                kept = limbo[0]
            except IndexError:  # another sweep was faster
                return
            if kept.position > last:
                return
            self._drop(kept)

    def oldest(self) -> int:
        """The first position that something in limbo waits for, or 0."""
        limbo = self.limbo
        for index in range(len(limbo)):
            try:
                position = limbo[index].position
            except IndexError:  # a sweep was faster
                return 0
            if position != UNKNOWN:
                return position
        return 0

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
