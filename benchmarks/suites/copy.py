"""64 MiB to the device and back, beside memcpy, and how long an upload blocks the event loop.

The cores of a virtual machine differ in speed by up to a fifth, and blocks of memory differ too. So the simulated
device has one core for itself, as a card has an engine for copies, and everything else runs on the other cores. Each
copy is compared with a memcpy of the same memory on the core of the device.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from functools import partial
from pathlib import Path
from selectors import EpollSelector
from typing import TYPE_CHECKING, Any, Final

import aioacl
from benchmarks.harness import Sample, Session, Suite, timed, walls
from benchmarks.rows import Row, Spread, ratio_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NAME: Final = "copy"
# A busy host changes the ratio of one repeat by a fifth. With 121 of them, the median varies by about 2 %.
REPEATS: Final = 121
BYTES: Final = 64 << 20
MIB: Final = BYTES >> 20
MEMCPY: Final = "memcpy"


class TimedSelector(EpollSelector):
    """Keeps the longest turn of its loop: from the return of `select` to its next call."""

    def __init__(self) -> None:
        super().__init__()
        self.start()

    def start(self) -> None:
        """Forgets the earlier turns. This one begins now."""
        self.longest = self.longest_cpu = 0.0
        self._began, self._began_cpu = time.perf_counter(), time.thread_time()

    def end(self) -> None:
        """Ends a turn."""
        self.longest = max(self.longest, time.perf_counter() - self._began)
        self.longest_cpu = max(self.longest_cpu, time.thread_time() - self._began_cpu)

    def select(self, timeout: float | None = None) -> Any:
        """Ends a turn, waits, and begins the next."""
        self.end()
        ready = super().select(timeout)
        self._began, self._began_cpu = time.perf_counter(), time.thread_time()
        return ready


def bind_device(cores: set[int]) -> None:
    """Binds the threads of the simulated devices to the cores."""
    for task in Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().startswith("aclsim-dev"):
            os.sched_setaffinity(int(task.name), cores)


def address_of(block: Any) -> int:
    """Returns the address of a writable object with the buffer protocol."""
    return ctypes.addressof(ctypes.c_char.from_buffer(block))


class Copies:
    """The copies, a memcpy of the memory of each, and the turns of the loop during each copy."""

    def __init__(self, runner: asyncio.Runner, selector: TimedSelector) -> None:
        self._runner = runner
        self._selector = selector
        cores = os.sched_getaffinity(0)
        self._core_of_device = {max(cores)}
        self._other_cores = cores - self._core_of_device or cores
        os.sched_setaffinity(0, self._other_cores)  # for the threads that the device starts too
        self._device = device = aioacl.open_device().result()
        stream = device.create_stream().result()
        memory, pinned = device.allocate(BYTES).result(), device.pinned(BYTES).result()
        self._stream, self._buffers = stream, (memory, pinned)
        here, there = bytearray(b"\1" * BYTES), bytearray(b"\2" * BYTES)
        stream.fill(memory, 0).result()  # starts the thread of the simulated device
        bind_device(self._core_of_device)
        on_device, on_host = memory.address, address_of(pinned.view)
        self.turns: dict[str, list[tuple[float, float]]] = {}
        self.names: list[str] = []
        self.ways: dict[str, Callable[[], Sample]] = {}
        self._add("pinned up", lambda: stream.copy(memory, pinned), on_device, on_host)
        self._add("pinned down", lambda: stream.copy(pinned, memory), on_host, on_device)
        self._add("pageable up", lambda: stream.upload(memory, here), on_device, address_of(here))
        self._add("pageable down", lambda: stream.download(there, memory), address_of(there), on_device)

    def _add(self, name: str, begin: Callable[[], Awaitable[object]], to: int, of: int) -> None:
        self.names.append(name)
        self.ways[f"{name}, {MEMCPY}"] = partial(self._memcpy, to, of)
        self.ways[name] = partial(self._copy, name, begin)

    def _memcpy(self, to: int, of: int) -> Sample:
        os.sched_setaffinity(0, self._core_of_device)
        try:
            with timed() as timer:
                ctypes.memmove(to, of, BYTES)
        finally:
            os.sched_setaffinity(0, self._other_cores)
        return timer.sample(1)

    def _copy(self, name: str, begin: Callable[[], Awaitable[object]]) -> Sample:
        async def main() -> Sample:
            await asyncio.sleep(0)
            self._selector.start()
            with timed() as timer:
                await begin()
            self._selector.end()
            return timer.sample(1)

        sample = self._runner.run(main())
        self.turns.setdefault(name, []).append((self._selector.longest, self._selector.longest_cpu))
        return sample

    def close(self) -> None:
        """Closes the device and everything on it."""
        self._stream.close().result()
        for buffer in self._buffers:
            buffer.close().result()
        self._device.close().result()


def run(session: Session) -> list[Row]:
    """Measures each copy beside memcpy."""
    aioacl.use_library("simulator")
    repeats = session.repeats(REPEATS, 5)
    session.plan(repeats)
    selector = TimedSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        copies = Copies(runner, selector)
        found = session.interleave(copies.ways, repeats, f"{MIB} MiB")
        copies.close()
    rows: list[Row] = []
    for name, samples in found.items():
        rates = Spread.of(BYTES / wall / 1e9 for wall in walls(samples))
        rows.append(Row(NAME, f"{MIB} MiB {name}: rate", "", "GB/s", rates))
    for name in copies.names:
        theirs, turns = walls(found[f"{name}, {MEMCPY}"]), copies.turns[name]
        measured = turns[-repeats:]  # without the warm-up
        rows.append(ratio_row(NAME, f"{MIB} MiB {name}", MEMCPY, theirs, walls(found[name])))
        longest = f"{MIB} MiB {name}: longest turn of the loop"
        rows.append(Row(NAME, longest, "", "ms", Spread.of(wall * 1e3 for wall, _ in measured)))
        cpu = Spread.of(cpu * 1e3 for _, cpu in measured)
        rows.append(Row(NAME, f"{longest}, CPU of its thread", "", "ms", cpu))
    return rows


SUITE: Final = Suite(NAME, f"{MIB} MiB up and down, pinned and pageable, beside memcpy", run, cores=2)
