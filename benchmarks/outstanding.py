"""Measures tickets of held streams, and tasks that wait for nothing, for the suite `scale`.

python -m benchmarks.outstanding KIND COUNT

Prints by how many bytes the resident memory of the process grows when COUNT tasks suspend. KIND is `await` (each task
awaits a ticket of its own) or `task` (each task awaits an object that keeps nothing).
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import aioacl
from aioacl import simulator

if TYPE_CHECKING:
    from collections.abc import Callable

STREAMS: Final = 128  # 100,000 copies fit into their queues
BYTES: Final = 64
STATM: Final = Path("/proc/self/statm")


class Never:
    """What a task awaits to stay suspended. It looks like a future that is never done, and keeps no reference.

    Such a task cannot be cancelled.
    """

    _asyncio_future_blocking = False

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Returns the loop of the task that awaits."""
        return asyncio.get_running_loop()

    def add_done_callback(self, _callback: Callable[..., object], *, context: object = None) -> None:
        """Takes the task's callback, and drops it."""

    def __await__(self) -> Self:
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Self:
        """Suspends the task. This is not a generator, because a generator would count as a part of the task."""
        self._asyncio_future_blocking = True
        return self


class Work:
    """Streams that are held, with tickets."""

    def __init__(self, device: aioacl.Device) -> None:
        self._device = device
        self._stack = AsyncExitStack()
        self.streams: list[aioacl.Stream] = []

    async def __aenter__(self) -> Self:
        self.streams = [
            await self._stack.enter_async_context(self._device.create_stream()) for _ in range(STREAMS)
        ]
        buffers = [await self._stack.enter_async_context(self._device.allocate(BYTES)) for _ in range(2)]
        self._target, self._source = buffers
        for stream in self.streams:
            simulator.hold(stream)
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._device.generation == self.streams[0].generation:
            simulator.release_all()
        await self._stack.aclose()

    def tickets(self, count: int) -> list[aioacl.Ticket]:
        """Enqueues so many copies, spread over the streams."""
        return [self.streams[number % STREAMS].copy(self._target, self._source) for number in range(count)]


def resident_bytes() -> int:
    """Returns the resident memory of this process."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _grows(kind: str, count: int) -> int:
    async def on(awaited: Any, _ticket: aioacl.Ticket) -> None:
        await awaited

    never = Never()
    async with aioacl.open_device() as device, Work(device) as work:
        tickets = work.tickets(count)
        gc.collect()
        before = resident_bytes()
        tasks = [
            asyncio.ensure_future(on(ticket if kind == "await" else never, ticket)) for ticket in tickets
        ]
        await asyncio.sleep(0)
        gc.collect()
        grown = resident_bytes() - before
        assert not any(task.done() for task in tasks)
        print(grown, flush=True)
        os._exit(0)  # a hundred thousand tasks take long to end


if __name__ == "__main__":
    aioacl.use_library("simulator")
    asyncio.run(_grows(sys.argv[1], int(sys.argv[2])))
