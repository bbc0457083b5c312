"""Events and tickets: points of a stream.

A Ticket is a position and nothing else. An Event is a position with a native event recorded at it, so that other
streams can wait for it on the device, and so that later work on its own stream never delays it. Each record takes
a native event of its own from the pool; recording again while somebody awaits the older version disturbs nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import PENDING, ffi, lib, make_pass, owner
from aioacl._base.options import deadline_of
from aioacl._base.unique import Unique
from aioacl._handles.handle import Handle
from aioacl._handles.operation import Operation
from aioacl._library.runtime import of_parent
from aioacl._wait.current import begun, run_blocking

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioacl._base.ffi import CData
    from aioacl._base.options import Seconds
    from aioacl._handles.stream_core import StreamCore
    from aioacl._lifecycle.manager import Manager


class Ticket(Unique):
    """A position in a stream, what enqueueing returns: `await ticket` returns when everything up to it is done.

    It covers the tasks of its stream up to its position, and what they depend on by `wait_event`. If one of them
    failed, the await raises that failure, however late, and again each time. A success that was returned once stands
    after a reset.
    """

    __slots__ = ("_call", "_core", "_position", "_twin")
    noun = "ticket"

    def __init__(self, core: StreamCore, position: int, call: str = "", *, twin: bool = False) -> None:
        self._call = call  # the ACL function that enqueued its task
        self._core = core
        self._position = position
        self._twin = twin  # of another ticket at the same position

    def __await__(self) -> Generator[Any, Any, None]:
        return (yield from begun(self._arrive))

    def result(self, timeout: Seconds | None = None) -> None:
        """Blocks until it is done, on a thread without a running loop; DeviceTimeout after `timeout` seconds."""
        run_blocking(self._arrive, timeout)

    async def _arrive(self) -> None:
        await self._core.arrive(self._position, call=self._call)

    @property
    def position(self) -> int:
        """The number of its entry in the stream's queue."""
        return self._position

    @property
    def done(self) -> bool:
        """Whether it is known to be over, well or not. Never calls C's runtime: `stream.query()` asks it."""
        core, position = self._core, self._position
        if not core.passed(position):
            return lib.aio_stream_known(core.handle, position) != PENDING
        core.release_done()
        return True

    def __del__(self) -> None:
        # Nobody can await this position any more, so later work need not be kept from delaying it. A Ctrl-C may
        # have come while this was being made.
        if not getattr(self, "_twin", True):
            lib.aio_stream_forget(self._core.handle, self._position)

    def __repr__(self) -> str:
        core, stale = self._core, ", stale" if self._core.stale else ""
        where = f"{core.shown}, device {core.manager.index}, generation {core.generation}{stale}"
        return f"<Ticket {self._position} of {where}{of_parent()}{core.outcome(self._position)}>"


_own: Final = owner(lib.aio_event_drop)


class _Version:
    """One record of an event."""

    __slots__ = ("core", "native", "position")

    def __init__(self, core: StreamCore, position: int, native: CData) -> None:
        self.core = core
        self.position = position
        self.native = _own(native)


class Recorder(Protocol):
    """A Stream: what records events."""

    def record(self, event: Event | None = None) -> Event:
        """Records an event at this point of the stream."""
        ...


