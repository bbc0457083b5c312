"""Requests that take memory and streams from the cache, beside an idle await, and beside handles that are kept.

A request uploads 4 KiB, fills 64 bytes of them, and downloads them. Its handles are a stream and a buffer. They are
made for each request, or kept.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import aioacl
from benchmarks.harness import Sample, Session, Suite, timed, walls
from benchmarks.rows import Row, Spread, ratio_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NAME: Final = "cache"
REPEATS: Final = 15
ROUNDS: Final = 60  # rounds of a repeat
QUICK_ROUNDS: Final = 20
AT_ONCE: Final = 30  # objects made in a round: fewer than the awaits after which an await gives way
REQUESTS: Final = 400
QUICK_REQUESTS: Final = 100
BYTES: Final = 4096
IDLE: Final = "await of an idle stream"
OWN: Final = "own handles"
KEPT: Final = "kept handles"


class Requests:
    """The requests, and the handles that are kept."""

    def __init__(self, runner: asyncio.Runner, device: aioacl.Device) -> None:
        self._runner = runner
        self._device = device
        self._source, self._answer = bytes(BYTES), bytearray(BYTES)
        self._stream = device.create_stream().result()
        self._memory = device.allocate(BYTES).result()
        self.makers: dict[str, Callable[[], Awaitable[Any]]] = {
            IDLE: lambda: self._stream,
            "allocate": lambda: device.allocate(BYTES),
            "pinned": lambda: device.pinned(BYTES),
            "create_stream": device.create_stream,
        }
        self.ways = {OWN: self._own, KEPT: self._kept}

    async def _request(self, stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> None:
        await stream.upload(memory, self._source)
        await stream.fill(memory[:64], 1)
        await stream.download(self._answer, memory)

    async def _own(self) -> None:
        async with self._device.create_stream() as stream, self._device.allocate(BYTES) as memory:
            await self._request(stream, memory)

    async def _kept(self) -> None:
        await self._request(self._stream, self._memory)

    def made(self, name: str, rounds: int) -> Sample:
        """Measures awaits of one kind. The closes of the objects are not measured."""

        async def main() -> Sample:
            spent, make = 0.0, self.makers[name]
            for _ in range(rounds):
                await asyncio.sleep(0)
                began = time.perf_counter()
                made = [await make() for _ in range(AT_ONCE)]
                spent += time.perf_counter() - began
                for each in made:
                    if each is not None:
                        await each.close()
            return Sample(spent / rounds / AT_ONCE)

        return self._runner.run(main())

    def requests(self, name: str, count: int) -> Sample:
        """Measures requests, one after another."""

        async def main() -> Sample:
            way = self.ways[name]
            with timed() as timer:
                for _ in range(count):
                    await way()
            return timer.sample(count)

        return self._runner.run(main())

    def close(self) -> None:
        """Closes the handles that are kept."""
        self._memory.close().result()
        self._stream.close().result()


def run(session: Session) -> list[Row]:
    """Measures awaits of cached objects, and whole requests."""
    aioacl.use_library("simulator")
    repeats = session.repeats(REPEATS)
    rounds = QUICK_ROUNDS if session.quick else ROUNDS
    count = QUICK_REQUESTS if session.quick else REQUESTS
    session.plan(2 * repeats)
    with ExitStack() as stack:
        device = aioacl.open_device().result()
        stack.callback(lambda: device.close().result())
        runner = stack.enter_context(asyncio.Runner())
        requests = Requests(runner, device)
        stack.callback(requests.close)
        made = session.interleave(
            {name: partial(requests.made, name, rounds) for name in requests.makers}, repeats, "awaits"
        )
        whole = session.interleave(
            {name: partial(requests.requests, name, count) for name in requests.ways}, repeats, "requests"
        )
    rows = [
        Row(NAME, name, "", "us", Spread.of(wall * 1e6 for wall in walls(samples)))
        for name, samples in (made | whole).items()
    ]
    idle = walls(made[IDLE])
    rows += [
        ratio_row(NAME, name, IDLE, walls(samples), idle) for name, samples in made.items() if name != IDLE
    ]
    return [*rows, ratio_row(NAME, "request", KEPT, walls(whole[OWN]), walls(whole[KEPT]))]


SUITE: Final = Suite(NAME, "requests that take memory and streams from the cache", run)
