"""The lifecycle's scenarios for the scheduler. Each has an initial state, and two to four concurrent threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioacl import AclError, DeviceFault, DeviceReset, DeviceResetting, ParameterError, simulator
from aioacl._base.ffi import lib
from aioacl._wait.current import run_blocking
from tests.reliability.schedule_world import INDEX, Closed, Quarantined, Stale, TimedOut

if TYPE_CHECKING:
    from aioacl import Device
    from tests.reliability.schedule_world import World

RESET_FAILS: Final = 507000
FAULT: Final = 507013  # of the device
RESETS_TRIED: Final = 3
AMPLE_SECONDS: Final = 60.0

Body = Callable[[], object]
Bodies = list[Body]


@dataclass(frozen=True)
class Scenario:
    """One scenario. With `patience`, the clock may jump early up to that many virtual seconds after the beginning."""

    name: str
    build: Callable[[World], Bodies]
    patience: float = 0.0
    # True if there are so few waits that all schedules with few preemptions are tried, in all thread orders.
    core: bool = False


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *, patience: float = 0.0, core: bool = False
) -> Callable[[Callable[[World], Bodies]], Callable[[World], Bodies]]:
    """Adds a function to the table of scenarios."""

    def enter(build: Callable[[World], Bodies]) -> Callable[[World], Bodies]:
        name = build.__name__
        SCENARIOS[name] = Scenario(name, build, patience, core)
        return build

    return enter


# --- opening and closing ------------------------------------------------------------------------------------------


def _pass_through(device: Device) -> None:
    with device.lease():
        pass


@scenario()
def open_close(world: World) -> Bodies:
    """Three threads open and close one device, which stays open from the first open to the last close."""

    def use() -> None:
        device = world.open()
        if device is not None:
            world.attempt("lease", lambda: _pass_through(device))
        world.close(device)

    return [use] * 3


@scenario()
def reset_reset_close(world: World) -> Bodies:
    """Two resets, which join or follow each other, while the device is closed."""
    device = world.opened()
    return [
        lambda: world.reset(device, Closed),
        lambda: world.reset(device, Closed),
        lambda: world.close(device),
    ]


@scenario()
def reset_open_close(world: World) -> Bodies:
    """A reset, while other threads open the device again and close it."""
    device = world.opened()
    return [
        lambda: world.reset(device, Closed),
        lambda: world.close(world.open()),
        lambda: world.close(device),
    ]


# --- leases -------------------------------------------------------------------------------------------------------


def _hold(world: World, device: Device, share: bool = False) -> None:
    with device.lease() as lease:
        if share:
            world.set_flag("lease", lease.share())
        with device.lease():
            world.close(world.attempt("create in a lease", lambda: device.create_stream().result()))
        if share:
            world.wait_for_flag("shared")


def _share(world: World, device: Device) -> None:
    with world.wait_for_flag("lease"):
        world.set_flag("shared")
        with device.lease():
            world.close(world.attempt("allocate in a shared lease", lambda: device.allocate(64).result()))


@scenario()
def lease_reset(world: World) -> Bodies:
    """A lease within a lease, and a reset that waits for both."""
    device = world.opened()
    return [lambda: _hold(world, device), lambda: world.reset(device, grace=AMPLE_SECONDS)]


@scenario()
def shared_lease_reset(world: World) -> Bodies:
    """A lease that another thread shares, leases within both, and a reset that waits for all of them."""
    device = world.opened()
    return [
        lambda: _hold(world, device, share=True),
        lambda: _share(world, device),
        lambda: world.reset(device, grace=AMPLE_SECONDS),
    ]


# --- creating -------------------------------------------------------------------------------------------------------


def _make_stream(world: World, device: Device, *allowed: type[Exception]) -> None:
    stream = world.attempt("create_stream", lambda: device.create_stream().result(), *allowed)
    world.close(stream, *allowed)


def _make_buffer(world: World, device: Device, *allowed: type[Exception]) -> None:
    world.close(world.attempt("allocate", lambda: device.allocate(64).result(), *allowed))


@scenario()
def make_reset(world: World) -> Bodies:
    """A stream and memory are created while the device is reset."""
    device = world.opened()
    return [
        lambda: _make_stream(world, device),
        lambda: _make_buffer(world, device),
        lambda: world.reset(device),
    ]


@scenario()
def make_close(world: World) -> Bodies:
    """A stream and memory are created while the device is closed."""
    device = world.opened()
    return [
        lambda: _make_stream(world, device, Closed, Stale),
        lambda: _make_buffer(world, device, Closed, Stale),
        lambda: world.close(device),
    ]


# --- jobs ---------------------------------------------------------------------------------------------------------


def _run_job(world: World, device: Device, *allowed: type[Exception], timeout: float | None = None) -> None:
    """Runs a job; the device may be reset or closed during the job."""
    inside: list[bool] = []

    def job() -> int:
        with world.scheduler.lock():
            inside.append(True)
        return 42

    answer = world.attempt("run", lambda: device.run(job).result(timeout), *allowed)
    world.expect(
        answer is None or (answer == 42 and inside == [True]),
        f"expected the job to run once and return 42, got {answer}",
    )


@scenario()
def job_reset(world: World) -> Bodies:
    """Two jobs on the device's threads, and a reset."""
    device = world.opened()
    return [
        lambda: _run_job(world, device),
        lambda: _run_job(world, device),
        lambda: world.reset(device, grace=AMPLE_SECONDS),
    ]


