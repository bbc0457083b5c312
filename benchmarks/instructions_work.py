"""The operations whose instructions are counted. instructions.py runs this file with the Python of a checkout.

    python instructions_work.py MARKS KIND COUNT

MARKS is the library that switches counting on and off for the calling thread; KIND is `nothing`, `enqueue` or `await`.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from typing import TYPE_CHECKING, Final, cast

import aioacl
from aioacl import simulator
from aioacl._base.ffi import PENDING, lib
from aioacl._wait.current import current_port

if TYPE_CHECKING:
    from aioacl._wait.asyncio import AsyncioPort

BATCH: Final = 16  # fewer entries than the number at which a stream checks for finished work
WARM_UP: Final = 2 * BATCH
BYTES: Final = 64


class Counting:
    """Switches the counting of this thread's instructions on and off, for a number of operations."""

    def __init__(self, library: str) -> None:
        self._toggle = ctypes.CDLL(library).toggle
        self.left = 0  # operations that are still to be counted; 0 during the warm-up

    def toggle(self) -> None:
        """Switches the counting on if it is off, and off if it is on."""
        if self.left:
            self._toggle()

    def counted(self) -> None:
        """Ends an operation that was counted."""
        self.left -= self.left > 0


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
        counting.counted()


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
        counting.counted()
        tickets.append(ticket)
    simulator.release(stream)
    await stream


def is_known(ticket: aioacl.Ticket) -> bool:
    """Whether aioacl knows that the work is done. Then an await makes no query, and takes fewer instructions."""
    handle, position = ticket._core.handle, ticket._position  # noqa: SLF001 - no public function leaves it unknown
    return bool(lib.aio_stream_known(handle, position) != PENDING)


async def await_(
    counting: Counting, streams: list[aioacl.Stream], buffers: list[aioacl.DeviceBuffer]
) -> None:
    """Counts the await of one finished copy on each stream, if no other thread has queried the stream since."""
    target, source = buffers
    tickets = [stream.copy(target, source) for stream in streams]
    await done(streams)
    port = cast("AsyncioPort", current_port())
    for ticket in tickets:
        await asyncio.sleep(0)
        port._new_turn()  # noqa: SLF001 - without it, the number of instructions would depend on the clock
        if is_known(ticket):
            continue
        counting.toggle()
        await ticket
        counting.toggle()
        counting.counted()


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
        counting.left = count
        for _ in range(count):  # more rounds than needed, because not all awaits are counted
            if counting.left:
                await work(counting, streams, buffers)
        if counting.left:
            raise RuntimeError(f"expected to count {count} operations, got {count - counting.left}")
        for handle in (*streams, *buffers):
            await handle.close()


if __name__ == "__main__":
    aioacl.use_library("simulator")
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
