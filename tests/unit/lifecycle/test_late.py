"""aioacl's copy of ACL's counts: a late call is counted when it returns, and sets by other code are not reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import lowlevel, simulator
from tests.kit import (
    Raised,
    Stop,
    Waiting,
    clock_in_place,
    elsewhere,
    gives_up_in,
    hanging,
    reset_by_other_code,
    until,
    works,
)
from tests.process.child import Child

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio

NO_CALLBACK = {"AIOACL_SIM_FAULTS": "aclrtRegDeviceStateCallback:after=0:rc=507000"}
FOUND_BEFORE_THE_CLOSE = """
from aioacl._base.ffi import lib
from tests.kit import elsewhere

async def main():
    device = await open_device()
    stream, memory = await device.create_stream(), await device.allocate(64)
    blocked, go_on = threading.Event(), threading.Event()
    device._manager.deferred.leave_note(lambda: (blocked.set(), go_on.wait()))  # delays the handling until the close
    blocked.wait()
    elsewhere("aclrtResetDeviceForce")
    try:
        await stream.fill(memory, 1)
    except aioacl.AclError as error:
        say(type(error).__name__, lib.aio_gate_foreign(0), lib.aio_device_foreign(0))
    elsewhere("aclrtSetDevice")
    closing = device.close()
    go_on.set()
    await closing
    say(simulator.retain_count(), simulator.violations())

start(main)
"""


async def test_late_set_of_a_reset_that_gave_up_is_undone_by_the_close(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        await gives_up_in(device, "aclrtSetDevice")
        simulator.release_call("aclrtSetDevice")
        await until(lambda: simulator.retain_count() == 1)
    assert simulator.retain_count() == 0


async def test_late_set_of_a_foreign_procedure_that_gave_up_is_undone_by_the_close(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        simulator.hang_call("aclrtSetDevice")
        with clock_in_place() as clock:
            reset_by_other_code()
            await until(hanging("aclrtSetDevice"))
            await clock.advance_until(lambda: device.state is aioacl.State.QUARANTINED)
        simulator.release_call("aclrtSetDevice")
        await until(lambda: simulator.retain_count() == 1)
    assert simulator.retain_count() == 0


async def test_set_by_other_code_after_a_reset_that_returns_late_is_kept(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        await gives_up_in(device, "aclrtResetDeviceForce")
        simulator.release_call("aclrtResetDeviceForce")
        await until(lambda: simulator.retain_count() == 0)
        elsewhere("aclrtSetDevice")
    assert simulator.retain_count() == 1
    elsewhere("aclrtResetDevice")


async def test_set_by_other_code_during_the_last_close_is_kept(open_device: OpenDevice) -> None:
    device, busy = await open_device(), Stop()
    device._manager.deferred.leave_note(busy)  # the close waits for the maintenance thread
    await until(busy.begun.is_set)
    async with anyio.create_task_group() as group:
        closing = Waiting(group, device.close)
        await until(lambda: device._manager.admission.opens == 0)
        elsewhere("aclrtResetDeviceForce", "aclrtSetDevice")
        busy.go_on.set()
        await closing.outcome()
    assert simulator.retain_count() == 1
    elsewhere("aclrtResetDevice")


@pytest.mark.process
def test_close_resets_nothing_after_a_call_has_found_a_foreign_reset() -> None:
    with Child(FOUND_BEFORE_THE_CLOSE, more=NO_CALLBACK) as child:
        assert child.end() == (0, "DeviceReset 1 0\n1 []\n", "")


async def test_probe_that_fails_after_a_foreign_reset_leaves_the_device_set(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        simulator.hang_call("aclrtSetDevice")
        simulator.fail_call("aclrtCreateStream", 507000, -1)
        resetting = Waiting(group, device.force_reset)
        await until(hanging("aclrtSetDevice"))
        elsewhere("aclrtSetDevice", "aclrtResetDeviceForce")
        simulator.release_call("aclrtSetDevice")
        assert not (await resetting.outcome()).ok
        await until(lambda: device._manager.procedure is None)
        assert simulator.retain_count() == 1
    assert simulator.retain_count() == 0


def test_set_by_other_code_is_not_reset_by_lowlevel() -> None:
    lowlevel.set_device(0)
    elsewhere("aclrtResetDeviceForce", "aclrtSetDevice")
    with pytest.raises(aioacl.AclError) as caught:
        lowlevel.reset_device(0)
    assert (caught.value.code, simulator.retain_count()) == (507007, 1)
    lowlevel.set_device(0)
    lowlevel.reset_device(0)
    assert simulator.retain_count() == 1
    elsewhere("aclrtResetDevice")


def lowlevel_set_during(*calls: str) -> None:
    """Sets the device with aioacl.lowlevel. While this set hangs in C, other code makes the calls."""
    setting = Raised.hung_in("aclrtSetDevice", lambda: lowlevel.set_device(0))
    elsewhere(*calls)
    simulator.release_call("aclrtSetDevice")
    setting.join()


def test_lowlevel_set_that_returns_after_a_foreign_reset_can_be_reset() -> None:
    lowlevel.set_device(0)
    lowlevel_set_during("aclrtResetDeviceForce")
    assert simulator.retain_count() == 1
    lowlevel.reset_device(0)
    assert simulator.retain_count() == 0
    with pytest.raises(aioacl.AclError) as caught:
        lowlevel.reset_device(0)
    assert caught.value.code == 507007


async def test_set_by_other_code_after_a_foreign_reset_of_the_set_of_an_open_is_kept(
    open_device: OpenDevice,
) -> None:
    async with anyio.create_task_group() as group:
        simulator.hang_call("aclrtGetCurrentContext")  # called right after aclrtSetDevice
        opening = Waiting(group, open_device().__aenter__)
        await until(hanging("aclrtGetCurrentContext"))
        elsewhere("aclrtResetDeviceForce", "aclrtSetDevice")
        simulator.release_call("aclrtGetCurrentContext")
        device: aioacl.Device = await opening.outcome()
        assert await works(device)
        assert simulator.retain_count() == 2
        await device.close()
    assert simulator.retain_count() == 1
    elsewhere("aclrtResetDevice")


async def test_set_by_other_code_after_a_foreign_reset_of_the_set_of_a_force_reset_is_kept(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        simulator.hang_call("aclrtGetCurrentContext")  # called right after aclrtSetDevice
        resetting = Waiting(group, device.force_reset)
        await until(hanging("aclrtGetCurrentContext"))
        elsewhere("aclrtResetDeviceForce", "aclrtSetDevice")
        simulator.release_call("aclrtGetCurrentContext")
        assert (await resetting.outcome()).ok
        assert await works(device)
    assert simulator.retain_count() == 1
    elsewhere("aclrtResetDevice")
