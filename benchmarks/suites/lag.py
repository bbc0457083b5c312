"""How late the event loop reacts while 64 tasks wait for work of 20 ms each.

A timer of the kernel makes a descriptor readable each millisecond. The lag is the time from then until the loop calls
the reader of the descriptor. The loop's own timers are too coarse for this: epoll rounds them up to a millisecond.

The host of a virtual machine stops it now and then, and the 99th percentile of 0.3 s has only three values above it. So
a repeat measures each way five times, and keeps the least percentile.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from contextlib import ExitStack, closing
from functools import partial
from typing import Final, Self

from benchmarks.bench import Bench, tasks_of
from benchmarks.harness import Sample, Session, Suite, walls
from benchmarks.rows import Row, Spread, ratio_row
from benchmarks.ways import AIOACL, Callback, Ours, OursUvloop, ToThread, Way

NAME: Final = "lag"
REPEATS: Final = 17
TRIES: Final = 5  # in each repeat
WAITS: Final = 64
TASK_US: Final = 20_000
ROUNDS: Final = 15  # waits of each task in a try
QUICK_ROUNDS: Final = 10
PERIOD_NS: Final = 1_000_000
PERCENTILE: Final = 0.99
WAYS: Final = (Ours, Callback, ToThread, OursUvloop)


class Probe:
    """Collects how late the loop reads a timer of the kernel."""

    def __init__(self, bench: Bench) -> None:
        self.late: list[float] = []
        self._next_ns = time.monotonic_ns() + PERIOD_NS
        self._fd: int = bench.lib.raw_timer(self._next_ns, PERIOD_NS)
        if self._fd < 0:
            raise OSError("expected a timer of the kernel, got none; close other descriptors")

    def read(self) -> None:
        """Counts each period that has begun since the last call."""
        now = time.monotonic_ns()
        for _ in range(int.from_bytes(os.read(self._fd, 8), "little")):
            self.late.append(max(0, now - self._next_ns) / 1e9)
            self._next_ns += PERIOD_NS

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._fd, self.read)
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)


def percentile(values: list[float], share: float) -> float:
    """Returns the value that this share of the values does not exceed."""
    return sorted(values)[math.ceil(len(values) * share) - 1]


def measure(way: Way, waits: int, rounds: int) -> Sample:
    """Returns the 99th percentile of the lag."""

    async def work(index: int) -> None:
        for _ in range(rounds):
            await way.wait(index)

    async def main() -> Sample:
        with Probe(way.bench) as probe:
            if waits:
                await way.together([partial(work, number) for number in range(waits)])
            else:
                await asyncio.sleep(rounds * TASK_US / 1e6)
        return Sample(percentile(probe.late, PERCENTILE))

    return way.run(main)


def least(way: Way, waits: int, rounds: int) -> Sample:
    """Returns the measurement that the host has disturbed least."""
    return min((measure(way, waits, rounds) for _ in range(TRIES)), key=lambda sample: sample.wall)


def run(session: Session) -> list[Row]:
    """Measures the lag of each way, and of a loop without waits."""
    repeats = session.repeats(REPEATS)
    rounds = QUICK_ROUNDS if session.quick else ROUNDS
    what = f"p99 under {WAITS} x 20 ms"
    session.plan(repeats)
    with ExitStack() as stack:
        bench = stack.enter_context(Bench(WAITS))
        ways = {way.name: stack.enter_context(closing(way(bench))) for way in WAYS}
        stack.enter_context(tasks_of(TASK_US))
        measures = {name: partial(least, way, WAITS, rounds) for name, way in ways.items()}
        measures["a loop without waits"] = partial(least, ways[AIOACL], 0, rounds)
        found = session.interleave(measures, repeats, what)
    rows = [
        Row(NAME, f"{what}: {name}", "", "us", Spread.of(late * 1e6 for late in walls(samples)))
        for name, samples in found.items()
    ]
    ours = walls(found[AIOACL])
    peers = [name for name in found if name != AIOACL]
    return rows + [ratio_row(NAME, what, peer, ours, walls(found[peer])) for peer in peers]


SUITE: Final = Suite(NAME, "event loop lag under 64 waits of 20 ms", run, unpinned=True)
