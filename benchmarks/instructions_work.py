"""The operations whose instructions are counted. instructions.py runs this file with the Python of a checkout.

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

BATCH: Final = 16  # fewer entries than the number at which a stream checks for finished work
WARM_UP: Final = 2 * BATCH
BYTES: Final = 64


class Counting:
    """Switches the counting of this thread's instructions on and off. Before `begin`, `toggle` has no effect."""

    def __init__(self, library: str) -> None:
        self._toggle = ctypes.CDLL(library).toggle
        self._really = False

    def begin(self) -> None:
        """Ends the warm-up."""
        self._really = True

    def toggle(self) -> None:
        """Switches the counting on if it is off, and off if it is on."""
        if self._really:
            self._toggle()


async def done(streams: list[aioacl.Stream]) -> None:
    """Waits until the device has done all work, without a call of ACL."""
    while any(simulator.pending(stream) for stream in streams):  # noqa: ASYNC110 - no call signals it
        await asyncio.sleep(0)


async def nothing(
    counting: Counting, _streams: list[aioacl.Stream], _buffers: list[aioacl.DeviceBuffer]
) -> None:
    """Counts only the cost of the counting itself."""
    for _ in range(BATCH):
        counting.toggle()
        counting.toggle()


async def enqueue(
    counting: Counting, streams: list[aioacl.Stream], buffers: list[aioacl.DeviceBuffer]
) -> None:
    """Counts the enqueue of each copy of a batch, on a held stream."""
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
    """Counts the await of one finished copy on each stream. Nothing has queried the stream since the copy."""
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
