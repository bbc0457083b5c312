"""Which items run together, in what order, and which wait for room: the core beside a plain model of the rules.

The model keeps lists, and searches them. It knows one model of the batcher, and no failures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioacl._batches.state import Rules
from aioacl._batches.waiting import OUTSIDE, OVER, RUNNING, WAITING, Turn
from tests.unit.batches.decisions import GEARS, Job, World

if TYPE_CHECKING:
    from collections.abc import Hashable

KEYS, SHAPES = ("a", "b", "c"), (64, 128)
MOST = GEARS[-1]


class Plain:
    """The rules, in the plainest code."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.inside: list[Job] = []
        self.outside: list[Job] = []
        self.turns: dict[Hashable, list[Hashable]] = {}
        self.outside_turns: list[Hashable] = []
        self.running: list[list[Job]] = []
        self.closing = False

    def rows(self, **wanted: Any) -> int:
        return sum(
            job._rows
            for job in self.inside
            if all(getattr(job, name) == value for name, value in wanted.items())
        )

    def fits_key(self, job: Job) -> bool:
        limit = self.rules.limit_per_key
        return limit is None or self.rows(_key=job._key) + job._rows <= limit

    def fits(self, job: Job) -> bool:
        return self.fits_key(job) and self.rows() + job._rows <= self.rules.limit

    def first_outside(self, key: Hashable) -> Job:
        return next(job for job in self.outside if job._key == key)

    def arrive(self, jobs: list[Job]) -> list[Job]:
        refused = list[Job]()
        for job in jobs:
            blocked = job._key in self.outside_turns or any(
                self.fits_key(self.first_outside(key)) for key in self.outside_turns
            )
            if not blocked and self.fits(job):
                self.enter(job)
            elif job._patient:
                self.outside.append(job)
                if job._key not in self.outside_turns:
                    self.outside_turns.append(job._key)
            else:
                refused.append(job)
        return refused

    def enter(self, job: Job) -> None:
        self.inside.append(job)
        turns = self.turns.setdefault(job._shape, [])
        if job._key not in turns:
            turns.append(job._key)

    def admit(self) -> None:
        while True:
            for key in list(self.outside_turns):
                job = self.first_outside(key)
                if self.fits(job):
                    self.leave_outside(job)
                    if key in self.outside_turns:
                        self.outside_turns.remove(key)
                        self.outside_turns.append(key)
                    self.enter(job)
                    break
                if self.fits_key(job):
                    return
            else:
                return

    def leave_outside(self, job: Job) -> None:
        self.outside.remove(job)
        if all(each._key != job._key for each in self.outside):
            self.outside_turns.remove(job._key)

    def cancel(self, job: Job) -> None:
        if job in self.outside:
            self.leave_outside(job)
        elif job in self.inside:
            self.leave_inside(job, ran=False)
        self.admit()

    def leave_inside(self, job: Job, *, ran: bool) -> None:
        self.inside.remove(job)
        turns = self.turns[job._shape]
        left = any((each._shape, each._key) == (job._shape, job._key) for each in self.inside)
        if ran or not left:
            turns.remove(job._key)
        if ran and left:
            turns.append(job._key)
        if not turns:
            del self.turns[job._shape]

    def next(self, now: float) -> list[int] | None:
        if len(self.running) >= self.rules.in_flight:
            return None
        full = [shape for shape in self.turns if self.rows(_shape=shape) >= MOST]
        ready = full
        if not self.running or self.closing:
            ready = list(self.turns)
            oldest = self.oldest(ready)
            held = self.rules.hold and not self.closing and oldest is not None and oldest not in full
            if held and now < self.born(oldest) + self.rules.hold:
                ready = full
        shape = self.oldest(ready)
        return None if shape is None else self.take(shape)

    def born(self, shape: Hashable) -> float:
        born: float = min(job._turn.born for job in self.inside if job._shape == shape)
        return born

    def oldest(self, shapes: list[Hashable]) -> Hashable:
        return min(shapes, key=self.born, default=None)

    def take(self, shape: Hashable) -> list[int]:
        batch, room = list[Job](), MOST
        while self.turns.get(shape):
            job = next(job for job in self.inside if (job._shape, job._key) == (shape, self.turns[shape][0]))
            if job._rows > room:
                break
            room -= job._rows
            batch.append(job)
            self.leave_inside(job, ran=True)
        self.running.append(batch)
        self.admit()
        return [job.name for job in batch]


