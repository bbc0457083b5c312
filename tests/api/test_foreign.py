"""A reset by somebody else: it is noticed, handles are stale at once, and the device is set again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._ffi import lib
from tests.kit import Waiting, hanging, in_thread, turns, until, until_now

if TYPE_CHECKING:
    from tests.kit import OpenDevice

# A dead handle never goes back to C, and the runtime keeps native events over a reset.
pytestmark = [pytest.mark.anyio, pytest.mark.leaves("events")]


def reset_by_somebody_else() -> None:
    """What another library of the process might do, on a thread of its own."""
    assert in_thread(lambda: lib.aio_u_aclrtResetDeviceForce(0)) == 0


def mended(device: aioacl.Device, generation: int) -> bool:
    return device.state is aioacl.State.OPEN and device.generation > generation


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
        assert (report.ok, report.generation) == (True, generation + 3)


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
