"""Resets that fail in the runtime: attempts, quarantine, and what the next procedure does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import aioacl
from aioacl import simulator
from tests.kit import held_fill

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("function", ["aclrtResetDeviceForce", "aclrtSetDevice", "aclrtMemcpy"])
@pytest.mark.parametrize("times", [1, 2])
async def test_a_failing_reset_set_or_probe_is_tried_again(
    open_device: OpenDevice, function: str, times: int
) -> None:
    async with open_device() as device:
        simulator.fail_call(function, 507000, times)
        report = await device.force_reset()
        assert (report.ok, report.attempts) == (True, times + 1)
        assert report.codes == ((function, 507000),) * times


@pytest.mark.parametrize("function", ["aclrtResetDeviceForce", "aclrtSetDevice", "aclrtMemcpy"])
async def test_device_is_quarantined_after_three_failures_until_a_reset_succeeds(
    open_device: OpenDevice, function: str
) -> None:
    async with open_device() as device:
        simulator.fail_call(function, 507000, -1)
        report = await device.force_reset()
        assert (report.ok, report.attempts, device.state) == (False, 3, aioacl.State.QUARANTINED)
        assert "failed in all 3 attempts" in report.problem
        simulator.clear()
        report = await device.force_reset()
        assert (report.ok, report.drained, report.aborted, report.not_aborted) == (True, 0, 0, 0)
        async with device.create_stream():
            assert device.health.status == "ok"


@pytest.mark.parametrize("function", ["aclrtSetDevice", "aclrtMemcpy"])
async def test_reset_after_a_failed_one_does_not_query_or_abort_streams_that_no_longer_exist(
    open_device: OpenDevice, function: str
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        held_fill(stream, memory)
        simulator.fail_call(function, 507000, -1)
        assert not (await device.force_reset(grace=0)).ok
        simulator.clear()
        asked = simulator.calls("aclrtStreamQuery"), simulator.calls("aclrtStreamAbort")
        report = await device.force_reset(grace=0)
        assert (report.ok, report.aborted, report.not_aborted) == (True, 0, 0)
        assert (simulator.calls("aclrtStreamQuery"), simulator.calls("aclrtStreamAbort")) == asked
        assert simulator.violations() == []


async def test_attempt_that_fails_after_a_successful_call_does_not_restore_the_streams_that_it_ended(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        held_fill(stream, memory)
        with simulator.fault("aclrtResetDeviceForce", after=1, rc=507000):
            simulator.fail_call("aclrtMemcpy", 507000, 1)
            report = await device.force_reset(grace=0)
        assert [call for call, _ in report.codes] == ["aclrtMemcpy", *["aclrtResetDeviceForce"] * 2]
        asked = simulator.calls("aclrtStreamQuery"), simulator.calls("aclrtStreamAbort")
        assert (await device.force_reset(grace=0)).ok
        assert (simulator.calls("aclrtStreamQuery"), simulator.calls("aclrtStreamAbort")) == asked
        assert simulator.violations() == []


async def test_reset_that_fails_in_each_attempt_leaves_streams_that_can_be_aborted(
    open_device: OpenDevice,
) -> None:
    simulator.set_abort_supported(False)
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        held_fill(stream, memory)
        with simulator.fault("aclrtResetDeviceForce", reset_fail=3):
            report = await device.force_reset(grace=0)
        assert (report.ok, report.not_aborted) == (False, 1)
        simulator.set_abort_supported(True)
        report = await device.force_reset(grace=0)
        assert (report.ok, report.aborted) == (True, 1)


async def test_a_quarantined_device_can_be_closed_and_opened_again(open_device: OpenDevice) -> None:
    async with open_device() as device:
        simulator.fail_call("aclrtMemcpy", 507000, -1)
        assert not (await device.force_reset()).ok
        simulator.clear()
    assert device.state is aioacl.State.CLOSED
    async with open_device() as again, again.create_stream() as stream:
        await stream
