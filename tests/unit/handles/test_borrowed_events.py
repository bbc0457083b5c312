"""Borrowed events: awaits of events that other code owns, and streams that wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import ffi
from aioacl.lowlevel import handle
from tests.kit import Waiting, elsewhere, equipped, raises, turns, until, works
from tests.support.other_code import Owner

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio

EVENT_CAPTURED = 107028
TASK_CODE = 507015


async def test_await_of_a_borrowed_event_ends_with_the_work_before_it(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, stream, memory):
        simulator.hold(owner.address)
        owner.fill(memory, 7)
        event = aioacl.Event.from_handle(owner.record(), device)
        assert not event.query()
        assert repr(event).startswith("<Event of other code, device ")
        async with anyio.create_task_group() as group:
            waiting = Waiting(group, event.synchronize)
            await turns()
            assert not waiting.ended
            simulator.release(owner.address)
            await waiting.outcome()
        await event
        assert event.query()
        back = bytearray(64)
        await stream.copy(back, memory)
        assert bytes(back) == bytes([7] * 64)
        await event.close()


async def test_stream_waits_on_the_device_for_a_borrowed_event(open_device: OpenDevice, owner: Owner) -> None:
    async with equipped(open_device) as (device, stream, memory):
        simulator.hold(owner.address)
        owner.fill(memory, 9)
        event = aioacl.Event.from_handle(owner.record(), device)
        back = bytearray(64)
        waited = stream.wait_event(event)
        copied = stream.copy(back, memory)
        assert not stream.query()
        simulator.release(owner.address)
        await copied
        await waited
        assert bytes(back) == bytes([9] * 64)
        await event.close()


async def test_borrowed_event_that_was_never_recorded_is_done(open_device: OpenDevice, owner: Owner) -> None:
    async with open_device() as device:
        event = aioacl.Event.from_handle(int(ffi.cast("uintptr_t", owner.event)), device)
        await event
        await event.close()


async def test_await_of_a_borrowed_event_of_the_old_kind_waits_for_its_first_record(
    open_device: OpenDevice, owner: Owner
) -> None:
    made = ffi.new("aclrtEvent *")
    owner.call("aclrtCreateEvent", made)
    async with open_device() as device:
        event = aioacl.Event.from_handle(made[0], device)
        await raises(aioacl.DeviceTimeout, event.synchronize(timeout=0.01))
        owner.call("aclrtRecordEvent", made[0], owner.stream)
        await event
        await event.close()
    owner.call("aclrtDestroyEvent", made[0])


async def test_borrowed_event_that_was_done_stays_done_until_it_is_borrowed_again(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, stream, memory):
        event = aioacl.Event.from_handle(owner.record(), device)
        await until(event.query)
        simulator.hold(owner.address)
        owner.fill(memory)
        owner.record()
        await event
        again = aioacl.Event.from_handle(owner.event, device)
        assert not again.query()
        waited = stream.wait_event(event)  # the runtime waits for the newest record
        assert not stream.query()
        simulator.release(owner.address)
        await again
        await waited


async def test_wait_for_a_borrowed_event_times_out_and_is_cancelled(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, _, memory):
        simulator.hold(owner.address)
        owner.fill(memory)
        event = aioacl.Event.from_handle(owner.record(), device)
        error = await raises(aioacl.DeviceTimeout, event.synchronize(timeout=0.01))
        assert error.message == "the borrowed event was not done in time"
        assert "abort" not in error.hint  # there is no stream of aioacl
        with anyio.move_on_after(0.01) as scope:
            await event
        assert scope.cancelled_caught
        simulator.release(owner.address)
        await event
        await event.close()


async def test_event_of_a_capture_is_refused_and_the_capture_survives(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, stream, memory):
        event = aioacl.Event.from_handle(owner.record(), device)
        with owner.capturing():
            owner.record()
            with pytest.raises(aioacl.ParameterError) as caught:
                aioacl.Event.from_handle(owner.event, device)
            assert caught.value.code == EVENT_CAPTURED
            assert "recorded outside" in caught.value.hint
        await event
        stream.fill(memory, 1)
        await stream
        await event.close()


async def test_52_stream_does_not_wait_for_an_event_that_a_capture_has_taken(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, stream, memory):
        event = aioacl.Event.from_handle(owner.event, device)
        waits = simulator.calls("aclrtStreamWaitEvent")
        with owner.capturing():
            owner.record()
            with pytest.raises(aioacl.ParameterError) as caught:
                stream.wait_event(event)
            assert caught.value.code == EVENT_CAPTURED
        assert simulator.calls("aclrtStreamWaitEvent") == waits
        await stream.fill(memory, 1)
        await event.close()


async def test_wrong_handles_of_events_are_refused(open_device: OpenDevice, owner: Owner) -> None:
    async with equipped(open_device) as (device, stream, _):
        from_handle = aioacl.Event.from_handle
        for wrong in (0, ffi.NULL, "event", None, -1, ffi.new("aclrtEvent *", owner.event)):
            with pytest.raises(aioacl.ParameterError, match="expected the address of an aclrtEvent, got"):
                from_handle(wrong, device)
        with pytest.raises(aioacl.ParameterError, match="one of aioacl"):
            from_handle(handle(stream.record()), device)
        with pytest.raises(aioacl.ParameterError, match="expected a Device"):
            from_handle(owner.event, stream)  # type: ignore[arg-type]


@pytest.mark.leaves("events")  # an event is not destroyed after a reset of its context
async def test_reset_makes_a_borrowed_event_stale(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, _):
        owner = Owner()
        event = aioacl.Event.from_handle(owner.event, device)
        await device.force_reset(grace=0)
        assert event.stale
        await raises(aioacl.StaleHandleError, event)
        await event.close()
        assert await works(device)
        del stream
    owner.event = ffi.NULL  # the reset has ended its context
    owner.end()


@pytest.mark.leaves("events")  # an event is not destroyed after a reset of its context
async def test_reset_by_other_code_ends_the_wait_for_a_borrowed_event(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, _, memory):
        owner = Owner()
        simulator.hold(owner.address)
        owner.fill(memory)
        event = aioacl.Event.from_handle(owner.record(), device)
        async with anyio.create_task_group() as group:
            waiting = Waiting(group, event.synchronize)
            await turns()
            elsewhere("aclrtSetDevice", "aclrtResetDeviceForce")
            with pytest.raises((aioacl.DeviceReset, aioacl.StreamAborted)):
                await waiting.outcome()
        await raises(aioacl.AclError, event)
        await event.close()
        simulator.release_all()
    owner.stream = owner.event = ffi.NULL


async def test_closed_borrowed_event_is_not_queried(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory):
        owner = Owner()
        simulator.hold(owner.address)
        owner.fill(memory)
        event = aioacl.Event.from_handle(owner.record(), device)
        waited = stream.wait_event(event)
        await event.close()
        owner.destroy_event()
        simulator.release(owner.address)
        await waited
        assert (await device.force_reset(grace=1)).ok
        owner.stream = ffi.NULL
        owner.end()


async def test_record_of_a_borrowed_event_makes_it_an_event_of_aioacl(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, stream, memory):
        simulator.hold(owner.address)
        owner.fill(memory)
        event = aioacl.Event.from_handle(owner.record(), device)
        stream.record(event)
        await event
        owner.finish()
        await event.close()


async def test_failed_query_of_a_borrowed_event_raises_its_code(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, stream, memory):
        simulator.hold(owner.address)
        owner.fill(memory)
        event = aioacl.Event.from_handle(owner.record(), device)
        simulator.fail_call("aclrtQueryEventStatus", TASK_CODE)
        error = await raises(aioacl.AclError, event)
        assert error.code == TASK_CODE
        owner.finish()
        await stream.fill(memory, 1)
        await event.close()
