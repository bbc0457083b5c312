"""Handles made before a reset are refused with a StaleHandleError before C is called."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from tests.kit import Raised, held_fill, no_call, no_call_of_mine, raises, reset_by_other_code, streams, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


class Old:
    """One handle of each kind, made before the reset."""

    stream: aioacl.Stream
    other: aioacl.Stream
    memory: aioacl.DeviceBuffer
    pinned: aioacl.PinnedBuffer
    recorded: aioacl.Event
    timed: aioacl.Event
    ticket: aioacl.Ticket


@asynccontextmanager
async def reset_under(open_device: OpenDevice) -> AsyncGenerator[tuple[aioacl.Device, Old]]:
    old = Old()
    async with open_device() as device:
        old.stream = await device.create_stream()
        old.memory = await device.allocate(64)
        old.pinned = await device.pinned(64)
        old.timed = await device.create_event(timing=True)
        old.timed.record(old.stream)
        with simulator.held(old.stream):
            old.ticket = old.stream.copy(old.memory, old.pinned)
            old.recorded = old.stream.record()
            assert (await device.force_reset(grace=0)).ok
        await device.memory_info()  # returns after the maintenance thread has refilled the pool of events
        yield device, old
        for made in (old.stream, old.memory, old.pinned, old.timed):
            await made.close()


USES: dict[str, Callable[[Old], Any]] = {
    "stream.copy": lambda old: old.stream.copy(old.memory, bytes(64)),
    "stream.fill": lambda old: old.stream.fill(old.memory, 1),
    "stream.record": lambda old: old.stream.record(),
    "stream.wait_event": lambda old: old.stream.wait_event(old.recorded),
    "stream.query": lambda old: old.stream.query(),
    "await stream": lambda old: old.stream,
    "stream.synchronize": lambda old: old.stream.synchronize(),
    "stream.upload": lambda old: old.stream.upload(old.memory, bytes(64)),
    "stream.download": lambda old: old.stream.download(bytearray(64), old.memory),
    "stream.ready": lambda old: old.stream.ready(),
    "stream.abort": lambda old: old.stream.abort(),
    "stream.renew": lambda old: old.stream.renew(),
    "await event": lambda old: old.recorded,
    "event.synchronize": lambda old: old.recorded.synchronize(),
    "event.query": lambda old: old.recorded.query(),
    "event.record": lambda old: old.timed.record(old.stream),
    "event.elapsed_since": lambda old: old.timed.elapsed_since(old.timed),
    "memory.__dlpack__": lambda old: old.memory.__dlpack__(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_stale_handle_is_refused_before_c(open_device: OpenDevice, use: Callable[[Old], Any]) -> None:
    async with reset_under(open_device) as (_, old):
        with no_call():
            with pytest.raises(aioacl.StaleHandleError, match="Make a new handle") as caught:
                await used(use, old)
            assert caught.value.action == "retry"
            assert caught.value.generation == old.stream.generation


async def used(use: Callable[[Old], Any], old: Old) -> None:
    await use(old)


ON_NEW: dict[str, Callable[[aioacl.Stream, aioacl.DeviceBuffer, Old], Any]] = {
    "a stale target": lambda stream, new, old: stream.copy(old.memory, new),
    "a stale source": lambda stream, new, old: stream.copy(new, old.memory),
    "a stale buffer to fill": lambda stream, _, old: stream.fill(old.memory, 1),
    "a stale event to wait for": lambda stream, _, old: stream.wait_event(old.recorded),
    "a stale event to record": lambda stream, _, old: stream.record(old.timed),
}


@pytest.mark.parametrize("use", ON_NEW.values(), ids=ON_NEW)
async def test_new_stream_refuses_stale_handles_before_c(
    open_device: OpenDevice, use: Callable[..., Any]
) -> None:
    async with (
        reset_under(open_device) as (device, old),
        device.create_stream() as stream,
        device.allocate(64) as memory,
    ):
        with no_call(), pytest.raises(aioacl.StaleHandleError):
            use(stream, memory, old)


async def test_handles_after_a_reset_are_stale_and_pinned_memory_is_not(open_device: OpenDevice) -> None:
    async with (
        reset_under(open_device) as (device, old),
        device.create_stream() as stream,
        device.allocate(64) as memory,
    ):
        assert old.stream.stale
        assert old.memory.stale
        assert old.recorded.stale
        assert not old.pinned.stale
        old.pinned.view[:] = b"y" * 64
        await stream.copy(memory, old.pinned)
        back = bytearray(64)
        await stream.copy(back, memory)
        assert back == b"y" * 64


async def test_result_of_a_stale_handle_on_a_thread_is_refused(open_device: OpenDevice) -> None:
    async with reset_under(open_device) as (_, old):
        for result in (old.stream.result, old.recorded.result):
            with pytest.raises(aioacl.StaleHandleError):
                Raised(result).join()
        with no_call(), pytest.raises(aioacl.DeviceReset):
            Raised(old.ticket.result).join()


async def test_ticket_that_was_done_before_a_reset_succeeds_after_it(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        ticket = stream.fill(memory, 1)
        await stream
        assert (await device.force_reset()).ok
        assert ticket.done
        await ticket


async def test_handles_of_a_closed_device_are_stale(open_device: OpenDevice) -> None:
    async with open_device() as device:
        stream = await device.create_stream()
        memory = await device.allocate(64)
        ticket = stream.fill(memory, 1)
        await ticket
    for _ in range(2):
        with pytest.raises(aioacl.StaleHandleError):
            stream.fill(memory, 1)
        await raises(aioacl.StaleHandleError, stream)
        await stream.close()
        await memory.close()
        async with open_device():
            assert stream.stale
    with pytest.raises(aioacl.ParameterError, match="open_device"):
        await device.create_stream()


@pytest.mark.parametrize("reset", ["ours", "foreign"])
async def test_ticket_whose_await_succeeded_succeeds_after_a_reset(
    open_device: OpenDevice, reset: str
) -> None:
    async with open_device() as device, streams(device, 2) as (stream, held), device.allocate(64) as memory:
        held_fill(held, memory)
        event = held.record()
        ended = stream.fill(memory, 2)
        stream.wait_event(event)  # keeps the stream busy, so a mark ends the await of `ended`
        lost = stream.fill(memory, 3)
        await ended
        generation = device.generation
        if reset == "ours":
            await device.force_reset(grace=0)
        else:
            reset_by_other_code()
            await until(lambda: device.state is aioacl.State.OPEN and device.generation > generation)
        await ended
        with no_call_of_mine(), pytest.raises(aioacl.DeviceReset):
            await lost
