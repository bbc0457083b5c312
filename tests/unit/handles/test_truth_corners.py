"""No await returns before its work has succeeded, even if tasks fail during aborts, resets, closes or renewals."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from tests.kit import (
    FAULT,
    TASK_FAULT,
    Raised,
    Waiting,
    failing_fill,
    fill_queue,
    held_fill,
    in_thread,
    next_event,
    raises,
    reset_by_other_code,
    streams,
    until,
    wait_for,
)

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
LIMIT_SECONDS = 20


async def test_failure_after_an_abort_is_raised_also_2_to_the_31_tasks_later(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await stream.fill(memory, 1)
        with simulator.held(stream):
            stream.fill(memory, 2)
            await stream.abort()
        simulator.set_next_task(stream, (1 << 31) + 256)
        await raises(aioacl.DeviceFault, failing_fill(stream, memory))


async def test_failure_of_an_aborted_task_does_not_fail_later_work(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        failing_fill(stream, memory)
        await stream.abort()
        await stream.fill(memory, 2)
        await stream


async def test_copy_onto_itself_does_not_raise_the_failure_of_later_work(open_device: OpenDevice) -> None:
    async with open_device() as device, streams(device, 2) as (stream, other), device.allocate(64) as memory:
        await stream.fill(memory, 1)
        simulator.set_next_task(other, 1000)
        with simulator.held(stream):
            stream.fill(memory, 2)
            other.fill(memory, 0)  # the thread's last task is on another stream
            nothing = stream.copy(memory, memory)  # the runtime submits no task for this copy
            good = stream.fill(memory, 3)
            bad = failing_fill(stream, memory)
        await until(lambda: simulator.faulted(stream))
        simulator.wake()  # the runtime reports before aioacl has polled the stream
        with pytest.raises(aioacl.DeviceFault) as raised:
            await bad
        assert f"position {bad.position}" in str(raised.value)
        await nothing
        await good


async def test_wait_event_that_timed_out_on_the_device_raises_after_an_abort(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        streams(device, 3) as (stream, source, busy),
        device.allocate(64) as memory,
    ):
        simulator.hold(source)
        simulator.hold(busy)
        source.fill(memory, 1)
        with simulator.fault("aclrtStreamWaitEvent", nth=1, async_error=507001):
            wait = stream.wait_event(source.record())
        behind = stream.fill(memory, 2)
        stream.wait_event(busy.record())  # keeps the stream busy, so it cannot be synchronized
        await until(lambda: simulator.pending(stream) < 3)
        await stream.abort()
        simulator.release_all()
        for ticket in (wait, behind):
            await raises(aioacl.AclError, ticket)
        assert stream.error is None


@pytest.mark.parametrize("how", ["abort", "renew", "reset"])
async def test_wait_for_work_that_is_dropped_after_a_failure_ends(open_device: OpenDevice, how: str) -> None:
    async with open_device() as device, open_device(1) as other:
        failed, gate, stream = [
            await (other if how == "reset" else device).create_stream(),
            await (other if how == "reset" else device).create_stream(),
            await device.create_stream(),
        ]
        memory = await (other if how == "reset" else device).allocate(64)
        simulator.hold(gate)
        first = failing_fill(failed, memory)
        failed.wait_event(gate.record())
        waiting = stream.wait_event(failed.record())
        await raises(aioacl.DeviceFault, first)
        if how == "abort":
            await failed.abort()
        elif how == "renew":
            await failed.renew(abort=True)
        else:
            assert (await other.force_reset(grace=0)).ok
        with anyio.fail_after(LIMIT_SECONDS):
            await raises(aioacl.DeviceFault, waiting)
            await stream.renew()
            await stream
        for made in (stream, gate, failed, memory):
            await made.close()


async def test_work_after_an_aborted_wait_depends_on_nothing(open_device: OpenDevice) -> None:
    async with open_device() as device, streams(device, 2) as (stream, source), device.allocate(64) as memory:
        simulator.hold(source)
        failed = failing_fill(source, memory)
        aborted = stream.wait_event(source.record())
        await stream.abort()
        behind = stream.fill(memory, 2)
        with anyio.fail_after(LIMIT_SECONDS):
            await behind
        simulator.release(source)
        await raises(aioacl.DeviceFault, failed)
        await behind
        await raises(aioacl.StreamAborted, aborted)
        assert stream.error is None


async def test_ready_of_a_full_stream_whose_work_never_ends_raises(open_device: OpenDevice) -> None:
    async with open_device() as device, streams(device, 2) as (stream, source), device.allocate(64) as memory:
        held_fill(source, memory)
        stream.wait_event(source.record())
        fill_queue(stream, memory)
        await source.abort()
        with anyio.fail_after(LIMIT_SECONDS), pytest.raises(aioacl.StreamAborted) as caught:
            await stream.ready()
        assert caught.value.action == "new_stream"
        await stream.renew()
        await stream.fill(memory, 2)


async def test_close_of_a_stream_whose_work_never_ends_tries_an_unsupported_abort_once(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, open_device(1) as other:
        stream, source = await device.create_stream(), await other.create_stream()
        simulator.set_abort_supported(False)
        simulator.hold(source)
        stream.wait_event(source.record())
        assert (await other.force_reset(grace=0)).ok
        asked = simulator.calls("aclrtStreamAbort")
        await stream.close()
        await device.memory_info()  # returns after the maintenance thread has handled the close
        await device.memory_info()
        assert simulator.calls("aclrtStreamAbort") == asked + 1
        await source.close()
        assert (await device.force_reset(grace=0)).ok


async def test_wait_event_that_fails_during_a_foreign_reset_leaves_no_link(open_device: OpenDevice) -> None:
    async with open_device() as device, open_device(1) as other:
        stream, source = await device.create_stream(), await device.create_stream()
        simulator.hold(source)
        event = source.record()
        waiting = Raised.hung_in("aclrtStreamWaitEvent", lambda: stream.wait_event(event))
        generation = device.generation
        last = Raised(reset_by_other_code)
        await until(lambda: lib.aio_gate_foreign(0) or device.generation > generation)
        assert (await other.force_reset(grace=0)).ok  # removes the links of streams that no longer exist
        simulator.fail_call("aclrtStreamWaitEvent", FAULT)
        simulator.release_call("aclrtStreamWaitEvent")
        with pytest.raises(aioacl.AclError):
            waiting.join()
        last.join()
        await stream.close()
        await source.close()
        await until(lambda: device.state is aioacl.State.OPEN)


async def test_foreign_reset_by_a_thread_of_another_device_finds_its_own_streams_only(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        open_device(1),
        device.allocate(64) as memory,
        device.create_stream() as stream,
    ):
        simulator.fail_next(stream, TASK_FAULT)
        with pytest.raises(aioacl.DeviceFault):
            await stream.fill(memory, 1)  # after this failure, the stream for nudges exists
        generation = device.generation

        def reset() -> None:
            lib.aio_u_aclrtSetDevice(1)
            lib.aio_u_aclrtResetDeviceForce(0)
            lib.aio_u_aclrtResetDevice(1)

        in_thread(reset)
        await until(lambda: device.generation > generation and device.state is aioacl.State.OPEN)
        assert simulator.violations() == []


async def test_enqueue_refused_by_a_failed_stream_raises_stale_handle_error_after_a_reset(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await raises(aioacl.DeviceFault, failing_fill(stream, memory))
        assert (await device.force_reset(grace=0)).ok
        refusal = stream._core.refused(lib.AIO_STREAM_FAILED, "aclrtMemsetAsync", stream)
        assert isinstance(refusal, aioacl.StaleHandleError)


# --- warnings for uncollected failures ------------------------------------------------------------------------------


async def test_stream_closed_during_an_await_of_its_failed_task_does_not_warn(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(64) as memory, anyio.create_task_group() as group:
        for _ in range(20):
            stream = await device.create_stream()
            simulator.hold(stream)
            ticket = failing_fill(stream, memory)
            waiting = Waiting(group, partial(wait_for, ticket))
            await until(lambda: lib.aio_device_waits(0))
            await stream.close()
            simulator.release(stream)
            await raises(aioacl.DeviceFault, waiting.outcome())


async def test_renew_of_a_stream_with_an_uncollected_failure_warns(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        failing_fill(stream, memory)
        with pytest.warns(aioacl.AclWarning, match=f"its stream was renewed: {TASK_FAULT}") as warned:
            await stream.renew()
        assert warned[0].filename == __file__


async def test_each_uncollected_failure_warns_with_the_default_filter(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        with warnings.catch_warnings(record=True, action="default") as shown:
            for _ in range(3):
                events = device.events()
                stream = await device.create_stream()
                failing_fill(stream, memory)
                await next_event(events, "fault")
                await stream.close()
        assert len([each for each in shown if each.category is aioacl.AclWarning]) == 3


async def test_close_whose_warning_is_an_error_raises_it_and_closes_the_stream(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        events, stream = device.events(), await device.create_stream()
        failing_fill(stream, memory)
        await next_event(events, "fault")
        await raises(aioacl.AclWarning, stream.close())
        with pytest.raises(aioacl.ParameterError, match="closed"):
            stream.fill(memory, 2)
        assert simulator.calls("aclrtDestroyStream") == 1


# --- texts of errors -------------------------------------------------------------------------------------------------


async def test_stream_created_later_with_stop_does_not_change_an_earlier_failure(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        ticket = failing_fill(stream, memory)
        for _ in range(2):
            error = await raises(aioacl.DeviceFault, ticket)
            assert error.action == "new_stream"
            async with device.create_stream(on_failure="stop"):
                assert device.health.ready


async def test_error_of_a_dependent_names_the_device_that_has_failed(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        open_device(1) as other,
        device.create_stream() as stream,
        other.create_stream() as failed,
        other.allocate(64) as memory,
    ):
        simulator.hold(failed)
        failing_fill(failed, memory, FAULT)
        waiting = stream.wait_event(failed.record())
        simulator.release(failed)
        with pytest.raises(
            aioacl.DeviceFault, match=r"depends on the task at position 1 .* on device 1"
        ) as caught:
            await waiting
        assert caught.value.device == 1
        assert device.health.ready
        assert not other.health.ready


async def test_error_of_a_failure_does_not_contain_the_text_of_an_earlier_one(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        with simulator.fault("copy", times=1, sticky=507899):
            async with device.create_stream() as stream:
                with pytest.raises(aioacl.AclError):
                    await stream.copy(memory, bytes(64))
        assert (await device.force_reset(grace=0)).ok
        async with device.create_stream() as stream, device.allocate(64) as again:
            error = await raises(aioacl.DeviceFault, failing_fill(stream, again))
            assert "507899" not in str(error)
            assert "the task at position 1" in str(error)
