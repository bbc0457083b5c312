"""The operations that instructions.py counts: it runs this file under valgrind, with the Python of a checkout.

    python instructions_work.py MARKS KIND COUNT

MARKS is the library that switches counting on and off for the calling thread; KIND is `nothing`, `enqueue` or `await`.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from typing import Final

import aioacl
from aioacl import simulator

BATCH: Final = 16  # fewer than what makes a stream look for finished work
WARM_UP: Final = 2 * BATCH
BYTES: Final = 64


class Counting:
    """Counts the instructions of this thread between `on` and `off`."""

    def __init__(self, library: str) -> None:
        self._toggle = ctypes.CDLL(library).toggle
        self._really = False

    def begin(self) -> None:
        """From now on the operations count: what was before them was to warm up."""
        self._really = True

    def toggle(self) -> None:
        """Switches it on, or off."""
        if self._really:
            self._toggle()


async def done(streams: list[aioacl.Stream]) -> None:
    """Returns once the device has done all work; does not ask the library."""
    while any(simulator.pending(stream) for stream in streams):  # noqa: ASYNC110 - no call signals it
        await asyncio.sleep(0)


async def nothing(
    counting: Counting, _streams: list[aioacl.Stream], _buffers: list[aioacl.DeviceBuffer]
) -> None:
    """What counting itself costs."""
    for _ in range(BATCH):
        counting.toggle()
        counting.toggle()


async def enqueue(
    counting: Counting, streams: list[aioacl.Stream], buffers: list[aioacl.DeviceBuffer]
) -> None:
    """One copy on a stream that does not run."""
    target, source = buffers
    stream = streams[0]
    simulator.hold(stream)
    tickets: list[aioacl.Ticket] = []
    for _ in range(BATCH):
        counting.toggle()
        ticket = stream.copy(target, source)
        counting.toggle()
        tickets.append(ticket)
    simulator.release(stream)
    await stream


async def await_(
    counting: Counting, streams: list[aioacl.Stream], buffers: list[aioacl.DeviceBuffer]
) -> None:
    """One await of a copy that is done, on a stream that nothing was awaited on since."""
    target, source = buffers
    tickets = [stream.copy(target, source) for stream in streams]
    await done(streams)
    for ticket in tickets:
        await asyncio.sleep(0)
        counting.toggle()
        await ticket
        counting.toggle()


KINDS: Final = {"nothing": nothing, "enqueue": enqueue, "await": await_}


async def main(library: str, kind: str, count: int) -> None:
    """Warms up, then counts `count` operations."""
    work, counting = KINDS[kind], Counting(library)
    async with aioacl.open_device() as device:
        streams = [await device.create_stream() for _ in range(BATCH)]
        buffers = [await device.allocate(BYTES) for _ in range(2)]
        gc.collect()
        gc.disable()
        for _ in range(0, WARM_UP, BATCH):
            await work(counting, streams, buffers)
        counting.begin()
        for _ in range(0, count, BATCH):
            await work(counting, streams, buffers)
        for handle in (*streams, *buffers):
            await handle.close()


if __name__ == "__main__":
    aioacl.use_library("simulator")
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
