"""The law of set, reset and force reset, as two tables. Pure: no threads, no ffi, no await.

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


class Event(Enum):
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
class Step:
    """Where an event leads, and whether older handles are stale from then on."""

    state: State
    new_generation: bool = False


STEPS: Final[dict[tuple[State, Event], Step]] = {
    (State.CLOSED, Event.OPEN): Step(State.OPEN),
    (State.CLOSED, Event.FAIL): Step(State.QUARANTINED),
    (State.OPEN, Event.DRAIN): Step(State.DRAINING),
    (State.OPEN, Event.SEIZE): Step(State.RESETTING),
    (State.OPEN, Event.FOREIGN): Step(State.RESETTING, new_generation=True),
    (State.DRAINING, Event.SEIZE): Step(State.RESETTING),
    (State.DRAINING, Event.FOREIGN): Step(State.RESETTING, new_generation=True),
    (State.RESETTING, Event.REVIVE): Step(State.OPEN, new_generation=True),
    (State.RESETTING, Event.RETAKE): Step(State.OPEN),
    (State.RESETTING, Event.FAIL): Step(State.QUARANTINED),
    (State.RESETTING, Event.RELEASE): Step(State.CLOSED, new_generation=True),
    (State.RESETTING, Event.FOREIGN): Step(State.RESETTING, new_generation=True),
    (State.QUARANTINED, Event.SEIZE): Step(State.RESETTING),
    (State.QUARANTINED, Event.FOREIGN): Step(State.QUARANTINED, new_generation=True),
}


class LawError(RuntimeError):
    """An event that the state does not know; nothing has changed."""

    def __init__(self, state: State, event: Event) -> None:
        super().__init__(f"no device that is {state.name} takes the event {event.value!r}")
        self.state = state
        self.event = event


def step(state: State, event: Event) -> Step:
    """Where the event leads from the state."""
    try:
        return STEPS[state, event]
    except KeyError:
        raise LawError(state, event) from None


@dataclass(frozen=True, slots=True)
class Counts:
    """How often a device is set."""

    retained: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the runtime answers to a call, what it leaves, and whether the call releases the device."""

    code: int
    counts: Counts
    releases: bool = False


def set_device(counts: Counts) -> Verdict:
    """The answer to aclrtSetDevice."""
    return Verdict(0, Counts(counts.retained + 1))


def reset_device(counts: Counts) -> Verdict:
    """The answer to aclrtResetDevice."""
    if counts.retained == 0:
        return Verdict(RELEASED_ALREADY, counts)
    return Verdict(0, Counts(counts.retained - 1), releases=counts.retained == 1)


def reset_device_force(counts: Counts) -> Verdict:
    """The answer to aclrtResetDeviceForce."""
    if counts.retained == 0:
        return Verdict(RELEASED_ALREADY, counts)
    return Verdict(0, Counts(), releases=True)
