"""The events of a device, as an iterator over records: `async for event in device.events():`.

Each listener has a queue of its own, which is filled under the lock of the device's admission. If a listener is too
slow, the oldest records are dropped, and the next record contains the number of dropped records.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self

from aioacl._base import sync, totals
from aioacl._base.public import publish
from aioacl._base.records import DeviceEvent, EventKind
from aioacl._base.states import State, Trigger
from aioacl._base.unique import Unique
from aioacl._library.runtime import must_not_be_forked
from aioacl._wait.current import run_blocking

if TYPE_CHECKING:
    from collections.abc import Callable

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
        **details: Any,
    ) -> None:
        """Sends an event to all listeners. Call it with the lock held.

        `details` has the stream, position and code of a failed task, the seconds and bytes of a load, or the seconds of
        a call.
        """
        event = DeviceEvent(kind, self._index, state, generation, sync.monotonic(), report, text, **details)
        for listener in tuple(self._all):
            listener._put(event)


publish("aioacl", ["DeviceEvents"], of=__name__)
