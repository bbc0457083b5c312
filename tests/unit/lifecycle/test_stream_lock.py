"""Another library's wait for the device holds the runtime's lock on streams: creates, closes and resets still end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._lifecycle.cache import STREAMS
from tests.kit import PATIENCE_SECONDS, TASK_FAULT, Waiting, raises, until, works
from tests.support.spinning import blocked, spin, spinning, synchronizing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.kit import OpenDevice, Raised

pytestmark = [pytest.mark.anyio, pytest.mark.thorough]
RESET_EVERY = 10
OPEN_EVERY = 25


async def made(device: aioacl.Device) -> None:
    await (await device.create_stream()).close()


class Streams(NamedTuple):
    """A device, a stream on which a synchronize of the device spins, and another stream."""

    device: aioacl.Device
    fed: aioacl.Stream
    other: aioacl.Stream


ENDS: dict[str, Callable[[Streams], Awaitable[object]]] = {
    "create_stream": lambda streams: made(streams.device),
    "close of the idle stream": lambda streams: streams.fed.close(),
    "close of another stream": lambda streams: streams.other.close(),
    "abort of another stream": lambda streams: streams.other.abort(),
    "force_reset": lambda streams: streams.device.force_reset(),
    "close of the device": lambda streams: streams.device.close(),
}


@pytest.mark.parametrize("end", ENDS)
async def test_call_ends_although_a_synchronize_of_the_device_spins_on_an_idle_stream(end: str) -> None:
    async with aioacl.open_device(cache=False) as device, device.allocate(64) as memory:
        fed, other = await device.create_stream(), await device.create_stream()
        await other.fill(memory, 1)
        with spinning(device, fed, memory) as thread, anyio.fail_after(PATIENCE_SECONDS):
            await ENDS[end](Streams(device, fed, other))
            await until(lambda: not thread.running)
        for stream in (fed, other):
            await stream.close()
    simulator.forget()  # the other library's call may still be returning when the device is reset


async def returned(thread: Raised) -> None:
    await until(lambda: not thread.running)


async def test_create_ends_although_a_synchronize_of_the_device_spins_on_a_cached_stream() -> None:
    async with aioacl.open_device() as device, device.allocate(64) as memory:
        stream = await device.create_stream()
        ticket = stream.fill(
            memory, 1
        )  # refers to the stream's record, so the cache keeps only the native stream
        with spinning(device, stream, memory) as thread, anyio.fail_after(PATIENCE_SECONDS):
            await stream
            await stream.close()
            await until(lambda: device._manager.cache.counts[STREAMS] == 1)
            await (await device.create_stream(priority=1)).close()
            await returned(thread)
        await ticket
        async with device.create_stream() as again:
            await again.fill(memory, 1)


async def one_round(device: aioacl.Device) -> None:
    """Uses a stream whose last task fails, and closes it while a synchronize of the device spins on it."""
    with anyio.fail_after(PATIENCE_SECONDS):
        stream, memory = await device.create_stream(), await device.allocate(64)
        thread = spin(device, stream, memory, TASK_FAULT)
        await raises(aioacl.DeviceFault, stream)
        await stream.close()
        await returned(thread)
        await memory.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("rounds", [3, pytest.param(100, marks=pytest.mark.slow)])  # a round takes a second
async def test_streams_with_failures_come_and_go_beside_synchronizes_of_the_device(
    open_device: OpenDevice, rounds: int
) -> None:
    device = await open_device()
    for number in range(1, rounds + 1):
        await one_round(device)
        if number % RESET_EVERY == 0 or number == rounds:
            stream, memory = await device.create_stream(), await device.allocate(64)
            thread = spin(device, stream, memory)
            with anyio.fail_after(PATIENCE_SECONDS):
                assert (await device.force_reset()).ok
            await returned(thread)
        if number % OPEN_EVERY == 0 or number == rounds:
            stream, memory = await device.create_stream(), await device.allocate(64)
            thread = spin(device, stream, memory)
            with anyio.fail_after(PATIENCE_SECONDS):
                await stream.close()
                await memory.close()
                await device.close()
            await returned(thread)
            device = await open_device()
    await device.close()
    simulator.forget()  # the other library's call may still be returning when the device is reset


async def test_maintenance_goes_on_while_a_create_waits_for_a_synchronize_of_another_library(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        with synchronizing(device):
            async with anyio.create_task_group() as group:
                waiting = [Waiting(group, device.create_stream) for _ in range(3)]
                await until(lambda: lib.aio_device_held_up(0))
                for _ in range(3):
                    memory = await device.allocate(1 << 26)  # too large for the cache
                    await memory.close()
                error = await raises(aioacl.DeviceTimeout, device.create_stream(timeout=0.01))
                hint = error.hint or ""
                assert ("aclrtSynchronizeDevice" in hint, "force_reset" in hint) == (True, False)
                assert not any(one.ended for one in waiting)
                group.cancel_scope.cancel()
        assert await works(device)


async def test_memory_is_made_while_the_engine_waits_to_make_its_own_stream(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        with synchronizing(device), simulator.held(stream), anyio.fail_after(PATIENCE_SECONDS):
            stream.fill(memory, 1)  # the first unfinished work, for which the engine makes a stream
            await until(lambda: blocked("aclrtCreateStream"))
            async with device.allocate(1 << 26):  # too large for the cache
                pass
        await stream


async def test_memory_is_made_while_a_note_waits_to_destroy_a_stream() -> None:
    async with aioacl.open_device() as device:
        await (await device.create_stream()).close()  # the cache keeps it
        with synchronizing(device), anyio.fail_after(PATIENCE_SECONDS):
            async with aioacl.open_device(cache=False):  # a note empties the cache
                await until(lambda: blocked("aclrtCreateStream") or blocked("aclrtDestroyStream"))
                await (await device.allocate(64)).close()
