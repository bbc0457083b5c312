"""Processes end in time and as expected: after an exit, a signal, a fork or a kill -9. They leave nothing behind.

Slow: every scenario on both backends, five times each; every fork; 200 ends with pending coroutines; 200 kills.
By default: every scenario once, on the backends in turn, with and without asyncio's debug mode; a fork at every place,
and every end of a forked child at least once; ten ends with pending coroutines; ten kills. The seed chooses the backend
of the first scenario.
Quick: a sample, on asyncio only, which starts faster.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aioacl
from tests.reliability import endings_left, endings_pending, endings_raised, endings_signals, endings_stuck
from tests.reliability.endings_child import Case, compiler, end_of, faults, witness
from tests.reliability.endings_forks import ENDS, FORKS, METHODS, PLACES
from tests.reliability.endings_kills import LATEST_SECONDS, killed
from tests.reliability.part import Outcome, Scale

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

LIMIT_SECONDS: Final = {Scale.QUICK: 60.0, Scale.DEFAULT: 300.0, Scale.SLOW: 1500.0}
# The number of trials that run at once. The same number of trials with a stuck call runs beside them, because a trial
# with a stuck call mostly waits.
AT_ONCE: Final = 2
CONTROL_EVERY: Final = 6  # trials for each control; a control is a process in which aioacl does nothing
# The limit grows by this many times the slowest control, so that trials pass on a slow machine.
CONTROLS: Final = 5
BACKENDS: Final = ("asyncio", "trio")
DEVICES: Final = 2  # the simulator's default
LINES: Final = 1200  # the interrupted program runs at least this many lines of aioacl on its main thread
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
    """One run of a case, with its random choices."""

    case: Case
    backend: str
    debug: bool
    run: int
    choices: dict[str, str]

    def __str__(self) -> str:
        debug = ", debug" if self.debug else ""
        return f"{self.case.name} ({self.backend}{debug}, run {self.run}, {self.choices})"


def _trial(case: Case, backend: str, chance: random.Random, *, run: int = 0, debug: bool = False) -> Trial:
    choices = {
        "TEST_LINE": str(chance.randrange(1, LINES)),
        "TEST_LINE_AGAIN": str(chance.randrange(1, LINES_AGAIN)) if "again" in case.name else "0",
        "TEST_MOMENT": f"{chance.uniform(0, MOMENT_SECONDS):.4f}",
    }
    return Trial(case, backend, debug and backend == "asyncio", run, choices)


class _Proof:
    """Runs trials and kills, several at a time, and collects their results."""

    def __init__(self, outcome: Outcome, chance: random.Random) -> None:
        self._outcome, self._chance = outcome, chance
        self._seconds: list[tuple[float, Trial]] = []
        self._controls: list[float] = []
        self._found: list[Future[list[str]]] = []
        self._pools = {True: ThreadPoolExecutor(AT_ONCE), False: ThreadPoolExecutor(AT_ONCE)}

    def _try(self, trial: Trial) -> list[str]:
        ending = end_of(trial.case, trial.backend, debug=trial.debug, more=trial.choices)
        self._seconds.append((ending.seconds, trial))
        return [f"{trial}: {fault}" for fault in faults(trial.case, ending)]

    def _control(self, backend: str) -> list[str]:
        ending = end_of(endings_left.CONTROL, backend)
        self._controls.append(ending.seconds)
        return [
            f"{endings_left.CONTROL.name} ({backend}): {fault}"
            for fault in faults(endings_left.CONTROL, ending)
        ]

    def _kill(self, moment: float, index: int) -> list[str]:
        what = f"kill -9 after {moment * 1000:.1f} ms, then device {index}"
        return [f"{what}: {finding}" for finding in killed(moment, index)]

    def all_of(self, what: str, trials: Sequence[Trial]) -> None:
        """Starts the trials, with controls between them. Trials with a stuck call run beside the others."""
        for number, trial in enumerate(trials):
            pool = self._pools[trial.case.destructors_run]
            if number % CONTROL_EVERY == 0:
                self._found.append(pool.submit(self._control, trial.backend))
            self._found.append(pool.submit(self._try, trial))
        self._outcome.figures[what] = len(trials)

    def kills(self, count: int) -> None:
        """Starts that many kills."""
        for number in range(count):
            moment = self._chance.uniform(0, LATEST_SECONDS)
            self._found.append(self._pools[True].submit(self._kill, moment, number % DEVICES))
        self._outcome.figures["kill -9, each with an open after it"] = count

    def report(self) -> None:
        """Waits for all trials. Adds the findings, and the figures of the slowest ends."""
        for found in self._found:
            self._outcome.findings += found.result()
        for pool in self._pools.values():
            pool.shutdown()
        self._check_times()

    def _check_times(self) -> None:
        """Checks the times. Their limit depends on the slowest control."""
        control = max(self._controls)
        self._outcome.figures["seconds of the slowest control"] = round(control, 2)
        for destructors_run, what in (
            (True, "no stuck call"),
            (False, "a stuck call, or ended from outside"),
        ):
            ends = [
                (took, f"{trial}")
                for took, trial in self._seconds
                if trial.case.destructors_run == destructors_run
            ]
            took, slowest = max(ends, default=(0.0, "none"))
            self._outcome.figures[f"seconds of the slowest end, {what}"] = f"{took:.2f}: {slowest}"
        for took, trial in self._seconds:
            limit = f"{trial.case.limit:.1f} + {CONTROLS} * {control:.2f} s"
            late = took > trial.case.limit + CONTROLS * control
            self._outcome.expect(not late, f"{trial}: expected an end within {limit}, got {took:.2f} s")


def _exits(scale: Scale, chance: random.Random) -> list[Trial]:
    if scale is Scale.QUICK:
        brief = chance.sample([case for case in SCENARIOS if case.destructors_run], 2)
        return [_trial(case, "asyncio", chance) for case in brief]
    shift = chance.randrange(4)
    return [
        _trial(case, backend, chance, run=run, debug=(turn // 2 + run) % 2 == 1)
        for turn, case in enumerate(SCENARIOS, shift)
        for backend in (BACKENDS if scale is Scale.SLOW else (BACKENDS[turn % 2],))
        for run in range(scale.pick(0, 1, 5))
    ]


def _forks(scale: Scale, chance: random.Random) -> list[Trial]:
    """The forks of the scale. By default one fork at each place. Each way to end a child occurs, in random order."""
    places, ends = chance.sample(PLACES, len(PLACES)), chance.sample(ENDS, len(ENDS))
    chosen = [FORKS[place, ends[turn % len(ends)]] for turn, place in enumerate(places)]
    cases = tuple(FORKS.values()) if scale is Scale.SLOW else chosen[: scale.pick(1, len(chosen), 0)]
    return [_trial(case, chance.choice(BACKENDS), chance) for case in cases]


def run(scale: Scale, seed: int) -> Outcome:
    """Runs exits, forks and kills."""
    outcome, chance = Outcome(), random.Random(seed)
    if not compiler():
        outcome.not_run = "expected a C compiler for witness.c, found none; install one"
        return outcome
    aioacl.use_library("simulator")
    witness()
    proof = _Proof(outcome, chance)
    proof.all_of(f"exits, {len(SCENARIOS)} scenarios", _exits(scale, chance))
    proof.all_of("forks", _forks(scale, chance))
    if scale is not Scale.QUICK:
        methods = [_trial(case, "asyncio", chance) for case in METHODS]
        proof.all_of("forks and spawns by multiprocessing", methods)
    waiting = endings_pending.cases(scale.pick(0, 10, 200), chance)
    proof.all_of("pending coroutines", [_trial(case, loop, chance) for case, loop in waiting])
    proof.kills(scale.pick(1, 10, 200))
    proof.report()
    return outcome
