"""A foreign reset is noticed, handles are stale at once, and the device is set again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import ffi, lib
from aioacl._lifecycle import admission
from aioacl._lifecycle.procedures import limits
from aioacl._lifecycle.procedures.foreign import ForeignProcedure
from aioacl._lifecycle.procedures.limits import POOL_EVENTS
from tests.kit import (
    FAULT,
    Engine,
    Stop,
    Waiting,
    elsewhere,
    hanging,
    hung_in,
    raises,
    reset_by_other_code,
    turns,
    until,
    until_now,
    works,
)

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


def force_reset() -> int:
    """Resets device 0 as pyACL would."""
    code: int = lib.aio_u_aclrtResetDeviceForce(0)
    return code


def handled(device: aioacl.Device, generation: int) -> bool:
    """Whether a foreign reset was handled (which clears its flag) and the device was set again."""
    met = not lib.aio_gate_foreign(0)
    return met and device.state is aioacl.State.OPEN and device.generation > generation


async def test_state_read_while_a_foreign_reset_is_noticed_is_not_open(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[aioacl.State] = []

    class Observed(Engine):
        """Records the device's state once a foreign reset's flag was cleared."""

        def aio_gate_met(self, index: int) -> None:
            lib.aio_gate_met(index)
            seen.append(device.state)

    async with open_device() as device:
        generation = device.generation
        monkeypatch.setattr(admission, "lib", Observed())
        reset_by_other_code()
        await until(lambda: handled(device, generation))
        assert seen == [aioacl.State.RESETTING]


@pytest.mark.uncached
async def test_foreign_reset_clears_a_fault_and_later_closes_free_memory(open_device: OpenDevice) -> None:
    async with open_device() as device:
        generation = device.generation
        async with device.allocate(64) as memory, device.create_stream() as stream:
            simulator.fail_next(stream, FAULT)
            await raises(aioacl.DeviceFault, stream.fill(memory, 1))
            assert device.health.status == "poisoned"
            reset_by_other_code()
            await until(lambda: handled(device, generation))
        assert (device.health.status, device.health.last_fault) == ("ok", "")
        blocks = simulator.stats().device_blocks
        assert await works(device)
        assert simulator.stats().device_blocks == blocks


async def test_foreign_reset_revokes_leases(open_device: OpenDevice) -> None:
    async with open_device() as device, device.lease() as lease:
        generation, events = device.generation, device.events()
        reset_by_other_code()
        await until(lambda: handled(device, generation))
        assert not lease.held
        with pytest.raises(aioacl.DeviceResetting, match="the lease was revoked") as caught:
            await device.create_stream()
        assert (caught.value.device, caught.value.generation) == (0, generation + 1)
        assert [(await anext(events)).kind for _ in range(2)] == ["revoked", "foreign reset"]


async def events_until(events: aioacl.DeviceEvents, kind: str) -> list[tuple[str, aioacl.State, int]]:
    received = [await anext(events)]
    while received[-1].kind != kind:
        received.append(await anext(events))
    return [(event.kind, event.state, event.generation) for event in received]


async def test_listener_receives_a_foreign_reset_that_comes_while_a_force_reset_drains(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        events, generation = device.events(), device.generation
        async with device.lease():
            reset = Waiting(group, lambda: device.force_reset(grace=60))
            await until(lambda: device.state is aioacl.State.DRAINING)
            reset_by_other_code()
            assert (await reset.outcome()).ok
        assert await events_until(events, "reopened") == [
            ("draining", aioacl.State.DRAINING, generation),
            ("revoked", aioacl.State.RESETTING, generation + 1),
            ("foreign reset", aioacl.State.RESETTING, generation + 1),
            ("resetting", aioacl.State.RESETTING, generation + 1),
            ("reopened", aioacl.State.OPEN, generation + 2),
        ]


async def test_listener_receives_a_foreign_reset_that_comes_while_a_force_reset_fails_once(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        events, generation = device.events(), device.generation
        simulator.hang_call("aclrtSetDevice")
        simulator.fail_call("aclrtCreateStream", 507000, -1)
        reset = Waiting(group, device.force_reset)
        await until(hanging("aclrtSetDevice"))
        elsewhere("aclrtSetDevice", "aclrtResetDeviceForce")
        simulator.release_call("aclrtSetDevice")
        assert not (await reset.outcome()).ok
        await until(lambda: not lib.aio_gate_foreign(0))
        simulator.clear()
        assert (await device.force_reset()).ok
        assert await events_until(events, "reopened") == [
            ("draining", aioacl.State.DRAINING, generation),
            ("resetting", aioacl.State.RESETTING, generation),
            ("foreign reset", aioacl.State.RESETTING, generation + 1),
            ("quarantined", aioacl.State.QUARANTINED, generation + 1),
            ("resetting", aioacl.State.RESETTING, generation + 1),
            ("reopened", aioacl.State.OPEN, generation + 2),
        ]


async def test_pool_of_events_is_filled_again_after_a_foreign_reset(open_device: OpenDevice) -> None:
    async with open_device() as device:
        generation, made = device.generation, simulator.calls("aclrtCreateEventExWithFlag")
        assert made == POOL_EVENTS
        reset_by_other_code()
        await until(lambda: handled(device, generation))
        await until(lambda: simulator.calls("aclrtCreateEventExWithFlag") == 2 * POOL_EVENTS)


async def test_foreign_reset_of_a_quarantined_device_only_raises_the_generation(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        simulator.fail_call("aclrtMemcpy", 507000, -1)
        assert not (await device.force_reset()).ok
        simulator.clear()
        generation, sets = device.generation, simulator.calls("aclrtSetDevice")
        reset_by_other_code()
        await until(lambda: not lib.aio_gate_foreign(0))
        assert (device.state, device.generation) == (aioacl.State.QUARANTINED, generation + 1)
        assert simulator.calls("aclrtSetDevice") == sets
        assert (await device.force_reset()).ok


async def test_foreign_reset_during_the_last_close_changes_nothing(open_device: OpenDevice) -> None:
    device = await open_device()
    async with anyio.create_task_group() as group:
        closing = await hung_in("aclrtResetDevice", group, device.close)
        reset_by_other_code()
        assert lib.aio_gate_foreign(0)
        simulator.release_all()
        await closing.outcome()
    await until(lambda: not lib.aio_gate_foreign(0))
    async with open_device() as again, again.create_stream() as stream:
        await stream


async def test_force_reset_waits_until_the_foreign_reset_is_handled(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        generation = device.generation
        simulator.hang_call("aclrtSetDevice")
        reset_by_other_code()
        await until(hanging("aclrtSetDevice"))
        resetting = Waiting(group, device.force_reset)
        await turns()
        assert not resetting.ended
        assert simulator.calls("aclrtResetDeviceForce") == 1
        simulator.release_call("aclrtSetDevice")
        report = await resetting.outcome()
        assert (report.ok, report.generation) == (True, generation + 2)


async def test_calls_that_waited_until_the_device_was_closed_raise_that_it_is_closed(
    open_device: OpenDevice,
) -> None:
    device = await open_device()
    simulator.hang_call("aclrtSetDevice")
    reset_by_other_code()
    async with anyio.create_task_group() as group:
        await until(hanging("aclrtSetDevice"))
        resetting, making = Waiting(group, device.force_reset), Waiting(group, device.create_stream)
        await turns()
        closing = Waiting(group, device.close)
        await turns()
        simulator.release_call("aclrtSetDevice")
        assert until_now(lambda: device.state is aioacl.State.CLOSED)  # blocks this loop until then
        for one in (resetting, making):
            with pytest.raises(aioacl.ParameterError, match="the device is closed"):
                await one.outcome()
        await closing.outcome()


async def test_create_without_waiting_is_refused_if_a_foreign_reset_comes_before_its_turn(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        generation, busy = device.generation, Stop()
        device._manager.deferred.leave_note(busy)  # blocks the maintenance thread
        await until(busy.begun.is_set)
        hasty = Waiting(group, lambda: device.create_stream(wait=False))
        patient = Waiting(group, device.create_stream)
        await turns()
        simulator.hang_call("aclrtSetDevice")
        reset_by_other_code()
        busy.go_on.set()
        await until(hanging("aclrtSetDevice"))
        await raises(aioacl.DeviceResetting, hasty.outcome())
        assert not patient.ended
        simulator.release_all()
        await (await patient.outcome()).close()
        assert handled(device, generation)


async def test_device_is_set_again_only_after_jobs_inside_have_ended(open_device: OpenDevice) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def allocate() -> int:
        begun.set()
        go_on.wait()
        code: int = lib.aio_u_aclrtMalloc(ffi.new("void **"), 64, lib.ACL_MEM_MALLOC_HUGE_FIRST)
        return code

    async with open_device() as device, anyio.create_task_group() as group:
        generation, sets = device.generation, simulator.calls("aclrtSetDevice")
        job = Waiting(group, lambda: device.run(allocate))
        await until(begun.is_set)
        reset_by_other_code()
        await until(lambda: isinstance(device._manager.procedure, ForeignProcedure))
        assert not until_now(lambda: simulator.calls("aclrtSetDevice") > sets, 0.1)
        go_on.set()
        assert await job.outcome() == 107002  # no new context was made while the job was inside
        await until(lambda: handled(device, generation))
        assert simulator.stats().device_blocks == 0


async def test_device_is_set_again_after_a_time_limit_if_a_job_stays_inside(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    stay = Stop()
    monkeypatch.setattr(limits, "CLOSE_SECONDS", 0.05)
    async with open_device() as device, anyio.create_task_group() as group:
        job = Waiting(group, lambda: device.run(stay))
        await until(stay.begun.is_set)
        reset_by_other_code()
        assert await works(device)
        monkeypatch.undo()  # the close needs the normal limit
        assert not job.ended
        stay.go_on.set()
        await job.outcome()


async def test_set_and_reset_by_other_code_while_the_device_is_open_change_nothing(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        generation = device.generation
        elsewhere("aclrtSetDevice", "aclrtResetDevice")
        assert await works(device)
        assert device.generation == generation
        assert simulator.retain_count() == 1


async def test_foreign_reset_ends_the_earlier_set_of_other_code_too(open_device: OpenDevice) -> None:
    async with open_device() as device:
        elsewhere("aclrtSetDevice", "aclrtResetDeviceForce", "aclrtSetDevice")
        assert await works(device)
        await until(lambda: simulator.retain_count() == 2)
    assert simulator.retain_count() == 1
    elsewhere("aclrtResetDevice")


async def test_a_job_that_resets_the_device_itself_does_not_wait_for_itself(open_device: OpenDevice) -> None:
    async with open_device() as device:
        generation = device.generation
        assert await device.run(force_reset) == 0
        assert await works(device)
        assert device.generation == generation + 1
        assert simulator.retain_count() == 1
        assert simulator.violations() == []
