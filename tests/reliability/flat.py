"""Flat: after each of many task failures, the program creates a new stream or calls `renew()`; no resource grows.

Concurrent tasks make a copy fail and await it. They continue with a new stream and with a renewed one in turn. Each
strategy of waiting is used on one device, and no device is reset. After a warm-up, memory, streams, native events,
threads and descriptors are compared.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aioacl
from aioacl import simulator
from tests.kit import descriptors, live_streams, until_now
from tests.reliability.part import Outcome, Scale

if TYPE_CHECKING:
    from aioacl._base.options import Strategy

LIMIT_SECONDS: Final = {Scale.QUICK: 60.0, Scale.DEFAULT: 200.0, Scale.SLOW: 600.0}
FAILURES: Final = {Scale.QUICK: 3_000, Scale.DEFAULT: 4_000, Scale.SLOW: 10_000}
STRATEGIES: Final[tuple[Strategy, ...]] = ("watch", "thread")
TASKS: Final = 8  # tasks for each strategy of waiting
WARM_UP: Final = 0.3  # the share of all failures that belongs to the warm-up
STAGES: Final = 4
CODES: Final = (507001, 507014, 507015, 507018)
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
# If only the record of each failed stream leaked, memory would grow by 9 KB per failure.
MOST_BYTES_EACH: Final = 500
SLACK_BYTES: Final = 4 << 20  # for one-time allocations, which grow during the first 1,000 failures


def _memory() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def _threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


class Worker:
    """One task and its current stream."""

    def __init__(self, device: aioacl.Device, buffer: aioacl.DeviceBuffer, rng: random.Random) -> None:
        self._device = device
        self._buffer = buffer
        self._rng = rng
        self.wrong: list[str] = []

    async def fail(self, count: int) -> None:
        """Makes that many copies fail."""
        stream = await self._device.create_stream()
        for number in range(count):
            await self._once(stream)
            if number % 2:
                await stream.renew()
            else:
                await stream.close()
                stream = await self._device.create_stream()
        await stream.close()

    async def _once(self, stream: aioacl.Stream) -> None:
        code = self._rng.choice(CODES)
        await stream.fill(self._buffer, 1)
        event = stream.record()
        simulator.fail_next(stream, code)
        ticket = stream.copy(self._buffer, b"x")
        try:
            await event
        except aioacl.AclError as error:
            self.wrong.append(f"expected the event before a failed copy to raise nothing, got {error!r}")
        try:
            await ticket
        except aioacl.DeviceFault as error:
            if error.code != code:
                self.wrong.append(f"expected the await of a failed copy to raise code {code}, got {error!r}")
        else:
            self.wrong.append(f"expected the await of a failed copy to raise code {code}, but it returned")


async def _campaign(outcome: Outcome, failures: int, seed: int) -> list[str]:
    """Runs the failing copies; returns the rows of the table."""
    rows: list[str] = []
    async with (
        aioacl.open_device(0, STRATEGIES[0]) as first,
        aioacl.open_device(1, STRATEGIES[1]) as second,
        first.allocate(64) as one,
        second.allocate(64) as other,
    ):
        workers = [
            Worker(device, buffer, random.Random(f"{seed}/{number}"))
            for device, buffer in ((first, one), (second, other))
            for number in range(TASKS)
        ]
        counts = [failures * WARM_UP] + [failures * (1 - WARM_UP) / STAGES] * STAGES
        before: tuple[int, ...] = ()
        memory = used = 0
        for stage, count in enumerate(counts):
            await asyncio.gather(*(worker.fail(round(count / len(workers))) for worker in workers))
            await first.empty_cache()
            await second.empty_cache()
            await asyncio.to_thread(until_now, lambda: live_streams() == 0)
            now = live_streams(), simulator.stats().events, _threads(), descriptors()
            used = _memory()
            rows.append(f"stage {stage}: {used >> 10} KiB, streams, events, threads, descriptors: {now}")
            if stage == 0:
                before, memory = now, used
            for name, then, count_now in zip(
                ("streams", "events", "threads", "descriptors"), before, now, strict=True
            ):
                outcome.expect(
                    count_now <= then + (2 * TASKS if name in ("events", "threads") else 0),
                    f"expected {name} not to grow, got {rows}",
                )
        grown, most = used - memory, SLACK_BYTES + MOST_BYTES_EACH * round(failures * (1 - WARM_UP))
        outcome.expect(grown <= most, f"expected memory to grow by at most {most} bytes, got {grown}: {rows}")
        outcome.findings += [text for worker in workers for text in worker.wrong[:3]]
        for device in (first, second):
            outcome.expect(
                device.health.status == "ok", f"expected the health status ok, got {device.health}"
            )
            outcome.expect(
                simulator.resets(device.index) == 0, f"expected no reset of device {device.index}, got one"
            )
    return rows


def run(scale: Scale, seed: int) -> Outcome:
    """Runs all failing copies; the seed chooses their codes."""
    os.environ["AIOACL_SIM_DEVICES"] = "2"
    warnings.simplefilter("error")
    aioacl.use_library("simulator")
    outcome = Outcome()
    rows = asyncio.run(_campaign(outcome, FAILURES[scale], seed))
    outcome.findings += [f"violation: {text}" for text in simulator.violations()]
    outcome.figures = {"task failures": FAILURES[scale], "growth": rows}
    return outcome
