"""The state table, and ACL's counts of set, reset and force reset. Pure: no threads, no ffi, no await.

The counts are ACL's: one number per device, for the whole process.

    set            0 -> 1 sets the device up; n -> n + 1 only counts
    reset          n -> n - 1; 1 -> 0 releases; at 0 it is 507007
    force reset    n -> 0 releases; at 0 it is 507007

The states are the library's. An event that the table does not have changes nothing and names both.

    CLOSED --open--> OPEN --drain--> DRAINING --seize--> RESETTING --revive--> OPEN, one generation on
                      |                                    |  `--fail--> QUARANTINED --seize--> RESETTING
                      |                                    |  `--retake--> OPEN, after a foreign reset: see below
                      `----------close, from OPEN----------+--release--> CLOSED, one generation on
    CLOSED --fail--> QUARANTINED: a call of the first open, or of the last close, did not return

A foreign reset has made older handles stale when it is noticed, whatever the state; the device is retaken on the
generation that began then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

RELEASED_ALREADY: Final = 507007


class State(IntEnum):
    """What may be done with a device now. The numbers are the gate's."""

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
    """What happens to a device."""

    OPEN = "open"
    DRAIN = "drain"
    SEIZE = "seize"
    REVIVE = "revive"
    RETAKE = "retake"
    FAIL = "fail"
    RELEASE = "release"
    FOREIGN = "foreign reset"


@dataclass(frozen=True, slots=True)
class Transition:
    """Where an event leads, and whether older handles are stale from then on."""

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
    """An event that the state does not know; nothing has changed."""

    def __init__(self, state: State, event: Trigger) -> None:
        super().__init__(f"no device that is {state.name} takes the event {event.value!r}")
        self.state = state
        self.event = event


def step(state: State, event: Trigger) -> Transition:
    """Where the event leads from the state."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise TransitionError(state, event) from None


@dataclass(frozen=True, slots=True)
class Counts:
    """How often a device is set."""

    retained: int = 0


@dataclass(frozen=True, slots=True)
class CountResult:
    """What the runtime answers to a call, what it leaves, and whether the call releases the device."""

    code: int
    counts: Counts
    releases: bool = False


def set_device(counts: Counts) -> CountResult:
    """The answer to aclrtSetDevice."""
    return CountResult(0, Counts(counts.retained + 1))


def reset_device(counts: Counts) -> CountResult:
    """The answer to aclrtResetDevice."""
    if counts.retained == 0:
        return CountResult(RELEASED_ALREADY, counts)
    return CountResult(0, Counts(counts.retained - 1), releases=counts.retained == 1)


def reset_device_force(counts: Counts) -> CountResult:
    """The answer to aclrtResetDeviceForce."""
    if counts.retained == 0:
        return CountResult(RELEASED_ALREADY, counts)
    return CountResult(0, Counts(), releases=True)
