"""No await returns before its work has succeeded. The part `truth` of the reliability tests found these cases."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import PENDING, lib
from aioacl.lowlevel import on
from tests.kit import TASK_FAULT, failing_fill, in_thread, live_streams, raises, streams, until, until_now

if TYPE_CHECKING:
    from tests.kit import OpenDevice


@pytest.mark.anyio
async def test_finished_download_is_delivered_to_a_later_await() -> None:
    async with (
        aioacl.open_device(0, "thread") as device,
        device.create_stream() as stream,
        device.allocate(4) as memory,
    ):
        target = bytearray(4)
        await stream.copy(memory, b"true")
        ticket = stream.copy(target, memory)
        await until(lambda: simulator.pending(stream) == 0)
        with anyio.fail_after(10):
            await ticket
        assert target == b"true"


@pytest.mark.anyio
async def test_stream_whose_code_a_wait_for_the_device_consumed_is_not_confirmed(
    open_device: OpenDevice,
) -> None:
    """A failed write of a value is not reported. Only the first call that synchronizes returns its code."""
    async with open_device() as device, device.create_stream() as stream, device.allocate(8) as memory:
        with simulator.fault("aclrtValueWrite", nth=1, async_error=TASK_FAULT):
            on(device).aclrtValueWrite(memory, 1, 0, stream)
        event = stream.record()
        position = lib.aio_stream_tail(stream._core.handle)
        lib.aio_device_sync_begin(0)
        with pytest.raises(aioacl.DeviceFault):
            on(device).aclrtSynchronizeDevice()
        assert lib.aio_stream_poll(stream._core.handle, position) == PENDING
        lib.aio_device_fail(0, TASK_FAULT, b"")
        lib.aio_device_sync_end(0)
        await raises(aioacl.DeviceFault, event)


@pytest.mark.anyio
async def test_wait_that_submits_nothing_covers_a_task_enqueued_by_hand_before_it(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, streams(device, 2) as (stream, other), device.allocate(8) as memory:
        await (event := other.record())
        simulator.hold(stream)
        simulator.fail_next(stream, TASK_FAULT)
        on(device).aclrtMemsetAsync(memory, 8, 2, 8, stream)
        ticket = stream.wait_event(event)
        simulator.release(stream)
        await raises(aioacl.DeviceFault, ticket)


@pytest.mark.anyio
async def test_failure_of_a_task_enqueued_by_hand_after_the_last_position_is_reported(
    open_device: OpenDevice,
) -> None:
    """The failure is attributed although aioacl enqueues nothing after the task."""
    async with open_device() as device, device.create_stream() as stream, device.allocate(8) as memory:
        events = device.events()
        simulator.fail_next(stream, TASK_FAULT)
        on(device).aclrtMemsetAsync(memory, 8, 2, 8, stream)
        with anyio.fail_after(10):
            event = await anext(events)
        assert (event.kind, event.code) == ("fault", TASK_FAULT)
        assert stream.error is not None


@pytest.mark.anyio
async def test_wait_for_the_device_collects_the_failure_that_it_raises_and_no_other(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(8) as memory:
        streams = [await device.create_stream() for _ in range(2)]
        for stream in streams:
            failing_fill(stream, memory)
        await raises(aioacl.DeviceFault, device.synchronize())
        with pytest.warns(aioacl.AclWarning, match="no await raised the error") as warned:  # noqa: PT031 - either close may warn
            for stream in streams:
                await stream.close()
        assert len(warned) == 1


@pytest.mark.anyio
async def test_failure_of_a_stream_without_an_id_is_found_by_synchronizing(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        simulator.fail_call("aclrtStreamGetId", 507000)
        async with device.create_stream() as stream, device.create_stream() as other:
            other.wait_event(stream.record())
            await other.fill(memory, 1)
            failed = failing_fill(stream, memory)
            behind = stream.record()
            other.wait_event(behind)
            for each in (failed, behind, other.fill(memory, 3), stream, other):
                with anyio.fail_after(10), pytest.raises(aioacl.DeviceFault) as caught:
                    await each
                assert caught.value.code == TASK_FAULT


def test_streams_that_wait_for_each_other_are_confirmed_on_a_small_stack(open_device: OpenDevice) -> None:
    """Each stream waits for work that the other enqueued before its own wait, so the chain of dependencies ends."""
    device = open_device().result()
    one, other = (device.create_stream().result() for _ in range(2))
    memory = device.allocate(8).result()
    for stream in (one, other):
        simulator.hold(stream)
        # The runtime would not report a failure of this write, so the stream must be confirmed.
        on(device).aclrtValueWrite(memory, 1, 0, stream)
    first, second = one.record(), other.record()
    one.wait_event(second)
    other.wait_event(first)
    events = one.record(), other.record()
    simulator.release_all()
    assert until_now(lambda: one.query() and other.query())
    before = threading.stack_size(1 << 18)
    try:
        for event in events:
            in_thread(event.result)
    finally:
        threading.stack_size(before)
    for thing in (memory, one, other, device):
        thing.close().result()


@pytest.mark.anyio
async def test_code_of_a_task_enqueued_by_hand_after_the_last_position_does_not_fail_earlier_work(
    open_device: OpenDevice,
) -> None:
    """aioacl synchronizes to get the runtime's text. The call returns the code of the reported task."""
    async with open_device() as device, device.create_stream() as stream, device.allocate(8) as memory:
        ticket = stream.fill(memory, 1)
        simulator.hold(stream)
        simulator.fail_next(stream, TASK_FAULT)
        on(device).aclrtMemsetAsync(memory, 8, 2, 8, stream)
        simulator.release(stream)
        await until(lambda: simulator.faulted(stream))
        simulator.wake(0)
        await until(lambda: stream.error is not None)
        lib.aio_stream_take_code(stream._core.handle)
        await ticket


