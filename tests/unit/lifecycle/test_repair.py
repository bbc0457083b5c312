"""The decisions of a supervisor: when it resets, pauses and gives up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioacl._lifecycle.repair import LOOK_SECONDS, RELAPSE_SECONDS, Found, Repair, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

READY, FAILED = Found(ready=True), Found(ready=False)
BUSY, STUCK = FAILED._replace(busy=True), FAILED._replace(stuck=True)
FORBIDDEN = FAILED._replace(permitted=False)
PAUSES = (0.5, 5.0, 50.0)


class Ended(NamedTuple):
    """How a reset ended."""

    ok: bool
    attempted: bool
    of_context: bool


class Reference:
    """Decides from the whole history, which it searches each time."""

    def __init__(self, pauses: Sequence[float], at_most: int, per: float) -> None:
        self.pauses, self.at_most, self.per = list(pauses), at_most, per
        self.history: list[tuple[str, float]] = []

    def since(self, *kinds: str) -> list[tuple[str, float]]:
        """The history after the newest entry of one of these kinds."""
        newest = max((i for i, (kind, _) in enumerate(self.history) if kind in kinds), default=-1)
        return self.history[newest + 1 :]

    def look(self, found: Found, now: float) -> tuple[str, str]:
        if found.busy:
            return "nothing", "resetting"
        if found.ready:
            self.history.append(("ready", now))
            return "nothing", "watching"
        if any(kind == "gave up" for kind, _ in self.since("ready")):
            return "nothing", "given up"
        if found.stuck:
            self.history.append(("stuck", now))
            return "nothing", "stuck"
        if not found.permitted:
            return "nothing", "forbidden"
        failures = [at for kind, at in self.since("ready", "worked") if kind == "failed"]
        recent = [kind for kind, _ in self.since("stuck")]
        if len(failures) <= len(self.pauses):
            pausing = failures and "failed" in recent and now < failures[-1] + self.pauses[len(failures) - 1]
            if pausing:
                return "nothing", "pausing"
            begun = [at for kind, at in self.history if kind == "began" and at > now - self.per]
            if len(begun) < self.at_most:
                self.history.append(("began", now))
                return "reset", "resetting"
        self.history.append(("gave up", now))
        return "give up", "given up"

    def ended(self, now: float, how: Ended) -> None:
        if how.ok:
            self.history.append(("worked", now))
        elif how.attempted:
            self.history.append(("failed", now))
        else:
            newest = max(i for i, (kind, _) in enumerate(self.history) if kind == "began")
            del self.history[newest]


founds = st.builds(Found, *[st.booleans()] * 4) | st.sampled_from([FAILED, FAILED, FAILED, READY])
seconds = st.sampled_from([0.0, 1.0, 10.0]) | st.floats(0, 100)
moves = st.lists(st.tuples(seconds, founds, st.builds(Ended, *[st.booleans()] * 3)), max_size=60)


@given(st.lists(st.floats(0, 60), max_size=4), st.integers(1, 5), st.floats(1, 300), moves)
def test_decisions_are_those_of_the_reference_that_searches_the_history(
    pauses: list[float], at_most: int, per: float, steps: list[tuple[float, Found, Ended]]
) -> None:
    repair, reference, now = Repair(pauses, at_most, per), Reference(pauses, at_most, per), 0.0
    for seconds, found, how in steps:
        now += seconds
        step = repair.look(found, now)
        assert (step.act, repair.state) == reference.look(found, now)
        gave_up = any(kind == "gave up" for kind, _ in reference.since("ready"))
        assert bool(repair.problem) == gave_up
        if step.act == "reset":
            repair.ended(now, **how._asdict())
            reference.ended(now, how)


@given(st.lists(st.floats(0, 60), max_size=4), st.integers(1, 5), st.floats(1, 300), moves)
def test_resets_begin_only_when_they_may_and_never_more_often_than_at_most(
    pauses: list[float], at_most: int, per: float, steps: list[tuple[float, Found, Ended]]
) -> None:
    repair, now, begun, in_a_row = Repair(pauses, at_most, per), 0.0, list[float](), 0
    for seconds, found, how in steps:
        now += seconds
        step = repair.look(found, now)
        in_a_row = 0 if found.ready and not found.busy else in_a_row
        if step.act != "reset":
            continue
        assert found == FAILED
        repair.ended(now, **how._asdict())
        if how.ok or how.attempted:
            begun.append(now)
            in_a_row = 0 if how.ok else in_a_row + 1
        assert in_a_row <= len(pauses) + 1
        assert sum(at > now - per for at in begun) <= at_most


def failing(repair: Repair, now: float, found: Found = FAILED) -> Step:
    """A look that begins a reset which fails at once."""
    step = repair.look(found, now)
    if step.act == "reset":
        repair.ended(now, ok=False)
    return step


def test_each_reset_that_fails_is_followed_by_the_next_pause_and_the_last_by_giving_up() -> None:
    repair, now = Repair(PAUSES, 6, 3600), 0.0
    for pause in PAUSES:
        assert failing(repair, now).act == "reset"
        assert failing(repair, now + pause / 2) == Step("nothing", pause / 2)
        assert repair.state == "pausing"
        now += pause
    assert failing(repair, now).act == "reset"
    assert failing(repair, now) == Step("give up")
    assert repair.problem == "its supervisor gave up after 4 resets that failed"
    assert failing(repair, now + 1e6) == Step("nothing")


@pytest.mark.parametrize(("ok", "count"), [(True, 3), (False, 1)])
def test_reset_that_works_does_not_end_the_count_of_resets(ok: bool, count: int) -> None:
    repair = Repair((), 3, 100)
    for now in range(count):
        assert repair.look(FAILED, now).act == "reset"
        repair.ended(now, ok=ok)
    assert repair.look(FAILED, 99) == Step("give up")
    because = "because 3 resets within 100 s did not help" if ok else "after 1 reset that failed"
    assert because in repair.problem


def test_reset_of_long_ago_does_not_count() -> None:
    repair = Repair((), 1, 100)
    assert repair.look(FAILED, 0).act == "reset"
    repair.ended(0, ok=True)
    assert repair.look(READY, 1).act == "nothing"
    assert repair.look(FAILED, 100).act == "reset"


def test_reset_that_works_ends_the_series_of_failures() -> None:
    repair = Repair((0,), 100, 100)
    assert failing(repair, 0).act == "reset"
    assert repair.look(FAILED, 0).act == "reset"
    repair.ended(0, ok=True)
    assert [failing(repair, 0).act for _ in range(3)] == ["reset", "reset", "give up"]


def test_only_the_resets_of_long_ago_are_forgotten() -> None:
    repair = Repair((), 2, 100)
    for now in 0, 90, 100:
        assert repair.look(FAILED, now).act == "reset"
        repair.ended(now, ok=True)
    assert repair.look(FAILED, 110).act == "give up"


def test_pause_ends_when_the_device_works() -> None:
    repair = Repair(PAUSES, 6, 3600)
    assert failing(repair, 0).act == "reset"
    assert repair.look(READY, 0.1).act == "nothing"
    assert repair.look(FAILED, 0.2).act == "reset"


def test_pause_ends_when_a_stuck_call_returns() -> None:
    repair = Repair(PAUSES, 6, 3600)
    assert failing(repair, 0).act == "reset"
    assert repair.look(STUCK, 0.1) == Step("nothing", LOOK_SECONDS)
    assert repair.look(FAILED, 0.2).act == "reset"


def test_reset_that_was_not_attempted_does_not_count() -> None:
    repair = Repair((), 1, 100)
    for now in range(5):
        assert repair.look(FAILED, now).act == "reset"
        repair.ended(now, ok=False, attempted=False)
        assert repair.look(STUCK, now).act == "nothing"
    assert repair.problem == ""


def test_device_that_works_again_ends_the_giving_up() -> None:
    repair = Repair((), 2, 100)
    assert failing(repair, 0).act == "reset"
    assert failing(repair, 1).act == "give up"
    assert repair.look(READY, 2).act == "nothing"
    assert (repair.state, repair.problem) == ("watching", "")
    assert failing(repair, 3).act == "reset"


def test_forbidden_reset_begins_when_it_becomes_permitted() -> None:
    repair = Repair(PAUSES, 6, 3600)
    assert repair.look(FORBIDDEN, 0) == Step("nothing", LOOK_SECONDS)
    assert repair.state == "forbidden"
    assert repair.look(FAILED, 1).act == "reset"


@pytest.mark.parametrize(
    ("ok", "of_context", "after", "gently"),
    [
        (True, True, 1, False),
        (True, True, RELAPSE_SECONDS, True),
        (True, False, 1, True),
        (False, True, 1, True),
    ],
)
def test_device_is_reset_at_once_if_it_fails_soon_after_a_new_context(
    ok: bool, of_context: bool, after: float, gently: bool
) -> None:
    repair = Repair(PAUSES, 6, 3600)
    assert repair.look(FAILED, 0).gently
    repair.ended(0, ok=ok, of_context=of_context)
    assert repair.look(FAILED, after) == Step("reset", gently=gently)


def test_running_reset_of_another_caller_is_waited_for() -> None:
    repair = Repair(PAUSES, 6, 3600)
    assert repair.look(BUSY, 0) == Step("nothing", LOOK_SECONDS)
    assert repair.state == "resetting"
