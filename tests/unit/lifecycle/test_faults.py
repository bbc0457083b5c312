"""The failure of a copy is raised by each await that depends on the copy: at once, later, and repeatedly."""

from __future__ import annotations

import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from tests.kit import (
    FAULT,
    TASK_FAULT,
    Blocker,
    Waiting,
    equipped,
    held_fill,
    hung_in,
    live_streams,
    raises,
    streams,
    turns,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
FAULT_WITH_TEXT = 507001


def failing(stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> aioacl.Ticket:
    """A copy that will fail."""
    simulator.fail_next(stream, FAULT)
    return stream.copy(memory, bytes(64))


async def raises_fault(awaitable: Any) -> None:
    error = await raises(aioacl.DeviceFault, awaitable)
    assert (error.code, error.action) == (FAULT, "reset")


async def test_failure_with_held_work_after_it_is_raised_before_the_release(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, streams(device, 2) as (other, stream), device.allocate(64) as memory:
        blocker = Blocker(other, memory)
        ticket = failing(stream, memory)
        blocker.block(stream)
        later = stream.fill(memory, 1)
        await raises_fault(ticket)
        assert simulator.pending(stream) > 0
        blocker.release()
        await raises_fault(stream)
        await raises_fault(ticket)
        await raises_fault(later)


async def test_the_error_contains_the_runtimes_text(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.fail_next(stream, FAULT_WITH_TEXT)
        ticket = stream.fill(memory, 1)
        for _ in range(2):
            with pytest.raises(aioacl.DeviceFault, match="A task of the stream failed") as caught:
                await ticket
            assert (caught.value.call, caught.value.device) == ("aclrtSynchronizeStream", 0)


async def test_number_of_native_events_is_unchanged_after_faults_that_are_each_followed_by_a_reset(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        assert (await device.force_reset()).ok
        await until(lambda: not device._manager.maintenance._calls)
        await device.memory_info()
        before = simulator.stats().events
        for _ in range(3):
            async with device.create_stream() as stream, device.allocate(64) as memory:
                await raises_fault(failing(stream, memory))
            assert (await device.force_reset()).ok
            await device.memory_info()  # returns after the maintenance thread has filled the pool
            assert simulator.stats().events == before


async def test_fault_recorded_in_health_keeps_no_reference_to_where_it_was_raised(
    open_device: OpenDevice,
) -> None:
    class Local:
        """An object that only a frame refers to."""

    async def job(stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> weakref.ref[Local]:
        local = Local()
        try:
            await failing(stream, memory)
        except aioacl.DeviceFault:
            return weakref.ref(local)
        raise AssertionError("expected the copy to fail, got a copy that succeeded")

    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        assert (await job(stream, memory))() is None
        assert device.health.last_fault


@pytest.mark.uncached
async def test_close_after_a_task_failure_frees_each_handle(open_device: OpenDevice) -> None:
    freed = ("aclrtFree", "aclrtFreeHost")
    async with open_device() as device:
        memory, pinned = await device.allocate(64), await device.pinned(64)
        stream, idle = await device.create_stream(), await device.create_stream()
        simulator.fail_next(stream, TASK_FAULT)
        await raises(aioacl.DeviceFault, stream.copy(memory, pinned))
        before = [simulator.calls(function) for function in freed]
        for handle in (memory, pinned, stream, idle):
            await handle.close()
        assert [simulator.calls(function) for function in freed] == [count + 1 for count in before]
        assert live_streams() == 0


@pytest.mark.uncached
async def test_clean_up_that_finds_a_task_failure_leaves_the_device_ready(open_device: OpenDevice) -> None:
    async with open_device() as device:
        stream = await device.create_stream()
        with (
            simulator.fault("aclrtDestroyStream", rc_after=TASK_FAULT, nth=1),
            pytest.warns(aioacl.AclWarning, match=str(TASK_FAULT)),
        ):
            await stream.close()
        assert device.health.ready


async def test_task_code_from_a_call_that_runs_no_task_poisons_the_device(open_device: OpenDevice) -> None:
    async with open_device() as device:
        simulator.fail_call("aclrtMalloc", TASK_FAULT)
        error = await raises(aioacl.DeviceFault, device.allocate(64))
        assert error.action == "reset"
        assert device.health.status == "poisoned"
        assert (await device.force_reset()).ok


async def test_in_stop_mode_the_failure_stops_the_whole_context_until_a_reset(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        async with device.create_stream(on_failure="stop") as stream, device.create_stream() as other:
            simulator.fail_next(stream, TASK_FAULT)
            for either in (stream, other):
                with pytest.raises(aioacl.DeviceFault) as caught:
                    await either.fill(memory, 1)
                assert (caught.value.code, caught.value.action) == (TASK_FAULT, "reset")
            assert device.health.status == "poisoned"
        assert (await device.force_reset()).ok
        async with device.create_stream() as stream, device.allocate(64) as fresh:
            await stream.fill(fresh, 1)


ENQUEUES: dict[str, Callable[[aioacl.Stream, aioacl.DeviceBuffer, aioacl.Event], object]] = {
    "aclrtMemsetAsync": lambda stream, memory, _: stream.fill(memory, 1),
    "aclrtMemcpyAsync": lambda stream, memory, _: stream.copy(memory, bytes(64)),
    "aclrtRecordEvent": lambda stream, _, __: stream.record(),
    "aclrtStreamWaitEvent": lambda stream, _, event: stream.wait_event(event),
}


@pytest.mark.parametrize("function", ENQUEUES)
async def test_call_that_fails_while_enqueueing_raises_at_once_and_uses_no_position(
    open_device: OpenDevice, function: str
) -> None:
    async with open_device() as device, streams(device, 2) as (stream, other), device.allocate(64) as memory:
        position, event = stream.fill(memory, 1).position, other.record()
        simulator.fail_call(function, FAULT_WITH_TEXT)
        with pytest.raises(aioacl.DeviceFault, match="injected fault") as caught:
            ENQUEUES[function](stream, memory, event)
        assert caught.value.call == function
        assert stream.fill(memory, 1).position == position + 1
        await stream


CALLS: dict[str, tuple[str, Callable[[aioacl.Device], Any]]] = {
    "allocate": ("aclrtMalloc", lambda device: device.allocate(64)),
    "create_stream": ("aclrtCreateStream", lambda device: device.create_stream()),
    "memory_info": ("aclrtGetMemInfo", lambda device: device.memory_info()),
    "synchronize": ("aclrtSynchronizeDeviceWithTimeout", lambda device: device.synchronize()),
}


@pytest.mark.parametrize("what", CALLS)
async def test_fault_of_a_call_that_runs_no_task_is_recorded_and_sent_to_listeners(
    open_device: OpenDevice, what: str
) -> None:
    function, begin = CALLS[what]
    async with open_device() as device:
        events = device.events()
        simulator.fail_call(function, FAULT)
        await raises_fault(begin(device))
        assert device.health.status == "poisoned"
        assert str(FAULT) in device.health.last_fault
        assert (await anext(events)).kind == "fault"


async def test_fault_that_is_raised_again_after_the_reset_does_not_poison_health(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        ticket = failing(stream, memory)
        await raises_fault(ticket)
        assert (await device.force_reset()).ok
        events = device.events()
        await raises_fault(ticket)
        assert device.health.status == "ok"
        assert (await device.force_reset()).ok
        assert (await anext(events)).kind == "draining"


ABORTED = 107023
DEVICE_WAIT = "aclrtSynchronizeDeviceWithTimeout"


@asynccontextmanager
async def device_wait_before_c(device: aioacl.Device) -> AsyncGenerator[Waiting]:
    """A `device.synchronize()` whose call to C is delayed until the hung `aclrtGetMemInfo` is released.

    It has already waited for the positions of all streams. Only its call to C waits for work enqueued in the block.
    """
    async with anyio.create_task_group() as group:
        await hung_in("aclrtGetMemInfo", group, device.memory_info)
        waiting = Waiting(group, device.synchronize)
        await turns()
        yield waiting


async def test_abort_code_of_a_device_wait_does_not_fail_the_work_of_streams(
    open_device: OpenDevice,
) -> None:
    async with equipped(open_device) as (device, stream, memory), device_wait_before_c(device) as waiting:
        ticket = held_fill(stream, memory)
        simulator.fail_call(DEVICE_WAIT, ABORTED)
        simulator.release_call("aclrtGetMemInfo")
        await raises(aioacl.StreamAborted, waiting.outcome())
        simulator.release(stream)
        await ticket
        await stream


async def test_a_wait_for_the_device_whose_work_a_reset_aborts_ends_in_device_reset(
    open_device: OpenDevice,
) -> None:
    async with equipped(open_device) as (device, stream, memory), device_wait_before_c(device) as waiting:
        held_fill(stream, memory)
        simulator.release_call("aclrtGetMemInfo")
        await until(lambda: simulator.calls(DEVICE_WAIT) > 1)
        report = await device.force_reset(grace=0)
        error = await raises(aioacl.DeviceReset, waiting.outcome())
        assert error.report == report
