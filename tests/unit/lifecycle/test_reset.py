"""A force reset: its steps, its report, the calls that join it, and its effect on waits."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import State, simulator
from aioacl._base.ffi import lib
from aioacl._lifecycle import gate
from aioacl._lifecycle.procedures import limits, reset
from aioacl._lifecycle.procedures.reset import ResetProcedure
from tests.kit import (
    LONG_SECONDS,
    Stop,
    Waiting,
    clock_in_place,
    equipped,
    held_fill,
    in_thread,
    no_call_of_mine,
    raises,
    turns,
    until,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.records import Stuck
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


async def test_report_holds_what_the_procedure_did(open_device: OpenDevice) -> None:
    async with open_device() as device:
        report = await device.force_reset(reason="because")
        assert (report.device, report.ok, report.generation) == (0, True, device.generation)
        assert (report.reason, report.joined, report.attempts) == ("because", 1, 1)
        assert (report.codes, report.stuck, report.problem) == ((), (), "")
        assert (report.drained, report.aborted, report.not_aborted) == (0, 0, 0)
        assert list(report.stages) == ["turns", "drain", "abort", "barrier", "reset", "set", "probe"]
        assert all(milliseconds >= 0 for milliseconds in report.stages.values())
        assert "open at generation" in str(report)
        with pytest.raises(AttributeError):
            report.ok = False  # type: ignore[misc]  # it is frozen


async def test_report_of_a_reset_names_the_task_or_thread_that_requested_it(
    open_device: OpenDevice, anyio_backend_name: str
) -> None:
    async with open_device() as device:
        task = str(anyio.get_current_task().name)
        report = await device.force_reset()
        if anyio_backend_name == "trio":
            assert report.requested_by == f"task {task}"
        else:  # asyncio only numbers its tasks, so the report also names the function
            assert re.fullmatch(rf"task {re.escape(task)} \([\w.<>]+\)", report.requested_by)
        thread, report = in_thread(lambda: (threading.current_thread().name, device.force_reset().result()))
        assert report.requested_by == f"thread {thread}"


async def test_idle_streams_are_neither_drained_nor_aborted(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await stream.fill(memory, 1)
        report = await device.force_reset()
        assert (report.drained, report.aborted, report.not_aborted) == (0, 0, 0)
        assert simulator.calls("aclrtStreamAbort") == 0


async def test_work_that_ends_within_the_grace_time_is_drained(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        ticket = held_fill(stream, memory)
        async with anyio.create_task_group() as group:
            waiting = Waiting(group, lambda: device.force_reset(grace=20))
            await until(lambda: device.state is aioacl.State.DRAINING)
            asked = simulator.calls("aclrtStreamQuery")
            # Waits until the reset has found the work.
            await until(lambda: simulator.calls("aclrtStreamQuery") > asked + 1)
            awaited = Waiting(group, lambda: wait_for(ticket))
            # The wait must have begun, because a reset may interrupt a wait that begins later.
            await until(lambda: lib.aio_device_waits(0) == 1)
            simulator.release(stream)
            await awaited.outcome()
            report = await waiting.outcome()
            assert (report.drained, report.aborted) == (1, 0)


@pytest.mark.parametrize("supported", [True, False])
async def test_work_that_does_not_end_is_aborted_if_the_runtime_supports_it(
    open_device: OpenDevice, supported: bool
) -> None:
    simulator.set_abort_supported(supported)
    async with open_device() as device, device.allocate(64) as memory:
        streams = [await device.create_stream() for _ in range(3)]
        for stream in streams:
            held_fill(stream, memory)
        report = await device.force_reset(grace=0)
        assert report.ok
        assert (report.aborted, report.not_aborted) == ((3, 0) if supported else (0, 3))


WAITS: dict[str, Callable[[aioacl.Device, aioacl.Stream, aioacl.Ticket, aioacl.Event], Any]] = {
    "stream": lambda _, stream, __, ___: stream,
    "stream.synchronize": lambda _, stream, __, ___: stream.synchronize(),
    "ticket": lambda _, __, ticket, ___: ticket,
    "event": lambda _, __, ___, event: event,
    "device": lambda device, _, __, ___: device.synchronize(),
}


@pytest.mark.parametrize("supported", [True, False])
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
async def test_a_wait_in_flight_raises_device_reset_with_the_report(
    open_device: OpenDevice, wait: Callable[..., Any], supported: bool
) -> None:
    simulator.set_abort_supported(supported)
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        ticket = held_fill(stream, memory)
        event = stream.record()
        async with anyio.create_task_group() as group:
            waiting = Waiting(group, lambda: wait(device, stream, ticket, event))
            await until(lambda: lib.aio_device_waits(0) == 1)
            report = await device.force_reset(grace=0)
            error = await raises(aioacl.DeviceReset, waiting.outcome())
            assert error.report == report
            assert error.action == "retry"


async def test_reset_that_is_requested_after_another_has_ended_does_not_join_it(
    open_device: OpenDevice,
) -> None:
    ended, go_on = threading.Event(), threading.Event()

    class Lingering(ResetProcedure):
        def _finish(self, problem: str, stuck: tuple[Stuck, ...]) -> None:
            super()._finish(problem, stuck)
            ended.set()
            go_on.wait()

    async with open_device() as device, anyio.create_task_group() as group:
        manager, resets = device._manager, simulator.resets()
        with manager.admission.changed:
            manager.start_procedure(Lingering(manager, grace=20, timeout=60, reason="", by=""))
        await until(ended.is_set)
        asking = Waiting(group, device.force_reset)
        await turns()
        go_on.set()
        report = await asking.outcome()
        assert (report.joined, report.generation) == (1, device.generation)
        assert simulator.resets() == resets + 2


async def test_report_of_a_reset_without_time_left_names_the_time_of_each_step(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        report = await device._manager.force_reset(grace=0.0, timeout=0.0, reason="")
        assert re.match(
            r"no time was left for aclrtDestroyEvent; time spent: turns \d+\.\d s, drain \d+\.\d s",
            report.problem,
        )
        assert (await device.force_reset()).ok


@pytest.mark.parametrize("timeout", [0, 0.0, 1e-9, 0.049])
async def test_reset_with_a_too_short_timeout_is_refused_and_the_device_stays_usable(
    open_device: OpenDevice, timeout: float
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.lease() as lease:
        with (
            no_call_of_mine(),
            pytest.raises(aioacl.ParameterError, match=r"at least 0\.05, got .*Pass seconds"),
        ):
            device.force_reset(grace=0, timeout=timeout)
        assert device.state is aioacl.State.OPEN
        assert lease.held
        await stream


async def test_the_grace_time_leaves_time_for_the_reset(open_device: OpenDevice) -> None:
    async with open_device() as device, device.lease() as lease, anyio.create_task_group() as group:
        with clock_in_place() as clock:
            resetting = Waiting(group, lambda: device.force_reset(grace=LONG_SECONDS, timeout=LONG_SECONDS))
            await until(lambda: device.state is aioacl.State.DRAINING)
            clock.advance(LONG_SECONDS / 4)
            await clock.ends_no_wait()
            assert device.state is aioacl.State.DRAINING
            clock.advance(LONG_SECONDS / 4)
            report = await resetting.outcome()
        assert report.ok, report.problem
        assert not lease.held


async def test_a_reset_waits_for_a_user_job_within_its_grace(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Stop()
    drained, looks = ResetProcedure._drained, list[bool]()

    def look(procedure: ResetProcedure, quiet: bool, busy: int) -> bool:
        looks.append(drained(procedure, quiet, busy))
        return looks[-1]

    async with open_device() as device, anyio.create_task_group() as group:
        running = Waiting(group, lambda: device.run(job))
        await until(job.begun.is_set)
        monkeypatch.setattr(ResetProcedure, "_drained", look)
        resetting = Waiting(group, lambda: device.force_reset(grace=20))
        await until(lambda: len(looks) >= 2)
        assert not any(looks)
        job.go_on.set()
        await running.outcome()
        assert (await resetting.outcome()).ok


async def test_a_closed_device_is_not_reset(open_device: OpenDevice) -> None:
    async with open_device() as device:
        pass
    with pytest.raises(aioacl.ParameterError, match="open_device"):
        await device.force_reset()
    assert simulator.calls("aclrtResetDeviceForce") == 0


async def test_grace_that_is_too_large_for_a_float_is_unlimited(open_device: OpenDevice) -> None:
    async with open_device() as device:
        assert (await device.force_reset(grace=10**400, timeout=10**400)).ok


@pytest.mark.watch_only
async def test_drain_waits_for_a_wait_whose_work_is_done(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def counts(index: int) -> list[int]:
        nonlocal looks
        looks += 1
        return gate.counts(index)

    monkeypatch.setattr(reset, "counts", counts)
    async with equipped(open_device) as (device, stream, memory), anyio.create_task_group() as group:
        simulator.hold(stream)
        waiting = Waiting(group, lambda: wait_for(stream.fill(memory, 1)))
        await until(lambda: lib.aio_device_waits(device.index) == 1)
        with simulator.fault("aclrtStreamQuery|aclrtSynchronizeStream", hang="waiting", times=1) as fault:
            await until(lambda: fault.hits)
            simulator.release(stream)
            resetting = Waiting(
                group, lambda: device.force_reset(grace=LONG_SECONDS, timeout=3 * LONG_SECONDS)
            )
            await until(lambda: looks > 2 or resetting.ended or device.state is State.RESETTING)
            assert device.state is State.DRAINING
            simulator.release_call("waiting")
        await waiting.outcome()  # the reset does not end this wait
        assert (await resetting.outcome()).ok


async def test_reset_has_more_time_for_each_stream_that_cannot_be_aborted(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESET_SECONDS", 0.0)
    monkeypatch.setattr(limits, "DROP_SECONDS", LONG_SECONDS)
    simulator.set_abort_supported(False)
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        held_fill(stream, memory)
        report = await device.force_reset(grace=0)
        monkeypatch.undo()  # the close needs the normal limits
        assert (report.ok, report.not_aborted, report.problem) == (True, 1, "")
