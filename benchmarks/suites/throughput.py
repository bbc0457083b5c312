"""Many concurrent waits of empty tasks, on up to 64 streams."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.bench import Bench
from benchmarks.harness import Sample, Session, Suite, cpus, timed, walls
from benchmarks.rows import Row, Spread, ratio_row
from benchmarks.ways import (
    AIOACL,
    BLOCKING,
    AnyioToThread,
    Blocking,
    Callback,
    Ours,
    OursTrio,
    OursUvloop,
    RunInExecutor,
    ToThread,
    TrioToThread,
    Way,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAME: Final = "throughput"
REPEATS: Final = 9
STREAMS: Final = 64
WAITS: Final = (1, 16, 64, 256, 1024, 4096)
QUICK_WAITS: Final = (1, 64, 1024)
OPERATIONS: Final = 8192  # of a repeat
QUICK_OPERATIONS: Final = 1024
LEAST_EACH: Final = 4  # waits of a task: enough that the cost of the tasks is small
WAYS: Final = (
    Ours,
    Callback,
    ToThread,
    RunInExecutor,
    AnyioToThread,
    TrioToThread,
    OursUvloop,
    OursTrio,
    Blocking,
)


def measure(way: Way, waits: int, operations: int) -> Sample:
    """Measures that many waits at a time, until `operations` are done. The tasks are part of the time."""
    each = max(LEAST_EACH, operations // waits)

    async def work(index: int) -> None:
        for _ in range(each):
            await way.wait(index)

    async def main() -> Sample:
        with timed() as timer:
            await way.together([partial(work, number % STREAMS) for number in range(waits)])
        return timer.sample(waits * each)

    return way.run(main)


def rows_of(waits: int, found: Mapping[str, Sequence[Sample]]) -> list[Row]:
    """Returns the rows of one number of waits."""
    what = f"{waits} wait{'s' if waits > 1 else ''}"
    ours = found[AIOACL]
    rows: list[Row] = []
    for name, samples in found.items():
        rates = Spread.of(1e-3 / wall for wall in walls(samples))
        rows.append(Row(NAME, f"{what}: rate of {name}", "", "k/s", rates))
    for name, samples in found.items():
        if name not in (AIOACL, BLOCKING):
            rows.append(ratio_row(NAME, f"{what}: rate", name, walls(samples), walls(ours)))
            rows.append(ratio_row(NAME, f"{what}: CPU per await", name, cpus(ours), cpus(samples)))
    return rows


def run(session: Session) -> list[Row]:
    """Measures each number of waits."""
    rows: list[Row] = []
    repeats = session.repeats(REPEATS)
    numbers = QUICK_WAITS if session.quick else WAITS
    operations = QUICK_OPERATIONS if session.quick else OPERATIONS
    session.plan(repeats * len(numbers))
    with ExitStack() as stack:
        bench = stack.enter_context(Bench(STREAMS))
        ways = {way.name: stack.enter_context(closing(way(bench))) for way in WAYS}
        for waits in numbers:
            measures = {name: partial(measure, way, waits, operations) for name, way in ways.items()}
            rows += rows_of(waits, session.interleave(measures, repeats, f"{waits} waits"))
    return rows


SUITE: Final = Suite(NAME, "1 to 4096 concurrent waits on up to 64 streams", run, unpinned=True)
