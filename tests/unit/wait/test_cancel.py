"""Cancelled awaits: the task returns at once, and the memory of its work is kept until the device is done with it."""

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
from tests.kit import Waiting, hung_in, live_streams, turns, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]


async def copied(scope: anyio.CancelScope, stream: aioacl.Stream, target: Any, source: Any) -> None:
    with scope:
        await stream.copy(target, source)


async def test_task_cancelled_during_a_copy_returns_at_once_and_its_target_lives_until_the_copy_is_done(
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


async def enter(make: Callable[[], Any]) -> None:
    async with make():
        await anyio.sleep_forever()


@pytest.mark.uncached
@pytest.mark.parametrize("turns_before", range(4))
async def test_opening_cancelled_at_any_turn_of_the_loop_leaves_nothing_open(
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


async def test_executor_job_whose_await_is_cancelled_keeps_running(open_device: OpenDevice) -> None:
    go_on, done, begun = threading.Event(), threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        go_on.wait()
        done.set()

    async with open_device() as device, anyio.create_task_group() as group:
        waiting = Waiting(group, lambda: device.run(job))
        await until(begun.is_set)
        await waiting.cancel_and_wait()
        assert waiting.cancelled
        assert not done.is_set()
        go_on.set()
        await until(done.is_set)


async def test_job_cancelled_before_it_begins_never_runs(open_device: OpenDevice) -> None:
    go_on, called = threading.Event(), list[int]()
    async with open_device() as device, anyio.create_task_group() as group:
        device.executor._limit = 1
        blocking = Waiting(group, lambda: device.run(go_on.wait))
        await until(lambda: device.health.in_flight == 1)
        waiting = Waiting(group, lambda: device.run(called.append, 1))
        await until(lambda: len(device.executor._items) == 1)
        await waiting.cancel_and_wait()
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


async def test_references_of_many_cancelled_copies_are_dropped_while_the_queue_is_used(
    open_device: OpenDevice,
) -> None:
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


async def next_event(device: aioacl.Device) -> None:
    async for _ in device.events():
        return


@pytest.mark.parametrize("kind", ["cancelled", "timed out"])
async def test_wait_for_a_device_change_that_is_cancelled_or_times_out_removes_its_subscription(
    open_device: OpenDevice, kind: str
) -> None:
    async with open_device() as device:
        manager, waits = device._manager, current_port()._waits
        async with anyio.create_task_group() as group:
            resetting = await hung_in("aclrtResetDeviceForce", group, device.force_reset)
            # Only the task that called force_reset waits.
            await until(lambda: len(manager.admission._subscribers) == len(waits) == 1)
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


async def test_queued_job_that_is_cancelled_removes_its_wait(open_device: OpenDevice) -> None:
    async with open_device() as device:
        waits = current_port()._waits
        async with anyio.create_task_group() as group:
            first = await hung_in("aclrtMalloc", group, lambda: device.allocate(64))
            queued = [Waiting(group, lambda: device.allocate(64)) for _ in range(5)]
            await until(lambda: len(device._manager.maintenance._calls) == 5)
            for one in queued:
                one.cancel()
            await until(lambda: all(one.ended for one in queued))
            simulator.release_all()
            await (await first.outcome()).close()
        await device.memory_info()  # runs after the cancelled jobs in the maintenance thread's queue
        assert simulator.calls("aclrtMalloc") == 1
        assert waits == {}
