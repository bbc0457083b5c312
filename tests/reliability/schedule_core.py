"""Scenarios with only a few waits, for which all schedules with few preemptions can be tried, in all thread orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base.states import Trigger
from aioacl._lifecycle.admission import Admission
from aioacl._lifecycle.lease import Lease
from aioacl._wait.current import run_blocking
from tests.reliability.schedule_scenarios import SCENARIOS, Bodies, scenario

if TYPE_CHECKING:
    from tests.reliability.schedule_world import World

__all__ = ["SCENARIOS"]  # the table of all scenarios, to which this module adds its own

CORE_INDEX: Final = 63  # there is no device with this index; only its gate is used


@scenario(core=True)
def core_gate(world: World) -> Bodies:
    """Only the gate: one thread waits for the gate, one holds nested leases, and one applies the events of a reset."""
    admission = _gate_alone()

    def steps() -> None:
        for event in (Trigger.DRAIN, Trigger.SEIZE, Trigger.REVIVE):
            with admission.changed:
                admission.apply(event)

    def hold() -> None:
        with _lease(admission), _lease(admission):
            pass

    def wait() -> None:
        run_blocking(admission.until_open, None)

    return [steps, lambda: world.attempt("wait", wait), lambda: world.attempt("hold", hold)]


@scenario(core=True)
def core_turns(world: World) -> Bodies:
    """Each waiter has a turn when the gate opens. The end of the last turn wakes the waiting reset at once."""
    admission = _gate_alone(Trigger.DRAIN, Trigger.SEIZE)

    def wait() -> None:
        with admission.turns.place() as place:
            run_blocking(lambda: admission.until_open(place), None)

    def reset() -> None:
        begun = world.scheduler.now
        with admission.changed:
            admission.apply(Trigger.REVIVE)
            while admission.turns.due:
                admission.changed.wait(1.0)
        world.expect(
            world.scheduler.now == begun,
            "expected the end of the last turn to wake its waiter, but it did not",
        )

    return [reset, lambda: world.attempt("wait", wait), lambda: world.attempt("wait", wait)]


@scenario(core=True)
def core_worker(world: World) -> Bodies:
    """A worker thread that is stopped while it has a job."""
    worker = world.manager.control  # a new worker would leave a port, which lasts as long as the process
    worker.start()

    def call() -> None:
        world.expect(
            world.attempt("call", lambda: worker.call(lambda: 42, None)) == 42,
            "expected the call to return 42, but it did not",
        )

    def stop() -> None:
        world.expect(worker.stop(5.0), "expected the thread to stop, but it still runs")

    return [call, stop]


def _gate_alone(*events: Trigger) -> Admission:
    admission = Admission(CORE_INDEX)
    for event in (Trigger.OPEN, *events):
        with admission.changed:
            admission.apply(event)
    return admission


def _lease(admission: Admission) -> Lease:
    return Lease(admission, wait=True, timeout=None)