class Event(Handle):
    """A point of a stream that can be awaited, asked for, waited for by other streams, and timed.

    `stream.record()` makes one for the occasion; `device.create_event()` one of your own, to record again and again.
    """

    __slots__ = ("_timing", "_version")
    noun = "event"
    factory = "stream.record() or device.create_event()"
    _made_by = "device.create_event()"

    def __init__(self, manager: Manager, generation: int, *, timing: bool) -> None:
        super().__init__(manager, generation)
        self._timing = timing
        self._version: _Version | None = None

    @property
    def timing(self) -> bool:
        """Whether `elapsed_since` works on it."""
        return self._timing

    @property
    def recorded(self) -> bool:
        """Whether it was recorded at all."""
        return self._version is not None

    def record(self, stream: Recorder) -> Event:
        """Records it at this point of the stream (aclrtRecordEvent), and returns it.

        Raises:
            ParameterError: it belongs to another device, or is closed.
            StaleHandleError, DeviceResetting, QueueFull: as for every enqueue.
        """
        record = getattr(stream, "record", None)
        if record is None:
            raise ParameterError(
                f"expected a Stream, got {stream!r}", hint="Make one with device.create_stream()."
            )
        return stream.record(self)

    def _set_version(self, core: StreamCore, position: int, native: CData) -> None:
        self._version = _Version(core, position, native)
        if self._closed:  # by another thread, since it was recorded
            self._version = None

    def _recorded_version(self) -> _Version:
        self._check()
        version = self._version
        if version is None:
            raise ParameterError("the event was never recorded", hint="Call event.record(stream) first.")
        return version

    async def _wait(self, timeout: Seconds | None) -> None:
        version = self._recorded_version()
        await version.core.arrive(version.position, deadline=deadline_of(timeout))

    def __await__(self) -> Generator[Any, Any, None]:
        return (yield from begun(lambda: self._wait(None)))

    def synchronize(self, timeout: Seconds | None = None) -> Operation[None]:
        """Waits for the newest record, at most `timeout` seconds (aclrtSynchronizeEvent).

        Raises:
            DeviceTimeout: after the time; the event and its stream stay usable.
            ParameterError: it was never recorded.
            DeviceReset, StaleHandleError: its device was reset.
            DeviceFault and others: a task up to it failed, or one that it depends on.
        """
        return Operation("event.synchronize()", lambda: self._wait(timeout), self)

    def result(self, timeout: Seconds | None = None) -> None:
        """As `synchronize`, blocking, on a thread without a running loop."""
        run_blocking(lambda: self._wait(None), timeout)

    def query(self) -> bool:
        """Whether the newest record is done, well or not (aclrtQueryEventStatus)."""
        version = self._recorded_version()
        answer = lib.aio_stream_query(version.core.handle, version.position)
        if answer not in (0, 1):
            raise self._error(answer, "aclrtQueryEventStatus")
        version.core.release_done()
        return answer == 1

    def elapsed_since(self, other: Event) -> float:
        """Seconds on the device between the other event and this one (aclrtEventElapsedTime).

        Raises:
            ParameterError: one of them is not for timing, was never recorded, or is not done yet; or the other is
                no event, or of another device.
        """
        if not isinstance(other, Event):
            raise ParameterError(
                f"expected an Event, got {other!r}", hint="Pass one that was recorded before this one."
            )
        if other._manager is not self._manager:
            # Its own device's gate is not passed: a reset there would run into the call.
            raise ParameterError(
                "the events are of two devices", hint="Record both on streams of one device."
            )
        if not (self._timing and other._timing):
            raise ParameterError(
                "both events must be for timing", hint="Make them with device.create_event(timing=True)."
            )
        start, end = other._recorded_version(), self._recorded_version()
        milliseconds = ffi.new("float *")
        shown = make_pass(self._manager.index, self._generation)
        code = lib.aio_g_aclrtEventElapsedTime(
            shown, milliseconds, lib.aio_event_handle(start.native), lib.aio_event_handle(end.native)
        )
        if code:
            raise self._error(code, "aclrtEventElapsedTime")
        return float(milliseconds[0]) / 1000.0

    def _closing(self) -> None:
        self._closed = True
        self._version = None

    def close(self) -> Operation[None]:
        """Gives its native event back to the pool. Closing twice is no error."""
        return Operation("event.close()", self._close, self)

    def __repr__(self) -> str:
        version = self._version
        if version is None:
            return f"<Event {'' if self._closed else 'never recorded, '}{self._state()}>"
        core, position = version.core, version.position
        return f"<Event at position {position} of {core.shown}, {self._state()}{core.outcome(position)}>"
