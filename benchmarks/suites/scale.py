"""Many outstanding awaits: the memory of each, and the time to set up one more."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import aioacl
from benchmarks.harness import Session, Suite, no_collections
from benchmarks.outstanding import Work
from benchmarks.rows import Row, Spread, ratio_row
from benchmarks.run import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME: Final = "scale"
REPEATS: Final = 5
SET_UPS: Final = 15  # more repeats, because each takes only 2 ms
COUNTS: Final = (10_000, 100_000)
FEW: Final = 1000
BATCH: Final = 512
PART: Final = 16


def memory(kind: str, count: int) -> float:
    """Returns by how many bytes a new process grows, for each of its tasks."""
    command = [sys.executable, "-m", "benchmarks.outstanding", kind, str(count)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return int(done.stdout) / count


def begun(tickets: Iterable[aioacl.Ticket]) -> list[Any]:
    """Begins an await of each ticket, without a task."""
    awaits = [ticket.__await__() for ticket in tickets]
    for each in awaits:
        each.send(None)
    return awaits


def set_up(tickets: list[aioacl.Ticket], keep: list[Any]) -> float:
    """Returns the time of setting up one await, up to its suspension.

    This is the median of many short parts, most of which the host does not disturb.
    """
    awaits = [ticket.__await__() for ticket in tickets]
    times: list[float] = []
    with no_collections():
        for first in range(0, len(awaits), PART):
            began = perf_counter()
            for each in awaits[first : first + PART]:
                each.send(None)
            times.append((perf_counter() - began) / PART)
    keep += awaits
    return median(times)


async def _set_ups(device: aioacl.Device) -> tuple[float, float]:
    """Returns the time to set up an await among few awaits, and among many."""
    async with Work(device) as work:
        few, some = work.tickets(FEW), work.tickets(BATCH)
        more, last = work.tickets(COUNTS[-1] - FEW - BATCH), work.tickets(BATCH)
        awaits = begun(few)
        among_few = set_up(some, awaits)
        awaits += begun(more)
        among_many = set_up(last, awaits)
        for each in awaits:
            each.close()
        return among_few, among_many


async def _all_set_ups(session: Session, repeats: int) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    async with aioacl.open_device() as device:
        if not session.quick:
            await _set_ups(device)  # a warm-up
        for _ in range(repeats):
            found.append(await _set_ups(device))
            session.step("set-up of an await")
    return found


def run(session: Session) -> list[Row]:
    """Measures the memory, and then the set-up."""
    repeats, set_ups = session.repeats(REPEATS, 1), session.repeats(SET_UPS, 1)
    session.plan(repeats * len(COUNTS) + set_ups)
    rows: list[Row] = []
    for count in COUNTS:
        extra: list[float] = []
        for _ in range(repeats):
            extra.append((memory("await", count) - memory("task", count)) / 1024)
            session.step(f"memory of {count} awaits")
        rows.append(Row(NAME, f"memory per await beyond its task, {count:,}", "", "KB", Spread.of(extra)))
    aioacl.use_library("simulator")
    with asyncio.Runner() as runner:
        pairs = runner.run(_all_set_ups(session, set_ups))
    few, many = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for count, times in ((FEW, few), (COUNTS[-1], many)):
        spread = Spread.of(time * 1e6 for time in times)
        rows.append(Row(NAME, f"set-up of an await among {count:,}", "", "us", spread))
    rows.append(
        ratio_row(NAME, f"set-up of an await among {COUNTS[-1]:,}", f"the same among {FEW:,}", many, few)
    )
    return rows


SUITE: Final = Suite(NAME, "10,000 and 100,000 outstanding awaits: memory, and the set-up of one more", run)
