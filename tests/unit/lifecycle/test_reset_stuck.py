"""If a call does not return from C, no reset is tried: a reset would crash the call. The next reset succeeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._lifecycle import stuck as _stuck
from aioacl._lifecycle.gate import inside
from aioacl._lifecycle.procedures import limits, reset
from tests.kit import (
    LONG_SECONDS,
    Raised,
    Stop,
    Waiting,
    clock_in_place,
    equipped,
    gives_up_in,
    hanging,
    held_fill,
    hung_in,
    live_streams,
    raises,
    runs_out_of_time,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio

ABORT = "aclrtStreamAbort"


async def test_waits_that_a_failed_reset_has_ended_raise_device_quarantined(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        ticket, event = stream.fill(memory, 1), stream.record()
        async with anyio.create_task_group() as group:
            allocating = await hung_in("aclrtMalloc", group, lambda: device.allocate(64))
            waiting = [Waiting(group, lambda: ticket), Waiting(group, event.synchronize)]
            await until(lambda: lib.aio_device_waits(0) == 2)
            report = await runs_out_of_time(device)
            for one in (*waiting, allocating):
                error = await raises(aioacl.DeviceQuarantined, one.outcome())
                assert (error.report, error.action) == (report, "reset")
        simulator.release_all()
        assert (await device.force_reset()).ok


async def gives_up_after_the_abort(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> aioacl.ResetReport:
    """The report of a reset that has time left when the abort's own limit ends."""
    monkeypatch.setattr(limits, "ABORT_SECONDS", 0.05)

    def is_over() -> bool:
        procedure = device._manager.procedure
        return (
            isinstance(procedure, reset.ResetProcedure)
            and "abort" in procedure._stages
            and simulator.hung(ABORT) > 0
        )

    return await runs_out_of_time(device, is_over)


async def gives_up_during_the_abort(device: aioacl.Device, _: pytest.MonkeyPatch) -> aioacl.ResetReport:
    """The report of a reset whose timeout ends before the abort's own limit."""
    while True:
        report = await device.force_reset(grace=0, timeout=0.2)
        if report.stuck:  # on a busy machine, the timeout may end before the abort has entered C
            return report


