"""The state table: each pair of a state and an event has a transition, or raises TransitionError."""

from __future__ import annotations

import pytest

from aioacl._base import states
from aioacl._base.ffi import lib
from aioacl._base.states import State, TransitionError, Trigger
from aioacl._lifecycle.admission import Admission

EVERY = [(state, event) for state in State for event in Trigger]


@pytest.mark.parametrize(("state", "event"), [pair for pair in EVERY if pair not in states.TRANSITIONS])
def test_event_without_a_transition_raises_error_that_names_state_and_event(
    state: State, event: Trigger
) -> None:
    with pytest.raises(TransitionError, match=f"{state.name}.*'{event.name.lower()}") as caught:
        states.step(state, event)
    assert (caught.value.state, caught.value.event) == (state, event)


@pytest.mark.parametrize(("state", "event"), list(states.TRANSITIONS))
def test_generation_is_raised_by_exactly_the_events_that_release_the_device(
    state: State, event: Trigger
) -> None:
    released = event in (Trigger.REVIVE, Trigger.RELEASE, Trigger.FOREIGN)
    assert states.step(state, event).new_generation is released


def test_open_draining_or_quarantined_device_is_open_after_a_reset() -> None:
    for start in (State.OPEN, State.DRAINING, State.QUARANTINED):
        assert states.step(states.step(start, Trigger.SEIZE).state, Trigger.REVIVE).state is State.OPEN


def test_quarantine_ends_only_by_the_event_seize() -> None:
    ways = {
        event
        for (state, event), step in states.TRANSITIONS.items()
        if state is State.QUARANTINED is not step.state
    }
    assert ways == {Trigger.SEIZE}


def test_foreign_reset_of_a_resetting_or_quarantined_device_keeps_its_state() -> None:
    for state in (State.RESETTING, State.QUARANTINED):
        assert states.step(state, Trigger.FOREIGN).state is state


def test_states_have_the_numbers_of_the_gate() -> None:
    assert [getattr(lib, f"AIO_{state.name}") for state in State] == [int(state) for state in State]


def test_generation_after_the_largest_is_1() -> None:
    newest = 0xFFFFF
    gate = Admission(63)
    # The generation is raised in steps, because the gate keeps its own generation if that is ahead by less than half
    # of the range.
    for generation in (newest // 3, newest // 3 * 2, newest):
        lib.aio_gate_set(gate.index, int(State.CLOSED), generation)
    seen: list[int] = []
    with gate.changed:
        for event in (
            Trigger.OPEN,
            Trigger.SEIZE,
            Trigger.REVIVE,
            Trigger.DRAIN,
            Trigger.SEIZE,
            Trigger.RELEASE,
        ):
            gate.apply(event)
            seen.append(gate.generation)
    assert seen == [newest, newest, 1, 1, 1, 2]


def test_a_state_prints_as_its_name_in_any_width() -> None:
    for state in State:
        assert str(state) == f"{state}" == state.name
        assert f"{state:>12}" == state.name.rjust(12)
