"""The state table, and ACL's counts of set, reset and force reset. Pure functions: no threads, no ffi, no await.

ACL keeps one count per device, for the whole process:

    set            0 -> 1 sets the device up; n -> n + 1 only counts
    reset          n -> n - 1; 1 -> 0 releases the device; at 0 it returns 507007
    force reset    n -> 0 releases the device; at 0 it returns 507007

The states belong to aioacl. If the table has no row for a state and an event, `step` raises TransitionError and nothing
changes. "Generation + 1" means that the generation is raised.

    CLOSED --open--> OPEN --drain--> DRAINING --seize--> RESETTING --revive--> OPEN, generation + 1
                      |                                    |  `--fail--> QUARANTINED --seize--> RESETTING
                      |                                    |  `--retake--> OPEN, after a foreign reset: see below
                      `----------close, from OPEN----------+--release--> CLOSED, generation + 1
    CLOSED --fail--> QUARANTINED: a call of the first open, or of the last close, did not return

In each state except CLOSED, a foreign reset raises the generation, which makes older handles stale. The retake that
follows sets the device again and does not raise the generation.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple

RELEASED_ALREADY: Final = 507007


class State(IntEnum):
    """The state of a device, which decides which calls the device admits.

    Attributes:
        CLOSED: the device is not open.
        OPEN: the device admits work.
        DRAINING: a reset waits for running work; enqueueing is refused, except to lease holders and jobs.
        RESETTING: a reset or the last close is running; the gate refuses every call.
        QUARANTINED: the device is closed to work because a reset failed or could not be tried.
    """

    # The gate's word stores the same values.
    CLOSED = 0
    OPEN = 1
    DRAINING = 2
    RESETTING = 3
    QUARANTINED = 4

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


class Trigger(Enum):
    """The event that changes the state of a device."""

    OPEN = "open"
    DRAIN = "drain"
    SEIZE = "seize"
    REVIVE = "revive"
    RETAKE = "retake"
    FAIL = "fail"
    RELEASE = "release"
    FOREIGN = "foreign reset"


class Transition(NamedTuple):
    """The state after an event, and whether the event raises the generation, which makes older handles stale."""

    state: State
    new_generation: bool = False


TRANSITIONS: Final[dict[tuple[State, Trigger], Transition]] = {
    (State.CLOSED, Trigger.OPEN): Transition(State.OPEN),
    (State.CLOSED, Trigger.FAIL): Transition(State.QUARANTINED),
    (State.OPEN, Trigger.DRAIN): Transition(State.DRAINING),
    (State.OPEN, Trigger.SEIZE): Transition(State.RESETTING),
    (State.OPEN, Trigger.FOREIGN): Transition(State.RESETTING, new_generation=True),
    (State.DRAINING, Trigger.SEIZE): Transition(State.RESETTING),
    (State.DRAINING, Trigger.FOREIGN): Transition(State.RESETTING, new_generation=True),
    (State.RESETTING, Trigger.REVIVE): Transition(State.OPEN, new_generation=True),
    (State.RESETTING, Trigger.RETAKE): Transition(State.OPEN),
    (State.RESETTING, Trigger.FAIL): Transition(State.QUARANTINED),
    (State.RESETTING, Trigger.RELEASE): Transition(State.CLOSED, new_generation=True),
    (State.RESETTING, Trigger.FOREIGN): Transition(State.RESETTING, new_generation=True),
    (State.QUARANTINED, Trigger.SEIZE): Transition(State.RESETTING),
    (State.QUARANTINED, Trigger.FOREIGN): Transition(State.QUARANTINED, new_generation=True),
}


class TransitionError(RuntimeError):
    """The table has no transition for this state and event; nothing has changed."""

    def __init__(self, state: State, event: Trigger) -> None:
        super().__init__(f"a device that is {state.name} has no transition for the event {event.value!r}")
        self.state = state
        self.event = event


def step(state: State, event: Trigger) -> Transition:
    """Returns the transition of an event in a state.

    Raises:
        TransitionError: the table has no such transition.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise TransitionError(state, event) from None


class Counts(NamedTuple):
    """ACL's count of a device: how often the device is set."""

    retained: int = 0


class CountResult(NamedTuple):
    """The code that a call returns, the counts after the call, and whether the call releases the device."""

    code: int
    counts: Counts
    releases: bool = False


def set_device(counts: Counts) -> CountResult:
    """Returns the result of aclrtSetDevice."""
    return CountResult(0, Counts(counts.retained + 1))


def reset_device(counts: Counts) -> CountResult:
    """Returns the result of aclrtResetDevice."""
    if counts.retained == 0:
        return CountResult(RELEASED_ALREADY, counts)
    return CountResult(0, Counts(counts.retained - 1), releases=counts.retained == 1)


def reset_device_force(counts: Counts) -> CountResult:
    """Returns the result of aclrtResetDeviceForce."""
    if counts.retained == 0:
        return CountResult(RELEASED_ALREADY, counts)
    return CountResult(0, Counts(), releases=True)
