"""A reset by somebody else: it is noticed, handles are stale at once, and the device is set again."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._ffi import lib
from aioacl._flights import POOL_EVENTS
from aioacl._lanes import Job
from tests.kit import PATIENCE_SECONDS, Waiting, hanging, in_thread, turns, until, until_now

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


def reset_by_somebody_else() -> None:
    """What another library of the process might do, on a thread of its own."""
    assert in_thread(lambda: lib.aio_u_aclrtResetDeviceForce(0)) == 0


def force_reset() -> int:
    """As pyACL would call it."""
    code: int = lib.aio_u_aclrtResetDeviceForce(0)
    return code


def elsewhere(*calls: str) -> None:
    """Makes the calls for device 0 on a thread of somebody else's, one after another."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.extend(getattr(lib, f"aio_u_{call}")(0) for call in calls))
    thread.start()
    thread.join()
    assert codes == [0] * len(calls)


async def works(device: aioacl.Device) -> bool:
    """Whether bytes that go there come back."""
    back = bytearray(64)
    async with device.create_stream() as stream, device.allocate(64) as memory:
        await stream.copy(memory, bytes(range(64)))
        await stream.copy(back, memory)
    return bytes(back) == bytes(range(64))


def mended(device: aioacl.Device, generation: int) -> bool:
    """Whether a foreign reset was met, which clears its flag, and the device set again after it."""
    met = not lib.aio_gate_foreign(0)
    return met and device.state is aioacl.State.OPEN and device.generation > generation