JOBS = st.lists(
    st.tuples(
        st.sampled_from((1, 1, 1, 2, 5, 20)), st.sampled_from(KEYS), st.sampled_from(SHAPES), st.booleans()
    ),
    min_size=1,
    max_size=12,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), JOBS),
        st.tuples(st.just("alike"), st.integers(1, 40)),
        st.tuples(st.just("cancel"), st.integers(0, 100)),
        st.tuples(st.just("end"), st.integers(0, 3)),
        st.tuples(st.just("close"), st.none()),
    ),
    max_size=30,
)
RULES = st.builds(
    Rules,
    gears=st.just(GEARS),
    limit=st.sampled_from((32, 60, 1024)),
    limit_per_key=st.sampled_from((None, 32, 40)),
    in_flight=st.sampled_from((1, 2, 3)),
    hold=st.sampled_from((0.0, 2.5)),
)


@settings(max_examples=60, deadline=None)
@given(RULES, STEPS)
def test_core_runs_the_batches_of_the_plain_model(rules: Rules, steps: list[tuple[str, Any]]) -> None:
    world, plain, jobs = World(rules), Plain(rules), list[Job]()
    for what, detail in steps:
        world.now += 1
        if what in ("arrive", "alike"):
            rows = detail if what == "arrive" else [(1, "a", 64, True)] * detail
            new = [
                Job(len(jobs) + at, rows=n, key=key, shape=shape, patient=patient)
                for at, (n, key, shape, patient) in enumerate(rows)
            ]
            jobs += new
            refused = world.arrive(*new)
            assert refused == plain.arrive(new)
            for job in refused:
                job.outcome = "refused"
        elif what == "cancel" and jobs:
            job = jobs[detail % len(jobs)]
            assert world.core.cancel(job) == (job.outcome is None)
            plain.cancel(job)
            job.outcome = job.outcome or "cancelled"
        elif what == "end" and world.begun:
            at = detail % len(world.begun)
            wanted = [job for job in plain.running.pop(at) if job.outcome is None]
            assert world.end(world.begun[at]) == wanted
        elif what == "close":
            world.core.closing = plain.closing = True
        for execution in world.begin():
            assert [job.name for job in execution.items] == plain.next(world.now)
            assert execution.rows == sum(job._rows for job in execution.items) <= MOST
        assert plain.next(world.now) is None
        assert world.core.waiting.rows == plain.rows() <= rules.limit
        assert {job for job in jobs if job._state == OUTSIDE} == set(plain.outside)


def test_turn_that_finds_its_model_idle_is_one_batch() -> None:
    world, jobs = World(), [Job(number) for number in range(5)]
    world.arrive(*jobs)
    (execution,) = world.begin()
    assert execution.items == jobs
    world.arrive(*[Job(number) for number in range(31)])
    assert world.begin() == []
    world.arrive(Job(31))
    assert [len(each.items) for each in world.begin()] == [32]


def test_batch_that_is_held_leaves_when_its_time_is_over_or_at_the_close() -> None:
    for closing in (False, True):
        world = World(Rules(GEARS, hold=10.0))
        world.arrive(Job(0))
        assert world.begin() == []
        assert world.core.wake == 10.0
        world.core.closing = closing
        world.now = 0.0 if closing else 10.0
        (execution,) = world.begin()
        assert [job.name for job in execution.items] == [0]


def test_full_batch_of_a_shape_leaves_while_an_older_item_of_another_is_held() -> None:
    world = World(Rules(GEARS, hold=10.0))
    world.arrive(Job(0, shape=64))
    assert world.begin() == []
    world.now = 1.0
    world.arrive(*[Job(number, shape=128) for number in range(1, 33)])
    (execution,) = world.begin()
    assert [job.name for job in execution.items] == [*range(1, 33)]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from("ab"), st.booleans()), min_size=1, max_size=8))
def test_quick_way_of_a_turn_finds_the_batch_of_the_usual_way(rows: list[tuple[int, str, bool]]) -> None:
    found = list[list[int] | None]()
    for quick in (True, False):
        world, jobs = World(), [Job(at, rows=n, key=key) for at, (n, key, _) in enumerate(rows)]
        turn = Turn(jobs[0])
        for job in jobs[1:]:
            turn.add(job)
        for job, (_, _, cancelled) in zip(jobs, rows, strict=True):
            job._turn = turn
            if cancelled:
                assert world.core.cancel(job)
        execution = world.core.arrive_alone(turn, 1.0) if quick else None
        if execution is None:
            world.core.arrive(turn, 1.0)
            execution = world.core.next(1.0)
        found.append(None if execution is None else [job.name for job in execution.items])
    assert found[0] == found[1]


