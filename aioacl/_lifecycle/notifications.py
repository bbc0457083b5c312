"""The events of a device, as an iterator over records: `async for event in device.events():`.

Each listener has a queue of its own, which is filled under the lock of the device's admission. If a listener is too
slow, the oldest records are dropped, and the next record contains the number of dropped records.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from aioacl._base import logs, sync, totals
from aioacl._base.codes import lookup
from aioacl._base.public import publish
from aioacl._base.records import DeviceEvent, EventKind
from aioacl._base.states import State, Trigger
from aioacl._base.unique import Unique
from aioacl._library.runtime import must_not_be_forked
from aioacl._library.visible import physical_id
from aioacl._wait.current import run_blocking

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.errors import AclError
    from aioacl._base.records import ResetReport
    from aioacl._lifecycle.admission import Admission

KEPT: Final = 64

KINDS: Final[dict[Trigger, EventKind]] = {
    Trigger.OPEN: "opened",
    Trigger.DRAIN: "draining",
    Trigger.SEIZE: "resetting",
    Trigger.REVIVE: "reopened",
    Trigger.RETAKE: "reopened",
    Trigger.FAIL: "quarantined",
    Trigger.RELEASE: "closed",
    Trigger.FOREIGN: "foreign reset",
}


# The logger and the level of each kind of event, and what has happened.
LOGGED: Final[dict[EventKind, tuple[str, int, str]]] = {
    "opened": ("device", logs.INFO, "opened"),
    "draining": ("reset", logs.INFO, "waits for running work, before a reset or close"),
    "resetting": ("reset", logs.INFO, "is being reset or closed"),
    "reopened": ("reset", logs.INFO, "is open again"),
    "quarantined": ("reset", logs.WARNING, "is quarantined"),
    "closed": ("device", logs.INFO, "closed"),
    "foreign reset": ("reset", logs.WARNING, "was reset by other code"),
    "fault": ("device", logs.WARNING, "has a failure"),
    "revoked": ("reset", logs.INFO, "has revoked leases"),
    "model_loading": ("model", logs.DEBUG, "loads a model"),
    "model_loaded": ("model", logs.INFO, "has loaded a model"),
    "stuck": ("device", logs.WARNING, "has a call that does not return"),
    "recovered": ("device", logs.INFO, "has a call that has returned"),
}


class DeviceEvents(Unique):
    """An iterator over the events of a device from now on. It ends when the device is closed.

    Iterate with `async for`, or with `for` on a thread without a running event loop. If several tasks iterate over one
    DeviceEvents, each event goes to one of them. At most 64 events are kept. If there are more, the oldest events are
    dropped, and `missed` of the next event is the number of dropped events.
    """

    __slots__ = ("__weakref__", "_admission", "_is_over", "_missed", "_queue")
    _noun = "listener for a device's events"

    def __init__(self, admission: Admission, listeners: Listeners, is_over: Callable[[], bool]) -> None:
        self._admission = admission
        self._is_over = is_over
        self._queue: deque[DeviceEvent] = deque()
        self._missed = 0
        with admission.changed:  # `tell` iterates over the listeners with this lock held
            listeners.add(self)

    def __aiter__(self) -> Self:
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> DeviceEvent:
        try:
            return run_blocking(self.__anext__, None, "iterate with `async for`")
        except StopAsyncIteration:
            raise StopIteration from None

    async def __anext__(self) -> DeviceEvent:
        must_not_be_forked()
        admission = self._admission
        while True:
            with admission.changed:
                seen = admission.version
                if self._queue:
                    return self._taken()
                if admission.state is State.CLOSED or self._is_over():
                    raise StopAsyncIteration
            await admission.change(seen, None)

    def _taken(self) -> DeviceEvent:
        event, missed = self._queue.popleft(), self._missed
        self._missed = 0
        return event.after(missed)

    def _put(self, event: DeviceEvent) -> None:
        """Adds an event. Call it with the lock held."""
        if len(self._queue) == KEPT:
            self._queue.popleft()
            self._missed += 1
            totals.count("events_missed_total", event.device)
        self._queue.append(event)


class Listeners:
    """The listeners of a device. Guarded by the lock of the device's admission."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._id = physical_id(index)
        self._all: weakref.WeakSet[DeviceEvents] = weakref.WeakSet()

    def add(self, listener: DeviceEvents) -> None:
        """Adds a listener. It is dropped when it is garbage-collected."""
        self._all.add(listener)

    @property
    def any(self) -> bool:
        """Whether there is a listener."""
        return bool(self._all)

    def tell(
        self,
        kind: EventKind,
        state: State,
        generation: int,
        *,
        report: ResetReport | None = None,
        text: str = "",
        error: AclError | None = None,
        **details: Any,
    ) -> None:
        """Sends an event to all listeners, and logs it. Call it with the lock held.

        `details` has the stream, position and code of a failed task, the seconds and bytes of a load, or the seconds of
        a call. `error` is for the log.
        """
        event = DeviceEvent(kind, self._index, state, generation, sync.monotonic(), report, text, **details)
        for listener in tuple(self._all):
            listener._put(event)
        self._log(event, error)

    def _log(self, event: DeviceEvent, error: AclError | None) -> None:
        name, level, what = LOGGED[event.kind]
        report = event.report if event.kind in ("reopened", "quarantined") else None
        code = (error.code if error is not None else event.code) or None
        # One line: readers of logs take each line for a record. `report.recent` has the records of the flight recorder.
        details = (
            " ".join(event.text.split())  # the runtime's texts have several lines
            if report is None
            else "; CANN's own log: ".join(filter(None, (report.summary(), report.cann_log)))
        )
        logs.log(
            name,
            level,
            f"device {self._index} {what}{details and f': {details}'}",
            device=self._index,
            id=self._id,
            generation=event.generation,
            code=code,
            action=error.action if error is not None else lookup(code).action if code else None,
            call=error.call if error is not None and error.call else None,
            duration=sum(report.stages.values()) / 1000 if report is not None else event.seconds or None,
        )


publish("aioacl", ["DeviceEvents"], of=__name__)
