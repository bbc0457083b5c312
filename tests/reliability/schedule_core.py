"""Scenarios cut down to a few waits: all schedules with few preemptions can be tried, whoever goes on in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base.states import Trigger
from aioacl._lifecycle.admission import Admission
from aioacl._lifecycle.lease import Lease
from aioacl._wait.current import run_blocking
from tests.reliability.schedule_scenarios import SCENARIOS, Bodies, scenario

if TYPE_CHECKING:
    from tests.reliability.schedule_world import World

__all__ = ["SCENARIOS"]  # all of them, with these

CORE_INDEX: Final = 63  # no device: only its gate is used


@scenario(core=True)
def core_gate(world: World) -> Bodies:
    """The gate alone: somebody waits for it, somebody holds a lease in a lease, and the state goes round once."""
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
    """A turn: whoever waited has it when the gate opens, and whoever waits for the last turn is woken at once."""
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
        world.expect(world.scheduler.now == begun, "the last turn woke nobody")

    return [reset, lambda: world.attempt("wait", wait), lambda: world.attempt("wait", wait)]


@scenario(core=True)
def core_worker(world: World) -> Bodies:
    """A worker thread with a customer, while it is stopped."""
    worker = world.manager.control  # a new one would leave a port: those last as long as the process
    worker.start()

    def call() -> None:
        world.expect(world.attempt("call", lambda: worker.call(lambda: 42, None)) == 42, "no answer")

    def stop() -> None:
        world.expect(worker.stop(5.0), "the thread has not stopped")

    return [call, stop]


def _gate_alone(*events: Trigger) -> Admission:
    admission = Admission(CORE_INDEX)
    for event in (Trigger.OPEN, *events):
        with admission.changed:
            admission.apply(event)
    return admission


def _lease(admission: Admission) -> Lease:
    return Lease(admission, wait=True, timeout=None)