@pytest.mark.parametrize("gives_up", [gives_up_during_the_abort, gives_up_after_the_abort])
async def test_abort_hung_in_c_means_quarantine_without_a_reset(
    open_device: OpenDevice,
    monkeypatch: pytest.MonkeyPatch,
    gives_up: Callable[[aioacl.Device, pytest.MonkeyPatch], Awaitable[aioacl.ResetReport]],
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        held_fill(stream, memory)
        simulator.hang_call(ABORT)
        report = await gives_up(device, monkeypatch)
        assert ABORT in [stuck.function for stuck in report.stuck]
        assert simulator.calls("aclrtResetDeviceForce") == 0
        assert device.state is aioacl.State.QUARANTINED
        simulator.release_all()
        assert (await device.force_reset()).ok


async def test_a_query_hung_in_c_while_the_device_drains_means_quarantine(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        held_fill(stream, memory)
        simulator.hang_call("aclrtStreamQuery")
        try:
            report = await runs_out_of_time(device, hanging("aclrtStreamQuery"), grace=LONG_SECONDS)
        finally:
            simulator.release_all()
        assert "aclrtStreamQuery" in [stuck.function for stuck in report.stuck]
        assert simulator.calls("aclrtResetDeviceForce") == 0
        assert device.state is aioacl.State.QUARANTINED
        assert (await device.force_reset()).ok


@pytest.mark.watch_only
async def test_the_watcher_hung_in_a_query_means_quarantine(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory), anyio.create_task_group() as group:
        simulator.hold(stream)
        waiting = Waiting(group, lambda: stream.fill(memory, 1))
        await until(lambda: lib.aio_device_waits(0) == 1)
        simulator.hang_call("aclrtStreamQuery")
        await until(hanging("aclrtStreamQuery"))  # only the watcher makes this call
        try:
            report = await runs_out_of_time(device)
        finally:
            simulator.release_all()
        assert [stuck.function for stuck in report.stuck] == ["aclrtStreamQuery"]
        assert simulator.calls("aclrtResetDeviceForce") == 0
        with pytest.raises((aioacl.DeviceQuarantined, aioacl.DeviceReset)):
            await waiting.outcome()
        assert (await device.force_reset()).ok


async def test_a_user_job_that_does_not_end_means_quarantine(open_device: OpenDevice) -> None:
    job = Stop()
    async with open_device() as device, anyio.create_task_group() as group:
        running = Waiting(group, lambda: device.run(job))
        await until(job.begun.is_set)
        report = await runs_out_of_time(device)
        assert [stuck.function for stuck in report.stuck] == ["a job on device.executor"]
        job.go_on.set()
        await running.outcome()
        assert (await device.force_reset()).ok


async def test_reset_that_returns_late_has_ended_the_streams(
    open_device: OpenDevice,
) -> None:
    simulator.set_abort_supported(False)
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        held_fill(stream, memory)
        await gives_up_in(device, "aclrtResetDeviceForce")
        simulator.release_call("aclrtResetDeviceForce")
        await until(lambda: live_streams() == 0)
        asked = simulator.calls("aclrtStreamQuery"), simulator.calls("aclrtStreamAbort")
        assert (await device.force_reset(grace=0)).ok
        assert (simulator.calls("aclrtStreamQuery"), simulator.calls("aclrtStreamAbort")) == asked


async def test_reset_call_past_its_deadline_is_not_made_a_second_time_while_it_hangs(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESET_SECONDS", 2 * LONG_SECONDS)
    monkeypatch.setattr(_stuck, "STUCK_SECONDS", 0.1)
    async with open_device() as device, anyio.create_task_group() as group:
        simulator.hang_call("aclrtResetDeviceForce")
        with clock_in_place() as clock:
            resetting = Waiting(group, lambda: device.force_reset(timeout=LONG_SECONDS))
            await until(hanging("aclrtResetDeviceForce"))
            clock.advance(LONG_SECONDS / 2)
            await clock.ends_no_wait()
            assert not resetting.ended
            await clock.advance_until(lambda: resetting.ended)
        report = await resetting.outcome()
        assert not report.ok
        assert "aclrtResetDeviceForce did not return" in report.problem
        stuck = report.stuck
        assert [call.function for call in stuck] == ["aclrtResetDeviceForce"]
        assert stuck[0].thread > 0
        assert stuck[0].seconds > 0
        await until(lambda: device.health.status == "stuck")
        assert device.health.stuck_for > 0.1
        # The second reset waits for the hung call.
        report = await runs_out_of_time(device, lambda: device._manager.control._calls)
        assert "aclrtResetDeviceForce did not return" in report.problem  # the hung call is reported again
        assert [(call.function, call.thread) for call in report.stuck] == [
            (stuck[0].function, stuck[0].thread)
        ]
        assert simulator.hung("aclrtResetDeviceForce") == 1
        assert simulator.calls("aclrtResetDeviceForce") == 1
        simulator.release_all()
        assert (await device.force_reset()).ok
        assert device.health.status == "ok"


async def test_a_set_past_its_deadline_is_named_by_the_report_and_by_the_close(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await open_device()
    report = await gives_up_in(device, "aclrtSetDevice")
    assert [call.function for call in report.stuck] == ["aclrtSetDevice"]
    thread = report.stuck[0].thread
    for name in ("EVENTS_SECONDS", "RESET_SECONDS", "DROP_SECONDS"):
        monkeypatch.setattr(limits, name, 0.2)
    with pytest.warns(aioacl.AclWarning, match=f"aclrtSetDevice on thread {thread} did not return in time"):
        await device.close()
    monkeypatch.undo()
    simulator.release_all()
    async with open_device():
        assert simulator.retain_count() == 1
    assert simulator.retain_count() == 0


async def test_slow_set_is_not_reported_as_stuck_while_a_reset_waits_for_it(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stuck, "STUCK_SECONDS", 0.1)
    async with open_device() as device, anyio.create_task_group() as group:
        resetting = await hung_in("aclrtSetDevice", group, device.force_reset)
        await until(lambda: inside(0)[0].seconds > 0.1)
        assert device.health.status == "ok"
        simulator.release_all()
        assert (await resetting.outcome()).ok


async def test_enqueue_stuck_in_c_means_quarantine_without_a_reset(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        held_fill(stream, memory)
        enqueuing = Raised.hung_in("aclrtMemsetAsync", lambda: stream.fill(memory, 2))
        report = await runs_out_of_time(device)
        assert [stuck.function for stuck in report.stuck] == ["aclrtMemsetAsync"]
        simulator.release_all()
        await until(lambda: not enqueuing.running)
        assert (await device.force_reset()).ok
