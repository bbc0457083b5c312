"""What happens to a device, as a stream of records: `async for event in device.events():`.

Every listener has a queue of its own, which the manager fills under its lock. A listener that is too slow loses the
oldest, and the next record that it gets says how many.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from aioacl._base import sync as _sync
from aioacl._base.options import DeviceEvent, EventKind
from aioacl._base.states import Event, State
from aioacl._base.unique import Unique
from aioacl._library.runtime import must_not_be_forked
from aioacl._wait.port import run_blocking

if TYPE_CHECKING:
    from aioacl._base.options import ResetReport
    from aioacl._lifecycle.manager import Manager

KEPT: Final = 64

KINDS: Final[dict[Event, EventKind]] = {
    Event.OPEN: "opened",
    Event.DRAIN: "draining",
    Event.SEIZE: "resetting",
    Event.REVIVE: "reopened",
    Event.RETAKE: "reopened",
    Event.FAIL: "quarantined",
    Event.RELEASE: "closed",
    Event.FOREIGN: "foreign reset",
}


class DeviceEvents(Unique):
    """The events of a device from now on. Ends when the device is closed.

    `async for event in device.events():`, or `for` on a thread without a running loop. Several may iterate over one;
    each event comes to one of them. At most 64 wait; beyond that the oldest are dropped, and `missed` of the next says
    how many.
    """

    __slots__ = ("__weakref__", "_manager", "_missed", "_queue", "_user")
    noun = "listener for a device's events"

    def __init__(self, manager: Manager, user: object) -> None:
        self._manager = manager
        self._user = user
        self._queue: deque[DeviceEvent] = deque()
        self._missed = 0
        with manager.changed:  # whoever tells them goes through all there are
            manager.listeners.add(self)

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
        manager = self._manager
        while True:
            with manager.changed:
                seen = manager.version
                if self._queue:
                    return self._taken()
                if manager.state is State.CLOSED or self._is_over():
                    raise StopAsyncIteration
            await manager.change(seen, None)

    def _is_over(self) -> bool:
        """Whether it is closed for whom it was open; with the lock held."""
        return not self._manager.is_open_for(self._user) and self._manager.left()

    def _taken(self) -> DeviceEvent:
        event, missed = self._queue.popleft(), self._missed
        self._missed = 0
        return event.after(missed)

    def _put(self, event: DeviceEvent) -> None:
        """One more, with the manager's lock held."""
        if len(self._queue) == KEPT:
            self._queue.popleft()
            self._missed += 1
        self._queue.append(event)


class Listeners:
    """Who listens to a device. Guarded by the lock of the device's manager."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._all: weakref.WeakSet[DeviceEvents] = weakref.WeakSet()

    def add(self, listener: DeviceEvents) -> None:
        """One more listener, until nobody refers to it."""
        self._all.add(listener)

    def tell(
        self,
        kind: EventKind,
        state: State,
        generation: int,
        *,
        report: ResetReport | None = None,
        text: str = "",
        **task: int,
    ) -> None:
        """Something has happened; with the lock held. `task`: stream, position and code of one that failed."""
        event = DeviceEvent(kind, self._index, state, generation, _sync.monotonic(), report, text, **task)
        for listener in tuple(self._all):
            listener._put(event)