@scenario(patience=0.2)
def job_cancelled(world: World) -> Bodies:
    """The caller that waits for a job is cancelled, while the device is reset and closed."""
    device = world.opened()
    ends = (Closed, Stale, DeviceResetting, _cancelled(), RuntimeError)
    return [
        lambda: _run_job(world, device, TimedOut, *ends, timeout=0.1),
        lambda: _run_job(world, device, *ends),
        lambda: world.reset(device, Closed),
        lambda: world.close(device),
    ]


def _cancelled() -> type[Exception]:
    from concurrent.futures import CancelledError

    return CancelledError


# --- a reset that fails -------------------------------------------------------------------------------------------


def _repair(world: World, device: Device) -> None:
    report = world.reset(device)
    if report is not None and not report.ok:
        again = world.reset(device)
        world.expect(
            again is not None and again.ok, f"expected the second reset to repair the device, got {again}"
        )


@scenario()
def failed_reset(world: World) -> Bodies:
    """A reset fails and the next one repairs the device, while other threads create objects and reset too."""
    device = world.opened()
    simulator.fail_call("aclrtResetDeviceForce", RESET_FAILS, RESETS_TRIED)
    return [
        lambda: _repair(world, device),
        lambda: world.reset(device),
        lambda: _make_stream(world, device, Quarantined),
    ]


# --- a foreign reset ----------------------------------------------------------------------------------------------


def _reset_by_hand(world: World) -> None:
    """Calls ACL directly, as another library would."""
    world.foreign = True
    code = lib.aio_u_aclrtResetDeviceForce(INDEX)
    world.outcomes.append(f"foreign reset: {code}")


@scenario()
def foreign_open(world: World) -> Bodies:
    """A foreign reset while the device is opened again."""
    device = world.opened()
    return [
        lambda: _reset_by_hand(world),
        lambda: world.close(world.open()),
        lambda: _make_stream(world, device),
    ]


@scenario()
def foreign_reset(world: World) -> Bodies:
    """A foreign reset during a force reset, while objects are created."""
    device = world.opened()
    return [
        lambda: _reset_by_hand(world),
        lambda: world.reset(device),
        lambda: _make_stream(world, device, Quarantined),
    ]


@scenario()
def foreign_close(world: World) -> Bodies:
    """A foreign reset while the device is closed and opened."""
    device = world.opened()
    return [lambda: _reset_by_hand(world), lambda: world.close(device), lambda: world.close(world.open())]


# --- turns, events, finalizers, deadlines -------------------------------------------------------------------------


