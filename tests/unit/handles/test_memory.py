"""Buffers: their attributes, how long their memory is kept, and when it is freed."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from tests.kit import (
    FAULT,
    held_fill,
    hung_in,
    raises,
    streams,
    turns,
    until,
    until_now,
)

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, pytest.mark.uncached]
BOTH = pytest.mark.parametrize("kind", ["allocate", "pinned"])


def blocks(kind: str) -> int:
    stats = simulator.stats()
    return stats.device_blocks if kind == "allocate" else stats.host_blocks


@BOTH
async def test_buffer_has_size_address_and_generation(open_device: OpenDevice, kind: str) -> None:
    async with open_device() as device, getattr(device, kind)(100) as buffer:
        assert (buffer.size, buffer.nbytes) == (100, 100)
        assert buffer.address > 0
        assert buffer.generation == device.generation
        assert "100 bytes" in repr(buffer)


@BOTH
async def test_allocation_of_too_much_memory_raises_out_of_memory_error(
    open_device: OpenDevice, kind: str
) -> None:
    async with open_device() as device:
        error = await raises(MemoryError, getattr(device, kind)(1 << 50))
        assert isinstance(error, aioacl.OutOfMemoryError)
        assert error.action == "retry"


async def test_closed_pinned_memory_is_freed_although_its_buffer_is_referenced(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        before = blocks("pinned")
        buffer = await device.pinned(64)
        buffer.view[:2] = b"no"
        await stream.copy(memory, buffer)
        await buffer.close()
        assert blocks("pinned") == before
        await buffer.close()
        assert simulator.calls("aclrtFreeHost") == 1
        for look in (lambda: buffer.view, lambda: memoryview(buffer), lambda: stream.copy(memory, buffer)):
            with pytest.raises(aioacl.ParameterError, match="Make a new pinned buffer"):
                look()


async def test_closed_pinned_memory_stays_until_its_last_view_is_released(open_device: OpenDevice) -> None:
    async with open_device() as device:
        before = blocks("pinned")
        buffer = await device.pinned(64)
        views: list[Any] = [buffer.view, np.frombuffer(buffer, np.uint8)]  # type: ignore[call-overload]  # only the stub differs
        await buffer.close()
        del buffer
        views[0][:2] = b"ok"
        del views[0]
        await turns()
        assert bytes(views[0][:2]) == b"ok"
        assert blocks("pinned") == before + 1
        views.clear()
        await until(lambda: blocks("pinned") == before)
        assert simulator.calls("aclrtFreeHost") == 1


@BOTH
async def test_buffer_closed_in_flight_is_freed_when_the_last_of_its_streams_is_done(
    open_device: OpenDevice, kind: str
) -> None:
    async with open_device() as device, streams(device, 2) as (first, second), device.allocate(64) as other:
        before = blocks(kind)
        buffer = await getattr(device, kind)(64)
        for stream in (first, second):
            simulator.hold(stream)
            stream.copy(other, buffer)
        await buffer.close()
        with pytest.raises(aioacl.ParameterError, match="Make a new"):
            first.copy(other, buffer)
        del buffer
        await turns()
        assert blocks(kind) == before + 1
        simulator.release(first)
        await first
        assert blocks(kind) == before + 1
        simulator.release(second)
        await second
        await until(lambda: blocks(kind) == before)


@BOTH
async def test_unclosed_buffer_in_flight_is_freed_when_the_copy_is_done(
    open_device: OpenDevice, kind: str
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as other:
        before = blocks(kind)
        buffer = await getattr(device, kind)(64)
        simulator.hold(stream)
        ticket = stream.copy(other, buffer)
        del buffer  # the stream's in-flight references keep the buffer
        await turns()
        assert blocks(kind) == before + 1
        simulator.release(stream)
        with pytest.warns(ResourceWarning, match="not closed"):
            await ticket
        await until(lambda: blocks(kind) == before)


@BOTH
async def test_copy_or_pickle_of_a_buffer_raises(open_device: OpenDevice, kind: str) -> None:
    async with open_device() as device, getattr(device, kind)(64) as buffer:
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="refers to a device"):
                attempt(buffer)


@pytest.mark.parametrize("cached", [True, False])
async def test_pinned_memory_released_while_the_device_closes_is_freed_by_the_close(
    open_device: OpenDevice, cached: bool
) -> None:
    before = blocks("pinned")
    async with anyio.create_task_group() as group:
        device = await open_device()
        if not cached:
            device._manager.cache.forbid(device)
        buffer = await device.pinned(16)
        views = [buffer.view]
        await buffer.close()
        closing = await hung_in("aclrtResetDevice", group, device.close)
        views.clear()
        assert blocks("pinned") > before
        simulator.release_call("aclrtResetDevice")
        await closing.outcome()
        assert blocks("pinned") == before
        device._manager.cache.allow(device)


@pytest.mark.leaves("host_bytes", "host_blocks")  # the memory that could not be freed
async def test_pinned_memory_that_cannot_be_freed_after_the_close_of_its_device_warns(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.pinned(16) as buffer:
        views = [buffer.view]
    simulator.fail_call("aclrtFreeHost", 507000)
    with pytest.warns(aioacl.AclWarning, match="aclrtFreeHost returned 507000"):
        views.clear()


async def test_memory_info_returns_free_and_total_bytes(open_device: OpenDevice) -> None:
    async with open_device() as device:
        before = await device.memory_info()
        assert 0 < before.free <= before.total
        async with device.allocate(64 << 20):
            assert (await device.memory_info()).free <= before.free - (64 << 20)


async def test_close_whose_wait_fails_frees_nothing_while_the_copy_may_run(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        memory = await device.allocate(64)
        before = simulator.stats().device_blocks
        held_fill(stream, memory)
        with simulator.fault("query|sync", rc=FAULT) as fault:
            await memory.close()
            await until(lambda: fault.hits and not lib.aio_device_waits(device.index))
            await device.memory_info()  # runs on the maintenance thread after the close
        assert simulator.stats().device_blocks == before
        assert stream.error is not None
        assert (await device.force_reset(grace=0)).ok
        await until(lambda: simulator.stats().device_blocks < before)


def test_close_waits_for_the_later_of_two_uses(open_device: OpenDevice) -> None:
    with (
        open_device() as device,
        device.create_stream() as first,
        device.create_stream() as second,
        device.allocate(64) as memory,
    ):
        ticket = first.fill(memory, 1)
        assert until_now(lambda: lib.aio_stream_query(first._core.handle, ticket._position) == 1)
        with simulator.held(second):
            second.fill(memory, 2)
            assert (
                len(tuple(memory._uses)) == 2
            )  # the first one is done, and its reference is not dropped yet
            memory.close().result()
            assert simulator.calls("aclrtFree") == 0
        assert until_now(lambda: simulator.calls("aclrtFree") == 1)