@pytest.mark.anyio
async def test_closed_stream_with_a_task_enqueued_by_hand_after_the_last_position_is_destroyed(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(8) as memory:
        async with device.create_stream() as stream:
            on(device).aclrtValueWrite(memory, 1, 0, stream)
        await until(lambda: live_streams() == 0)


@pytest.mark.anyio
async def test_close_waits_for_a_task_enqueued_by_hand_after_the_last_position(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(8) as memory:
        async with device.create_stream() as stream:
            simulator.hold(stream)
            on(device).aclrtMemsetAsync(memory, 8, 2, 8, stream)
        # The close enqueues a record after the task. Otherwise aioacl would have to poll the stream.
        await until(lambda: lib.aio_stream_tail(stream._core.handle) == 1)
        simulator.release_all()
        await until(lambda: live_streams() == 0)


@pytest.mark.anyio
@pytest.mark.parametrize("waits", ["watch", "thread"])
async def test_await_on_streams_that_wait_for_each_other_thousands_of_times_ends(
    waits: Literal["watch", "thread"],
) -> None:
    async with (
        aioacl.open_device(0, waits) as device,
        streams(device, 2) as (first, second),
        device.allocate(8) as memory,
    ):
        for _ in range(4):
            for _ in range(200):
                second.wait_event(first.record())
                first.wait_event(second.record())
            await until(first.query)
            await until(second.query)
        good = second.fill(memory, 1)
        failed = failing_fill(first, memory)
        await until(first.query)
        with anyio.fail_after(20):
            await good
            await raises(aioacl.DeviceFault, failed)


@pytest.mark.anyio
@pytest.mark.parametrize("function", ["aclrtCreateStream", "aclrtCreateEventWithFlag", "aclrtRecordEvent"])
async def test_failed_task_is_raised_although_the_nudge_fails(open_device: OpenDevice, function: str) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await stream.fill(memory, 1)
        simulator.fail_call(function, 207005, -1)
        await raises(aioacl.DeviceFault, failing_fill(stream, memory))
        simulator.clear()
