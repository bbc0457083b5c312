"""Resets by somebody else that meet us while we set the device: the first time, anew, or in a reset of ours."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib, make_pass
from aioacl._lifecycle.gate import counts
from aioacl._lifecycle.probe import probe
from aioacl._lifecycle.procedures import limits, procedure
from aioacl._wait.workers import Job
from tests.kit import Waiting, elsewhere, hanging, reset_by_somebody_else, turns, until, works

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


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
            with pytest.raises(aioacl.DeviceQuarantined, match="could not be set again") as caught:
                await making.outcome()
            assert caught.value.report is None
        assert (await device.force_reset()).ok
        async with device.create_stream():
            assert simulator.retain_count() == 1


async def test_when_it_cannot_be_set_again_nobody_waits_behind_a_thread_that_is_stuck(
    open_device: OpenDevice,
) -> None:
    looking, meet, go_on = threading.Event(), threading.Event(), threading.Event()

    def look() -> None:
        looking.set()
        meet.wait()

    async with open_device() as device, anyio.create_task_group() as group:
        maintenance = device._manager.maintenance
        device._manager.deferred.leave_note(
            look
        )  # after which the thread meets the reset, and then works off its jobs
        await until(looking.is_set)
        maintenance.submit(Job(go_on.wait))
        making = Waiting(group, device.create_stream)
        await turns()
        try:
            with simulator.fault("aclrtSetDevice", rc=507033):
                reset_by_somebody_else()
                meet.set()
                with pytest.raises(aioacl.DeviceQuarantined, match="could not be set again"):
                    await making.outcome()
        finally:
            meet.set()
            go_on.set()
        assert (await device.force_reset()).ok


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
        with device._manager.admission.changed:  # nobody can meet it
            reset_by_somebody_else()
            lib.aio_foreign_settle(0, told)
            assert (device.generation, lib.aio_gate_foreign(0)) == (generation + 1, 1)
            lib.aio_gate_met(0)
            lib.aio_foreign_settle(0, told)  # not known by its flag, but by the count
            assert (device.generation, lib.aio_gate_foreign(0)) == (generation + 2, 1)
        assert await works(device)
        assert simulator.retain_count() == 1


@pytest.mark.parametrize("call", ["aclrtCreateStream", "aclrtMemcpy"])
async def test_a_reset_while_we_probe_is_made_up_for_and_nothing_dead_is_given_back(
    open_device: OpenDevice, call: str
) -> None:
    async with open_device() as device:
        generation = device.generation
        with simulator.fault(call, ext_reset=True, nth=1) as fault:
            assert (await device.force_reset(grace=0)).attempts == 2
            assert fault.hits == 1
        assert await works(device)
        assert device.generation > generation
        assert simulator.retain_count() == 1
        assert simulator.violations() == []


class Overtaken:
    """The C library, where somebody else resets the device each time we have just set it, as often as we try."""

    resets = limits.SETS_TRIED

    def aio_set_context(self, device: int, context: Any) -> None:
        lib.aio_set_context(device, context)
        if self.resets:
            self.resets -= 1
            reset_by_somebody_else()

    def __getattr__(self, name: str) -> Any:
        return getattr(lib, name)


async def set_for_the_last_time(device: aioacl.Device, sets: int) -> bool:
    """Whether the device is there again, after so many sets of ours."""
    await until(lambda: simulator.calls("aclrtSetDevice") == sets and device.health.ready)
    await until(lambda: lib.aio_stage_free_slots(0, 1) > 0)  # made behind the set, by another thread
    return await works(device) and simulator.retain_count() == 1


async def test_a_first_open_that_is_overtaken_each_time_meets_the_last_reset_as_any_other(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(procedure, "lib", Overtaken())
    async with open_device() as device:
        assert await set_for_the_last_time(device, Overtaken.resets + 1)


async def test_a_reset_between_our_set_and_the_probe_is_seen_before_the_probe_calls_anything(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device:
        monkeypatch.setattr(procedure, "lib", Overtaken())
        streams = simulator.calls("aclrtCreateStream")
        report = await device.force_reset(grace=0)
        assert (report.attempts, report.codes) == (2, (("foreign reset during the probe", 0),))
        assert simulator.calls("aclrtCreateStream") == streams + 1
        assert await works(device)
        assert simulator.retain_count() == 1


async def test_a_probe_counts_as_inside_and_makes_nothing_where_there_is_no_room(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        simulator.hang_call("aclrtMalloc")
        async with anyio.create_task_group() as group:
            resetting = Waiting(group, device.force_reset)
            await until(hanging("aclrtMalloc"))
            assert counts(0) == [0, 0, 1]
            while lib.aio_helper_count(0) == 0:
                pass
            streams = simulator.calls("aclrtCreateStream")
            assert probe(0, lib.aio_device_foreign(0)) == ("aclrtCreateStream", lib.AIO_CROWDED)
            assert simulator.calls("aclrtCreateStream") == streams
            while counts(0) != [0, 0, 1]:
                lib.aio_leave(make_pass(0, 0), lib.AIO_LIFETIME)
            simulator.unhang("aclrtMalloc")
            assert (await resetting.outcome()).ok


async def test_a_set_that_is_overtaken_each_time_meets_the_last_reset_as_any_other(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device:
        monkeypatch.setattr(procedure, "lib", Overtaken())
        reset_by_somebody_else()
        assert await set_for_the_last_time(device, 1 + Overtaken.resets + 1)
