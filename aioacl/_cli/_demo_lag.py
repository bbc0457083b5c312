"""Measures how late timers of the event loop fire, with awaits and with blocking calls on the loop's thread.

Both ways run the same job: files, tasks, streams, memory, worker threads and timers are the same. Only the three waits
of each file differ. The blocking way calls aclrtMemcpyAsync and aclrtSynchronizeStream from a coroutine.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from aioacl._base.errors import error_for
from aioacl._base.ffi import ffi, lib, make_pass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from aioacl._cli._demo_input import Source
    from aioacl._device import Device
    from aioacl._handles.memory import DeviceBuffer
    from aioacl._handles.pinned import PinnedBuffer
    from aioacl._handles.stream import Stream

RUNS: Final = 3
FILES: Final = 384
FILE_BYTES: Final = 64 << 10  # only the first bytes of a larger file are used
TICK_SECONDS: Final = 0.001
WORKER_THREADS: Final = 8


@dataclass(frozen=True, slots=True)
class Lag:
    """How late timers of the event loop were, in milliseconds."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The lag with awaits and with blocking calls. Each number is the median of its runs."""

    awaited: Lag
    blocking: Lag
    mismatches: int


@dataclass(frozen=True, slots=True)
class Bench:
    """The handles of one task. Tasks share streams; each task has its own buffers."""

    stream: Stream
    source: PinnedBuffer
    here: DeviceBuffer
    there: DeviceBuffer
    back: PinnedBuffer


async def awaited(bench: Bench, size: int) -> None:
    """Copies to the device, within the device and back, with awaits."""
    await bench.stream.copy(bench.here, bench.source, nbytes=size)
    await bench.stream.copy(bench.there, bench.here, nbytes=size)
    await bench.stream.copy(bench.back, bench.there, nbytes=size)


async def blocking(bench: Bench, size: int) -> None:
    """Makes the same copies with calls that block the thread of the event loop."""
    _copy_and_wait(bench, bench.here, bench.source, size, lib.ACL_MEMCPY_HOST_TO_DEVICE)
    _copy_and_wait(bench, bench.there, bench.here, size, lib.ACL_MEMCPY_DEVICE_TO_DEVICE)
    _copy_and_wait(bench, bench.back, bench.there, size, lib.ACL_MEMCPY_DEVICE_TO_HOST)


def _copy_and_wait(
    bench: Bench,
    target: DeviceBuffer | PinnedBuffer,
    source: DeviceBuffer | PinnedBuffer,
    size: int,
    kind: int,
) -> None:
    core = bench.stream._core
    shown = make_pass(core.manager.index, core.generation)
    to, of = ffi.cast("void *", target.address), ffi.cast("void *", source.address)
    _must_succeed(
        "aclrtMemcpyAsync", lib.aio_g_aclrtMemcpyAsync(shown, to, target.size, of, size, kind, core.native)
    )
    _must_succeed("aclrtSynchronizeStream", lib.aio_g_aclrtSynchronizeStream(shown, core.native))


def _must_succeed(call: str, code: int) -> None:
    if code:
        raise error_for(code, call)


class Measurement:
    """Runs the job with one task for each bench."""

    def __init__(self, files: Sequence[Source], benches: Sequence[Bench]) -> None:
        self._files = files
        self._benches = benches
        self._threads = anyio.CapacityLimiter(WORKER_THREADS)
        self.mismatches = 0

    async def measure(self, way: Callable[[Bench, int], Awaitable[None]]) -> Lag:
        """Runs the job once, and measures the lag while the tasks work."""
        late: list[float] = []
        done = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(_probe, late, done)
            async with anyio.create_task_group() as tasks:
                left = iter(self._files)
                for bench in self._benches:
                    tasks.start_soon(self._work, way, bench, left)
            done.set()
        return Lag(_percentile(late, 0.50) * 1e3, _percentile(late, 0.99) * 1e3)

    async def _work(
        self, way: Callable[[Bench, int], Awaitable[None]], bench: Bench, left: Iterator[Source]
    ) -> None:
        for file in left:
            size, digest = await self._off_loop(_read, file, bench)
            if size:
                await way(bench, size)
            same = await self._off_loop(_digest, bench.back, size) == digest
            self.mismatches += not same

    async def _off_loop(self, work: Callable[..., Any], *arguments: object) -> Any:
        return await anyio.to_thread.run_sync(work, *arguments, limiter=self._threads)


def _read(file: Source, bench: Bench) -> tuple[int, bytes]:
    data, digest = file.read(0, FILE_BYTES)
    bench.source.view[: len(data)] = data
    # Without this, bytes of an earlier file could be mistaken for the bytes of this file.
    bench.back.view[: len(data)] = bytes(len(data))
    return len(data), digest


def _digest(back: PinnedBuffer, size: int) -> bytes:
    return hashlib.sha256(back.view[:size]).digest()


async def _probe(late: list[float], done: anyio.Event) -> None:
    while not done.is_set():
        begun = time.perf_counter()
        await anyio.sleep(TICK_SECONDS)
        late.append(time.perf_counter() - begun - TICK_SECONDS)


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(len(values) * share) - 1]


def _sample(files: Sequence[Source]) -> list[Source]:
    """Returns FILES files spread over the input. If there are fewer files, some are returned more than once."""
    step = max(1, len(files) // FILES)
    return list(itertools.islice(itertools.cycle(files[::step]), FILES))


async def compare(
    device: Device,
    files: Sequence[Source],
    tasks: int,
    streams: int,
    progress: Callable[[int, int, Comparison | None], None],
) -> Comparison:
    """Measures both ways in turn, so that other load affects both.

    Before each run, it calls `progress` with the number of runs done, the number of all runs, and the result so far.
    """
    lags: tuple[list[Lag], list[Lag]] = ([], [])
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(device.create_stream()) for _ in range(streams)]
        benches = [await _bench(stack, device, made[task % streams]) for task in range(tasks)]
        measurement = Measurement(_sample(files), benches)
        for run in range(RUNS * 2):
            progress(run, RUNS * 2, _medians(lags, measurement) if all(lags) else None)
            lags[run % 2].append(await measurement.measure((awaited, blocking)[run % 2]))
    return _medians(lags, measurement)


def _medians(lags: tuple[list[Lag], list[Lag]], measurement: Measurement) -> Comparison:
    ours, theirs = (Lag(median(lag.p50 for lag in each), median(lag.p99 for lag in each)) for each in lags)
    return Comparison(ours, theirs, measurement.mismatches)


async def _bench(stack: AsyncExitStack, device: Device, stream: Stream) -> Bench:
    source, back = [await stack.enter_async_context(device.pinned(FILE_BYTES)) for _ in range(2)]
    here, there = [await stack.enter_async_context(device.allocate(FILE_BYTES)) for _ in range(2)]
    return Bench(stream, source, here, there, back)
