"""The API under pytest-asyncio, with asyncio's own timeouts, gather, shield, wait_for and task groups."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from tests.kit import FAULT, failing_fill, held_fill, raises, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kit import OpenDevice

pytestmark = pytest.mark.asyncio


class Bench:
    """A device with a stream and a buffer."""

    def __init__(self, device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> None:
        self.device, self.stream, self.memory = device, stream, memory


@pytest_asyncio.fixture
async def bench(open_device: OpenDevice) -> AsyncIterator[Bench]:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        yield Bench(device, stream, memory)


async def job(bench: Bench, byte: int) -> bytes:
    target = bytearray(64)
    bench.stream.fill(bench.memory, byte)
    await bench.stream.copy(target, bench.memory)
    return bytes(target)


async def test_fixture_that_yields_a_device_works(bench: Bench) -> None:
    assert await job(bench, 7) == b"\x07" * 64


async def test_gather_runs_many_jobs(bench: Bench) -> None:
    assert await asyncio.gather(*(job(bench, i) for i in range(50))) == [bytes([i]) * 64 for i in range(50)]


async def test_asyncio_timeout_ends_the_await_and_the_stream_stays_usable(bench: Bench) -> None:
    with simulator.held(bench.stream):
        ticket = bench.stream.fill(bench.memory, 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await ticket
        await raises(TimeoutError, asyncio.wait_for(job(bench, 2), 0.01))
        assert not ticket.done
    await ticket
    assert await job(bench, 3) == b"\x03" * 64


async def test_shielded_job_goes_on_after_a_cancellation(bench: Bench) -> None:
    with simulator.held(bench.stream):
        inner = asyncio.ensure_future(job(bench, 5))
        outer = asyncio.create_task(shielded(inner))
        await until(lambda: lib.aio_device_waits(0) == 1)
        outer.cancel()
        await raises(asyncio.CancelledError, outer)
        assert not inner.done()
    assert await inner == b"\x05" * 64


async def shielded(inner: asyncio.Future[bytes]) -> bytes:
    return await asyncio.shield(inner)


async def test_failing_job_cancels_its_task_group(bench: Bench) -> None:
    async with bench.device.create_stream() as other:
        stuck = held_fill(other, bench.memory)

        async def failing() -> None:
            await until(lambda: lib.aio_device_waits(0) == 1)
            await failing_fill(bench.stream, bench.memory, FAULT)

        waiting: list[asyncio.Task[None]] = []

        async def both() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(failing())
                waiting.append(group.create_task(waiter(stuck)))

        error = await raises(ExceptionGroup, both())
        assert error.subgroup(aioacl.DeviceFault)
        assert waiting[0].cancelled()
        simulator.release(other)
        await stuck


async def waiter(ticket: aioacl.Ticket) -> None:
    await ticket
