"""What all batchers of a process have done, for the metrics: by the label of their model.

A batcher counts in its own core, on the thread that drives it. When it ends, its numbers are added to those of the
ended batchers, so that no counter falls. The lock is held for that and for a scrape, never while a batcher runs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import sync
from aioacl._base.totals import QUICK_BOUNDS, Observed

if TYPE_CHECKING:
    from aioacl._batches.core import Core

OUTCOMES: Final = ("done", "failed", "cancelled", "expired", "refused")


class BatchTotals:
    """The numbers of the batchers with one label.

    Attributes:
        waiting: the rows that wait.
        waits: how long items have waited for their first execution.
        rows: the rows of the executions.
        by_gear: the executions by their gear, the smallest one with room for their rows.
        padded: the rows of padding.
        repeats: the repeats by their cause.
        items: the items by their outcome.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.waits = Observed(len(QUICK_BOUNDS))
        self.rows = 0
        self.by_gear = Counter[int]()
        self.padded = 0
        self.repeats = Counter[str]()
        self.items = Counter[str]()

    def add(self, core: Core[Any]) -> None:
        """Adds the numbers of a batcher, which may run."""
        counts = core.counts
        waited = [*counts.waited]
        self.waits.counts = [a + b for a, b in zip(self.waits.counts, waited, strict=True)]
        self.waits.sum += counts.waited_seconds
        self.rows += counts.rows
        self.by_gear.update(dict.fromkeys(counts.gears, 0))
        for rows, executions in tuple(counts.by_rows.items()):
            self.by_gear[counts.gear_of(rows)] += executions
        self.padded += counts.padded
        causes = {"task": counts.divided, "fault": counts.suspects}
        causes["reset"] = counts.repeats - sum(causes.values())
        self.repeats.update(causes)
        self.items.update({outcome: getattr(counts, outcome) for outcome in OUTCOMES})

    def add_totals(self, other: BatchTotals) -> None:
        """Adds the numbers of ended batchers."""
        self.waits.counts = [a + b for a, b in zip(self.waits.counts, other.waits.counts, strict=True)]
        self.waits.sum += other.waits.sum
        self.rows += other.rows
        self.padded += other.padded
        self.by_gear.update(other.by_gear)
        self.repeats.update(other.repeats)
        self.items.update(other.items)


_lock: Final = sync.lock()
_running: Final[dict[int, tuple[str, Core[Any]]]] = {}
_ended: Final[dict[str, BatchTotals]] = {}
_ends = 0


def begin(core: Core[Any], label: str) -> None:
    """A batcher begins."""
    with _lock:
        _running[id(core)] = label, core


def end(core: Core[Any]) -> None:
    """A batcher has ended. May be called twice."""
    global _ends  # noqa: PLW0603 - all batchers of the process
    with _lock:
        label, _ = _running.pop(id(core), ("", core))
        if label:
            _ended.setdefault(label, BatchTotals()).add(core)
            _ends += 1


def read() -> dict[str, BatchTotals]:
    """Returns the totals by the label of the model."""
    with _lock:
        while True:
            seen, found = _ends, _read()
            if seen == _ends:  # no finalizer has ended a batcher meanwhile, on this thread
                return found


def _read() -> dict[str, BatchTotals]:
    found = dict[str, BatchTotals]()
    for label, totals in tuple(_ended.items()):
        found.setdefault(label, BatchTotals()).add_totals(totals)
    for label, core in tuple(_running.values()):
        of = found.setdefault(label, BatchTotals())
        of.add(core)
        of.waiting += core.waiting.rows
    return found
