"""Foreign resets while aioacl sets the device: in the first open, after a foreign reset, or in a force reset."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import ffi, lib, make_pass
from aioacl._lifecycle.gate import counts
from aioacl._lifecycle.probe import probe
from aioacl._lifecycle.procedures import limits, procedure
from aioacl._wait.internal_call import InternalCall
from tests.kit import (
    Engine,
    Waiting,
    elsewhere,
    hanging,
    hung_in,
    in_thread,
    reset_by_other_code,
    turns,
    until,
    works,
)
from tests.support.other_code import must

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


async def test_device_that_cannot_be_set_again_is_quarantined_until_a_reset(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        assert (await device.force_reset()).ok  # the later error must not contain this reset's report
        simulator.hang_call("aclrtSetDevice")
        with simulator.fault("aclrtSetDevice", rc=507033):
            reset_by_other_code()
            await until(hanging("aclrtSetDevice"))
            making = Waiting(group, device.create_stream)
            await turns()
            assert not making.ended
            simulator.release_call("aclrtSetDevice")
            await until(lambda: device.state is aioacl.State.QUARANTINED)
            with pytest.raises(aioacl.DeviceQuarantined, match="could not be set again") as caught:
                await making.outcome()
            assert caught.value.report is None
        assert (await device.force_reset()).ok
        async with device.create_stream():
            assert simulator.retain_count() == 1


async def test_device_that_cannot_be_set_again_ends_calls_that_wait_for_a_stuck_thread(
    open_device: OpenDevice,
) -> None:
    looking, meet, go_on = threading.Event(), threading.Event(), threading.Event()

    def look() -> None:
        looking.set()
        meet.wait()

    async with open_device() as device, anyio.create_task_group() as group:
        maintenance = device._manager.maintenance
        # When `look` returns, the maintenance thread handles the reset, and then its jobs.
        device._manager.deferred.leave_note(look)
        await until(looking.is_set)
        maintenance.submit(InternalCall(go_on.wait))
        making = Waiting(group, device.create_stream)
        await turns()
        try:
            with simulator.fault("aclrtSetDevice", rc=507033):
                reset_by_other_code()
                meet.set()
                with pytest.raises(aioacl.DeviceQuarantined, match="could not be set again"):
                    await making.outcome()
        finally:
            meet.set()
            go_on.set()
        assert (await device.force_reset()).ok


async def test_foreign_reset_during_the_first_open_is_followed_by_another_set(
    open_device: OpenDevice,
) -> None:
    async with anyio.create_task_group() as group:
        simulator.hang_call("aclrtGetCurrentContext")  # the open calls this after aclrtSetDevice
        opening = Waiting(group, open_device().__aenter__)
        await until(hanging("aclrtGetCurrentContext"))
        elsewhere("aclrtResetDeviceForce")
        simulator.release_call("aclrtGetCurrentContext")
        device: aioacl.Device = await opening.outcome()
        assert await works(device)
        assert simulator.retain_count() == 1
        await device.close()
    assert simulator.retain_count() == 0


async def test_set_that_comes_after_a_foreign_reset_is_kept(open_device: OpenDevice) -> None:
    async with anyio.create_task_group() as group:
        opening = await hung_in("aclrtSetDevice", group, open_device().__aenter__)
        elsewhere("aclrtSetDevice", "aclrtResetDeviceForce")
        simulator.release_call("aclrtSetDevice")
        device: aioacl.Device = await opening.outcome()
        assert simulator.calls("aclrtSetDevice") == 2  # one by the other code and one by aioacl
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


async def test_foreign_reset_after_a_set_is_not_taken_for_a_reset_before_that_set(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        generation = device.generation
        resets = lib.aio_device_foreign(0)
        lib.aio_foreign_settle(0, resets)  # changes nothing, because no reset has happened
        assert (device.generation, lib.aio_gate_foreign(0)) == (generation, 0)
        with device._manager.admission.changed:  # prevents the handling of the reset
            reset_by_other_code()
            lib.aio_foreign_settle(0, resets)
            assert (device.generation, lib.aio_gate_foreign(0)) == (generation + 1, 1)
            lib.aio_gate_met(0)
            lib.aio_foreign_settle(0, resets)  # the count has this reset, but its flag was cleared
            assert (device.generation, lib.aio_gate_foreign(0)) == (generation + 2, 1)
        assert await works(device)
        assert simulator.retain_count() == 1


@pytest.mark.parametrize(("call", "nth"), [("aclrtCreateStream", 2), ("aclrtMemcpy", 1)])
async def test_foreign_reset_during_the_probe_is_followed_by_another_attempt_and_no_stale_handle_is_freed(
    open_device: OpenDevice, call: str, nth: int
) -> None:
    async with open_device() as device:
        generation = device.generation
        with simulator.fault(
            call, ext_reset=True, nth=nth
        ) as fault:  # the reset makes a stream before the probe
            assert (await device.force_reset(grace=0)).attempts == 2
            assert fault.hits == 1
        assert await works(device)
        assert device.generation > generation
        assert simulator.retain_count() == 1
        assert simulator.violations() == []


class Overtaken(Engine):
    """A foreign reset follows each set by aioacl, as often as aioacl tries to set."""

    resets = limits.SETS_TRIED

    def aio_set_context(self, device: int, context: Any) -> None:
        lib.aio_set_context(device, context)
        if self.resets:
            self.resets -= 1
            reset_by_other_code()


async def works_after(device: aioacl.Device, sets: int) -> bool:
    """Whether the device works after that many calls of aclrtSetDevice."""
    await until(lambda: simulator.calls("aclrtSetDevice") == sets and device.health.ready)
    # Another thread allocates the slots after the set.
    await until(lambda: lib.aio_stage_free_slots(0, 1) > 0)
    return await works(device) and simulator.retain_count() == 1


async def test_open_with_a_foreign_reset_after_each_set_leaves_the_last_reset_to_a_foreign_procedure(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procedure, "lib", Overtaken())
    async with open_device() as device:
        assert await works_after(device, Overtaken.resets + 1)


async def test_foreign_reset_between_set_and_probe_is_found_before_the_probe_makes_a_call(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device:
        monkeypatch.setattr(procedure, "lib", Overtaken())
        streams = simulator.calls("aclrtCreateStream")
        report = await device.force_reset(grace=0)
        assert (report.attempts, report.codes) == (2, (("foreign reset during the probe", 0),))
        assert simulator.calls("aclrtCreateStream") == streams + 2  # one before the reset
        assert await works(device)
        assert simulator.retain_count() == 1


async def test_probe_is_counted_in_the_gate_and_makes_no_call_if_the_count_is_full(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        resetting = await hung_in("aclrtMalloc", group, device.force_reset)
        assert counts(0) == [0, 0, 1]
        while lib.aio_helper_count(0) == 0:
            pass
        streams = simulator.calls("aclrtCreateStream")
        assert probe(0, lib.aio_device_foreign(0)) == ("aclrtCreateStream", lib.AIO_CROWDED)
        assert simulator.calls("aclrtCreateStream") == streams
        while counts(0) != [0, 0, 1]:
            lib.aio_leave(make_pass(0, 0), lib.AIO_LIFETIME)
        simulator.release_call("aclrtMalloc")
        assert (await resetting.outcome()).ok


async def test_foreign_procedure_with_a_reset_after_each_set_leaves_the_last_reset_to_another_procedure(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device:
        monkeypatch.setattr(procedure, "lib", Overtaken())
        reset_by_other_code()
        assert await works_after(device, 1 + Overtaken.resets + 1)


@pytest.mark.parametrize("call", ["aclrtSetDevice", "aclrtCreateContext"])
@pytest.mark.usefixtures("device")
def test_set_of_another_device_by_other_code_leaves_no_error_text(call: str) -> None:
    """The runtime reports the default stream of the new context on a thread without a context."""
    texts: list[bool] = []

    def set_up() -> None:
        context = ffi.new("aclrtContext *")
        must(call, *(() if call == "aclrtSetDevice" else (context,)), 1)
        texts.append(lib.aio_u_aclGetRecentErrMsg() != ffi.NULL)
        if call == "aclrtSetDevice":
            must("aclrtResetDevice", 1)
        else:
            must("aclrtDestroyContext", context[0])

    in_thread(set_up)
    assert texts == [False]
