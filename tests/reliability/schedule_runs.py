"""Runs a scenario under the scheduler: one schedule, many random schedules, or all schedules with few preemptions."""

from __future__ import annotations

import gc
import hashlib
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioacl import simulator
from tests.reliability.schedule_core import SCENARIOS
from tests.reliability.schedule_world import Hooks, World, install
from tests.reliability.scheduler import Grain, Scheduler
from tests.reliability.strategies import Bounded, Pct, Recorded, Uniform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.reliability.schedule_scenarios import Scenario
    from tests.reliability.scheduler import Strategy

COLLECT_EVERY: Final = 50
STRATEGIES: Final = ("pct2", "pct3", "uniform")
GRAINS: Final = (Grain.LOCKS, Grain.CROSSINGS)


@dataclass(slots=True)
class Tally:
    """The result of a batch of schedules."""

    scenario: str
    schedules: int = 0
    distinct: int = 0
    decisions: int = 0
    longest: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    finding: str = ""


class ScheduleProcess:
    """A process that runs schedules. After a schedule that cannot be ended, the process is not used again."""

    def __init__(self, slot: int = 0) -> None:
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {processors[slot % len(processors)]})
        gc.disable()  # the garbage is collected between schedules, so that finalizers do not run at random moments
        self.scheduler = Scheduler()
        install(self.scheduler)
        self.hooks = Hooks()
        self.hooks.put()
        self._runs = 0
        self._lengths: dict[str, int] = {}
        self.outcomes: dict[str, int] = {}
        for name in ("open_close", "events"):
            self.once(SCENARIOS[name], Recorded(()), grain=Grain.LOCKS)
        # Includes the descriptors that wake the device's threads, which last as long as the process.
        self._before = _descriptors()

    # --- one schedule -----------------------------------------------------------------------------------------

    def once(self, scenario: Scenario, strategy: Strategy, *, grain: Grain) -> list[str]:
        """Runs one schedule; returns the problems that it found."""
        worlds: list[World] = []

        def drive() -> None:
            world = World(self.scheduler)
            worlds.append(world)
            bodies = scenario.build(world)
            self.scheduler.side_by_side([(f"user-{n}", body) for n, body in enumerate(bodies)])
            world.finish()
            self.scheduler.others_end()
            world.check()

        ended = self.scheduler.run(drive, strategy, grain=grain, patience=scenario.patience)
        problems = [*self.scheduler.problems, *self.hooks.errors, *self.hooks.warnings]
        self.hooks.errors.clear()
        self.hooks.warnings.clear()
        for world in worlds:
            problems += world.problems
            for outcome in world.outcomes:
                self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        if ended:
            self._tidy()
        return problems

    def _tidy(self) -> None:
        simulator.clear()
        self._runs += 1
        if self._runs % COLLECT_EVERY == 0:
            gc.collect()

    def left(self) -> str:
        """Returns a text if the runs have left descriptors open. Threads need no check: each run joins its threads."""
        gc.collect()
        now = _descriptors()
        return "" if now <= self._before else f"expected at most {self._before} open descriptors, got {now}"

    # --- many -------------------------------------------------------------------------------------------------

    def length(self, scenario: Scenario, *, grain: Grain) -> int:
        """Returns the number of decisions in a run without preemptions."""
        key = f"{scenario.name} {grain.value}"
        if key not in self._lengths:
            self.once(scenario, Recorded(()), grain=grain)
            self._lengths[key] = len(self.scheduler.decisions)
        return self._lengths[key]

    def strategy(self, scenario: Scenario, seed: int, number: int) -> tuple[Strategy, Grain]:
        """Returns the strategy of the schedule with that number, and the grain of its points."""
        kind, grain = STRATEGIES[number % 3], GRAINS[number // 3 % 2]
        rng = random.Random(f"{seed} {scenario.name} {number}")
        if kind == "uniform":
            return Uniform(rng), grain
        return Pct(rng, int(kind[-1]), self.length(scenario, grain=grain)), grain

    def at_random(self, name: str, seed: int, numbers: range) -> Tally:
        """Runs random schedules; stops at the first finding."""
        scenario, tally, seen = SCENARIOS[name], Tally(name), set[bytes]()
        began = time.perf_counter()
        for number in numbers:
            strategy, grain = self.strategy(scenario, seed, number)
            problems = self.once(scenario, strategy, grain=grain)
            self._count(tally, seen, grain=grain)
            if problems:
                how = f"--seed {seed} --number {number}"
                tally.finding = self._finding(name, problems, how, grain=grain)
                break
        tally.seconds = time.perf_counter() - began
        tally.outcomes = self.outcomes
        return tally

    def all_of(self, name: str, bound: int, *, strict: bool) -> Tally:
        """Runs all schedules with at most `bound` preemptions; if `strict`, with at most `bound` deviations."""
        scenario, tally, seen = SCENARIOS[name], Tally(name), set[bytes]()
        began = time.perf_counter()
        for strategy in Bounded(bound, strict=strict).schedules():
            problems = self.once(scenario, strategy, grain=Grain.COARSE)
            self._count(tally, seen, grain=Grain.COARSE)
            if problems:
                tally.finding = self._finding(name, problems, "", grain=Grain.COARSE)
                break
        tally.seconds = time.perf_counter() - began
        tally.outcomes = self.outcomes
        return tally

    def _count(self, tally: Tally, seen: set[bytes], *, grain: Grain) -> None:
        decisions = self.scheduler.decisions
        tally.schedules += 1
        tally.decisions += len(decisions)
        tally.longest = max(tally.longest, len(decisions))
        seen.add(digest(decisions, grain=grain))
        tally.distinct = len(seen)

    def _finding(self, name: str, problems: Sequence[str], how: str, *, grain: Grain) -> str:
        decisions = ",".join(map(str, self.scheduler.decisions))
        command = f"python -m tests.reliability.replay {name}"
        exact = f"{command} --grain={grain.value} --decisions={decisions}"
        return "\n".join([f"{name}: {command} {how}" if how else name, exact, *problems])

    def same_twice(self, name: str, seed: int, numbers: range) -> str:
        """Runs each schedule twice, and once more from its decisions. Returns a text if the decisions differ."""
        scenario = SCENARIOS[name]
        for number in numbers:
            first = self._decisions(scenario, *self.strategy(scenario, seed, number))
            again, grain = self.strategy(scenario, seed, number)
            second = self._decisions(scenario, again, grain)
            third = self._decisions(scenario, Recorded(first), grain)
            if not first == second == third:
                return f"expected {name} --seed {seed} --number {number} to repeat, got\n{first}\n{second}\n{third}"
        return ""

    def _decisions(self, scenario: Scenario, strategy: Strategy, grain: Grain) -> list[int]:
        self.once(scenario, strategy, grain=grain)
        return self.scheduler.decisions


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def digest(decisions: Sequence[int], *, grain: Grain) -> bytes:
    """Returns a key that identifies a schedule."""
    return hashlib.blake2b(repr((grain.value, decisions)).encode(), digest_size=12).digest()
