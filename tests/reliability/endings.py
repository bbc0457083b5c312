"""endings: exits, signals, forks and kill -9; on time, with the right status, quietly, and with nothing left behind."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aioacl
from tests.reliability import endings_left, endings_raised, endings_signals, endings_stuck
from tests.reliability.endings_child import Case, compiler, end_of, faults, witness
from tests.reliability.endings_forks import FORKS, METHODS
from tests.reliability.endings_kills import LATEST_SECONDS, killed
from tests.reliability.part import Outcome, Scale

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LIMIT_SECONDS: Final = {Scale.QUICK: 60.0, Scale.DEFAULT: 300.0, Scale.SLOW: 1500.0}
AT_ONCE: Final = 2
DEVICES: Final = 2  # that the simulator has by itself
LINES: Final = 1200  # of aioacl that the interrupted program runs through on its main thread, at least
LINES_AGAIN: Final = 40
MOMENT_SECONDS: Final = 0.05

SCENARIOS: Final = (
    *endings_left.LEFT,
    *endings_left.LOOPS,
    *endings_raised.THREADS,
    *endings_raised.RAISED,
    *endings_stuck.STUCK,
    *endings_signals.SIGNALS,
)


@dataclass(frozen=True, slots=True)
class Trial:
    """A case to be run once, and what chance has chosen for it."""

    case: Case
    backend: str
    debug: bool
    run: int
    choices: dict[str, str]

    def __str__(self) -> str:
        debug = ", debug" if self.debug else ""
        return f"{self.case.name} ({self.backend}{debug}, run {self.run}, {self.choices})"


def _trials(cases: Iterable[Case], backends: Sequence[str], runs: int, chance: random.Random) -> list[Trial]:
    """Each case on each backend so often; every other run on asyncio is in its debug mode."""
    trials: list[Trial] = []
    for number, case in enumerate(cases):
        for backend in backends:
            for run in range(runs):
                choices = {
                    "TEST_LINE": str(chance.randrange(1, LINES)),
                    "TEST_LINE_AGAIN": str(chance.randrange(1, LINES_AGAIN)) if "again" in case.name else "0",
                    "TEST_MOMENT": f"{chance.uniform(0, MOMENT_SECONDS):.4f}",
                }
                debug = backend == "asyncio" and (run + number) % 2 == 1
                trials.append(Trial(case, backend, debug, run, choices))
    return trials


class _Proof:
    """Trials and kills, some at a time, and what came of them."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._spare = 0.0
        self._slowest = {True: 0.0, False: 0.0}

    def measure(self) -> None:
        """How long an end takes in which there is nothing to wait for."""
        for trial in _trials([endings_left.CONTROL], ("asyncio", "trio"), 1, random.Random(0)):
            ending = end_of(trial.case, trial.backend)
            self._spare = max(self._spare, ending.seconds)
            self._outcome.findings += [
                f"{trial}: {fault}" for fault in faults(trial.case, ending, self._spare)
            ]
        self._outcome.figures["seconds of an end with nothing to wait for"] = round(self._spare, 2)

    def try_out(self, trial: Trial) -> list[str]:
        """Runs one."""
        ending = end_of(trial.case, trial.backend, debug=trial.debug, more=trial.choices)
        self._slowest[trial.case.reaches] = max(self._slowest[trial.case.reaches], ending.seconds)
        return [f"{trial}: {fault}" for fault in faults(trial.case, ending, self._spare)]

    def all_of(self, what: str, trials: Sequence[Trial]) -> None:
        """Runs them, two at a time; beside them those in which a child mostly waits for somebody who is stuck."""
        stuck = [trial for trial in trials if not trial.case.reaches]
        others = [trial for trial in trials if trial.case.reaches]
        with ThreadPoolExecutor(AT_ONCE) as pool, ThreadPoolExecutor(AT_ONCE) as aside:
            for found in (*aside.map(self.try_out, stuck), *pool.map(self.try_out, others)):
                self._outcome.findings += found
        self._outcome.figures[what] = len(trials)

    def kills(self, count: int, chance: random.Random) -> None:
        """Kills so many, two at a time."""
        moments = [(chance.uniform(0, LATEST_SECONDS), number % DEVICES) for number in range(count)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for (moment, index), found in zip(
                moments, pool.map(lambda each: killed(*each), moments), strict=True
            ):
                told = f"kill -9 after {moment * 1000:.1f} ms, then device {index}"
                self._outcome.findings += [f"{told}: {finding}" for finding in found]
        self._outcome.figures["kill -9, each with an open after it"] = count

    def tell(self) -> None:
        """The slowest of all ends, by whether somebody is stuck."""
        for reaches, what in ((True, "nobody stuck"), (False, "somebody stuck, or ended from outside")):
            self._outcome.figures[f"seconds of the slowest end, {what}"] = round(self._slowest[reaches], 2)


def _exits(scale: Scale, chance: random.Random) -> list[Trial]:
    if scale is Scale.QUICK:
        return _trials(
            chance.sample([case for case in SCENARIOS if case.reaches], 3), ("asyncio",), 1, chance
        )
    return _trials(SCENARIOS, ("asyncio", "trio"), scale.pick(1, 1, 5), chance)


def _forks(scale: Scale, chance: random.Random) -> list[Trial]:
    cases = chance.sample(FORKS, scale.pick(2, 17, len(FORKS)))
    return [_trials([case], (chance.choice(("asyncio", "trio")),), 1, chance)[0] for case in cases]


def run(scale: Scale, seed: int) -> Outcome:
    """Exits, forks, kills."""
    outcome, chance = Outcome(), random.Random(seed)
    if not compiler():
        outcome.not_run = "needs a C compiler, for the witness that stands where a runtime's destructors run"
        return outcome
    aioacl.use_library("simulator")
    witness()
    proof = _Proof(outcome)
    proof.measure()
    proof.all_of(f"exits, {len(SCENARIOS)} scenarios", _exits(scale, chance))
    proof.all_of("forks", _forks(scale, chance))
    if scale is not Scale.QUICK:
        proof.all_of("forks and spawns by multiprocessing", _trials(METHODS, ("asyncio",), 1, chance))
    proof.kills(scale.pick(2, 20, 200), chance)
    proof.tell()
    return outcome
