"""64 MiB to the device and back, beside memcpy, and how long an upload blocks the event loop."""

from __future__ import annotations

import asyncio
import ctypes
import time
from functools import partial
from selectors import EpollSelector
from typing import TYPE_CHECKING, Any, Final

import aioacl
from benchmarks.harness import Sample, Session, Suite, timed, walls
from benchmarks.rows import Row, Spread, ratio_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NAME: Final = "copy"
REPEATS: Final = 15
BYTES: Final = 64 << 20
MIB: Final = BYTES >> 20
MEMCPY: Final = "memcpy"
PAGEABLE_UP: Final = "pageable up"


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


class Copies:
    """The copies, and the turns of the loop during each."""

    def __init__(self, runner: asyncio.Runner, selector: TimedSelector, device: aioacl.Device) -> None:
        self._runner = runner
        self._selector = selector
        stream = device.create_stream().result()
        memory, pinned = device.allocate(BYTES).result(), device.pinned(BYTES).result()
        here, there = bytearray(b"\1" * BYTES), bytearray(b"\2" * BYTES)
        self._stream, self._buffers = stream, (memory, pinned)
        to, of = ((ctypes.c_char * BYTES).from_buffer(each) for each in (there, here))
        pinned.view[:] = here
        self.turns: dict[str, list[tuple[float, float]]] = {}
        self.ways: dict[str, Callable[[], Sample]] = {
            MEMCPY: partial(self._memcpy, to, of),
            "pinned up": partial(self._copy, "pinned up", lambda: stream.copy(memory, pinned)),
            "pinned down": partial(self._copy, "pinned down", lambda: stream.copy(pinned, memory)),
            PAGEABLE_UP: partial(self._copy, PAGEABLE_UP, lambda: stream.upload(memory, here)),
            "pageable down": partial(self._copy, "pageable down", lambda: stream.download(there, memory)),
        }

    def _memcpy(self, to: Any, of: Any) -> Sample:
        with timed() as timer:
            ctypes.memmove(to, of, BYTES)
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
        """Closes the stream and the buffers."""
        self._stream.close().result()
        for buffer in self._buffers:
            buffer.close().result()


def run(session: Session) -> list[Row]:
    """Measures each copy beside memcpy."""
    aioacl.use_library("simulator")
    repeats = session.repeats(REPEATS, 5)
    session.plan(repeats)
    selector = TimedSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        device = aioacl.open_device().result()
        copies = Copies(runner, selector, device)
        found = session.interleave(copies.ways, repeats, f"{MIB} MiB")
        copies.close()
        device.close().result()
    theirs = walls(found[MEMCPY])
    rows: list[Row] = []
    for name, samples in found.items():
        rates = Spread.of(BYTES / wall / 1e9 for wall in walls(samples))
        rows.append(Row(NAME, f"{MIB} MiB {name}: rate", "", "GB/s", rates))
    for name, turns in copies.turns.items():
        measured = turns[-repeats:]  # without the warm-up
        rows.append(ratio_row(NAME, f"{MIB} MiB {name}", MEMCPY, theirs, walls(found[name])))
        longest = f"{MIB} MiB {name}: longest turn of the loop"
        rows.append(Row(NAME, longest, "", "ms", Spread.of(wall * 1e3 for wall, _ in measured)))
        cpu = Spread.of(cpu * 1e3 for _, cpu in measured)
        rows.append(Row(NAME, f"{longest}, CPU of its thread", "", "ms", cpu))
    return rows


SUITE: Final = Suite(NAME, f"{MIB} MiB up and down, pinned and pageable, beside memcpy", run, cores=2)
