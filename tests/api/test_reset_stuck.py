"""A reset while somebody does not come back from C: nothing is reset under him, and the next flight recovers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import _flights, simulator
from aioacl._ffi import lib
from aioacl._gate import inside
from aioacl._health import STUCK_SECONDS
from tests.kit import PATIENCE_SECONDS, Raised, Waiting, gives_up_in, hanging, until

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


async def test_a_malloc_hung_in_c_means_quarantine_without_a_reset_and_the_next_flight_recovers(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        resets, generation = simulator.resets(), device.generation
        simulator.hang_call("aclrtMalloc")
        async with anyio.create_task_group() as group:
            allocating = Waiting(group, lambda: device.allocate(64))
            await until(hanging("aclrtMalloc"))
            report = await device.force_reset(grace=0.01, timeout=0.2)
            assert not report.ok
            assert [stuck.function for stuck in report.stuck] == ["aclrtMalloc"]
            assert report.stuck[0].thread > 0
            assert report.stuck[0].seconds > 0
            assert "aclrtMalloc" in report.problem
            assert (simulator.resets(), simulator.calls("aclrtResetDeviceForce")) == (resets, 0)
            assert (device.state, device.generation) == (aioacl.State.QUARANTINED, generation)
            with pytest.raises(aioacl.DeviceQuarantined, match="aclrtMalloc") as caught:
                await allocating.outcome()
            assert caught.value.report is report
            assert (caught.value.device, caught.value.generation) == (0, generation)
            assert report.generation == generation
            for make in (device.create_stream, lambda: device.allocate(64), open_device):
                with pytest.raises(aioacl.DeviceQuarantined):
                    await make()
            assert device.health.status == "poisoned"
            again = await device.force_reset(grace=0, timeout=0.1)
            assert not again.ok
            assert simulator.resets() == resets
        simulator.unhang("aclrtMalloc")
        report = await device.force_reset()
        assert (report.ok, device.state) == (True, aioacl.State.OPEN)
        assert simulator.resets() == resets + 1
        async with device.create_stream() as stream, device.allocate(64) as memory:
            await stream.fill(memory, 1)


async def test_waits_that_a_failed_reset_has_ended_say_that_the_device_is_quarantined(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        ticket, event = stream.fill(memory, 1), stream.record()
        simulator.hang_call("aclrtMalloc")
        async with anyio.create_task_group() as group:
            allocating = Waiting(group, lambda: device.allocate(64))
            await until(hanging("aclrtMalloc"))
            waiting = [Waiting(group, lambda: ticket), Waiting(group, event.synchronize)]
            await until(lambda: lib.aio_device_waits(0) == 2)
            report = await device.force_reset(grace=0, timeout=0.2)
            for one in (*waiting, allocating):
                with pytest.raises(aioacl.DeviceQuarantined) as caught:
                    await one.outcome()
                assert (caught.value.report, caught.value.action) == (report, "reset")
        simulator.release_all()
        assert (await device.force_reset()).ok


@pytest.mark.parametrize("timeout", [0.2, 2.5])
async def test_an_abort_hung_in_c_means_quarantine_for_a_reset_would_run_into_it(
    open_device: OpenDevice, timeout: float
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        stream.fill(memory, 1)
        simulator.hang_call("aclrtStreamAbort")
        report = await device.force_reset(grace=0, timeout=timeout)
        assert "aclrtStreamAbort" in [stuck.function for stuck in report.stuck]
        assert simulator.calls("aclrtResetDeviceForce") == 0
        assert device.state is aioacl.State.QUARANTINED
        simulator.release_all()
        assert (await device.force_reset()).ok


async def test_a_query_hung_in_c_while_the_device_drains_means_quarantine(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        stream.fill(memory, 1)
        simulator.hang_call("aclrtStreamQuery")
        try:
            with anyio.fail_after(PATIENCE_SECONDS):
                report = await device.force_reset(grace=0.05, timeout=0.3)
        finally:
            simulator.release_all()
        assert "aclrtStreamQuery" in [stuck.function for stuck in report.stuck]
        assert simulator.calls("aclrtResetDeviceForce") == 0
        assert device.state is aioacl.State.QUARANTINED
        assert (await device.force_reset()).ok


@pytest.mark.watch_only
async def test_the_watcher_hung_in_a_query_means_quarantine(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(64) as memory,
        anyio.create_task_group() as group,
    ):
        simulator.hold(stream)
        waiting = Waiting(group, lambda: stream.fill(memory, 1))
        await until(lambda: lib.aio_device_waits(0) == 1)
        simulator.hang_call("aclrtStreamQuery")
        await until(hanging("aclrtStreamQuery"))  # nobody but the watcher asks
        try:
            report = await device.force_reset(grace=0, timeout=0.3)
        finally:
            simulator.release_all()
        assert [stuck.function for stuck in report.stuck] == ["aclrtStreamQuery"]
        assert simulator.calls("aclrtResetDeviceForce") == 0
        with pytest.raises((aioacl.DeviceQuarantined, aioacl.DeviceReset)):
            await waiting.outcome()
        assert (await device.force_reset()).ok


async def test_a_user_job_that_does_not_end_means_quarantine(open_device: OpenDevice) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        go_on.wait()

    async with open_device() as device, anyio.create_task_group() as group:
        running = Waiting(group, lambda: device.run(job))
        await until(begun.is_set)
        report = await device.force_reset(grace=0, timeout=0.1)
        assert [stuck.function for stuck in report.stuck] == ["a job on device.executor"]
        go_on.set()
        await running.outcome()
        assert (await device.force_reset()).ok


async def test_a_reset_that_comes_back_late_has_ended_the_streams_all_the_same(
    open_device: OpenDevice,
) -> None:
    simulator.set_abort_supported(False)
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        stream.fill(memory, 1)
        await gives_up_in(device, "aclrtResetDeviceForce")
        simulator.unhang("aclrtResetDeviceForce")
        await until(lambda: simulator.stats().streams == 0)
        asked = simulator.calls("aclrtStreamQuery"), simulator.calls("aclrtStreamAbort")
        assert (await device.force_reset(grace=0)).ok
        assert (simulator.calls("aclrtStreamQuery"), simulator.calls("aclrtStreamAbort")) == asked


async def test_a_reset_past_its_deadline_is_not_started_a_second_time_beside_it(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        simulator.hang_call("aclrtResetDeviceForce")
        report = await device.force_reset(timeout=1.5)
        assert not report.ok
        assert "aclrtResetDeviceForce has not returned" in report.problem
        stuck = report.stuck
        assert [call.function for call in stuck] == ["aclrtResetDeviceForce"]
        assert stuck[0].thread > 0
        assert stuck[0].seconds > 0
        await until(lambda: device.health.status == "stuck")
        assert device.health.stuck_for > 1
        report = await device.force_reset(timeout=1.5)
        assert (
            "aclrtResetDeviceForce has not returned" in report.problem
        )  # what waits behind it is not to blame
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
    simulator.hang_call("aclrtSetDevice")
    report = await device.force_reset(timeout=1.5)
    assert [call.function for call in report.stuck] == ["aclrtSetDevice"]
    thread = report.stuck[0].thread
    for name in ("RESET_SECONDS", "DROP_SECONDS"):
        monkeypatch.setattr(_flights, name, 0.2)
    with pytest.warns(aioacl.AclWarning, match=f"aclrtSetDevice on thread {thread} is still inside"):
        await device.close()
    monkeypatch.undo()
    simulator.release_all()
    async with open_device():
        assert simulator.retain_count() == 1
    assert simulator.retain_count() == 0


async def test_a_set_that_takes_its_time_is_not_stuck_while_it_is_waited_for(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        simulator.hang_call("aclrtSetDevice")
        resetting = Waiting(group, device.force_reset)
        await until(hanging("aclrtSetDevice"))
        await until(lambda: inside(0)[0].seconds > STUCK_SECONDS)
        assert device.health.status == "ok"
        simulator.release_all()
        assert (await resetting.outcome()).ok


async def test_an_enqueuer_stuck_in_c_means_quarantine_for_a_reset_would_crash_the_runtime(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        stream.fill(memory, 1)
        simulator.hang_call("aclrtMemsetAsync")
        enqueuing = Raised(lambda: stream.fill(memory, 2))
        await until(hanging("aclrtMemsetAsync"))
        report = await device.force_reset(grace=0, timeout=0.2)
        assert [stuck.function for stuck in report.stuck] == ["aclrtMemsetAsync"]
        simulator.release_all()
        await until(lambda: not enqueuing.running)
        assert (await device.force_reset()).ok
