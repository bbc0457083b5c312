"""Procedures that fail: no thread can be started for them, a call does not return, or a step raises."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base import sync
from aioacl._base.ffi import lib
from aioacl._base.states import Trigger
from aioacl._lifecycle.manager import manager_of
from aioacl._lifecycle.procedures import limits
from aioacl._lifecycle.procedures import open as open_procedure
from aioacl._lifecycle.procedures.procedure import Procedure
from tests.kit import (
    FAULT,
    Engine,
    FewThreads,
    Raised,
    Stop,
    Waiting,
    hanging,
    held_fill,
    hung_in,
    in_thread,
    raises,
    reset_by_other_code,
    turns,
    until,
    until_now,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


@contextmanager
def short_closes() -> Generator[None]:
    """In the block, the steps of a close have short time limits."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CLOSE_SECONDS", "EVENTS_SECONDS", "RESET_SECONDS", "DROP_SECONDS"):
            patch.setattr(limits, name, 0.2)
        yield


@contextmanager
def given_up(message: str) -> Generator[None]:
    """In the block, the steps of a close have short time limits. A close must emit this warning."""
    with short_closes(), pytest.warns(aioacl.AclWarning, match=message):
        yield


@pytest.mark.parametrize("threads", [0, 1, 2])
async def test_open_with_too_few_threads_leaves_nothing(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(sync, "backend", FewThreads(threads))  # an open needs three
    for _ in range(2):
        sync.backend = FewThreads(threads)
        with pytest.raises(
            aioacl.ResourceExhausted, match=r"no thread could be started.*ulimit -u"
        ) as caught:
            await open_device()
        assert (caught.value.device, caught.value.call) == (0, "pthread_create")
        assert caught.value.generation == manager_of(0).generation
    monkeypatch.undo()
    assert simulator.retain_count() == 0
    assert manager_of(0).admission.opens == 0
    async with open_device() as device, device.create_stream() as stream:
        await stream


class Unwatched(Engine):
    """No watcher can be started."""

    def aio_device_start(self, *_: object) -> int:
        return int(lib.AIO_NO_THREAD)


async def test_open_whose_watcher_cannot_start_leaves_nothing(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_procedure, "lib", Unwatched())
    with pytest.raises(aioacl.ResourceExhausted, match="no thread") as caught:
        await open_device()
    monkeypatch.undo()
    reported = caught.value.device, caught.value.generation, caught.value.call
    assert reported == (0, manager_of(0).generation, "pthread_create")
    assert simulator.retain_count() == 0
    async with open_device() as device, device.create_stream() as stream:
        await stream


class Looks:
    """Counts how often tasks have begun to wait for a device's next change."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = self._waiting = 0
        manager = manager_of(0)
        self._change = manager.admission.change
        patch.setattr(manager.admission, "change", self._counted)

    async def _counted(self, seen: int, deadline: float | None, *hint: str) -> None:
        self.count += 1
        self._waiting += 1
        try:
            await self._change(seen, deadline, *hint)
        finally:
            self._waiting -= 1

    async def sleep(self, waiting: int) -> bool:
        """Waits until that many tasks wait for a change. Returns whether they then sleep.

        They sleep if no task begins a new wait during 50 turns of the loop. Returns False after 20 attempts.
        """
        await until(lambda: self._waiting == waiting)
        for _ in range(20):
            before = self.count
            await turns(50)
            if self.count == before:
                return True
        return False


async def test_task_that_waits_for_a_foreign_procedure_sleeps_until_it_ends(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        looks = Looks(monkeypatch)
        simulator.hang_call("aclrtSetDevice")
        reset_by_other_code()
        await until(hanging("aclrtSetDevice"))
        opening, making = Waiting(group, open_device), Waiting(group, device.create_stream)
        resetting = Waiting(group, device.force_reset)
        assert await looks.sleep(3)
        simulator.release_all()
        await (await opening.outcome()).close()
        await (await making.outcome()).close()
        assert (await resetting.outcome()).ok


async def test_task_that_waits_for_a_force_reset_sleeps_until_it_ends(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        looks = Looks(monkeypatch)
        resetting = await hung_in("aclrtResetDeviceForce", group, device.force_reset)
        assert await looks.sleep(1)
        simulator.release_all()
        assert (await resetting.outcome()).ok


async def test_task_that_waits_for_a_close_sleeps_until_it_has_ended(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await open_device()
    looks = Looks(monkeypatch)
    async with anyio.create_task_group() as group:
        closing = await hung_in("aclrtResetDevice", group, device.close)
        opening = Waiting(group, open_device)
        assert await looks.sleep(2)
        simulator.release_all()
        await closing.outcome()
        await (await opening.outcome()).close()


async def test_reset_without_a_thread_for_it_is_refused_and_changes_nothing(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        monkeypatch.setattr(sync, "backend", FewThreads(0))
        with pytest.raises(aioacl.ResourceExhausted, match="no thread") as caught:
            await device.force_reset()
        monkeypatch.undo()
        reported = caught.value.device, caught.value.generation, caught.value.call
        assert reported == (0, device.generation, "pthread_create")
        await stream.fill(memory, 1)
        assert (await device.force_reset()).ok


async def test_close_without_a_thread_for_it_raises_and_the_next_open_completes_it(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await open_device()
    events, generation = device.events(), device.generation
    monkeypatch.setattr(sync, "backend", FewThreads(0))
    with pytest.raises(aioacl.ResourceExhausted, match="no thread"):
        await device.close()
    monkeypatch.undo()
    assert [event.kind async for event in events] == ["draining", "resetting", "quarantined"]
    assert simulator.retain_count() == 1
    async with open_device() as again:
        assert simulator.retain_count() == 1
        assert again.generation == generation + 1
    assert simulator.retain_count() == 0


async def test_last_close_during_a_job_gives_up_and_the_next_open_completes_it(
    open_device: OpenDevice,
) -> None:
    block = Stop()
    device = await open_device()
    running = device.executor.submit(block)
    await until(block.begun.is_set)
    with given_up("device 0 stays set: a job on device.executor on thread"):
        await device.close()
    assert device.state is aioacl.State.QUARANTINED
    with pytest.raises(aioacl.DeviceQuarantined, match=r"a job on device\.executor on thread"):
        await device._manager.admission.until_open()

    async def open_is_refused() -> None:
        await raises(aioacl.DeviceQuarantined, open_device())
        await until(lambda: device._manager.procedure is None)

    with given_up("stays set"):
        await open_is_refused()
    block.go_on.set()
    await until(running.done)
    async with open_device() as again:
        assert simulator.retain_count() == 1
        assert again.state is aioacl.State.OPEN
    assert simulator.retain_count() == 0


async def test_open_that_times_out_during_the_close_that_it_began_raises_that_the_close_continues(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await open_device()
    monkeypatch.setattr(sync, "backend", FewThreads(0))
    with pytest.raises(aioacl.ResourceExhausted, match="no thread"):
        await device.close()
    monkeypatch.undo()
    simulator.hang_call("aclrtResetDevice")
    with pytest.raises(aioacl.DeviceTimeout, match=r"The close continues\. A later .* open_device\(\) waits"):
        await open_device(timeout=0.01)
    await until(hanging("aclrtResetDevice"))
    simulator.release_all()
    async with open_device():
        assert simulator.retain_count() == 1


async def test_error_of_a_close_that_gives_up_carries_no_report_of_an_earlier_reset(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device:
        simulator.fail_call("aclrtResetDeviceForce", 507000, times=3)
        report = await device.force_reset()
        with pytest.raises(aioacl.DeviceQuarantined, match="failed in all 3 attempts") as refused:
            await device.create_stream()
        assert refused.value.report is report
    device = await open_device()
    monkeypatch.setattr(sync, "backend", FewThreads(0))
    with pytest.raises(aioacl.ResourceExhausted, match="no thread"):
        await device.close()
    assert device._manager.admission.quarantined().report is None
    monkeypatch.undo()
    async with open_device():
        assert simulator.retain_count() == 1


async def test_a_last_close_whose_reset_does_not_return_gives_up_and_names_it(
    open_device: OpenDevice,
) -> None:
    simulator.hang_call("aclrtResetDevice")
    with given_up(r"device 0 stays set: aclrtResetDevice on thread [1-9]\d* did not return in time"):
        async with open_device() as device:
            pass
    assert device.state is aioacl.State.QUARANTINED
    simulator.release_all()
    await until(lambda: simulator.retain_count() == 0)
    async with open_device() as again:
        assert again.state is aioacl.State.OPEN
    assert simulator.retain_count() == 0


@pytest.mark.parametrize("busy", [0, 1, 2])
async def test_last_close_gives_the_reset_time_for_busy_streams_only(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, busy: int
) -> None:
    asked: list[float | None] = []
    device = await open_device()
    streams = [await device.create_stream() for _ in range(3)]
    memory, control = await device.allocate(64), device._manager.control
    call = control.call

    def noted(work: Callable[[], Any], timeout: float | None) -> Any:
        asked.append(timeout)
        return call(work, timeout)

    for stream in streams:
        await stream.fill(memory, 1)
    for stream in streams[:busy]:
        held_fill(stream, memory)
    monkeypatch.setattr(control, "call", noted)
    await device.close()
    monkeypatch.undo()
    assert limits.RESET_SECONDS + busy * limits.DROP_SECONDS in asked
    assert max(limit or 0 for limit in asked) == limits.RESET_SECONDS + busy * limits.DROP_SECONDS


async def test_last_close_during_a_query_that_hangs_gives_up_and_names_it(open_device: OpenDevice) -> None:
    device = await open_device()
    stream, memory = await device.create_stream(), await device.allocate(64)
    held_fill(stream, memory)
    simulator.hang_call("aclrtStreamQuery")
    with given_up(r"device 0 stays set: .*aclrtStreamQuery on thread [1-9]\d* did not return in time"):
        await device.close()
    simulator.release_all()
    async with open_device():
        assert simulator.retain_count() == 1


async def test_error_of_a_block_is_the_context_of_the_error_of_its_close() -> None:
    """The filters of these tests turn the warning of the close into an error."""
    busy = Stop()

    async def failing_block() -> None:
        async with aioacl.open_device() as device:
            device._manager.deferred.leave_note(busy)
            await until(busy.begun.is_set)
            raise ValueError

    with short_closes(), pytest.raises(aioacl.AclWarning, match="stays set") as raised:
        await failing_block()
    busy.go_on.set()
    assert isinstance(raised.value.__context__, ValueError)
    assert not raised.value.__suppress_context__
    async with aioacl.open_device():
        assert simulator.retain_count() == 1


async def test_stuck_job_of_aioacl_is_named_when_no_call_is_inside(
    open_device: OpenDevice,
) -> None:
    device, busy = await open_device(), Stop()
    device._manager.deferred.leave_note(busy)
    await until(busy.begun.is_set)
    with given_up("device 0 stays set: an internal call of aioacl did not return in time"):
        await device.close()
    busy.go_on.set()
    async with open_device():
        assert simulator.retain_count() == 1


class FailingProcedure(Procedure):
    """A procedure that raises after some steps."""

    name = "failing"

    def __init__(self, manager: Any, *events: Trigger) -> None:
        super().__init__(manager)
        self._events = events

    def run(self) -> None:
        for event in self._events:
            self._apply(event)
        raise ZeroDivisionError("a failed step")


@pytest.mark.parametrize("events", [(Trigger.DRAIN,), (Trigger.DRAIN, Trigger.SEIZE)])
async def test_procedure_that_fails_raises_in_all_its_callers_and_leaves_the_device_quarantined(
    open_device: OpenDevice, events: tuple[Trigger, ...]
) -> None:
    async with open_device() as device:
        manager = device._manager
        procedure = FailingProcedure(manager, *events)
        with manager.admission.changed:
            manager.start_procedure(procedure)
        raised: list[BaseException] = []
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="a failed step") as caught:
                await procedure.wait(None)
            raised.append(caught.value)
        assert raised[0] is not raised[1]  # each error has its own traceback
        assert device.state is aioacl.State.QUARANTINED
        assert (await device.force_reset()).ok


async def test_procedure_that_fails_before_its_first_change_changes_nothing(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        manager, generation = device._manager, device.generation
        procedure = FailingProcedure(manager)
        with manager.admission.changed:
            manager.start_procedure(procedure)
        await raises(ZeroDivisionError, procedure.wait(None))
        assert (device.state, device.generation) == (aioacl.State.OPEN, generation)
        assert manager.procedure is None


async def test_wait_for_a_procedure_that_times_out_leaves_it_running(
    open_device: OpenDevice,
) -> None:
    async with anyio.create_task_group() as group:
        patient = await hung_in("aclrtSetDevice", group, open_device)
        with pytest.raises(
            aioacl.DeviceTimeout, match=r"was still CLOSED at the deadline\. The open continues\. If"
        ):
            await open_device(timeout=0.01)
        simulator.release_all()
        await (await patient.outcome()).close()
    assert simulator.retain_count() == 0


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        ("aclrtResetDeviceForce", r"The reset continues: force_reset\(\) joins it"),
        ("aclrtResetDevice", r"The close continues\. A later close\(\) .* waits for it"),
    ],
)
def test_thread_whose_wait_for_a_procedure_times_out_can_wait_for_it_again(
    open_device: OpenDevice, call: str, hint: str
) -> None:
    def ask(timeout: float | None) -> None:
        operation = device.close() if call == "aclrtResetDevice" else device.force_reset()
        operation.result(timeout)

    device = in_thread(lambda: open_device().result())
    before = simulator.calls(call)
    simulator.hang_call(call)
    with pytest.raises(aioacl.DeviceTimeout, match=hint):
        in_thread(lambda: ask(0.05))
    assert until_now(hanging(call))
    again = Raised(lambda: ask(None))
    # Without this wait, the thread might make its request only after the procedure has ended.
    assert until_now(lambda: device._manager.admission._subscribers)
    simulator.release_all()
    again.join()
    assert simulator.calls(call) == before + 1
    in_thread(lambda: device.close().result())
    assert simulator.retain_count() == 0


async def test_clean_ups_that_start_each_other_are_each_done_once(open_device: OpenDevice) -> None:
    done: list[str] = []
    async with open_device() as device:
        manager = device._manager
        manager.deferred.leftovers.append(manager.clean_up)
        manager.deferred.leftovers.append(lambda: done.append("second"))
        manager.clean_up()
        assert done == ["second"]
        assert not manager.deferred.leftovers


async def test_deferred_work_that_another_thread_has_already_done_is_skipped(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", raised.append)
    async with open_device() as device:
        manager = device._manager
        manager.deferred.notes.append(manager.clean_up)  # does the work of the next note too
        manager.deferred.leave_note(lambda: done.append("second"))
        await until(lambda: done)
        async with device.create_stream() as stream:  # the same thread creates the stream afterwards
            await stream
    assert (done, raised) == (["second"], [])


async def test_clean_up_that_raises_is_reported_and_the_thread_continues(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    async with open_device() as device:
        device._manager.deferred.leave_note(lambda: 1 / 0)
        await until(lambda: reported)
        assert reported[0].exc_type is ZeroDivisionError
        async with device.create_stream() as stream:
            await stream
        await turns()


async def test_close_during_a_reset_that_fails_closes_the_device(open_device: OpenDevice) -> None:
    device = await open_device()
    simulator.hang_call("aclrtResetDeviceForce")
    simulator.fail_call("aclrtMalloc", FAULT, times=3)  # the allocations of the probes
    async with anyio.create_task_group() as group:
        reset = Waiting(group, device.force_reset)
        await until(hanging("aclrtResetDeviceForce"))
        closing = Waiting(group, device.close)
        await until(lambda: manager_of(0).admission.opens == 0)
        simulator.release_call("aclrtResetDeviceForce")
        assert not (await reset.outcome()).ok
        await closing.outcome()
    assert device.state is aioacl.State.CLOSED
    assert simulator.retain_count() == 0
