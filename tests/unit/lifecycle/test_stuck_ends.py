"""A call of an open or close does not return: a limit ends the wait, a report names the call, other devices work."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import aioacl
from aioacl import simulator
from aioacl._lifecycle.manager import manager_of
from aioacl._lifecycle.procedures import limits
from aioacl._wait import workers
from tests.kit import hanging, in_thread, until, works

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio

OPEN_CALLS = (
    "aclInit",
    "aclrtSetDevice",
    "aclrtGetCurrentContext",
    "aclrtCreateEventExWithFlag",
    "aclrtMallocHost",
)
CLOSE_CALLS = ("aclrtDestroyEvent", "aclrtResetDevice", "aclrtFreeHost", "aclFinalizeReference")
LIMITS = (
    "OPEN_SECONDS",
    "CLOSE_SECONDS",
    "EVENTS_SECONDS",
    "RESET_SECONDS",
    "DROP_SECONDS",
    "HOPELESS_SECONDS",
)


@contextmanager
def short_limits() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in LIMITS:
            patch.setattr(limits, name, 0.1)
        patch.setattr(workers, "ENDED_SECONDS", 0.1)
        yield


async def no_procedure_runs() -> None:
    """Returns when no procedure of device 0 is running."""
    await until(lambda: manager_of(0).procedure is None)


async def refused(opening: aioacl.Opening[aioacl.Device]) -> None:
    with pytest.raises(aioacl.DeviceQuarantined, match="aclFinalizeReference"):
        await opening
    await until(lambda: manager_of(1).procedure is None)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:device 0 stays set")
@pytest.mark.parametrize("call", OPEN_CALLS)
async def test_open_whose_call_does_not_return_raises_device_quarantined_with_a_report(
    open_device: OpenDevice, call: str
) -> None:
    simulator.hang_call(call)
    with short_limits():
        with pytest.raises(aioacl.DeviceQuarantined, match=f"{call} on thread [1-9]") as caught:
            await open_device()
        await no_procedure_runs()
        assert manager_of(0).admission.state is aioacl.State.QUARANTINED
        with pytest.raises(aioacl.DeviceQuarantined, match=call) as again:
            await open_device()
        await no_procedure_runs()
    for error in (caught.value, again.value):
        report = error.report
        assert report is not None
        assert (report.device, report.ok, report.generation) == (0, False, manager_of(0).generation)
        assert [stuck.function for stuck in report.stuck] == [call]
        assert report.stuck[0].thread > 0
        assert report.stuck[0].seconds > 0
        assert call in report.problem
        assert report.stages
    assert simulator.hung(call) == 1
    simulator.release_all()
    async with open_device() as device:
        assert simulator.retain_count() == 1
        assert await works(device)
    assert simulator.retain_count() == 0


@pytest.mark.parametrize("call", CLOSE_CALLS)
async def test_last_close_whose_call_does_not_return_warns_and_quarantines_with_a_report(
    open_device: OpenDevice, call: str
) -> None:
    device = await open_device()
    events = device.events()
    simulator.hang_call(call)
    with (
        short_limits(),
        pytest.warns(aioacl.AclWarning, match=f"{call} on thread [1-9].*did not return in time"),
    ):
        await device.close()
    assert device.state is aioacl.State.QUARANTINED
    report = next(event.report for event in [e async for e in events] if event.kind == "quarantined")
    assert report is not None
    assert [stuck.function for stuck in report.stuck] == [call]
    assert (report.ok, report.reason) == (False, "close")
    simulator.release_all()
    async with open_device() as again:
        assert await works(again)
    assert simulator.retain_count() == 0


@pytest.mark.parametrize("call", ["aclrtResetDevice", "aclrtFreeHost"])
async def test_other_device_stays_usable_while_a_close_does_not_return(
    open_device: OpenDevice, call: str
) -> None:
    device = await open_device()
    simulator.hang_call(call)
    with short_limits(), pytest.warns(aioacl.AclWarning, match=call):
        await device.close()
    async with open_device(1) as other:
        assert await works(other)
        simulator.release_all()
    async with open_device() as again:
        assert await works(again)


@pytest.mark.filterwarnings("ignore:device . stays set")
async def test_open_of_another_device_while_aclinit_hangs_names_it(
    open_device: OpenDevice,
) -> None:
    simulator.hang_call("aclInit")
    with short_limits():
        for index in (0, 1):
            with pytest.raises(aioacl.DeviceQuarantined, match="aclInit on thread") as caught:
                await open_device(index)
            assert caught.value.report is not None
            assert [stuck.function for stuck in caught.value.report.stuck] == ["aclInit"]
        await until(lambda: manager_of(0).procedure is manager_of(1).procedure is None)
    assert simulator.hung("aclInit") == 1
    assert len(aioacl.list_devices()) > 1
    simulator.release_all()
    for index in (0, 1):
        async with open_device(index) as device:
            assert await works(device)
    assert [simulator.retain_count(index) for index in (0, 1)] == [0, 0]


async def test_open_during_a_finalize_that_hangs_names_the_finalize_and_a_later_open_works(
    open_device: OpenDevice,
) -> None:
    device = await open_device()
    simulator.hang_call("aclFinalizeReference")
    with short_limits():
        with pytest.warns(aioacl.AclWarning, match="aclFinalizeReference"):
            await device.close()
        with pytest.warns(aioacl.AclWarning, match="device 1 stays set: aclFinalizeReference"):
            await refused(open_device(1))
    simulator.release_all()
    for index in (0, 1):
        async with open_device(index) as again:
            assert await works(again)


def test_close_on_a_thread_ends_although_its_call_does_not_return(open_device: OpenDevice) -> None:
    device = in_thread(lambda: open_device().result())
    simulator.hang_call("aclFinalizeReference")
    with short_limits(), pytest.warns(aioacl.AclWarning, match="aclFinalizeReference"):
        in_thread(lambda: device.close().result())
    assert hanging("aclFinalizeReference")()
    simulator.release_all()
    in_thread(lambda: open_device().result().close().result())


async def test_close_of_pinned_memory_that_outlives_its_device_warns_if_the_free_hangs(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        memory = await device.pinned(64)
    simulator.hang_call("aclrtFreeHost")
    with short_limits(), pytest.warns(aioacl.AclWarning, match="has not returned"):
        await memory.close()
    simulator.release_all()
    await until(lambda: simulator.stats().host_blocks == 0)
