"""Events and tickets: positions in a stream.

A Ticket is only a position. An Event is a position at which a native event is recorded. Other streams can wait for an
Event on the device. Later work on the Event's own stream never delays a wait for the Event. Each record takes another
native event from the pool, so recording an Event again does not affect a task that awaits an older record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import PENDING, Awaitable, Position, ffi, lib, make_pass
from aioacl._base.options import deadline_of, repr_of
from aioacl._base.public import publish
from aioacl._base.unique import Unique
from aioacl._handles.borrowing import manager_of_device
from aioacl._handles.handle import Handle
from aioacl._handles.operation import Operation
from aioacl._handles.stream_core import StreamCore
from aioacl._library.runtime import of_parent
from aioacl._lifecycle.abortable import address_of
from aioacl._wait.current import begun, run_blocking

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioacl._base.ffi import CData, Recorded
    from aioacl._base.options import Seconds
    from aioacl._device import Device
    from aioacl._handles.stream import Stream
    from aioacl._lifecycle.manager import Manager


class Ticket(Unique, Position):
    """A position in a stream, returned by each enqueue. `await ticket` waits for the work up to the position.

    A ticket covers the tasks of its stream up to its position. These tasks may depend on other tasks through
    `wait_event`. If any of all these tasks failed, each await raises that failure, even an await that starts much
    later. Once an await has returned, later awaits return too, even after a reset. A ticket may be dropped without
    being awaited.
    """

    __slots__ = ()
    _noun = "ticket"

    if TYPE_CHECKING:

        def __init__(self, core: StreamCore, position: int, call: str = "", *, twin: bool = False) -> None:
            """`call`: the ACL function that enqueued its task. `twin`: another ticket has the same position."""

        @property
        def _core(self) -> StreamCore: ...

    def _await_in_python(self) -> Generator[Any, Any, None]:
        return (yield from begun(self._arrive))

    def result(self, timeout: Seconds | None = None) -> None:
        """Blocks until the work up to the position is done. For threads without a running event loop.

        Args:
            timeout: the longest wait in seconds; None waits without a limit.

        Raises:
            DeviceTimeout: the work was not done within `timeout` seconds.
            DeviceFault: a task failed. The code of the failure may select another subclass of AclError.
            DeviceReset: a reset or the close of the device dropped the work.
            StreamAborted: an abort dropped the work, or work that it depends on.
            RuntimeError: this thread runs an event loop.
        """
        run_blocking(self._arrive, timeout)

    async def _arrive(self) -> None:
        await self._core.arrive(self._position, call=self._call)

    @property
    def position(self) -> int:
        """The number of the ticket's entry in the stream's queue, an int from 1.

        A copy or fill of 0 bytes has the position of the entry before it, or 0 if there is none.
        """
        return self._position

    @property
    def done(self) -> bool:
        """Whether the work is known to be finished, successfully or not.

        Calls no ACL function, so the value may be False although the work is finished. `stream.query()` asks the
        runtime.
        """
        core, position = self._core, self._position
        if not core.passed(position):
            return lib.aio_stream_known(core.handle, position) != PENDING
        core.release_done()
        return True

    def __repr__(self) -> str:
        core, stale = self._core, ", stale" if self._core.stale else ""
        where = f"{core.shown}, device {core.manager.index}, generation {core.generation}{stale}"
        return f"<Ticket {self._position} of {where}{of_parent()}{core.outcome(self._position)}>"


def native_event(version: Recorded) -> CData:
    """The native event of a record."""
    return lib.aio_event_handle(ffi.cast("aio_event *", version.native))


class Event(Handle, Awaitable):
    """A position in a stream that tasks can await and query, and that other streams can wait for.

    `stream.record()` makes an Event and records it. `device.create_event()` makes an Event that is not recorded yet. An
    Event can be recorded any number of times. `await event` waits for the newest record. `elapsed_since` measures the
    time between two events.
    """

    __slots__ = ()
    _noun = "event"

    if TYPE_CHECKING:
        _version: Recorded | None
    _factory = "stream.record() or device.create_event()"
    _made_by = "device.create_event()"

    def __init__(self, manager: Manager, generation: int, *, timing: bool) -> None:
        super().__init__(manager, generation)
        self._timing = timing

    @classmethod
    def from_handle(cls, handle: Any, device: Device, *, owner: object = None) -> Event:
        """Borrows a native event that other code owns, for example one of torch_npu.

        `await event` waits until the event is done, and `stream.wait_event(event)` makes a stream wait for it on the
        device. aioacl never destroys, records or synchronizes the event. It queries the event only while something
        waits. If the owner records the event again during a wait, the wait lasts until that record is done.

        Once an await or a query has found the event done, the Event stays done: after the owner has recorded the native
        event again, borrow it again. Only `wait_event` always waits for the newest record.

        A query returns only whether the event is done. So an await also returns if work before the event has failed or
        was aborted. An event that was never recorded counts as done if aclrtCreateEventExWithFlag has made it.
        Otherwise an await waits until its first record is done. The owner must keep the event until the waits have
        ended: the runtime may crash if a destroyed event is queried. An event with the flag ACL_EVENT_SYNC whose record
        belongs to a capture is refused (107028), because a wait would make the capture fail.

        Args:
            handle: the aclrtEvent, as an int or a C value.
            device: the Device of aioacl on which the event is. It must be open.
            owner: an object that is kept alive as long as the Event, for example the `torch.npu.Event`.

        Returns:
            An Event. After `stream.record(event)` it refers to that record, and no longer to the borrowed event.

        Raises:
            ParameterError: `handle` is 0 or an event of aioacl, an argument has a wrong type, the event belongs to a
                capture, or the device is closed.
            AclError: the query of the event failed. The code selects the subclass of AclError.
        """
        manager = manager_of_device(device)
        native = ffi.cast("aclrtEvent", address_of(handle, "aclrtEvent"))
        if lib.aio_event_is_ours(native):
            raise ParameterError("expected an event of other code, got one of aioacl", hint="Use its Event.")
        generation = manager.generation
        core, version = StreamCore.borrow_event(manager, generation, native, owner)
        event: Event = cls._make(manager, generation, timing=False)
        event._version = version
        answer = lib.aio_stream_query(core.handle, version.position)
        if answer not in (0, 1):
            raise event._error(answer, "aclrtQueryEventStatus")
        return event

    @property
    def timing(self) -> bool:
        """Whether the event was made with `timing=True`, so that `elapsed_since` accepts it."""
        return self._timing

    @property
    def recorded(self) -> bool:
        """Whether the event was recorded at least once, and is not closed."""
        return self._version is not None

    def record(self, stream: Stream) -> Event:
        """Records the event at the current end of the stream's queue (aclrtRecordEvent). Never waits.

        Args:
            stream: the Stream to record on, of the same device.

        Returns:
            The event itself.

        Raises:
            ParameterError: `stream` is not a Stream, or is of another device.
            AclError: one of the errors that each enqueue can raise; see `Stream`.
        """
        record = getattr(stream, "record", None)
        if record is None:
            raise ParameterError(
                f"expected a Stream, got {repr_of(stream)}",
                hint="Pass a Stream made by device.create_stream().",
            )
        return stream.record(self)

    def _recorded_version(self) -> Recorded:
        self._check()
        version = self._version
        if version is None:
            raise ParameterError(
                "the event was never recorded",
                hint="Call event.record(stream) first.",
            )
        return version

    async def _wait(self, timeout: Seconds | None) -> None:
        version = self._recorded_version()
        await version.core.arrive(version.position, deadline=deadline_of(timeout))

    def _target(self) -> tuple[StreamCore, int, str]:
        version = self._recorded_version()
        return version.core, version.position, ""

    def _await_in_python(self) -> Generator[Any, Any, None]:
        return (yield from begun(lambda: self._wait(None)))

    def synchronize(self, timeout: Seconds | None = None) -> Operation[None]:
        """Waits for the newest record of the event (as aclrtSynchronizeEvent does).

        Args:
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            An Operation; await it, or call its `result()`.

        Raises:
            DeviceTimeout: the record was not done within `timeout` seconds. The event and its stream stay usable.
            ParameterError: the event was never recorded, or is closed.
            DeviceReset: the device was reset or closed during the wait.
            StaleHandleError: the device was reset or closed before the wait.
            DeviceFault: a task that the record covers or depends on failed. The code of the failure may select another
                subclass of AclError.
        """
        return Operation("event.synchronize()", lambda: self._wait(timeout), self)

    def result(self, timeout: Seconds | None = None) -> None:
        """Blocks until the newest record is done. For threads without a running event loop.

        Args:
            timeout: the longest wait in seconds; None waits without a limit.

        Raises:
            RuntimeError: this thread runs an event loop.
            AclError: the wait failed. `synchronize` lists the subclasses.
        """
        run_blocking(lambda: self._wait(None), timeout)

    def query(self) -> bool:
        """Returns whether the newest record is done (aclrtQueryEventStatus). Never waits.

        Returns:
            True if all work up to the record is finished, successfully or not.

        Raises:
            ParameterError: the event was never recorded, or is closed.
            StaleHandleError: the event is from an older generation.
            DeviceResetting: the device is being reset.
            AclError: the query failed. The code selects the subclass of AclError.
        """
        version = self._recorded_version()
        answer = lib.aio_stream_query(version.core.handle, version.position)
        if answer not in (0, 1):
            raise self._error(answer, "aclrtQueryEventStatus")
        version.core.release_done()
        return answer == 1

    def elapsed_since(self, other: Event) -> float:
        """Measures the time on the device between an earlier event and this one (aclrtEventElapsedTime).

        Args:
            other: the event that was recorded first. Both events must be made with `timing=True`.

        Returns:
            The time in seconds.

        Raises:
            ParameterError: an event was not made with `timing=True`, was never recorded, is not done yet, or is closed;
                or `other` is not an Event, or is of another device.
            StaleHandleError: an event is from an older generation.
        """
        if not isinstance(other, Event):
            raise ParameterError(
                f"expected an Event, got {repr_of(other)}",
                hint="Pass an event that was recorded before this one.",
            )
        if other._manager is not self._manager:
            # The call passes only the gate of this device, so a reset of the other device could run during the call.
            raise ParameterError(
                f"expected an event of device {self._manager.index}, got one of device {other._manager.index}",
                hint="Record both events on streams of one device.",
            )
        if not (self._timing and other._timing):
            raise ParameterError(
                "expected two events made with timing=True, got one made without it",
                hint="Make both with device.create_event(timing=True).",
            )
        start, end = other._recorded_version(), self._recorded_version()
        milliseconds = ffi.new("float *")
        shown = make_pass(self._manager.index, self._generation)
        code = lib.aio_g_aclrtEventElapsedTime(shown, milliseconds, native_event(start), native_event(end))
        if code:
            raise self._error(code, "aclrtEventElapsedTime")
        return float(milliseconds[0]) / 1000.0

    def _closing(self) -> None:
        self._closed = True
        self._version = None

    def close(self) -> Operation[None]:
        """Closes the event: its native event returns to the device's pool. A second close is not an error.

        Returns:
            An Operation; await it, or call its `result()`.
        """
        return Operation("event.close()", self._close, self)

    def __repr__(self) -> str:
        version = self._version
        if version is None:
            return f"<Event {'' if self._closed else 'never recorded, '}{self._state()}>"
        core, position = version.core, version.position
        if core.is_event:
            return f"<Event of other code, {self._state()}{core.outcome(position)}>"
        return f"<Event at position {position} of {core.shown}, {self._state()}{core.outcome(position)}>"


publish("aioacl", ["Event", "Ticket"], of=__name__)