def test_item_that_does_not_fit_ends_the_batch_and_is_not_overtaken() -> None:
    world = World(Rules(GEARS, in_flight=1))
    world.arrive(Job(0, rows=20), Job(1, rows=20), Job(2, rows=1))
    world.run()
    assert world.log == [[0], [1, 2]]


def test_keys_take_turns() -> None:
    world = World(Rules(GEARS, in_flight=1))
    world.arrive(*[Job(number, key="first") for number in range(100)])
    world.begin()
    world.arrive(Job(100, key="second"))
    world.run()
    assert 100 in world.log[1]


def test_key_that_comes_while_another_fills_the_limit_is_served_after_one_batch() -> None:
    world = World(Rules(GEARS, in_flight=1, limit=64))
    world.arrive(*[Job(number, key="first") for number in range(300)])
    world.begin()
    world.arrive(Job(300, key="second"))
    world.end(world.begun[0])
    world.begin()  # this batch makes room
    world.end(world.begun[0])
    world.begin()
    assert 300 in world.log[2]


def test_item_is_refused_without_room_unless_it_waits() -> None:
    world = World(Rules(GEARS, limit=32))
    world.begin()
    world.arrive(*[Job(number) for number in range(33)])
    late = Job(40, patient=False)
    assert world.arrive(late) == [late]
    assert world.core.counts.refused == 1


def test_cancelled_item_never_runs_and_gives_its_room_back() -> None:
    world = World(Rules(GEARS, limit=32, in_flight=1))
    jobs = [Job(0), Job(1, rows=32), Job(2), Job(3)]
    for job in jobs:
        world.arrive(job)
        world.begin()
    assert [job._state for job in jobs] == [RUNNING, WAITING, OUTSIDE, OUTSIDE]
    assert world.core.cancel(jobs[3])
    assert not world.core.cancel(jobs[3])
    assert world.core.cancel(jobs[1])
    assert [job._state for job in jobs] == [RUNNING, OVER, WAITING, OVER]
    world.run()
    assert world.log == [[0], [2]]


def test_result_of_an_item_that_was_cancelled_while_it_ran_is_dropped() -> None:
    world, jobs = World(), [Job(number) for number in range(3)]
    world.arrive(*jobs)
    (execution,) = world.begin()
    assert world.core.cancel(jobs[1])
    assert world.end(execution) == [jobs[0], jobs[2]]
    counts = world.core.counts
    assert (counts.done, counts.cancelled) == (2, 1)


def test_many_cancelled_items_are_removed_from_their_line() -> None:
    world, jobs = World(), [Job(number) for number in range(500)]
    world.arrive(*jobs)
    for job in jobs[:450]:
        world.core.cancel(job)
    (queue,) = world.core.waiting.queues.values()
    assert len(queue.turns[0].items) < 100
    world.run()
    assert sum(world.log, []) == list(range(450, 500))  # noqa: RUF017 - the lists are few


def test_padding_is_counted_to_the_smallest_gear() -> None:
    world = World()
    world.arrive(Job(0, rows=5))
    world.run()
    counts = world.core.counts
    assert (counts.executions, counts.rows, counts.padded) == (1, 5, 3)


@pytest.mark.parametrize(("rates", "chosen"), [((100.0, 100.0), 0), ((100.0, 300.0), 1)])
def test_batch_goes_to_the_model_with_the_least_load(rates: tuple[float, float], chosen: int) -> None:
    world = World(devices=2)
    for model, rate in zip(world.models, rates, strict=True):
        model.rate = rate
    world.arrive(Job(0))
    (execution,) = world.begin()
    assert execution.model is world.models[chosen]
    world.arrive(Job(1))
    assert world.begin()[0].model is world.models[1 - chosen]


def test_loaded_models_get_batches_by_their_rates() -> None:
    world = World(Rules(GEARS, in_flight=100), devices=2)
    world.models[0].rate, world.models[1].rate = 100.0, 300.0
    world.arrive(*[Job(number) for number in range(32 * 40)])
    world.begin()
    assert [len(model.running) for model in world.models] == [10, 30]


def test_model_that_is_replaced_ends_its_executions_and_gets_no_more() -> None:
    world = World(devices=2)
    old, new = world.models
    world.core.drain_model(new)
    assert world.core.models == [old]
    world.core.add_model(new)
    new.leaving = False
    world.arrive(*[Job(number) for number in range(64)])
    first = world.begin()[0]
    world.core.drain_model(first.model)
    assert first.model in world.core.models
    world.end(first)
    assert first.model not in world.core.models
