"""The data of a result: rows, and the gates that judge them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Verdict = Literal["aim", "must", "missed", "noise", "reported"]
MAD_TO_DEVIATION: Final = (
    1.4826  # the standard deviation of normally distributed values, in median deviations
)
OF_MEDIAN: Final = 1.2533  # the standard error of their median, in standard errors of their mean


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of the repeats, and their range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Returns the spread of the values."""
        kept = sorted(values)
        if not kept:
            raise ValueError("expected at least one repeat, got none; measure at least once")
        return cls(median(kept), kept[0], kept[-1])


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Returns the ratio of each repeat."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def noise(values: Sequence[float]) -> float:
    """Returns twice the standard error of the median of the values: a smaller median may be zero."""
    middle = median(values)
    deviation = MAD_TO_DEVIATION * median(abs(value - middle) for value in values)
    return 2 * OF_MEDIAN * deviation / math.sqrt(len(values))


@dataclass(frozen=True, slots=True)
class Added:
    """The time that a way of waiting adds to the task's own time, repeat by repeat."""

    values: tuple[float, ...]

    @classmethod
    def to(cls, own: Sequence[float], walls: Sequence[float]) -> Added:
        """Returns what is added to `own`, the time of the blocking call."""
        return cls(tuple(wall - task for wall, task in zip(walls, own, strict=True)))

    @property
    def noise(self) -> float:
        """The smallest added time that can be measured."""
        return noise(self.values)

    @property
    def measurable(self) -> bool:
        """Whether the added time is larger than the noise."""
        return median(self.values) > self.noise


@dataclass(frozen=True, slots=True)
class Row:
    """One measured value. Without a peer, it is absolute; with one, it is the ratio to that peer.

    Attributes:
        suite: the suite that measured it.
        name: what was measured.
        peer: what it is compared with, or "".
        unit: "x" for a ratio, otherwise the unit of the value.
        spread: the value; None if it is within the noise.
        note: what a reader must know of this value.
        pinned: whether the process ran on a fixed number of cores. Other rows are never judged.
        skipped: whether nothing was measured, because an optional peer is not installed. Such rows are never judged.
    """

    suite: str
    name: str
    peer: str
    unit: str
    spread: Spread | None
    note: str = ""
    pinned: bool = True
    skipped: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """The key by which a limit selects its row."""
        return self.suite, self.name, self.peer


def ratio_row(suite: str, name: str, peer: str, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """Returns the row of the ratio of two series of repeats."""
    return Row(suite, name, peer, "x", Spread.of(ratios(ours, theirs)))


def skipped_row(suite: str, name: str, peer: str, package: str) -> Row:
    """Returns the row of a ratio to an optional peer whose package is not installed."""
    return Row(suite, name, peer, "x", None, f"skipped: the package {package} is not installed", skipped=True)


def added_row(suite: str, name: str, peer: str, ours: Added, theirs: Added) -> Row:
    """Returns the row of the ratio of two added times.

    If aioacl's added time is within the noise, its largest likely value is used, so the ratio is an upper bound. If the
    peer's added time is within the noise, there is no ratio.
    """
    if not theirs.measurable:
        return Row(suite, name, peer, "x", None, "the peer's added time is within the noise")
    over = [max(value, theirs.noise) for value in theirs.values]
    if ours.measurable:
        return Row(suite, name, peer, "x", Spread.of(ratios(ours.values, over)))
    bound = max(0.0, median(ours.values)) + ours.noise
    return Row(
        suite, name, peer, "x", Spread.of(bound / value for value in over), "an upper bound: within the noise"
    )


@dataclass(frozen=True, slots=True)
class Gate:
    """What a row must reach, and its aim. `at_least`: larger values are better."""

    suite: str
    name: str
    peer: str
    must: float | None
    aim: float | None
    at_least: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """The key of the row that this gate judges."""
        return self.suite, self.name, self.peer

    def judges(self, spread: Spread | None) -> Verdict:
        """Returns the verdict on a value."""
        if spread is None:
            return "noise"
        if self.aim is not None and self._reaches(spread.median, self.aim):
            return "aim"
        if self.must is None:
            return "reported"
        return "must" if self._reaches(spread.median, self.must) else "missed"

    def _reaches(self, value: float, limit: float) -> bool:
        return value >= limit if self.at_least else value <= limit

    def shown(self, limit: float | None) -> str:
        """Returns a limit as text."""
        return "" if limit is None else f"{'>=' if self.at_least else '<='} {limit:g}"


@dataclass(frozen=True, slots=True)
class Judged:
    """A row, its gate if it has one, and the verdict."""

    row: Row
    gate: Gate | None
    verdict: Verdict

    def as_json(self) -> dict[str, Any]:
        """Returns the row as JSON has it."""
        found = asdict(self.row)
        spread = found.pop("spread")
        found.update(spread or {"median": None, "low": None, "high": None})
        found["must"] = self.gate.must if self.gate else None
        found["aim"] = self.gate.aim if self.gate else None
        found["at_least"] = bool(self.gate and self.gate.at_least)
        found["verdict"] = self.verdict
        return found


def judge(rows: Iterable[Row], gates: Iterable[Gate]) -> list[Judged]:
    """Returns each row with the verdict of its gate. A row of an unpinned process, or a skipped row, has no gate."""
    by_key = {gate.key: gate for gate in gates}
    found: list[Judged] = []
    for row in rows:
        gate = by_key.get(row.key) if row.pinned and not row.skipped else None
        found.append(Judged(row, gate, gate.judges(row.spread) if gate else "reported"))
    return found


def missing(rows: Iterable[Row], gates: Iterable[Gate], suites: Iterable[str]) -> list[Gate]:
    """Returns the gates of the suites that no row of a pinned process matches."""
    keys, ran = {row.key for row in rows if row.pinned}, set(suites)
    return [gate for gate in gates if gate.suite in ran and gate.key not in keys]


def exit_status(judged: Iterable[Judged]) -> int:
    """Returns 1 if a row misses what it must reach, else 0."""
    return int(any(each.verdict == "missed" for each in judged))


def row_of(found: dict[str, Any]) -> Row:
    """Returns the row that a child process has sent as JSON."""
    spread = found.pop("spread")
    return Row(**found, spread=Spread(**spread) if spread else None)
