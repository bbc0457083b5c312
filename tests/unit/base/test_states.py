"""The state table: every state meets every event, and either the table knows it or nothing changes."""

from __future__ import annotations

import pytest

from aioacl._base import states
from aioacl._base.ffi import lib
from aioacl._base.states import State, TransitionError, Trigger
from aioacl._lifecycle.admission import Admission

EVERY = [(state, event) for state in State for event in Trigger]


@pytest.mark.parametrize(("state", "event"), [pair for pair in EVERY if pair not in states.TRANSITIONS])
def test_an_illegal_event_names_both_state_and_event(state: State, event: Trigger) -> None:
    with pytest.raises(TransitionError, match=f"{state.name}.*'{event.name.lower()}") as caught:
        states.step(state, event)
    assert (caught.value.state, caught.value.event) == (state, event)


@pytest.mark.parametrize(("state", "event"), list(states.TRANSITIONS))
def test_handles_are_stale_exactly_after_what_released_the_device(state: State, event: Trigger) -> None:
    released = event in (Trigger.REVIVE, Trigger.RELEASE, Trigger.FOREIGN)
    assert states.step(state, event).new_generation is released


def test_a_device_that_was_reset_or_has_failed_can_be_brought_back() -> None:
    for start in (State.OPEN, State.DRAINING, State.QUARANTINED):
        assert states.step(states.step(start, Trigger.SEIZE).state, Trigger.REVIVE).state is State.OPEN


def test_nothing_but_a_seizure_leads_out_of_quarantine() -> None:
    ways = {
        event
        for (state, event), step in states.TRANSITIONS.items()
        if state is State.QUARANTINED is not step.state
    }
    assert ways == {Trigger.SEIZE}


def test_a_foreign_reset_that_comes_while_the_device_is_shut_leaves_it_as_it_is() -> None:
    for state in (State.RESETTING, State.QUARANTINED):
        assert states.step(state, Trigger.FOREIGN).state is state


def test_the_states_are_the_gates_own_numbers() -> None:
    assert [getattr(lib, f"AIO_{state.name}") for state in State] == [int(state) for state in State]


def test_generations_go_round_and_none_of_them_is_0() -> None:
    newest = 0xFFFFF
    gate = Admission(63)
    for generation in (newest // 3, newest // 3 * 2, newest):  # one far ahead counts as gone by
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
