"""Runs the lifecycle's threads one at a time, in thousands of orders: random ones, and all with few preemptions.

Every batch of schedules runs in a process of its own, which is forked before any ACL library is loaded. The process
uses one processor, because a switch between threads on two processors costs several times as much. A finding ends its
batch, and its text includes how to repeat the schedule.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.reliability.part import Outcome, Scale
from tests.reliability.schedule_bugs import BUGS
from tests.reliability.schedule_core import SCENARIOS
from tests.reliability.schedule_runs import ScheduleProcess, Tally

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT_SECONDS: Final = {Scale.QUICK: 60.0, Scale.DEFAULT: 240.0, Scale.SLOW: 1800.0}
RANDOM: Final = (3, 85, 1200)  # random schedules of each scenario
# Schedules of each scenario that are run three times, and must be the same each time.
TWICE: Final = (1, 4, 30)
# A known bug must be found within this many schedules; the first finding ends the batch.
BUG: Final = (400, 4000, 10_000)
SMALL: Final = ("open_close", "lease_reset", "make_close", "foreign_open", "foreign_reset")
# Scenarios that are too long to try all schedules with two deviations.
TOO_LONG: Final = ("job_cancelled", "foreign_close")
QUICK_BUGS: Final = ("lost-wake-up", "no-wake-at-last-turn")
CORE_BOUND: Final = (1, 2, 3)
FULL_BOUND: Final = (0, 1, 2)
NAP_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Batch:
    """The work of one process."""

    kind: str  # "random", "twice", "core", "delays" or "bug"
    scenarios: tuple[str, ...]
    number: int = 0  # the number of schedules of each scenario, or of preemptions, or of deviations
    bug: str = ""


def _tallies(batch: Batch, seed: int, slot: int) -> Iterable[Tally]:
    process = ScheduleProcess(slot)
    if batch.bug:
        BUGS[batch.bug].put()
    for name in batch.scenarios:
        process.outcomes = {}
        if batch.kind in ("random", "bug"):
            tally = process.at_random(name, seed, range(batch.number))
        elif batch.kind == "twice":
            tally = Tally(name, schedules=3 * batch.number)
            tally.finding = process.same_twice(name, seed, range(batch.number))
        else:
            tally = process.all_of(name, batch.number, strict=batch.kind == "delays")
        if not tally.finding:
            tally.finding = process.left()
        yield tally
        if tally.finding:
            return


def _work(batch: Batch, seed: int, slot: int, answers: Any) -> None:
    """Runs a batch in its process. Ends it by os._exit, because threads of an aborted schedule wait for ever."""
    for tally in _tallies(batch, seed, slot):
        answers.put(tally)
    answers.put(None)
    answers.close()
    answers.join_thread()
    os._exit(0)


@dataclass(frozen=True, slots=True)
class _Running:
    batch: Batch
    slot: int
    process: Any
    answers: Any

    def next(self) -> Tally | None:
        """Returns the next tally, a tally without a name if there is none yet, or None after the last."""
        # Checked first: if the process has ended, everything that it sent is in the pipe.
        alive = self.process.is_alive()
        try:
            tally: Tally | None = self.answers.get(timeout=NAP_SECONDS)
        except queue.Empty:
            if alive:
                return Tally("")
            raise EOFError(
                f"expected a result from {self.batch}, got none and status {self.process.exitcode}"
            ) from None
        if tally is None:
            self.process.join()
        return tally


class _Runner:
    """Runs batches, several at a time."""

    def __init__(self, seed: int, at_once: int) -> None:
        self._seed = seed
        self._free = list(range(at_once))
        self._running: list[_Running] = []
        self._context = multiprocessing.get_context("fork")

    def run(self, batches: list[Batch]) -> Iterable[tuple[Batch, Tally]]:
        """Yields the batches with their results."""
        waiting = list(batches)
        while waiting or self._running:
            while waiting and self._free:
                self._start(waiting.pop(0), self._free.pop())
            for running in list(self._running):
                yield from self._look(running)

    def _look(self, running: _Running) -> Iterable[tuple[Batch, Tally]]:
        try:
            tally = running.next()
        except EOFError as error:
            yield running.batch, Tally(running.batch.scenarios[0], finding=str(error))
            tally = None
        if tally is None:
            self._running.remove(running)
            self._free.append(running.slot)
        elif tally.scenario:
            yield running.batch, tally

    def _start(self, batch: Batch, slot: int) -> None:
        answers = self._context.Queue()
        process = self._context.Process(target=_work, args=(batch, self._seed, slot, answers))
        process.start()
        self._running.append(_Running(batch, slot, process, answers))


def _batches(scale: Scale) -> list[Batch]:
    """Returns the batches of a scale."""
    everything = tuple(SCENARIOS)
    core = tuple(name for name, scenario in SCENARIOS.items() if scenario.core)
    whole = tuple(name for name in everything if name not in core)
    number, bound = scale.pick(*RANDOM), scale.pick(*FULL_BOUND)
    bugs = tuple(BUGS) if scale is not Scale.QUICK else QUICK_BUGS
    halves = (whole[::2], whole[1::2]) if scale is Scale.SLOW else (whole,)
    batches = [Batch("random", half, number) for half in halves]
    batches.append(Batch("twice", everything, scale.pick(*TWICE)))
    batches.append(Batch("core", core, scale.pick(*CORE_BOUND)))
    if bound:
        names = [name for name in whole if name not in TOO_LONG] if scale is Scale.SLOW else SMALL
        batches += [Batch("delays", (name,), bound) for name in names]
    batches += [Batch("bug", (BUGS[bug].scenario,), scale.pick(*BUG), bug) for bug in bugs]
    return batches


def run(scale: Scale, seed: int) -> Outcome:
    """Runs the batches of the scale."""
    outcome = Outcome()
    began = time.monotonic()
    tallies: dict[str, list[Tally]] = {}
    bugs: dict[str, Tally] = {}
    for batch, tally in _Runner(seed, 2 if scale is Scale.SLOW else 1).run(_batches(scale)):
        if batch.bug and tally.schedules:
            bugs[batch.bug] = tally
            continue
        tallies.setdefault(batch.kind, []).append(tally)
        outcome.expect(not tally.finding, tally.finding)
    _report(outcome, tallies, scale, time.monotonic() - began)
    for bug in (batch.bug for batch in _batches(scale) if batch.bug):
        found = bugs.get(bug)
        outcome.expect(found and found.finding, f"expected to find the bug {bug}, got {found}")
    outcome.figures["known bugs"] = [
        f"{bug}: found in schedule {tally.schedules} of {tally.scenario}"
        for bug, tally in bugs.items()
        if tally.finding
    ]
    return outcome


def _report(outcome: Outcome, tallies: dict[str, list[Tally]], scale: Scale, seconds: float) -> None:
    random, figures = tallies.get("random", []), outcome.figures
    count = sum(tally.schedules for tally in random)
    busy = sum(tally.seconds for tally in random)
    figures["random schedules"] = (
        f"{count}, {sum(tally.distinct for tally in random)} distinct, of {len(random)} scenarios; "
        f"{count / busy if busy else 0:.0f}/s in each process"
    )
    figures["random schedules of each scenario"] = [
        f"{tally.scenario}: {tally.distinct} distinct of {tally.schedules}, "
        f"{tally.decisions // max(1, tally.schedules)} decisions"
        for tally in random
    ]
    figures["schedules that were the same in three runs"] = (
        sum(tally.schedules for tally in tallies.get("twice", [])) // 3
    )
    bound, deviations = scale.pick(*CORE_BOUND), scale.pick(*FULL_BOUND)
    figures[f"all schedules with at most {bound} preemptions"] = [
        f"{tally.scenario}: {tally.schedules}" for tally in tallies.get("core", [])
    ]
    if deviations:
        figures[f"all schedules with at most {deviations} deviations from the order by age"] = [
            f"{tally.scenario}: {tally.schedules}" for tally in tallies.get("delays", [])
        ]
    outcomes = Counter[str]()
    for tally in [tally for each in tallies.values() for tally in each]:
        outcomes.update(tally.outcomes)
    figures["outcomes"] = ", ".join(f"{what} {number}" for what, number in sorted(outcomes.items()))
    figures["schedules"] = sum(tally.schedules for each in tallies.values() for tally in each)
    figures["seconds"] = round(seconds, 1)
