"""A force reset that wakes 10,000 waiters, beside 10,000 futures of which each wakes a task.

The reset has a cost of its own. So the same reset is measured with one waiter for each stream, and this time is
subtracted. Each stream has one copy, which all its waiters await: more copies would make the reset itself longer, and
its noise larger.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import perf_counter
from typing import Final

import aioacl
from benchmarks.harness import Session, Suite, no_collections
from benchmarks.outstanding import STREAMS, Work
from benchmarks.rows import Row, Spread, ratio_row

NAME: Final = "reset"
REPEATS: Final = 11
WAITERS: Final = 10_000
WHAT: Final = f"{WAITERS:,} waiters woken by a reset"
FUTURES: Final = f"{WAITERS:,} futures with their tasks"


async def _until_reset(ticket: aioacl.Ticket) -> None:
    with suppress(aioacl.DeviceReset):
        await ticket


async def _wait(future: asyncio.Future[None]) -> None:
    await future


async def reset_with(device: aioacl.Device, waiters: int) -> float:
    """Returns the time from the beginning of the reset to the end of the last waiter. The work is always the same."""
    async with Work(device) as work:
        tickets = work.tickets(STREAMS)
        ended = asyncio.gather(*(_until_reset(tickets[number % STREAMS]) for number in range(waiters)))
        await asyncio.sleep(0)
        with no_collections():
            began = perf_counter()
            report = await device.force_reset(grace=0)
            await ended
            took = perf_counter() - began
    if not report.ok:
        raise RuntimeError(f"expected the reset to succeed, got {report}")
    return took


async def futures() -> float:
    """Returns the time to set the results of so many futures, until the last task has ended."""
    loop = asyncio.get_running_loop()
    made = [loop.create_future() for _ in range(WAITERS)]
    ended = asyncio.gather(*(_wait(future) for future in made))
    await asyncio.sleep(0)
    with no_collections():
        began = perf_counter()
        for future in made:
            future.set_result(None)
        await ended
        return perf_counter() - began


async def _main(session: Session) -> list[Row]:
    repeats = session.repeats(REPEATS)
    session.plan(repeats)
    woken: list[float] = []
    alone: list[float] = []
    plain: list[float] = []
    async with aioacl.open_device() as device:
        for repeat in range(repeats + 1):
            times = await reset_with(device, WAITERS), await reset_with(device, STREAMS), await futures()
            if repeat:  # the first is a warm-up
                for found, time in zip((woken, alone, plain), times, strict=True):
                    found.append(time)
                session.step(WHAT)
    added = [many - few for many, few in zip(woken, alone, strict=True)]
    return [
        Row(NAME, f"reset with {WAITERS:,} waiters", "", "ms", Spread.of(time * 1e3 for time in woken)),
        Row(NAME, f"reset with {STREAMS} waiters", "", "ms", Spread.of(time * 1e3 for time in alone)),
        Row(NAME, FUTURES, "", "ms", Spread.of(time * 1e3 for time in plain)),
        ratio_row(NAME, WHAT, FUTURES, added, plain),
    ]


def run(session: Session) -> list[Row]:
    """Measures the resets and the futures."""
    aioacl.use_library("simulator")
    return asyncio.run(_main(session))


SUITE: Final = Suite(
    NAME, f"{WAITERS:,} waiters woken by a force reset", run, environment={"AIOACL_SIM_RESET_DROP_MS": "1"}
)
