"""The other callers while a call is stuck in C: those that wait when the device is reset, and those at its gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioacl import open_device
from aioacl._base.ffi import lib
from tests.kit import Waiting, until
from tests.reliability.stuck_cases import InThread

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from aioacl._base.options import Strategy
    from tests.reliability.stuck_cases import Caller, Setup


class Callers(dict[str, "Caller"]):
    """Callers, by the name of what they wait for."""

    def hanging(self) -> list[str]:
        """Returns the names of the callers that have no result and no error yet."""
        return [who for who, it in self.items() if not it.ended]

    def unexpected(self, errors: tuple[type[Exception | None], ...]) -> list[str]:
        """Returns the callers that did not end in one of these errors, with their errors or values."""
        others = {who: it for who, it in self.items() if not isinstance(it.error, errors)}
        return [f"{who}: {it.error or it.value!r}" for who, it in others.items()]


class Crowd:
    """The callers that wait for streams, and the others: for the maintenance thread, or at the gate."""

    def __init__(self, setup: Setup, waits: Strategy) -> None:
        self._setup = setup
        self._waits: Strategy = waits
        self.in_waits, self.others = Callers(), Callers()
        self.kinds: list[str] = []  # the kinds of the device's events

    async def listen(self) -> None:
        """Listens to the device's events."""
        async for event in self._setup.device.events():
            self.kinds.append(event.kind)
            if event.kind in ("quarantined", "reopened"):
                return

    async def start_waiters(self, group: TaskGroup, *, maintenance: bool) -> None:
        """Starts the callers that wait for streams, and with `maintenance` those of the maintenance thread."""
        device, held = self._setup.device, self._setup.held
        ticket, event = held.fill(self._setup.memory, 1), held.record()
        self.in_waits["a ticket"] = Waiting(group, lambda: ticket)
        self.in_waits["an event"] = Waiting(group, event.synchronize)
        self.in_waits["a stream"] = Waiting(group, held.synchronize)
        self.in_waits["device.synchronize()"] = Waiting(group, device.synchronize)
        if maintenance:
            self.others["a task's allocation"] = Waiting(group, lambda: device.allocate(64))
            self.others["a thread's allocation"] = InThread(lambda: device.allocate(64).result())
        queued = device._manager.maintenance._calls
        await until(lambda: lib.aio_device_waits(device.index) == 4 and len(queued) >= 2 * maintenance)

    def start_at_the_gate(self, group: TaskGroup) -> None:
        """Starts the operations that begin while the device drains or is reset."""
        device = self._setup.device
        self.others["another task's open"] = Waiting(group, lambda: open_device(device.index, self._waits))
        self.others["a task's stream"] = Waiting(group, device.create_stream)
        self.others["a lease"] = Waiting(group, device.lease().__aenter__)
        self.others["a job"] = Waiting(group, lambda: device.run(int))
        self.others["a thread's stream"] = InThread(lambda: device.create_stream().result())
