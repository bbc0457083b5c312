"""`device.recent()`, `ResetReport.recent` and `DeviceQuarantined.recent`: the flight recorder beside a reset."""

from __future__ import annotations

import pickle
import time
from typing import TYPE_CHECKING

import pytest

import aioacl
from aioacl import simulator
from aioacl._base.flight import FlightRecord
from aioacl._base.records import SHOWN_RECORDS, ResetReport
from aioacl._library import plog
from tests.kit import equipped, failing_fill, no_call, raises, reset_call

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


async def test_report_of_a_reset_has_the_fault_that_came_before_it(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory):
        error = await raises(aioacl.DeviceFault, failing_fill(stream, memory))
        report = await device.force_reset(grace=0)
    faults = [each for each in report.recent if each.kind == "fault"]
    assert faults[-1].code == error.code
    assert {each.device for each in report.recent} == {device.index}
    assert [each.number for each in report.recent] == sorted(each.number for each in report.recent)


async def test_78_quarantine_carries_the_records_of_the_device(open_device: OpenDevice) -> None:
    async with open_device() as device:
        simulator.fail_call(reset_call(), 507899, times=3)
        report = await device.force_reset(grace=0)
        assert not report.ok
        error = await raises(aioacl.DeviceQuarantined, device.allocate(64))
        assert error.recent == report.recent
        assert [each.code for each in error.recent if each.kind == "state"][-2:] == [
            2,
            3,
        ]  # DRAINING, RESETTING
        assert (await device.force_reset(grace=0)).ok
    assert aioacl.DeviceQuarantined("without a report").recent == ()


async def test_report_shows_its_last_records_in_words_and_repr_leaves_them_out(
    open_device: OpenDevice,
) -> None:
    async with equipped(open_device) as (device, stream, memory):
        for _ in range(SHOWN_RECORDS):
            await stream.fill(memory, 1)
        report = await device.force_reset(grace=0)
    summary, *shown = str(report).splitlines()
    assert summary == report.summary()
    assert shown == [
        f"  ({len(report.recent) - SHOWN_RECORDS} earlier records)",
        *(f"  {each}" for each in report.recent[-SHOWN_RECORDS:]),
    ]
    assert "FlightRecord" not in repr(report)
    assert pickle.loads(pickle.dumps(report)) == report


async def test_report_in_words_names_the_reason_and_the_requester(open_device: OpenDevice) -> None:
    async with open_device() as device:
        report = await device.force_reset(grace=0, reason="a new driver")
        assert f"; requested by {report.requested_by}, reason: a new driver; " in report.summary()
        report = await device.force_reset(grace=0)
        assert f"; requested by {report.requested_by}; " in report.summary()
    assert "; reason: close; " in ResetReport(0, ok=False, generation=1, reason="close").summary()
    assert "reason" not in ResetReport(0, ok=False, generation=1).summary()


async def test_recent_calls_no_acl_function_and_works_after_the_close(open_device: OpenDevice) -> None:
    async with open_device() as device:
        with no_call():
            records = device.recent()
        assert all(isinstance(each, FlightRecord) for each in records)
    last = device.recent()
    assert len(last) <= 256
    assert [each.code for each in last if each.kind == "state"][-1] == aioacl.State.CLOSED


# --- CANN's own log -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "files"),
    [
        ({"HOME": "/home/a"}, "/home/a/ascend/log/*/plog/plog-7_*.log"),
        ({}, "~/ascend/log/*/plog/plog-7_*.log"),
        ({"HOME": "/home/a", "ASCEND_WORK_PATH": "/w"}, "/w/log/*/plog/plog-7_*.log"),
        ({"ASCEND_WORK_PATH": "/w", "ASCEND_PROCESS_LOG_PATH": "/p"}, "/p/*/plog/plog-7_*.log"),
    ],
)
def test_files_of_canns_log_follow_its_variables(environ: dict[str, str], files: str) -> None:
    assert plog.files(environ, 7) == files


def test_window_of_canns_log_is_in_local_times() -> None:
    first = time.mktime((2026, 3, 4, 5, 6, 7, 0, 0, -1))
    expected = "/p/*.log, from 2026-03-04 05:06:07 to 2026-03-04 05:06:09 local time"
    assert plog.described("/p/*.log", first, first + 2.5) == expected


async def test_simulator_has_no_log_of_cann(open_device: OpenDevice) -> None:
    async with open_device() as device:
        assert plog.log_of(device.recent()) == ""


def test_log_of_cann_is_in_the_text_of_a_report() -> None:
    report = ResetReport(device=0, ok=True, generation=2, cann_log="/p/*.log, from a to b local time")
    assert str(report).splitlines()[1:] == ["  CANN's own log: /p/*.log, from a to b local time"]
