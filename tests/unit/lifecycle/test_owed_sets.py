"""Sets that a reset has undone or made, and that the next reset, open or close has to make again or undo."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import aioacl
from aioacl import lowlevel, simulator
from tests.kit import FAULT, elsewhere, raises, sets_by_other_code, until, works
from tests.process.child import Child

pytestmark = pytest.mark.anyio

RC = 507000


@pytest.fixture(autouse=True)
def undo_sets() -> Any:
    yield
    simulator.clear()
    elsewhere(*["aclrtResetDevice"] * simulator.retain_count())


@pytest.mark.parametrize("context", ["primary", "own"])
async def test_close_makes_sets_again_that_a_failed_reset_has_undone(context: Any) -> None:
    sets_by_other_code(2)
    async with aioacl.open_device(0, context=context) as device:
        with simulator.fault("aclrtSetDevice", rc=RC, times=-1):
            assert not (await device.force_reset(grace=0, scope="device")).ok
        assert simulator.retain_count() < 2
    assert simulator.retain_count() == 2


@pytest.mark.parametrize("context", ["primary", "own"])
async def test_open_makes_sets_again_that_a_failed_close_has_not_made(context: Any) -> None:
    sets_by_other_code(2)
    with simulator.fault("aclrtSetDevice", rc=RC, after=int(context == "primary"), times=-1):
        device = await aioacl.open_device(0, context=context)
        assert not (await device.force_reset(grace=0, scope="device")).ok
        with pytest.warns(aioacl.AclWarning, match="aclrtSetDevice returned 507000"):
            await device.close()
        error = await raises(aioacl.AclError, aioacl.open_device(0, context=context))
    assert (error.code, simulator.retain_count()) == (RC, 0)
    async with aioacl.open_device(0, context=context):
        assert simulator.retain_count() == 2 + (context == "primary")
    assert simulator.retain_count() == 2


@pytest.mark.parametrize("context", ["primary", "own"])
async def test_reset_after_a_failed_one_makes_the_sets_of_both_again(context: Any) -> None:
    sets_by_other_code(2)
    async with aioacl.open_device(0, context=context) as device:
        with simulator.fault("aclrtSetDevice", rc=RC, times=-1):
            assert not (await device.force_reset(grace=0, scope="device")).ok
        assert (await device.force_reset(grace=0, scope="device")).foreign_sets == 2
        assert simulator.retain_count() == 2 + (context == "primary")


@pytest.mark.parametrize("context", ["primary", "own"])
@pytest.mark.parametrize("again", [False, True])
async def test_sets_are_right_after_a_reset_that_has_undone_some(context: Any, again: bool) -> None:
    sets_by_other_code(3)
    async with aioacl.open_device(0, context=context) as device:
        with simulator.fault("aclrtResetDevice*", rc=RC, after=1, times=-1):
            assert not (await device.force_reset(grace=0, scope="device")).ok
        if again:
            assert (await device.force_reset(grace=0, scope="device")).foreign_sets == 3
    assert simulator.retain_count() == 3


async def test_close_undoes_the_set_of_a_failed_reset() -> None:
    async with aioacl.open_device(0, context="own") as device:
        with simulator.fault("aclrtResetDeviceForce", rc=RC, times=3):
            assert not (await device.force_reset(scope="device", grace=0)).ok
        assert simulator.retain_count() == 1
    assert simulator.retain_count() == 0


async def test_no_set_is_added_when_the_force_reset_fails_once() -> None:
    sets_by_other_code(2)
    async with aioacl.open_device(0, context="own") as device:
        async with device.create_stream() as stream, device.allocate(64) as memory:
            with simulator.fault("aclrtMemsetAsync", sticky=FAULT):
                await raises(aioacl.DeviceFault, stream.fill(memory, 1))
            with simulator.fault("aclrtResetDeviceForce", rc=RC, times=1):
                assert (await device.force_reset(grace=0)).foreign_sets == 2
        assert simulator.retain_count() == 2


async def test_report_names_aclrt_set_device_when_a_set_is_not_made_again() -> None:
    sets_by_other_code(1)
    async with aioacl.open_device(0, context="own") as device:
        with simulator.fault("aclrtSetDevice", rc=RC, times=1):
            report = await device.force_reset(scope="device", grace=0)
        assert (report.ok, report.codes) == (True, (("aclrtSetDevice", RC),))
        assert simulator.retain_count() == 1


async def test_device_that_other_code_has_released_may_be_reset() -> None:
    sets_by_other_code(1)
    async with aioacl.open_device(0, context="own", resets=False) as device:
        await raises(aioacl.ParameterError, device.force_reset(scope="device"))
        elsewhere("aclrtResetDevice")
        assert (await device.force_reset(scope="device")).foreign_sets == 0


async def test_set_of_lowlevel_that_other_code_has_ended_does_not_count() -> None:
    lowlevel.set_device(0)
    async with aioacl.open_device(0, context="own") as device:
        elsewhere("aclrtResetDeviceForce", "aclrtSetDevice", "aclrtSetDevice")
        assert (await device.force_reset(scope="device", grace=0)).foreign_sets == 2
    assert simulator.retain_count() == 2


@pytest.mark.parametrize("context", ["primary", "own"])
async def test_failed_query_of_the_state_means_that_the_device_is_perhaps_set(context: Any) -> None:
    sets_by_other_code(2)
    with simulator.fault("aclrtGetPrimaryCtxState", rc=RC, times=1):
        async with aioacl.open_device(0, context=context, resets=False) as device:
            await raises(aioacl.ParameterError, device.force_reset(scope="device"))
    with simulator.fault("aclrtGetPrimaryCtxState", rc=RC, after=1, times=1):
        async with aioacl.open_device(0, context=context) as device:
            assert (await device.force_reset(scope="device")).foreign_sets >= 2


async def set_during_a_reset(device: aioacl.Device) -> aioacl.ResetReport:
    """Lets other code set the device while a reset waits for a lease."""
    reports: list[aioacl.ResetReport] = []

    async def reset() -> None:
        reports.append(await device.force_reset(grace=60, timeout=300))

    async with anyio.create_task_group() as tasks, device.lease():
        tasks.start_soon(reset)
        await until(lambda: device.state is aioacl.State.DRAINING)
        sets_by_other_code(1)
    return reports[0]


async def test_device_that_is_set_during_the_drain_is_not_reset() -> None:
    async with aioacl.open_device(0, resets=False) as device:
        resets = simulator.resets()
        report = await set_during_a_reset(device)
        assert (report.ok, simulator.resets()) == (False, resets)
        assert "other code has set the device since" in report.problem


async def test_scope_is_not_widened_when_other_code_has_set_the_device() -> None:
    async with aioacl.open_device(0, context="own", resets=False) as device:
        resets = simulator.resets()
        with simulator.fault("aclrtMemcpy", rc=RC, times=1):
            report = await set_during_a_reset(device)
        assert (report.ok, report.scope, simulator.resets()) == (True, "context", resets)


async def test_own_context_that_a_close_could_not_destroy_is_destroyed_by_the_next_open() -> None:
    device = await aioacl.open_device(0, context="own")
    with (
        simulator.fault("aclrtDestroyContext", rc=RC, times=1),
        pytest.warns(aioacl.AclWarning, match="aclrtDestroyContext returned 507000"),
    ):
        await device.close()
    async with aioacl.open_device(0):
        assert simulator.stats().contexts == 0


async def test_memory_of_a_faulty_close_is_freed_by_the_next_open() -> None:
    sets_by_other_code(1)
    async with aioacl.open_device(0, context="own") as device, device.create_stream() as stream:
        memory = await device.allocate(1 << 20)
        with simulator.fault("aclrtMemsetAsync", sticky=FAULT):
            await raises(aioacl.DeviceFault, stream.fill(memory, 1))
        simulator.clear()
    assert simulator.stats().device_bytes == 1 << 20
    async with aioacl.open_device(0, context="own") as device:
        assert simulator.stats().device_bytes == 0
        assert await works(device)
    await memory.close()


OLD_RELEASE = """
from aioacl._base.ffi import ffi, lib

async def main():
    async with open_device(0, context="own") as device:
        memory = await device.allocate(1 << 20)
        await device.force_reset(scope="device", grace=0, foreign=True)
        address = ffi.new("void **")
        lib.aio_u_aclrtSetDevice(0)
        lib.aio_u_aclrtMalloc(address, 1 << 20, 0)  # gets the same address
        say((await device.force_reset(grace=0)).scope, simulator.stats().device_blocks)

import warnings
warnings.simplefilter("ignore")
use_library(simulator.library_path("8.1"))
anyio.run(main, backend=os.environ["TEST_BACKEND"])
"""


@pytest.mark.process
def test_memory_of_other_code_is_not_freed_after_a_reset_that_reports_nothing() -> None:
    with Child(OLD_RELEASE) as child:
        code, output, _ = child.end()
    assert (code, output.splitlines()) == (0, ["context 1"])
