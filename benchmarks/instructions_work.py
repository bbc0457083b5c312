"""The operations whose instructions are counted. instructions.py runs this file with the Python of a checkout.

    python instructions_work.py MARKS COUNT

MARKS is the library that switches counting on and off for the calling thread, and writes the counts to a file. Each
kind of operation runs COUNT times, and then 2 * COUNT times. After each of them, callgrind writes a file whose label is
the kind and the factor.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import aioacl
from aioacl import _digits, simulator
from aioacl._base.ffi import PENDING, lib
from aioacl._wait.current import current_port

if TYPE_CHECKING:
    from aioacl._wait.asyncio import AsyncioPort

BATCH: Final = 16  # fewer entries than the number at which a stream checks for finished work
WARM_UP: Final = 2 * BATCH
BYTES: Final = 64


@dataclass(frozen=True)
class Handles:
    """What the operations use."""

    streams: list[aioacl.Stream]
    buffers: list[aioacl.DeviceBuffer]
    model: aioacl.Model
    x: Any


class Counting:
    """Switches the counting of this thread's instructions on and off, for a number of operations."""

    def __init__(self, library: str) -> None:
        marks = ctypes.CDLL(library)
        self._toggle, self._write = marks.toggle, marks.write_counts
        self.left = 0  # operations that are still to be counted; 0 during the warm-up

    def toggle(self) -> None:
        """Switches the counting on if it is off, and off if it is on."""
        if self.left:
            self._toggle()

    def counted(self) -> None:
        """Ends an operation that was counted."""
        self.left -= self.left > 0

    def write(self, label: str) -> None:
        """Writes the counts of all threads to files with that label, and sets them to 0."""
        self._write(label.encode())


async def done(streams: list[aioacl.Stream]) -> None:
    """Waits until the device has done all work, without a call of ACL."""
    while any(simulator.pending(stream) for stream in streams):  # noqa: ASYNC110 - no call signals it
        await asyncio.sleep(0)


async def nothing(counting: Counting, _handles: Handles) -> None:
    """Counts only the cost of the counting itself."""
    for _ in range(BATCH):
        counting.toggle()
        counting.toggle()
        counting.counted()


async def enqueue(counting: Counting, handles: Handles) -> None:
    """Counts the enqueue of each copy of a batch, on a held stream."""
    target, source = handles.buffers
    stream = handles.streams[0]
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


async def await_(counting: Counting, handles: Handles) -> None:
    """Counts the await of one finished copy on each stream, if no other thread has queried the stream since."""
    target, source = handles.buffers
    tickets = [stream.copy(target, source) for stream in handles.streams]
    await done(handles.streams)
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


async def call(counting: Counting, handles: Handles) -> None:
    """Counts calls of a model, with the turns of the loop that each of them takes."""
    for _ in range(BATCH):
        counting.toggle()
        await handles.model(handles.x)
        counting.toggle()
        counting.counted()


KINDS: Final = {"nothing": nothing, "enqueue": enqueue, "await": await_, "call": call}


async def count(kind: str, number: int, counting: Counting) -> None:
    """Warms up, then counts that number of operations."""
    work = KINDS[kind]
    async with aioacl.open_device() as device:
        streams = [await device.create_stream() for _ in range(BATCH)]
        buffers = [await device.allocate(BYTES) for _ in range(2)]
        model = await device.load_model(_digits.MODEL)
        handles = Handles(streams, buffers, model, _digits.inputs(_digits.digits().images[0]))
        gc.collect()
        gc.disable()
        for _ in range(0, WARM_UP, BATCH):
            await work(counting, handles)
        counting.left = number
        for _ in range(number):  # more rounds than needed, because not all awaits are counted
            if counting.left:
                await work(counting, handles)
        if counting.left:
            raise RuntimeError(f"expected to count {number} operations, got {number - counting.left}")
        gc.enable()
        await model.close()
        for handle in (*streams, *buffers):
            await handle.close()


def main(library: str, number: int) -> None:
    """Counts operations of each kind, each factor on an event loop and an open device of its own."""
    counting = Counting(library)
    for kind in KINDS:
        for factor in (1, 2):
            asyncio.run(count(kind, factor * number, counting))
            counting.write(f"{kind} {factor}")


if __name__ == "__main__":
    aioacl.use_library("simulator")
    main(sys.argv[1], int(sys.argv[2]))
