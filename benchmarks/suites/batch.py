"""`await infer(x)` of a batcher, beside the least code that makes batches. The executions do nothing.

A number of tasks await one item after another. Both ways join the rows of a batch with numpy.concatenate, and split the
result. The two alternate.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioacl._batches.batcher import Batcher
from aioacl._batches.executor import Watched
from aioacl._batches.state import Rules
from benchmarks.floor import floor
from benchmarks.harness import Suite, cpus, timed
from benchmarks.rows import Row, ratio_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.harness import Sample, Session

NAME: Final = "batch"
CALLERS: Final = (1, 64, 1024)
ITEMS: Final = 20480
QUICK_ITEMS: Final = 4096
GEARS: Final = (1, 2, 4, 8, 16, 32)
OURS: Final = "CPU per item"
FLOOR: Final = "floor"


class _Device:
    """A device that is always open."""

    generation = 1
    is_open = True
    failed = returns = False

    def listen(self, changed: Callable[[], object]) -> Callable[[], object]:
        return changed


class _Nothing:
    """Executions that end at once."""

    zeros = None

    def execute(self, calls: list[Any], ended: Callable[[Any], object]) -> None:
        out = np.concatenate(calls)
        ended([out[i : i + 1] for i in range(len(calls))])

    def alone(self) -> Callable[[], bool]:
        return lambda: False

    def close(self) -> None:
        """Nothing is kept."""


def _serve(*_: object) -> list[tuple[_Nothing, Watched]]:
    return [(_Nothing(), Watched(_Device()))]


def _check(x: Any) -> tuple[Any, int, None]:
    return x, len(x), None


async def _nothing(rows: Any) -> Any:
    return rows


async def _load(infer: Callable[[Any], Awaitable[Any]], callers: int, items: int) -> Sample:
    x = np.zeros((1, 64), np.float32)

    async def caller() -> None:
        for _ in range(items // callers):
            await infer(x)

    with timed() as timer:
        await asyncio.gather(*(caller() for _ in range(callers)))
    return timer.sample(items // callers * callers)


def _ours(callers: int, items: int) -> Sample:
    infer = Batcher._make(Rules(GEARS, limit=4096), _check, _serve)
    try:
        return asyncio.run(_load(infer, callers, items))
    finally:
        infer.close(grace=0).result()


def _floor(callers: int, items: int) -> Sample:
    async def run() -> Sample:
        async with floor(_nothing, max_rows=GEARS[-1]) as infer:
            return await _load(infer, callers, items)

    return asyncio.run(run())


def run(session: Session) -> list[Row]:
    """Measures both ways with each number of callers."""
    repeats = session.repeats(15)
    items = QUICK_ITEMS if session.quick else ITEMS
    session.plan(repeats * len(CALLERS))
    rows = list[Row]()
    for callers in CALLERS:
        what = f"{callers} callers: {OURS}"
        found = session.interleave(
            {
                OURS: lambda callers=callers: _ours(callers, items),  # type: ignore[misc]  # mypy infers no type for a lambda with a default
                FLOOR: lambda callers=callers: _floor(callers, items),  # type: ignore[misc]  # as above
            },
            repeats,
            what,
        )
        rows.append(ratio_row(NAME, what, FLOOR, cpus(found[OURS]), cpus(found[FLOOR])))
    return rows


SUITE: Final = Suite(NAME, "await infer(x) of a batcher, beside the least code that makes batches", run)
