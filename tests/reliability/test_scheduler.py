"""The scheduler of the part `schedules`, tested with threads that do not use ACL."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.reliability.scheduler import BEGINNING, Grain, Scheduler
from tests.reliability.strategies import Bounded, Pct, Recorded, Uniform

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reliability.scheduler import Strategy

ROOT = Path(__file__).parents[2]

STRATEGIES: dict[str, Callable[[int], Strategy]] = {
    "uniform": lambda seed: Uniform(random.Random(seed)),
    "pct": lambda seed: Pct(random.Random(seed), 3, 20),
}
DEADLOCK = """
import os, sys
from tests.reliability.scheduler import Scheduler
from tests.reliability.strategies import Recorded

scheduler = Scheduler()
one, other = scheduler.lock(), scheduler.lock()

def take(first, second):
    with first, second:
        pass

ended = scheduler.run(
    lambda: scheduler.side_by_side([("a", lambda: take(one, other)), ("b", lambda: take(other, one))]),
    Recorded([1, 1, 2, 2, 1]),
)
print(ended, *scheduler.problems, flush=True)
os._exit(0)
"""


class TakeNumbers:
    """Three threads: each takes a number under a lock, and waits until the threads with lower numbers have ended."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.order: list[str] = []

    def once(self, strategy: Strategy, grain: Grain = Grain.LOCKS) -> list[int]:
        """Runs the threads once; returns the decisions."""
        self.order.clear()
        assert self.scheduler.run(self._drive, strategy, grain=grain)
        assert self.scheduler.problems == []
        return self.scheduler.decisions

    def _drive(self) -> None:
        condition = self.scheduler.condition()
        served: list[str] = []

        def body(name: str) -> None:
            with condition:
                self.order.append(name)
                mine = len(self.order)
                while len(served) < mine - 1:
                    condition.wait()
                served.append(name)
                condition.notify_all()

        self.scheduler.side_by_side([(name, partial(body, name)) for name in "abc"])
        assert served == self.order


@pytest.mark.parametrize("name", STRATEGIES)
def test_run_with_the_same_seed_makes_the_same_decisions(name: str) -> None:
    example = TakeNumbers()
    seen = {seed: example.once(STRATEGIES[name](seed)) for seed in range(20)}
    for seed, decisions in seen.items():
        assert example.once(STRATEGIES[name](seed)) == decisions
        order = list(example.order)
        assert example.once(Recorded(decisions)) == decisions
        assert example.order == order
    assert len({tuple(decisions) for decisions in seen.values()}) > 1


def test_bounded_strategy_with_three_threads_tries_all_orders() -> None:
    example = TakeNumbers()
    orders: list[str] = []
    for strategy in Bounded(0, strict=False).schedules():
        example.once(strategy, Grain.COARSE)
        orders.append("".join(example.order))
    assert set(orders) == {"abc", "acb", "bac", "bca", "cab", "cba"}


def test_bounded_strategy_with_more_preemptions_adds_schedules_without_repeats() -> None:
    example = TakeNumbers()
    counts: list[int] = []
    for bound in range(3):
        seen = [tuple(example.once(strategy)) for strategy in Bounded(bound, strict=False).schedules()]
        assert len(set(seen)) == len(seen)
        counts.append(len(seen))
    assert counts[0] < counts[1] < counts[2]


def test_clock_jumps_when_no_thread_can_go_on() -> None:
    scheduler = Scheduler()
    times: list[float] = []

    def wait(seconds: float) -> None:
        condition = scheduler.condition()
        with condition:
            assert not condition.wait(seconds)
        times.append(scheduler.monotonic() - BEGINNING)

    assert scheduler.run(
        lambda: scheduler.side_by_side([("a", lambda: wait(3600.0)), ("b", lambda: wait(5.0))]), Recorded(())
    )
    assert times == [5.0, 3600.0]


@pytest.mark.process
def test_recorded_decisions_that_do_not_fit_are_refused() -> None:
    output = _run(DEADLOCK.replace("[1, 1, 2, 2, 1]", "[7]"))
    assert output.startswith("False decision 1 was 7")


@pytest.mark.process
def test_deadlock_is_reported_with_the_stacks_of_all_threads() -> None:
    output = _run(DEADLOCK)
    assert output.startswith("False deadlock: every thread waits for ever")
    assert "thread 1 a" in output
    assert "thread 2 b" in output


def _run(program: str) -> str:
    """Runs a program in a process of its own, because threads of an aborted run wait for ever."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout
