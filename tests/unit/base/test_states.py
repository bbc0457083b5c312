"""The law of states: every state meets every event, and either the table knows it or nothing changes."""

from __future__ import annotations

import pytest

from aioacl._base import states as _law
from aioacl._base.ffi import lib
from aioacl._base.states import Event, LawError, State
from aioacl._lifecycle.admission import Admission

EVERY = [(state, event) for state in State for event in Event]


@pytest.mark.parametrize(("state", "event"), [pair for pair in EVERY if pair not in _law.STEPS])
def test_an_illegal_event_names_both_state_and_event(state: State, event: Event) -> None:
    with pytest.raises(LawError, match=f"{state.name}.*'{event.name.lower()}") as caught:
        _law.step(state, event)
    assert (caught.value.state, caught.value.event) == (state, event)


@pytest.mark.parametrize(("state", "event"), list(_law.STEPS))
def test_handles_are_stale_exactly_after_what_released_the_device(state: State, event: Event) -> None:
    released = event in (Event.REVIVE, Event.RELEASE, Event.FOREIGN)
    assert _law.step(state, event).new_generation is released


def test_a_device_that_was_reset_or_has_failed_can_be_brought_back() -> None:
    for start in (State.OPEN, State.DRAINING, State.QUARANTINED):
        assert _law.step(_law.step(start, Event.SEIZE).state, Event.REVIVE).state is State.OPEN


def test_nothing_but_a_seizure_leads_out_of_quarantine() -> None:
    ways = {
        event for (state, event), step in _law.STEPS.items() if state is State.QUARANTINED is not step.state
    }
    assert ways == {Event.SEIZE}


def test_a_foreign_reset_that_comes_while_the_device_is_shut_leaves_it_as_it_is() -> None:
    for state in (State.RESETTING, State.QUARANTINED):
        assert _law.step(state, Event.FOREIGN).state is state


def test_the_states_are_the_gates_own_numbers() -> None:
    assert [getattr(lib, f"AIO_{state.name}") for state in State] == [int(state) for state in State]


def test_generations_go_round_and_none_of_them_is_0() -> None:
    newest = 0xFFFFF
    gate = Admission(63)
    for generation in (newest // 3, newest // 3 * 2, newest):  # one far ahead counts as gone by
        lib.aio_gate_set(gate.index, int(State.CLOSED), generation)
    seen: list[int] = []
    with gate.changed:
        for event in (Event.OPEN, Event.SEIZE, Event.REVIVE, Event.DRAIN, Event.SEIZE, Event.RELEASE):
            gate.apply(event)
            seen.append(gate.generation)
    assert seen == [newest, newest, 1, 1, 1, 2]


def test_a_state_prints_as_its_name_in_any_width() -> None:
    for state in State:
        assert str(state) == f"{state}" == state.name
        assert f"{state:>12}" == state.name.rjust(12)
