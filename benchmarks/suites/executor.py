"""Jobs of `device.executor` and `device.run`, beside the pools of the event loops. The jobs do nothing."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

import aioacl
from benchmarks.harness import Sample, Session, Suite, cpus, timed, walls
from benchmarks.rows import Row, Spread, ratio_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NAME: Final = "executor"
REPEATS: Final = 11
JOBS: Final = 512  # of a repeat
QUICK_JOBS: Final = 128
CONCURRENT: Final = (1, 64)
EXECUTOR: Final = "device.executor"
RUN: Final = "device.run"


def _nothing() -> None:
    pass


def ways(device: aioacl.Device, loop: asyncio.AbstractEventLoop) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Returns the ways to run a job and await its result."""
    return {
        EXECUTOR: lambda: loop.run_in_executor(device.executor, _nothing),
        RUN: lambda: device.run(_nothing),
        "run_in_executor": lambda: loop.run_in_executor(None, _nothing),
        "asyncio.to_thread": lambda: asyncio.to_thread(_nothing),
        "anyio.to_thread": lambda: anyio.to_thread.run_sync(_nothing),
    }


def measure(runner: asyncio.Runner, job: Callable[[], Awaitable[Any]], concurrent: int, jobs: int) -> Sample:
    """Measures so many jobs, `concurrent` at a time."""

    async def work() -> None:
        for _ in range(jobs // concurrent):
            await job()

    async def main() -> Sample:
        with timed() as timer:
            await asyncio.gather(*(work() for _ in range(concurrent)))
        return timer.sample(jobs // concurrent * concurrent)

    return runner.run(main())


def run(session: Session) -> list[Row]:
    """Measures one job at a time, and 64 jobs at a time."""
    aioacl.use_library("simulator")
    repeats = session.repeats(REPEATS)
    jobs = QUICK_JOBS if session.quick else JOBS
    session.plan(repeats * len(CONCURRENT))
    rows: list[Row] = []
    with ExitStack() as stack:
        device = aioacl.open_device().result()
        stack.callback(lambda: device.close().result())
        runner = stack.enter_context(asyncio.Runner())
        made = ways(device, runner.get_loop())
        for concurrent in CONCURRENT:
            what = f"{concurrent} job{'s' if concurrent > 1 else ''} at a time"
            measures = {name: partial(measure, runner, job, concurrent, jobs) for name, job in made.items()}
            found = session.interleave(measures, repeats, what)
            for name, samples in found.items():
                spread = Spread.of(wall * 1e6 for wall in walls(samples))
                rows.append(Row(NAME, f"{what}: {name}", "", "us", spread))
            for ours in (EXECUTOR, RUN):
                for peer in ("run_in_executor", "asyncio.to_thread"):
                    rows.append(
                        ratio_row(
                            NAME, f"{what}: time of {ours}", peer, walls(found[ours]), walls(found[peer])
                        )
                    )
                    rows.append(
                        ratio_row(NAME, f"{what}: CPU of {ours}", peer, cpus(found[ours]), cpus(found[peer]))
                    )
    return rows


SUITE: Final = Suite(NAME, "jobs of device.executor and device.run, beside the pools of event loops", run)
