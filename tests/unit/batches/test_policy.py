"""When batches leave, in virtual time: as early, and as full, as with the reference policy.

The reference is a simulation without the core: a batch leaves at once if nothing runs, and otherwise when it is full.
"""

from __future__ import annotations

import random

import pytest

from tests.unit.batches.decisions import GEARS, depart

ROWS = GEARS[-1]
ITEMS = 2000
TIMES = ((0.002, 2e-5, 2e-4), (0.0003, 5e-6, 5e-5), (0.02, 2e-4, 1e-3))  # execution, for each row, upload


def arrivals(rate: float, seed: int, items: int = ITEMS) -> list[float]:
    chance, now, found = random.Random(seed), 0.0, list[float]()
    for _ in range(items):
        now += chance.expovariate(rate)
        found.append(now)
    return found


def reference(times: list[float], base: float, per_row: float, upload: float) -> tuple[list[float], float]:
    """Departures with the reference policy: at most two in flight, and at once if nothing runs, else when full."""
    waiting, ends, found, busy_until, rest = list[float](), list[float](), list[float](), 0.0, times[::-1]
    while rest or waiting:
        now = min(rest[-1:] + ends[:1])
        if rest and rest[-1] == now:
            waiting.append(rest.pop())
        ends = [end for end in ends if end > now]
        while waiting and len(ends) < 2 and (not ends or len(waiting) >= ROWS):
            batch, waiting = waiting[:ROWS], waiting[ROWS:]
            gear = next(each for each in GEARS if each >= len(batch))
            busy_until = max(now + upload, busy_until) + base + per_row * gear
            ends.append(busy_until)
            found += [busy_until - born for born in batch]
    return found, busy_until


def percentile(values: list[float], part: float) -> float:
    kept = sorted(values)
    return kept[int(len(kept) * part)]


@pytest.mark.parametrize("load", [0.02, 0.1, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("times", TIMES)
def test_latency_is_that_of_the_reference_policy(load: float, times: tuple[float, float, float]) -> None:
    base, per_row, _ = times
    capacity = ROWS / (base + per_row * ROWS)
    came = arrivals(load * capacity, seed=1)
    ours, theirs = depart(came, *times)[0], reference(came, *times)[0]
    assert len(ours) == len(theirs) == ITEMS
    for part in (0.5, 0.99):
        assert percentile(ours, part) <= 1.05 * percentile(theirs, part)


@pytest.mark.parametrize("times", TIMES)
def test_flooded_model_runs_at_its_capacity(times: tuple[float, float, float]) -> None:
    base, per_row, _ = times
    capacity = ROWS / (base + per_row * ROWS)
    ours, end = depart(arrivals(3 * capacity, seed=2, items=12000), *times)
    assert len(ours) / end >= 0.99 * capacity
