"""How long an await of an idle stream takes while 40 other streams are busy and awaited."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, closing
from functools import partial
from statistics import median
from time import perf_counter
from typing import Final

from benchmarks.bench import Bench, tasks_of
from benchmarks.harness import Sample, Session, Suite, walls
from benchmarks.rows import Row, Spread, ratio_row
from benchmarks.ways import AIOACL, AnyioToThread, Callback, Ours, OursUvloop, RunInExecutor, ToThread, Way

NAME: Final = "blocking"
REPEATS: Final = 11
BUSY: Final = 40
BUSY_US: Final = 100_000
MEASURED_SECONDS: Final = 0.06  # less than BUSY_US: the busy streams stay busy
PAUSE_SECONDS: Final = 0.001
WHAT: Final = f"idle stream behind {BUSY} busy ones"
WAYS: Final = (Ours, Callback, ToThread, RunInExecutor, AnyioToThread, OursUvloop)


def measure(way: Way) -> Sample:
    """Returns the median time of the awaits of empty tasks on the idle stream."""

    async def main() -> Sample:
        times: list[float] = []
        with tasks_of(BUSY_US):
            busy = [asyncio.ensure_future(way.wait(index)) for index in range(BUSY)]
            await asyncio.sleep(PAUSE_SECONDS)  # each task has enqueued its copy
        end = perf_counter() + MEASURED_SECONDS
        while not times or perf_counter() < end:
            began = perf_counter()
            await way.wait(BUSY)
            times.append(perf_counter() - began)
            await asyncio.sleep(PAUSE_SECONDS)
        await asyncio.gather(*busy)
        return Sample(median(times))

    return way.run(main)


def run(session: Session) -> list[Row]:
    """Measures each way."""
    repeats = session.repeats(REPEATS)
    session.plan(repeats)
    with ExitStack() as stack:
        bench = stack.enter_context(Bench(BUSY + 1))
        ways = [stack.enter_context(closing(way(bench))) for way in WAYS]
        found = session.interleave({way.name: partial(measure, way) for way in ways}, repeats, WHAT)
    ours = walls(found[AIOACL])
    rows = [
        Row(
            NAME,
            WHAT if name == AIOACL else f"{WHAT}: {name}",
            "",
            "ms",
            Spread.of(s * 1e3 for s in walls(samples)),
        )
        for name, samples in found.items()
    ]
    return rows + [
        ratio_row(NAME, WHAT, name, ours, walls(samples)) for name, samples in found.items() if name != AIOACL
    ]


SUITE: Final = Suite(NAME, f"an idle stream awaited while {BUSY} are busy", run)
