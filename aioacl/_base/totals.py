"""The totals of the metrics that only Python knows: resets, faults, loads of models, missed events and records.

They change rarely, and never on the path of an await or an enqueue. So one lock guards them, which is held for a few
lines and inside which no other lock is taken. What is counted often is counted in C (aioacl/_native/metrics.c).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from aioacl._base import sync

QUICK_BOUNDS: Final = (  # seconds; metrics.c has the same ones
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
LONG_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)  # seconds
MODELS_AT_MOST: Final = 100
OTHER: Final = "other"


class Observed:
    """What a histogram has observed.

    Attributes:
        sum: the sum of all values.
        counts: how many values were at most as large as each bound, and larger than the bound before it. The last count
            is of values above all bounds.
    """

    __slots__ = ("counts", "sum")

    def __init__(self, bounds: int) -> None:
        self.sum = 0.0
        self.counts = [0] * (bounds + 1)

    def copy(self) -> Observed:
        """Returns an object that does not change."""
        copy = Observed(0)
        copy.sum, copy.counts = self.sum, [*self.counts]
        return copy


Labels = tuple[str, ...]
lock: Final = sync.lock()
_counts: Final[dict[str, dict[Labels, int]]] = {}
_observed: Final[dict[str, dict[Labels, Observed]]] = {}
_models: Final[dict[str, str]] = {}


def count(name: str, *labels: object, by: int = 1) -> None:
    """Adds to a counter."""
    with lock:
        of = _counts.setdefault(name, {})
        key = tuple(map(str, labels))
        of[key] = of.get(key, 0) + by


def observe(name: str, seconds: float, *labels: object) -> None:
    """Adds a value to a histogram with LONG_BOUNDS."""
    with lock:
        found = _observed.setdefault(name, {}).setdefault(tuple(map(str, labels)), Observed(len(LONG_BOUNDS)))
        found.sum += seconds
        found.counts[bisect_left(LONG_BOUNDS, seconds)] += 1


def counts(name: str) -> dict[Labels, int]:
    """Returns a counter by its labels."""
    with lock:
        return {**_counts.get(name, {})}


def observed(name: str) -> dict[Labels, Observed]:
    """Returns a histogram by its labels."""
    with lock:
        return {labels: found.copy() for labels, found in _observed.get(name, {}).items()}


def model_label(name: str) -> str:
    """Returns the value of the label `model`: the name, or "other" if there are many names already.

    So a program that loads a model for each of its users does not fill the memory with totals. A file name that is not
    UTF-8 is escaped.
    """
    with lock:
        if name in _models:
            return _models[name]
        if len(_models) >= MODELS_AT_MOST:
            return OTHER
        label = _models[name] = name.encode(errors="backslashreplace").decode()
        return label
