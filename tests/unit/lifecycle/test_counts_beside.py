"""Sets with aioacl.lowlevel while aioacl uses the device: each is counted for its caller, and no loop is blocked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import lowlevel, simulator
from aioacl._lifecycle.manager import manager_of
from tests.kit import Raised, Waiting, clock_in_place, hanging, raises, reset_by_other_code, turns, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


async def open_and_close_beside_a_lowlevel_set(open_device: OpenDevice) -> None:
    async with open_device():
        assert simulator.retain_count() == 2
    assert simulator.retain_count() == 1
    lowlevel.reset_device(0)
    assert simulator.retain_count() == 0


async def test_reset_of_the_last_close_that_returns_late_is_not_repeated(open_device: OpenDevice) -> None:
    async def close_late() -> None:
        with clock_in_place() as clock:
            async with anyio.create_task_group() as group:
                closing = Waiting(group, device.close)
                await until(hanging("aclrtResetDevice"))
                await clock.advance_until(lambda: closing.ended)

    lowlevel.set_device(0)
    device = await open_device()
    assert simulator.retain_count() == 2
    simulator.hang_call("aclrtResetDevice")
    with pytest.warns(aioacl.AclWarning, match="aclrtResetDevice"):
        await close_late()
    simulator.release_call("aclrtResetDevice")
    await until(lambda: manager_of(0).counts.now.retained == 1)
    await open_and_close_beside_a_lowlevel_set(open_device)


@pytest.mark.parametrize(
    "end",
    [lambda: lowlevel.reset_device(0), lambda: lowlevel.reset_device_force(0), reset_by_other_code],
    ids=["reset", "force reset", "foreign reset"],
)
async def test_set_that_a_close_left_and_other_code_ended_is_not_reset_again(
    open_device: OpenDevice, end: Callable[[], None]
) -> None:
    simulator.fail_call("aclrtResetDevice", 507000)
    with pytest.warns(aioacl.AclWarning, match="aclrtResetDevice returned 507000"):
        async with open_device():
            pass
    end()
    assert simulator.retain_count() == 0
    lowlevel.set_device(0)
    await open_and_close_beside_a_lowlevel_set(open_device)


async def test_lowlevel_set_during_a_foreign_reset_belongs_to_its_caller(
    open_device: OpenDevice,
) -> None:
    simulator.fail_call("aclrtResetDevice", 507000)
    with pytest.warns(aioacl.AclWarning, match="aclrtResetDevice returned 507000"):
        async with open_device():
            pass
    setting = Raised.hung_in("aclrtSetDevice", lambda: lowlevel.set_device(0))
    reset_by_other_code()
    simulator.release_call("aclrtSetDevice")
    setting.join()
    await open_and_close_beside_a_lowlevel_set(open_device)


async def test_closed_handle_does_not_wait_for_a_running_lowlevel_set(open_device: OpenDevice) -> None:
    device = await open_device()
    await device.close()
    setting = Raised.hung_in("aclrtSetDevice", lambda: lowlevel.set_device(0))
    await device.close()
    with pytest.raises(aioacl.ParameterError, match="the device is closed"):
        await device.force_reset()
    simulator.release_call("aclrtSetDevice")
    setting.join()
    lowlevel.reset_device(0)


async def test_open_during_a_lowlevel_set_waits_without_blocking_its_loop(
    open_device: OpenDevice,
) -> None:
    setting = Raised.hung_in("aclrtSetDevice", lambda: lowlevel.set_device(0))
    await raises(aioacl.DeviceTimeout, open_device(timeout=0.01))
    await raises(aioacl.DeviceResetting, open_device(wait=False))
    another = Raised(lambda: lowlevel.set_device(0))
    async with anyio.create_task_group() as group:
        opening = Waiting(group, open_device)
        await turns()
        simulator.release_call("aclrtSetDevice")
        setting.join()
        device = await opening.outcome()
        sets = 2
        try:
            another.join()
        except aioacl.ParameterError:  # the open was earlier, so lowlevel sets are refused
            sets = 1
        assert simulator.retain_count() == sets + 1
        await device.close()
        for _ in range(sets):
            lowlevel.reset_device(0)
        assert simulator.retain_count() == 0
