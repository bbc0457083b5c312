"""The sweep: for each scenario, function and code, it makes each call fail in turn, until the fault no longer fires.

The sweep uses two kinds of faults: one fires for one call only, the other also fires for all later calls. Each share
runs in its own process.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.sweep.injection import CODES, HANG_SECONDS, SCENARIOS, Bed, Injection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CALLS_MOST: Final = 200
TRIES: Final = 100  # a scenario makes some calls only if the runtime has not finished when aioacl queries
COMPLAINTS_KEPT: Final = 200


@dataclass
class Tally:
    """The results of a share of the sweep."""

    injections: int = 0
    fired: int = 0
    raised: int = 0
    vacuous: list[str] = field(default_factory=list[str])
    functions: dict[str, int] = field(default_factory=dict[str, int])
    errors: dict[str, int] = field(default_factory=dict[str, int])
    complaints: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    complained: int = 0

    def add(self, other: Tally) -> None:
        """Adds the results of another share."""
        self.injections += other.injections
        self.fired += other.fired
        self.raised += other.raised
        self.complained += other.complained
        self.vacuous += other.vacuous
        self.complaints += [(first, second) for first, second in other.complaints]
        for name in ("functions", "errors"):
            joined = Counter(getattr(self, name)) + Counter(getattr(other, name))
            setattr(self, name, dict(joined))

    def text(self) -> str:
        """Returns the tally as one line of JSON."""
        return json.dumps(self.__dict__)


class Sweeper:
    """Runs the share of one process."""

    def __init__(self, status: Path | None = None) -> None:
        self.bed = Bed()
        self.tally = Tally()
        self._status = status

    def sweep(self, scenario: str, function: str, codes: Sequence[int]) -> None:
        """Makes all injections of a scenario into the function."""
        for code, sticky in itertools.product(codes, (False, True)):
            self._loop(partial(Injection, scenario, function, code, sticky))

    def _loop(self, injection_of: Callable[[int], Injection]) -> None:
        if not any(self._inject(injection_of(1)) for _ in range(TRIES)):
            self.tally.vacuous.append(injection_of(1).replay)
            return
        for nth in range(2, CALLS_MOST + 1):
            if not self._inject(injection_of(nth)):
                return
        self.tally.complaints.append(
            (
                injection_of(CALLS_MOST).replay,
                f"expected fewer than {CALLS_MOST} calls, got at least {CALLS_MOST}",
            )
        )

    def _inject(self, injection: Injection) -> bool:
        if self._status is not None:
            self._status.write_text(injection.replay)
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True, file=2)
        outcome = self.bed.run(injection)
        faulthandler.cancel_dump_traceback_later()
        tally = self.tally
        tally.injections += 1
        tally.fired += outcome.hits > 0
        tally.functions[injection.function] = tally.functions.get(injection.function, 0) + (outcome.hits > 0)
        if outcome.error is not None:
            tally.raised += 1
            name = type(outcome.error).__name__
            tally.errors[name] = tally.errors.get(name, 0) + 1
        if outcome.complaints:
            tally.complained += 1
            if len(tally.complaints) < COMPLAINTS_KEPT:
                tally.complaints += [(injection.replay, complaint) for complaint in outcome.complaints]
        return outcome.hits > 0


def work(share: int, shares: int, codes: Sequence[int], status: Path | None) -> Tally:
    """Runs one of the `shares` shares: every `shares`-th pair of scenario and function, from number `share` on."""
    sweeper = Sweeper(status)
    pairs = [(name, function) for name in SCENARIOS for function in sweeper.bed.calls(name)]
    for scenario, function in pairs[share::shares]:
        sweeper.sweep(scenario, function, codes)
    sweeper.bed.close()
    return sweeper.tally


def replay(scenario: str, rule: str) -> list[str]:
    """Repeats one injection, and returns its outcome."""
    function, when, code = rule.split(":")
    word, _, number = when.partition("=")
    sticky = word == "after"
    injection = Injection(scenario, function, int(code.removeprefix("rc=")), sticky, int(number) + sticky)
    bed = Bed()
    outcome = bed.run(injection)
    bed.close()
    return [f"hits: {outcome.hits}", f"error: {outcome.error!r}", *outcome.complaints]


def as_tally(text: str) -> Tally:
    """Returns the tally that a share has printed."""
    found: dict[str, Any] = json.loads(text)
    return Tally(**found)


__all__ = ["CODES", "Sweeper", "Tally", "as_tally", "replay", "work"]
