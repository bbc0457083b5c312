"""Sets of the device by other code: which resets they forbid, and when aioacl makes them again."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

import aioacl
from aioacl import lowlevel, simulator
from aioacl._base.ffi import ffi, lib
from aioacl._lifecycle.manager import manager_of
from aioacl._lifecycle.procedures import limits
from tests.kit import (
    FAULT,
    elsewhere,
    forget_uses_of_ended_contexts,
    raises,
    reset_by_other_code,
    sets_by_other_code,
    until,
    works,
)
from tests.process.child import Child

pytestmark = pytest.mark.anyio

OLD_RELEASE = """
from aioacl._base.ffi import lib

async def main():
    async with open_device(0):  # loads the library
        pass
    for _ in range(3):
        lib.aio_u_aclrtSetDevice(0)
    async with open_device(0, {options}) as device:
        for foreign in (False, None, True):
            try:
                report = await device.force_reset(scope="device", foreign=foreign, grace=0)
                say(foreign, report.ok, report.scope)
            except aioacl.ParameterError as error:
                say(foreign, error, simulator.retain_count())

import warnings
warnings.simplefilter("ignore", aioacl.AclWarning)  # this release does not report failed tasks
use_library(simulator.library_path("8.1"))
anyio.run(main, backend=os.environ["TEST_BACKEND"])
"""
REFUSED = (
    "device 0 was not reset, because this release of CANN does not report whether other code of the process has set "
    "it. Pass foreign=True to reset it all the same, or "
)


@pytest.mark.process
@pytest.mark.parametrize(
    ("context", "sets", "instead"),
    [
        ("primary", 4, 'close the device and open it with context="own".'),
        ("own", 3, "omit the scope to replace only the context of aioacl."),
    ],
)
def test_46_reset_is_refused_where_the_sets_of_other_code_are_not_reported(
    context: str, sets: int, instead: str
) -> None:
    program = OLD_RELEASE.format(options=f"context={context!r}, resets=False")
    with Child(program) as child:
        code, output, _ = child.end()
    assert code == 0
    assert output.splitlines() == [
        f"False {REFUSED}{instead} {sets}",
        f"None {REFUSED}{instead} {sets}",
        "True True device",
    ]


@pytest.mark.parametrize(
    ("context", "cure"),
    [("primary", 'close the device and open it with context="own"'), ("own", "omit the scope")],
)
async def test_refused_reset_names_what_to_do(context: Any, cure: str) -> None:
    elsewhere("aclrtSetDevice")
    resets = simulator.resets()
    async with aioacl.open_device(0, context=context) as device:
        with pytest.raises(aioacl.ParameterError, match=f"Pass foreign=True .*{cure}"):
            await device.force_reset(scope="device", foreign=False)
        assert simulator.resets() == resets
    elsewhere("aclrtResetDevice")


def undo(count: int) -> None:
    assert simulator.retain_count() == count
    elsewhere(*["aclrtResetDevice"] * count)


async def lose(device: aioacl.Device, code: int = FAULT) -> None:
    async with device.create_stream() as stream, device.allocate(64) as memory:
        with simulator.fault("aclrtMemsetAsync", nth=1, lost=code):
            await raises(aioacl.DeviceFault, stream.fill(memory, 1))


@pytest.mark.leaves("events")  # during the fault, aclrtDestroyEvent fails too
@pytest.mark.parametrize("code", [FAULT, 507018])
@pytest.mark.parametrize("context", ["primary", "own"])
async def test_one_reset_recovers_a_lost_device(context: Any, code: int) -> None:
    async with aioacl.open_device(0, context=context) as device:
        await lose(device, code)
        report = await device.force_reset(grace=0)
        assert (report.ok, report.scope) == (True, "device")
        assert await works(device)
    undo(0)
    forget_uses_of_ended_contexts()


@pytest.mark.leaves("events")
@pytest.mark.parametrize("when", ["before the open", "after the open", "before a reset"])
@pytest.mark.parametrize("context", ["primary", "own"])
async def test_45_sets_of_other_code_are_made_again_when_a_device_was_lost(context: Any, when: str) -> None:
    if when == "before the open":
        sets_by_other_code(5)
    async with aioacl.open_device(0, context=context) as device:
        if when != "before the open":
            sets_by_other_code(5)
        if when == "before a reset":
            assert (await device.force_reset(scope="device")).foreign_sets == 5
        await lose(device)
        report = await device.force_reset(grace=0)
        assert (report.ok, report.foreign_sets) == (True, 5)
    undo(5)
    forget_uses_of_ended_contexts()


@pytest.mark.parametrize("context", ["primary", "own"])
async def test_45_failed_resets_forget_no_sets_of_other_code(context: Any) -> None:
    sets_by_other_code(2)
    async with aioacl.open_device(0, context=context) as device:
        sets_by_other_code(1)
        for call in ("aclrtResetDevice*", "aclrtSetDevice"):
            with simulator.fault(call, rc=507000, nth=2), simulator.fault(call, rc=507000, after=2):
                assert not (await device.force_reset(scope="device")).ok
        report = await device.force_reset(scope="device")
        assert (report.ok, report.foreign_sets) == (True, 3)
    undo(3)


async def test_set_that_other_code_has_undone_is_not_made_again() -> None:
    async with aioacl.open_device(0, context="own") as device:
        sets_by_other_code(1)
        undo(1)
        assert (await device.force_reset(scope="device")).foreign_sets == 0
    undo(0)


@pytest.mark.parametrize("context", ["primary", "own"])
async def test_reset_counts_the_sets_of_other_code_up_to_a_limit(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COUNTED_SETS", 4)
    sets_by_other_code(6)
    async with aioacl.open_device(0, context=context) as device:
        for more in (True, False, False):
            report = await device.force_reset(scope="device")
            assert (report.foreign_sets, report.more_foreign_sets) == (4, more)
    undo(4)


@pytest.mark.leaves("events")
@pytest.mark.parametrize("late", [0, 6])
async def test_reset_of_a_lost_device_keeps_the_limit_of_counted_sets(
    late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COUNTED_SETS", 4)
    sets_by_other_code(6 - late)
    async with aioacl.open_device(0) as device:
        sets_by_other_code(late)
        await lose(device)
        report = await device.force_reset(grace=0)
        assert (report.ok, report.foreign_sets, report.more_foreign_sets) == (True, 4, True)
    undo(4)


@pytest.mark.leaves("events")
async def test_45_failed_attempt_to_reset_a_lost_device_forgets_no_sets_of_other_code() -> None:
    sets_by_other_code(3)
    async with aioacl.open_device(0) as device:
        await lose(device)
        with simulator.fault("aclrtResetDeviceForce", rc=507000, times=1):
            report = await device.force_reset(grace=0)
        assert ("aclrtResetDeviceForce", 507000) in report.codes
        assert (report.ok, report.foreign_sets) == (True, 3)
        assert await works(device)
    undo(3)
    forget_uses_of_ended_contexts()


# --- sets that a close leaves -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"keep": True}, {"resets": False}])
async def test_closes_leave_one_set_that_belongs_to_other_code(options: dict[str, bool]) -> None:
    for _ in range(3):
        async with aioacl.open_device(0, **options) as device:  # type: ignore[arg-type]
            assert await works(device)
        assert simulator.retain_count() == 1
    with pytest.raises(aioacl.AclError, match="the device is not set"):
        lowlevel.reset_device(0)
    async with aioacl.open_device(0, **options) as device:  # type: ignore[arg-type]
        assert (await device.force_reset(foreign=True)).foreign_sets == 1
    undo(1)


@pytest.mark.parametrize("context", ["primary", "own"])
async def test_46_set_that_a_close_has_left_is_protected_by_the_policy(context: Any) -> None:
    async with aioacl.open_device(0, keep=True):
        pass
    async with aioacl.open_device(0, context=context) as device:
        with pytest.raises(aioacl.ParameterError, match="has perhaps set it"):
            await device.force_reset(scope="device", foreign=False)
    undo(1)
    async with aioacl.open_device(0, context=context) as device:
        assert (await device.force_reset(scope="device", foreign=False)).ok
    undo(0)


async def test_close_with_keep_leaves_a_set_again_if_other_code_has_ended_the_last_one() -> None:
    for _ in range(2):
        async with aioacl.open_device(0, keep=True):
            pass
        assert simulator.retain_count() == 1
        reset_by_other_code()


async def test_close_with_keep_beside_a_set_of_other_code_leaves_one_set() -> None:
    sets_by_other_code(1)
    for _ in range(3):
        async with aioacl.open_device(0, keep=True):
            pass
    elsewhere("aclrtResetDevice")
    undo(1)


async def test_close_with_keep_leaves_no_set_if_other_code_has_ended_all_sets() -> None:
    device = await aioacl.open_device(0, keep=True)
    with simulator.fault("aclrtSetDevice", rc=507000, times=-1):
        reset_by_other_code()
        await until(lambda: device.state is aioacl.State.QUARANTINED)
    await device.close()
    assert simulator.retain_count() == 0
    async with aioacl.open_device(0, keep=True):
        pass
    undo(1)


async def test_set_that_a_close_leaves_after_a_failed_reset_belongs_to_other_code() -> None:
    sets_by_other_code(2)
    async with aioacl.open_device(0, keep=True) as device:
        with (
            simulator.fault("aclrtResetDevice", rc=507000, nth=1),
            simulator.fault("aclrtResetDeviceForce", rc=507000, times=-1),
        ):
            assert not (await device.force_reset(grace=0)).ok
    assert simulator.retain_count() == 3
    async with aioacl.open_device(0):
        pass
    undo(3)


async def test_set_that_a_close_has_left_is_made_again_after_a_failed_attempt() -> None:
    async with aioacl.open_device(0, keep=True):
        pass
    async with aioacl.open_device(0) as device:
        with simulator.fault("aclrtSetDevice", rc=507000, times=1):
            report = await device.force_reset(grace=0)
        assert (report.ok, report.codes, report.foreign_sets) == (True, (("aclrtSetDevice", 507000),), 1)
    async with aioacl.open_device(0, keep=True):  # the set that was made again is the one that a close leaves
        pass
    undo(1)


async def test_own_context_leaves_no_set() -> None:
    async with aioacl.open_device(0, context="own", resets=False):
        pass
    undo(0)
    with pytest.raises(aioacl.ParameterError, match="aioacl does not set the device then"):
        aioacl.open_device(0, context="own", keep=True)


@pytest.mark.leaves("events")
async def test_failed_reset_without_the_consent_of_other_code_names_the_cure() -> None:
    sets_by_other_code(1)
    async with aioacl.open_device(0, context="own", resets=False) as device:
        await lose(device)
        report = await device.force_reset(grace=0)
        assert (report.ok, report.scope) == (False, "context")
        assert "force_reset(foreign=True) resets the device too" in report.problem
        with pytest.raises(aioacl.DeviceQuarantined, match="foreign=True"):
            await device.create_stream()
        report = await device.force_reset(foreign=True)
        assert (report.ok, report.foreign_sets) == (True, 1)
    undo(1)
    forget_uses_of_ended_contexts()


async def test_reset_of_an_own_context_aborts_no_stream_of_another_context() -> None:
    made, memory = ffi.new("aclrtStream *"), ffi.new("void **")
    assert lib.aio_u_aclrtSetDevice(0) == lib.aio_u_aclrtCreateStream(made) == 0
    assert lib.aio_u_aclrtMalloc(memory, 64, 0) == 0
    begun, end = threading.Event(), threading.Event()

    def job(device: aioacl.Device) -> None:
        with device.abortable(made[0]):
            begun.set()
            end.wait()

    async with aioacl.open_device(0, context="own") as device:
        simulator.hold(made[0])
        assert lib.aio_u_aclrtSetDevice(0) == lib.aio_u_aclrtMemsetAsync(memory[0], 64, 1, 64, made[0]) == 0
        async with anyio.create_task_group() as group:
            group.start_soon(run, device, job)
            await until(begun.is_set)
            group.start_soon(finish, end)
            report = await device.force_reset(grace=0)
            assert (report.ok, report.aborted, report.not_aborted) == (True, 0, 1)
        simulator.release_all()
        assert lib.aio_u_aclrtSetDevice(0) == lib.aio_u_aclrtSynchronizeStream(made[0]) == 0
    assert simulator.violations() == []
    assert lib.aio_u_aclrtDestroyStream(made[0]) == lib.aio_u_aclrtFree(memory[0]) == 0
    for _ in range(3):
        assert lib.aio_u_aclrtResetDevice(0) == 0


async def run(device: aioacl.Device, job: Any) -> None:
    await device.run(job, device)


async def finish(end: threading.Event) -> None:
    """Lets the job end when the reset has aborted the streams."""
    await until(lambda: "abort" in getattr(manager_of(0).procedure, "_stages", ()))
    end.set()
