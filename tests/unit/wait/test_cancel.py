"""A cancelled task is free at once; the device finishes what it was given, and its memory waits for that."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._wait.current import current_port
from tests.kit import Waiting, hanging, live_streams, turns, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


async def copied(scope: anyio.CancelScope, stream: aioacl.Stream, target: Any, source: Any) -> None:
    with scope:
        await stream.copy(target, source)


async def test_a_task_cancelled_in_mid_copy_returns_at_once_and_its_target_lives_until_the_copy_is_done(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await stream.fill(memory, 7)
        target = np.zeros(64, np.uint8)
        seen = weakref.ref(target)
        with simulator.held(stream):
            scope = anyio.CancelScope()
            async with anyio.create_task_group() as group:
                group.start_soon(copied, scope, stream, target, memory)
                await until(lambda: lib.aio_device_waits(0) == 1)
                scope.cancel()
            assert scope.cancelled_caught
            del target
            await turns()
            gc.collect()
            assert simulator.pending(stream) > 0
            assert seen() is not None
        await until(lambda: seen() is None)
        assert simulator.pending(stream) == 0


async def test_a_cancelled_copys_buffer_is_freed_only_when_the_simulator_says_that_the_copy_is_done(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream:
        blocks = simulator.stats().device_blocks
        with simulator.held(stream):
            async with anyio.create_task_group() as group:

                async def job() -> None:
                    async with device.allocate(64) as memory, device.pinned(64) as source:
                        await stream.copy(memory, source)

                waiting = Waiting(group, job)
                await until(lambda: lib.aio_device_waits(0) == 1)
                waiting.cancel()
                await until(lambda: waiting.ended)
                assert waiting.cancelled
            assert simulator.pending(stream) > 0
            assert simulator.stats().device_blocks == blocks + 1
            assert simulator.calls("aclrtFree") == simulator.calls("aclrtFreeHost") == 0
        await until(lambda: simulator.calls("aclrtFree") == simulator.calls("aclrtFreeHost") == 1)
        assert simulator.stats().device_blocks == blocks


async def test_a_cancelled_wait_harms_no_other_wait_for_the_same(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        with simulator.held(stream):
            ticket = stream.fill(memory, 1)
            async with anyio.create_task_group() as group:
                waiting = [Waiting(group, lambda: ticket) for _ in range(10)]
                await until(lambda: lib.aio_device_waits(0) == 10)
                for one in waiting[::2]:
                    one.cancel()
                await until(lambda: all(one.ended for one in waiting[::2]))
                assert not any(one.ended for one in waiting[1::2])
                simulator.release(stream)
                for one in waiting[1::2]:
                    await one.outcome()


async def enter(make: Callable[[], Any]) -> None:
    async with make():
        await anyio.sleep_forever()


@pytest.mark.parametrize("turns_before", range(4))
async def test_an_opening_cancelled_at_any_turn_leaves_nothing_behind(
    open_device: OpenDevice, turns_before: int
) -> None:
    async with open_device() as device:
        for begin in (device.create_stream, lambda: device.allocate(64), lambda: device.pinned(64)):
            async with anyio.create_task_group() as group:
                waiting = Waiting(group, partial(enter, begin))
                await turns(turns_before)
                waiting.cancel()
                await waiting.outcome()
                assert waiting.cancelled
        made = simulator.stats()
        await until(lambda: live_streams() == 0)
        await until(lambda: simulator.stats().device_blocks == 0)
        assert made.violations == 0


async def test_a_job_on_the_executor_goes_on_when_its_await_is_cancelled(open_device: OpenDevice) -> None:
    go_on, done, begun = threading.Event(), threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        go_on.wait()
        done.set()

    async with open_device() as device, anyio.create_task_group() as group:
        waiting = Waiting(group, lambda: device.run(job))
        await until(begun.is_set)
        waiting.cancel()
        await until(lambda: waiting.ended)
        assert waiting.cancelled
        assert not done.is_set()
        go_on.set()
        await until(done.is_set)


async def test_a_cancelled_job_that_has_not_begun_never_begins(open_device: OpenDevice) -> None:
    go_on, called = threading.Event(), list[int]()
    async with open_device() as device, anyio.create_task_group() as group:
        device.executor._limit = 1
        blocking = Waiting(group, lambda: device.run(go_on.wait))
        await until(lambda: device.health.in_flight == 1)
        waiting = Waiting(group, lambda: device.run(called.append, 1))
        await until(lambda: len(device.executor._items) == 1)
        waiting.cancel()
        await until(lambda: waiting.ended)
        go_on.set()
        await blocking.outcome()
        await device.run(lambda: None)
        assert called == []


async def enqueued(stream: aioacl.Stream, target: Any, source: Any) -> aioacl.Ticket:
    while True:
        try:
            return stream.copy(target, source)
        except aioacl.QueueFull:
            await stream.ready()


async def test_many_abandoned_copies_are_swept_and_the_queue_never_overflows(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        seen = []
        for _ in range(3000):
            target = np.zeros(64, np.uint8)
            seen.append(weakref.ref(target))
            ticket = await enqueued(stream, target, memory)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await ticket
            del target, ticket
        await stream
        assert [ref for ref in seen if ref() is not None] == []


async def test_cancelling_a_close_leaves_the_device_to_close_by_itself(open_device: OpenDevice) -> None:
    device = await open_device()
    simulator.hang_call("aclrtResetDevice")
    async with anyio.create_task_group() as group:
        waiting = Waiting(group, device.close)
        await until(lambda: simulator.hung("aclrtResetDevice"))
        waiting.cancel()
        await until(lambda: waiting.ended)
        assert waiting.cancelled
    simulator.release_all()
    await until(lambda: simulator.retain_count(0) == 0)


async def next_event(device: aioacl.Device) -> None:
    async for _ in device.events():
        return


@pytest.mark.parametrize("kind", ["cancelled", "timed out"])
async def test_who_leaves_before_the_device_changes_leaves_no_subscription_behind(
    open_device: OpenDevice, kind: str
) -> None:
    async with open_device() as device:
        manager, waits = device._manager, current_port()._waits
        simulator.hang_call("aclrtResetDeviceForce")
        async with anyio.create_task_group() as group:
            resetting = Waiting(group, device.force_reset)
            await until(hanging("aclrtResetDeviceForce"))
            await until(lambda: len(manager.admission._subscribers) == len(waits) == 1)  # the reset's caller
            timeout = None if kind == "cancelled" else 0.01
            leaving = [Waiting(group, lambda: device.allocate(64, timeout=timeout)) for _ in range(5)]
            if kind == "cancelled":
                leaving.append(Waiting(group, partial(next_event, device)))
                await until(lambda: len(manager.admission._subscribers) == 7)
                for one in leaving:
                    one.cancel()
            await until(lambda: all(one.ended for one in leaving))
            assert all(one.cancelled or isinstance(one.error, aioacl.DeviceTimeout) for one in leaving)
            assert len(manager.admission._subscribers) == len(waits) == 1
            simulator.release_all()
            assert (await resetting.outcome()).ok


async def test_a_cancelled_job_that_was_queued_leaves_no_wait_behind(open_device: OpenDevice) -> None:
    async with open_device() as device:
        waits = current_port()._waits
        simulator.hang_call("aclrtMalloc")
        async with anyio.create_task_group() as group:
            first = Waiting(group, lambda: device.allocate(64))
            await until(hanging("aclrtMalloc"))
            queued = [Waiting(group, lambda: device.allocate(64)) for _ in range(5)]
            await until(lambda: len(device._manager.maintenance._jobs) == 5)
            for one in queued:
                one.cancel()
            await until(lambda: all(one.ended for one in queued))
            simulator.release_all()
            await (await first.outcome()).close()
        await device.memory_info()  # behind those that were withdrawn
        assert simulator.calls("aclrtMalloc") == 1
        assert waits == {}