@scenario()
def turns(world: World) -> Bodies:
    """Three resets without a pause. A waiter at the gate has a turn between two of the resets."""
    device = world.opened()
    manager = world.manager
    generations: list[int] = []
    wait = manager.admission.turns.wait

    def recorded_wait(place: object) -> None:
        generations.append(manager.generation)
        wait(place)  # type: ignore[arg-type]  # the type of a place does not matter here

    manager.admission.turns.wait = recorded_wait  # type: ignore[method-assign]  # for this run

    def resets() -> None:
        for _ in range(3):
            world.reset(device)

    def maker() -> None:
        stream = world.attempt("create_stream", lambda: device.create_stream().result())
        if stream is not None and generations:
            world.expect(
                stream.generation <= generations[0] + 1,
                f"expected a turn by generation {generations[0] + 1}, got one in {stream.generation}",
            )
        world.close(stream)
        del manager.admission.turns.wait

    return [resets, maker]


@scenario()
def events(world: World) -> Bodies:
    """A listener receives all events, in order, until the device is closed."""
    device = world.opened()
    listener = device.events()
    received: list[str] = []

    def listen() -> None:
        while True:
            try:
                event = run_blocking(listener.__anext__, None)
            except StopAsyncIteration:
                break
            received.append(event.kind)

    def end() -> None:
        world.reset(device, Closed)
        world.close(device)

    def check() -> None:
        listen()
        legal = (
            *("draining", "resetting", "reopened") * received.count("reopened"),
            "draining",
            "resetting",
            "closed",
        )
        world.expect(tuple(received) == legal[: len(received)], f"unexpected events: {received}")

    return [check, end]


def _supervise(world: World, device: Device) -> None:
    supervisor = device.supervise(grace=0, pauses=(0.5,))
    with supervisor:
        fault = DeviceFault("failed", code=FAULT, device=INDEX, generation=device.generation)
        world.manager.failures.note_fault(fault)
        world.attempt("lease", lambda: _pass_through(device), Closed, Quarantined)
    current = world.manager.supervision.current
    world.expect(current is not supervisor, "expected the supervisor to end with its block, but it goes on")


@scenario()
def supervised(world: World) -> Bodies:
    """A supervisor of a device that fails, which ends while it looks or resets; a reset and a close."""
    device = world.opened()
    return [
        lambda: world.attempt("supervise", lambda: _supervise(world, device), Closed),
        lambda: world.reset(device, Closed),
        lambda: world.close(device),
    ]


@scenario()
def supervised_quarantine(world: World) -> Bodies:
    """Two supervisors, one after the other or one refused, of a device whose first reset fails."""
    device, other = world.opened(), world.opened()
    simulator.fail_call("aclrtResetDeviceForce", RESET_FAILS, RESETS_TRIED)
    return [
        lambda: world.attempt("supervise", lambda: _supervise(world, device), ParameterError),
        lambda: world.attempt("supervise", lambda: _supervise(world, other), ParameterError),
        lambda: world.reset(device),
    ]


@scenario()
def finalizers(world: World) -> Bodies:
    """Unclosed handles are dropped at any point, by the running thread, while the device is reset and used."""
    device = world.opened()
    things: list[object] = [device.create_stream().result(), device.allocate(64).result(), world.open()]
    world.scheduler.garbage = things
    return [lambda: world.reset(device), lambda: _make_buffer(world, device)]


@scenario(patience=0.5)
def deadlines(world: World) -> Bodies:
    """Deadlines pass while a lease delays the end of a reset."""
    device = world.opened()

    def hold() -> None:
        with device.lease():
            world.set_flag("held")
            world.attempt("create", lambda: device.create_stream(timeout=0.3).result(), AclError)

    def make() -> None:
        opening = device.create_stream(timeout=0.01)
        world.close(world.attempt("create_stream", opening.result, TimedOut, DeviceReset))

    return [hold, make, lambda: world.reset(device, grace=AMPLE_SECONDS)]
