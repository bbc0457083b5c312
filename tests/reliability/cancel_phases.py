"""The phases in which an await is cancelled: how awaits reach a phase, how that is detected, and how they continue.

Entering a phase returns a Setup. In most phases the awaits stay blocked until `finish` is called, because the
simulator holds the stream or hangs the call that they wait for. In the other phases the result exists, but the loop has
not processed it: `arrive` blocks the loop until the result exists, and the cancellation follows in the same turn.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio

from aioacl import simulator
from aioacl._base.ffi import lib
from tests.kit import Waiting, hanging, until
from tests.reliability import setting
from tests.reliability.loops import BACKENDS

if TYPE_CHECKING:
    from aioacl import Device, ResetReport, Stream
    from aioacl._lifecycle.manager import Manager
    from tests.reliability.cancel_bench import Bench
    from tests.reliability.cancel_kinds import Kind

MANY: Final = 24
GRACE_SECONDS: Final = 60.0


async def _nothing() -> None:
    """Does nothing."""


@dataclass
class Setup:
    """The functions that bring awaits into a phase and out of it."""

    begin: Callable[[int], Awaitable[Any]]  # returns the awaitable with that number
    reached: Callable[[int], object]  # whether that many awaits are in the phase
    finish: Callable[[], Awaitable[object]] = _nothing  # releases the awaits that were not cancelled
    # Whether that many awaits are in the last step before the phase.
    gathered: Callable[[int], object] | None = None
    arrive: Callable[[], object] | None = None  # brings the awaits into the phase while their loop is blocked
    # Called before `finish` with the numbers of all and of uncancelled awaits; returns an error text or "".
    check: Callable[[int, int], str] = lambda _, __: ""
    done: Callable[[int, int], str] = lambda _, __: ""  # like `check`, but called after all awaits have ended
    # Cancels at a moment that the phase chooses.
    request: Callable[[Callable[[], None]], Awaitable[None]] | None = None
    allowed: tuple[type[Exception], ...] = ()  # errors that awaits may raise if they were not cancelled


Enter = Callable[["Bench", int], AbstractAsyncContextManager[Setup]]


@dataclass(frozen=True)
class Phase:
    """A state of awaits in which they are cancelled."""

    name: str
    enter: Enter  # called with the number of awaits
    most: int = MANY
    at_once: bool = False  # the awaits are not blocked, so they must be cancelled in the turn of the request
    has_result: bool = False  # the awaits have their results, and their tasks run in the next turn

    def takes(self, kind: type[Kind], backend: str) -> bool:
        """Whether that kind of cancellation is possible in this phase."""
        fits = backend in kind.backends and (kind.at_once or not self.at_once)
        return fits and (kind.cancels_finished_wait or not self.has_result)

    def on(self, backend: str) -> bool:
        """Whether the phase exists on the backend: trio does not cancel a task that has its result."""
        return backend == BACKENDS[0] or not self.has_result


PHASES: list[Phase] = []


def phase(name: str, **options: Any) -> Callable[[Callable[[Bench, int], AsyncGenerator[Setup]]], None]:
    """Registers a phase."""

    def add(enter: Callable[[Bench, int], AsyncGenerator[Setup]]) -> None:
        PHASES.append(Phase(name, asynccontextmanager(enter), **options))

    return add


# --- what awaits wait for -------------------------------------------------------------------------------------------


def make(device: Device, number: int) -> Awaitable[Any]:
    """Creates a stream, device memory, pinned memory or an event; the number selects which."""
    made: tuple[Callable[[], Awaitable[Any]], ...] = (
        device.create_stream,
        lambda: device.allocate(64),
        lambda: device.pinned(64),
        device.create_event,
    )
    return made[number % len(made)]()


async def leased(device: Device) -> None:
    """Takes a lease and releases it at once."""
    async with device.lease():
        pass


@asynccontextmanager
async def resetting(bench: Bench, device: Device) -> AsyncGenerator[Waiting]:
    """Starts a reset, and makes it hang in C until it is released. Yields the reset's caller."""
    simulator.hang_call(setting.RESETS)
    async with anyio.create_task_group() as group:
        caller = Waiting(group, lambda: device.force_reset(grace=GRACE_SECONDS))
        await until(hanging(setting.RESETS))
        await until(lambda: len(device._manager.admission._subscribers) == 1)
        yield caller
        simulator.release_call(setting.RESETS)
        report: ResetReport = await caller.outcome()
        bench.expect(report.ok, f"expected a reset to succeed, got {report}")


@asynccontextmanager
async def busy_maintenance(device: Device) -> AsyncGenerator[None]:
    """Makes the maintenance thread hang in C until it is released."""
    simulator.hang_call("aclrtMalloc")
    async with anyio.create_task_group() as group:
        first = Waiting(group, lambda: device.allocate(64))
        await until(hanging("aclrtMalloc"))
        yield
        simulator.release_call("aclrtMalloc")
        await (await first.outcome()).close()


@asynccontextmanager
async def held(device: Device) -> AsyncGenerator[Stream]:
    """Creates a stream that starts no task until the stream is released."""
    async with device.create_stream() as stream:
        simulator.hold(stream)
        yield stream
        simulator.release(stream)


async def release_call(function: str) -> None:
    """Releases the hung call."""
    simulator.release_call(function)


async def release(stream: Stream) -> None:
    """Releases the held stream."""
    simulator.release(stream)


def waits(device: Device) -> int:
    """How many awaits wait for the device's streams."""
    return int(lib.aio_device_waits(device.index))


def queued(manager: Manager) -> int:
    """How many queued calls of the maintenance thread have a waiter. The call that follows each reset has none."""
    return sum(call._tell is not None for call in tuple(manager.maintenance._calls))


def idle(manager: Manager) -> bool:
    """Whether the maintenance thread has done all its calls and has notified their waiters."""
    return not manager.maintenance._calls and manager.maintenance._current is None


class ThreadsReset(threading.Thread):
    """A reset that a plain thread requests."""

    def __init__(self, device: Device) -> None:
        super().__init__(daemon=True)
        self._device = device
        self.report: ResetReport | None = None
        self.start()

    def run(self) -> None:
        self.report = self._device.force_reset(grace=GRACE_SECONDS).result(GRACE_SECONDS)
