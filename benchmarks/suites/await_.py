"""One await at a time, of tasks of several lengths."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

from benchmarks.bench import Bench, tasks_of
from benchmarks.harness import Sample, Session, Suite, cpus, timed, walls
from benchmarks.rows import Added, Row, Spread, added_row, ratio_row
from benchmarks.ways import (
    AIOACL,
    ANYIO,
    BARE_TRIO,
    BLOCKING,
    CALLBACK,
    EXECUTOR,
    OURS_TRIO,
    OURS_UVLOOP,
    TO_THREAD,
    TRIO,
    AnyioToThread,
    BareTrio,
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

NAME: Final = "await"
REPEATS: Final = 15
WAYS: Final = (
    Ours,
    Callback,
    ToThread,
    Blocking,
    RunInExecutor,
    AnyioToThread,
    TrioToThread,
    OursUvloop,
    OursTrio,
    BareTrio,
)
TASKS: Final = {0: 1000, 20: 500, 100: 300, 1000: 50, 20000: 5}  # microseconds: operations of a repeat
SHARE_OF: Final = 20  # at least so many awaits are counted
LONG: Final = 20000  # microseconds
CHANGES: Final = (1000, 5000)  # microseconds: short tasks that follow long ones
ROW_OF_LONG: Final = 8  # the watcher predicts the next wait after fewer


def title(microseconds: int) -> str:
    """Returns how rows name a task of that length."""
    if microseconds == 0:
        return "empty task"
    return f"{microseconds // 1000} ms task" if microseconds >= 1000 else f"{microseconds} us task"


def measure(way: Way, count: int) -> Sample:
    """Measures `count` awaits, one after another: the median of their times, and the mean of their processor times."""

    async def main() -> Sample:
        times: list[float] = []
        with timed() as timer:
            for _ in range(count):
                began = perf_counter()
                await way.wait(0)
                times.append(perf_counter() - began)
        return Sample(median(times), timer.sample(count).cpu)

    return way.run(main)


def measure_change(way: Way, microseconds: int) -> Sample:
    """Measures the first await of a short task after a row of long tasks."""

    async def main() -> Sample:
        with tasks_of(LONG):
            for _ in range(ROW_OF_LONG):
                await way.wait(0)
        with tasks_of(microseconds):
            began = perf_counter()
            await way.wait(0)
            return Sample(perf_counter() - began)

    return way.run(main)


def rows_of_change(session: Session, ways: Mapping[str, Way], repeats: int, microseconds: int) -> list[Row]:
    """Returns the rows of the first short task after a row of long tasks."""
    what = f"first {title(microseconds)} after {title(LONG)}s"
    measures = {
        name: partial(measure_change, ways[name], microseconds) for name in (AIOACL, CALLBACK, BLOCKING)
    }
    found = session.interleave(measures, repeats, what)
    own = walls(found[BLOCKING])
    return [
        Row(
            NAME,
            f"{what}: added time" if name == AIOACL else f"{what}: added by {name}",
            "",
            "ms",
            Spread.of(value * 1e3 for value in Added.to(own, walls(found[name])).values),
        )
        for name in (AIOACL, CALLBACK)
    ]


def inline_share(way: Ours, count: int) -> float:
    """Returns the share of awaits that end without suspending their task."""

    async def main() -> float:
        return sum([await way.waits_inline(0) for _ in range(count)]) / count

    return way.run(main)


def rows_of(what: str, found: Mapping[str, Sequence[Sample]], share: float) -> list[Row]:
    """Returns the rows of the tasks of one length."""
    own = walls(found[BLOCKING])
    added = {name: Added.to(own, walls(samples)) for name, samples in found.items()}
    rows = [
        Row(NAME, f"{what}: time of the blocking call", "", "us", Spread.of(wall * 1e6 for wall in own)),
        Row(NAME, f"{what}: awaits that finish inline", "", "share", Spread.of([share])),
    ]
    for name, samples in found.items():
        if name not in (BLOCKING, BARE_TRIO):
            times = Spread.of(value * 1e6 for value in added[name].values)
            note = "" if added[name].measurable else "within the noise"
            rows.append(Row(NAME, f"{what}: added by {name}", "", "us", times, note))
            rows.append(
                Row(NAME, f"{what}: CPU of {name}", "", "us", Spread.of(cpu * 1e6 for cpu in cpus(samples)))
            )
    rows += [
        added_row(NAME, f"{what}: added time", peer, added[AIOACL], added[peer])
        for peer in (TO_THREAD, CALLBACK, EXECUTOR, ANYIO)
    ]
    rows += [
        ratio_row(NAME, f"{what}: CPU", peer, cpus(found[AIOACL]), cpus(found[peer]))
        for peer in (CALLBACK, TO_THREAD)
    ]
    rows.append(
        ratio_row(NAME, f"{what}: time on uvloop", AIOACL, walls(found[OURS_UVLOOP]), walls(found[AIOACL]))
    )
    rows.append(added_row(NAME, f"{what}: added time on trio", TRIO, added[OURS_TRIO], added[TRIO]))
    bare = Added(tuple(walls(found[BARE_TRIO])))
    rows.append(added_row(NAME, f"{what}: added time on trio", BARE_TRIO, added[OURS_TRIO], bare))
    return rows


def run(session: Session) -> list[Row]:
    """Measures tasks of each length."""
    rows: list[Row] = []
    repeats = session.repeats(REPEATS)
    session.plan(repeats * (len(TASKS) + len(CHANGES)))
    with ExitStack() as stack:
        bench = stack.enter_context(Bench(streams=1))
        ways = {way.name: stack.enter_context(closing(way(bench))) for way in WAYS}
        ours = ways[AIOACL]
        assert isinstance(ours, Ours)
        for microseconds, full in TASKS.items():
            count = max(2, full // 5) if session.quick else full
            with tasks_of(microseconds):
                measures = {name: partial(measure, way, count) for name, way in ways.items()}
                found = session.interleave(measures, repeats, title(microseconds))
                share = inline_share(ours, max(count, SHARE_OF))
            rows += rows_of(title(microseconds), found, share)
        for microseconds in CHANGES:
            rows += rows_of_change(session, ways, repeats, microseconds)
    return rows


SUITE: Final = Suite(NAME, "one await at a time, of tasks of 0 to 20000 us", run, unpinned=True)
