"""The log records of aioacl: what is logged at which level, with which fields, and on which thread."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

import pytest

import aioacl
from aioacl import simulator
from aioacl._base import logs
from aioacl._base.records import EventKind
from aioacl._lifecycle import notifications
from aioacl._lifecycle.manager import manager_of
from tests.kit import (
    FAULT,
    TASK_FAULT,
    Raised,
    Stop,
    equipped,
    failing_fill,
    raises,
    reset_by_other_code,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


class Kept(logging.Handler):
    """Keeps the records, and the thread that has passed each."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []
        self.threads: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.threads.add(threading.current_thread().name)

    def named(self, name: str) -> list[Any]:
        """The records of a logger so far."""
        assert logs.flush(20)
        return [record for record in self.records if record.name == f"aioacl.{name}"]


@contextmanager
def logged(level: int = logging.INFO) -> Generator[Kept]:
    logger, kept = logging.getLogger("aioacl"), Kept()
    logger.addHandler(kept)
    before = logger.level
    logger.setLevel(level)
    try:
        yield kept
    finally:
        logs.flush(20)
        logger.setLevel(before)
        logger.removeHandler(kept)


async def test_states_and_resets_are_logged_at_info(open_device: OpenDevice) -> None:
    with logged() as kept:
        async with open_device() as device:
            report = await device.force_reset()
    opened, closed = kept.named("device")
    draining, resetting, reopened, *closing = kept.named("reset")
    records = (opened, closed, draining, resetting, reopened, *closing)
    assert {record.levelno for record in records} == {logging.INFO}
    assert reopened.getMessage() == f"device 0 is open again: {report.summary()}"
    assert reopened.duration == pytest.approx(sum(report.stages.values()) / 1000)
    assert (reopened.device, reopened.id, reopened.generation) == (0, "0", report.generation)
    assert kept.threads == {logs.THREAD}


async def test_failed_task_is_logged_with_its_code_action_and_call(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        with logged() as kept:
            await raises(aioacl.DeviceFault, failing_fill(stream, memory))
            await until(lambda: kept.named("device"))
    (record,) = kept.named("device")
    assert (record.levelno, record.code, record.action) == (logging.WARNING, TASK_FAULT, "new_stream")
    assert record.call == "aclrtSynchronizeStream"
    assert "ACL_ERROR_RT_AICORE_EXCEPTION" in record.getMessage()


async def test_fault_with_a_text_of_several_lines_is_logged_in_one_line(open_device: OpenDevice) -> None:
    effect = 507899  # with a sticky fault, the simulator's texts have several lines
    async with equipped(open_device) as (device, stream, memory):
        with logged() as kept, simulator.fault("aclrtMemsetAsync", nth=1, async_error=FAULT, sticky=effect):
            await raises(aioacl.DeviceFault, stream.fill(memory, 1))
            await until(lambda: device.health.failed_tasks and kept.named("device"))
            texts = [record.getMessage() for record in kept.named("device")]
        await device.force_reset(grace=0)
    assert any("TraceBack (most recent call last)" in text for text in texts)
    assert not any("\n" in text for text in texts)


async def test_failed_task_that_stops_the_context_is_logged_with_the_action_reset(
    open_device: OpenDevice,
) -> None:
    async with equipped(open_device) as (device, stream, memory):
        with (
            logged() as kept,
            simulator.fault("aclrtMemsetAsync", nth=1, async_error=TASK_FAULT, sticky=TASK_FAULT),
        ):
            await raises(aioacl.DeviceFault, stream.fill(memory, 1))
            await until(lambda: device.health.failed_tasks and kept.named("device"))
            (record,) = [each for each in kept.named("device") if "position" in each.getMessage()]
        await device.force_reset(grace=0)
    assert (record.code, record.action) == (TASK_FAULT, "reset")


async def test_quarantine_and_foreign_reset_are_warnings(open_device: OpenDevice) -> None:
    with logged(logging.WARNING) as kept:
        async with open_device() as device:
            reset_by_other_code()
            await until(lambda: kept.named("reset"))
            await until(lambda: device.state is aioacl.State.OPEN)
            simulator.fail_call("aclrtSetDevice", FAULT, 100)
            simulator.fail_call("aclrtCreateContext", FAULT, 100)
            assert not (await device.force_reset()).ok
            simulator.clear()
            assert (await device.force_reset()).ok
    foreign, quarantined = kept.named("reset")
    assert "was reset by other code" in foreign.getMessage()
    assert "is quarantined" in quarantined.getMessage()
    assert "\n" not in quarantined.getMessage()


async def test_aclwarning_is_logged_too(open_device: OpenDevice) -> None:
    with logged() as kept, pytest.warns(aioacl.AclWarning, match="no await raised the error") as warned:  # noqa: PT031 - a thread warns
        async with equipped(open_device) as (device, stream, memory):
            failing_fill(stream, memory)
            await until(lambda: device.health.failed_tasks)
    (record,) = kept.named("warnings")
    assert record.getMessage() == str(warned[0].message)
    assert (record.levelno, record.device, record.code) == (logging.WARNING, 0, TASK_FAULT)


async def test_awaits_log_nothing(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        with logged(logging.DEBUG) as kept:
            for _ in range(50):
                await stream.fill(memory, 1)
            await stream
            assert logs.flush(20)
            assert kept.records == []


def test_every_kind_of_event_has_a_level() -> None:

    assert notifications.LOGGED.keys() == {*get_args(EventKind)}


async def test_each_record_has_all_fields_so_that_any_formatter_works(open_device: OpenDevice) -> None:
    with logged() as kept:
        async with open_device():
            pass
        assert logs.flush(20)
    lines = [json.dumps({name: getattr(record, name) for name in logs.FIELDS}) for record in kept.records]
    assert lines
    format_string = " ".join(f"%({name})s" for name in logs.FIELDS)
    assert [logging.Formatter(format_string).format(record) for record in kept.records]


async def test_handler_that_blocks_does_not_delay_a_reset(open_device: OpenDevice) -> None:
    stop = Stop()

    class Blocking(Kept):
        def emit(self, record: logging.LogRecord) -> None:
            stop()
            super().emit(record)

    logger, kept = logging.getLogger("aioacl"), Blocking()
    logger.addHandler(kept)
    logger.setLevel(logging.INFO)
    try:
        async with open_device() as device:
            await until(stop.begun.is_set)
            assert (await device.force_reset()).ok
            assert kept.records == []
            stop.go_on.set()
    finally:
        stop.go_on.set()
        assert logs.flush(20)
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(kept)
    assert kept.records


async def test_handler_may_use_the_device_of_the_record(open_device: OpenDevice) -> None:
    class Asking(Kept):
        def emit(self, record: logging.LogRecord) -> None:
            with manager_of(0).admission.changed:
                super().emit(record)

    logger, kept = logging.getLogger("aioacl"), Asking()
    logger.addHandler(kept)
    logger.setLevel(logging.INFO)
    try:
        async with open_device():
            pass
        assert Raised(lambda: logs.flush(20)).join()
    finally:
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(kept)
    assert kept.records