async def test_old_handles_are_stale_at_once_and_new_ones_work(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(64) as memory, device.create_stream() as stream:
        generation = device.generation
        reset_by_somebody_else()
        with pytest.raises((aioacl.StaleHandleError, aioacl.DeviceResetting)):
            stream.fill(memory, 1)
        await until(lambda: mended(device, generation))
        assert stream.stale
        async with device.allocate(64) as fresh, device.create_stream() as another:
            await another.fill(fresh, 1)
        assert simulator.retain_count() == 1
    assert simulator.retain_count() == 0


async def test_it_revokes_leases_for_their_steps_are_parted(open_device: OpenDevice) -> None:
    async with open_device() as device, device.lease() as lease:
        generation, events = device.generation, device.events()
        reset_by_somebody_else()
        await until(lambda: mended(device, generation))
        assert not lease.held
        with pytest.raises(aioacl.DeviceResetting, match="the lease was revoked") as caught:
            await device.create_stream()
        assert (caught.value.device, caught.value.generation) == (0, generation + 1)
        assert [(await anext(events)).kind for _ in range(2)] == ["revoked", "foreign reset"]


async def test_when_the_device_cannot_be_set_again_it_is_quarantined_until_a_reset(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        assert (await device.force_reset()).ok  # its report is not to blame
        simulator.hang_call("aclrtSetDevice")
        with simulator.fault("aclrtSetDevice", rc=507033):
            reset_by_somebody_else()
            await until(hanging("aclrtSetDevice"))
            making = Waiting(group, device.create_stream)
            await turns()
            assert not making.ended
            simulator.unhang("aclrtSetDevice")
            await until(lambda: device.state is aioacl.State.QUARANTINED)
            with pytest.raises(aioacl.DeviceQuarantined, match="not set again") as caught:
                await making.outcome()
            assert caught.value.report is None
        assert (await device.force_reset()).ok
        async with device.create_stream():
            assert simulator.retain_count() == 1


async def test_when_it_cannot_be_set_again_nobody_waits_behind_a_lane_that_is_stuck(
    open_device: OpenDevice,
) -> None:
    looking, meet, go_on = threading.Event(), threading.Event(), threading.Event()

    def look() -> None:
        looking.set()
        meet.wait()

    async with open_device() as device, anyio.create_task_group() as group:
        maintenance = device._manager.maintenance
        device._manager.leave_note(look)  # after which the lane meets the reset, and then works off its jobs
        await until(looking.is_set)
        maintenance.submit(Job(go_on.wait))
        making = Waiting(group, device.create_stream)
        await turns()
        try:
            with simulator.fault("aclrtSetDevice", rc=507033):
                reset_by_somebody_else()
                meet.set()
                with pytest.raises(aioacl.DeviceQuarantined, match="not set again"):
                    await making.outcome()
        finally:
            meet.set()
            go_on.set()
        assert (await device.force_reset()).ok


async def test_after_it_the_pool_of_events_is_filled_anew(open_device: OpenDevice) -> None:
    async with open_device() as device:
        generation, made = device.generation, simulator.calls("aclrtCreateEventExWithFlag")
        assert made == POOL_EVENTS
        reset_by_somebody_else()
        await until(lambda: mended(device, generation))
        await until(lambda: simulator.calls("aclrtCreateEventExWithFlag") == 2 * POOL_EVENTS)


async def test_while_it_is_quarantined_a_foreign_reset_only_raises_the_generation(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        simulator.fail_call("aclrtMemcpy", 507000, -1)
        assert not (await device.force_reset()).ok
        simulator.clear()
        generation, sets = device.generation, simulator.calls("aclrtSetDevice")
        reset_by_somebody_else()
        await until(lambda: not lib.aio_gate_foreign(0))
        assert (device.state, device.generation) == (aioacl.State.QUARANTINED, generation + 1)
        assert simulator.calls("aclrtSetDevice") == sets
        assert (await device.force_reset()).ok


async def test_during_the_last_close_it_changes_nothing(open_device: OpenDevice) -> None:
    device = await open_device()
    simulator.hang_call("aclrtResetDevice")
    async with anyio.create_task_group() as group:
        closing = Waiting(group, device.close)
        await until(hanging("aclrtResetDevice"))
        reset_by_somebody_else()
        assert lib.aio_gate_foreign(0)
        simulator.release_all()
        await closing.outcome()
    await until(lambda: not lib.aio_gate_foreign(0))
    async with open_device() as again, again.create_stream() as stream:
        await stream


async def test_a_reset_of_ours_waits_until_the_foreign_one_is_mended(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        generation = device.generation
        simulator.hang_call("aclrtSetDevice")
        reset_by_somebody_else()
        await until(hanging("aclrtSetDevice"))
        resetting = Waiting(group, device.force_reset)
        await turns()
        assert not resetting.ended
        assert simulator.calls("aclrtResetDeviceForce") == 1
        simulator.unhang("aclrtSetDevice")
        report = await resetting.outcome()
        assert (report.ok, report.generation) == (True, generation + 2)


async def test_a_reset_that_waited_until_the_device_was_closed_says_so(open_device: OpenDevice) -> None:
    device = await open_device()
    simulator.hang_call("aclrtSetDevice")
    reset_by_somebody_else()
    async with anyio.create_task_group() as group:
        await until(hanging("aclrtSetDevice"))
        resetting, making = Waiting(group, device.force_reset), Waiting(group, device.create_stream)
        await turns()
        closing = Waiting(group, device.close)
        await turns()
        simulator.unhang("aclrtSetDevice")
        assert until_now(lambda: device.state is aioacl.State.CLOSED)  # nobody here has a turn until then
        for one in (resetting, making):
            with pytest.raises(aioacl.ParameterError, match="the device is closed"):
                await one.outcome()
        await closing.outcome()


async def test_what_need_not_wait_and_is_overtaken_by_a_foreign_reset_is_refused(
    open_device: OpenDevice,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        go_on.wait()

    async with open_device() as device, anyio.create_task_group() as group:
        generation = device.generation
        device._manager.leave_note(block)  # the maintenance lane is busy
        await until(begun.is_set)
        hasty = Waiting(group, lambda: device.create_stream(wait=False))
        patient = Waiting(group, device.create_stream)
        await turns()
        simulator.hang_call("aclrtSetDevice")
        reset_by_somebody_else()
        go_on.set()
        await until(hanging("aclrtSetDevice"))
        with pytest.raises(aioacl.DeviceResetting):
            await hasty.outcome()
        assert not patient.ended
        simulator.release_all()
        await (await patient.outcome()).close()
        assert mended(device, generation)


async def test_waits_in_flight_end_and_the_device_is_set_again(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(64) as memory,
        anyio.create_task_group() as group,
    ):
        generation = device.generation
        simulator.hold(stream)
        ticket = stream.fill(memory, 1)
        waiting = Waiting(group, lambda: ticket)
        await until(lambda: lib.aio_device_waits(0) == 1)
        elsewhere("aclrtResetDeviceForce")
        with pytest.raises(aioacl.DeviceReset):
            await waiting.outcome()
        with pytest.raises(aioacl.StaleHandleError):
            stream.fill(memory, 2)
        assert await works(device)
        assert device.generation == generation + 1
        assert simulator.retain_count() == 1
    assert simulator.retain_count() == 0


async def test_a_set_and_a_reset_that_only_count_go_unnoticed(open_device: OpenDevice) -> None:
    async with open_device() as device:
        generation = device.generation
        elsewhere("aclrtSetDevice", "aclrtResetDevice")
        assert await works(device)
        assert device.generation == generation
        assert simulator.retain_count() == 1


async def test_what_others_have_set_is_not_reset_by_our_close(open_device: OpenDevice) -> None:
    async with open_device():
        elsewhere("aclrtSetDevice")
    assert simulator.retain_count() == 1
    elsewhere("aclrtResetDevice")


async def test_a_reset_by_others_ends_the_set_of_others_too(open_device: OpenDevice) -> None:
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


async def test_a_reset_during_the_first_open_is_made_up_for(open_device: OpenDevice) -> None:
    async with anyio.create_task_group() as group:
        simulator.hang_call("aclrtGetCurrentContext")  # which asks for what aclrtSetDevice has made
        opening = Waiting(group, open_device().__aenter__)
        await until(hanging("aclrtGetCurrentContext"))
        elsewhere("aclrtResetDeviceForce")
        simulator.unhang("aclrtGetCurrentContext")
        device: aioacl.Device = await opening.outcome()
        assert await works(device)
        assert simulator.retain_count() == 1
        await device.close()
    assert simulator.retain_count() == 0


async def test_a_set_that_came_after_a_foreign_reset_stands(open_device: OpenDevice) -> None:
    async with anyio.create_task_group() as group:
        simulator.hang_call("aclrtSetDevice")
        opening = Waiting(group, open_device().__aenter__)
        await until(hanging("aclrtSetDevice"))
        elsewhere("aclrtSetDevice", "aclrtResetDeviceForce")
        simulator.unhang("aclrtSetDevice")
        device: aioacl.Device = await opening.outcome()
        assert simulator.calls("aclrtSetDevice") == 2  # theirs and one of ours
        assert simulator.retain_count() == 1
        await device.close()


async def test_a_first_open_that_is_reset_each_time_fails_and_leaves_nothing_set(
    open_device: OpenDevice,
) -> None:
    with simulator.fault("aclrtGetCurrentContext", ext_reset=True, times=3) as fault:
        with pytest.raises(aioacl.ContextError, match="aclrtSetDevice"):
            await open_device()
        assert fault.hits == simulator.calls("aclrtSetDevice") == 3
    assert simulator.retain_count() == 0
    async with open_device() as device:
        assert await works(device)


async def test_a_reset_that_came_after_our_set_is_not_taken_for_one_before_it(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        generation = device.generation
        told = lib.aio_device_foreign(0)
        lib.aio_foreign_settle(0, told)  # there was none
        assert (device.generation, lib.aio_gate_foreign(0)) == (generation, 0)
        with device._manager.changed:  # nobody can meet it
            reset_by_somebody_else()
            lib.aio_foreign_settle(0, told)
            assert (device.generation, lib.aio_gate_foreign(0)) == (generation + 1, 1)
            lib.aio_gate_met(0)
            lib.aio_foreign_settle(0, told)  # not known by its flag, but by the count
            assert (device.generation, lib.aio_gate_foreign(0)) == (generation + 2, 1)
        assert await works(device)
        assert simulator.retain_count() == 1


async def test_a_reset_while_we_probe_is_made_up_for(open_device: OpenDevice) -> None:
    async with open_device() as device:
        generation = device.generation
        with simulator.fault("aclrtCreateStream", ext_reset=True, nth=1) as fault:
            assert (await device.force_reset(grace=0)).attempts == 2
            assert fault.hits == 1
        assert await works(device)
        assert device.generation > generation
        assert simulator.retain_count() == 1


@contextmanager
def unmet(device: aioacl.Device) -> Generator[None]:
    """A reset by somebody else that is met at the end of the block."""
    begun, go_on = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        go_on.wait(PATIENCE_SECONDS)

    try:
        device._manager.maintenance.submit(Job(block))  # it is this lane that meets it
        assert begun.wait(PATIENCE_SECONDS)
        reset_by_somebody_else()
        yield
    finally:
        go_on.set()


def test_until_a_foreign_reset_is_met_nothing_new_begins(open_device: OpenDevice) -> None:
    device = open_device().result()
    with unmet(device):
        for new in (device.create_stream(wait=False), open_device(wait=False)):
            with pytest.raises(aioacl.DeviceResetting, match="device 0 is RESETTING"):
                new.result(timeout=5)
    device.close().result()


def test_until_a_foreign_reset_is_met_nobody_is_told_that_the_device_is_open(open_device: OpenDevice) -> None:
    device = open_device().result()
    with unmet(device):
        assert device.state is device.health.state is aioacl.State.RESETTING
        assert not device.health.ready
    assert until_now(lambda: device.health.ready)
    device.close().result()


def test_until_a_foreign_reset_is_met_nobody_is_told_that_he_holds_a_lease(open_device: OpenDevice) -> None:
    device = open_device().result()
    with device.lease() as lease:
        generation, before = device.generation, lease.held
        with unmet(device):
            assert before
            assert device.generation == generation + 1
            assert not lease.held
        assert until_now(lambda: device.health.ready)
        assert not lease.held
    device.close().result()


def test_until_a_foreign_reset_is_met_what_its_copies_use_is_kept(open_device: OpenDevice) -> None:
    device = open_device().result()
    stream, memory = device.create_stream().result(), device.allocate(64).result()
    pinned = device.pinned(64).result()
    simulator.hold(stream)
    stream.copy(memory, pinned)
    with unmet(device):
        stream._core.sweep()
        assert stream._core.limbo
    assert until_now(lambda: device.health.ready)
    stream._core.sweep()
    assert not stream._core.limbo
    for thing in (stream, memory, pinned, device):
        thing.close().result()


async def test_a_drain_that_meets_a_foreign_reset_has_nothing_more_to_wait_for(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        async with device.lease():
            reset = Waiting(group, lambda: device.force_reset(grace=60))
            await until(lambda: device.state is aioacl.State.DRAINING)
            reset_by_somebody_else()
            with pytest.raises(aioacl.DeviceResetting):
                await device.create_stream()
            assert (await reset.outcome()).ok
        assert await works(device)
