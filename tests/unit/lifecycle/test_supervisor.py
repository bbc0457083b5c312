"""device.supervise(): a device that has failed is reset, until the supervisor gives up or ends."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import State, simulator
from aioacl._base import sync
from aioacl._lifecycle import stuck
from aioacl._lifecycle.manager import manager_of
from aioacl._lifecycle.procedures import limits
from tests.kit import (
    FAULT,
    TASK_FAULT,
    FewThreads,
    Raised,
    Stop,
    Waiting,
    clock_in_place,
    elsewhere,
    failing_fill,
    next_event,
    no_call,
    raises,
    reset_by_other_code,
    sets_by_other_code,
    until,
    until_now,
    works,
)
from tests.process.child import run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

pytestmark = pytest.mark.anyio
SOON = 0.01
SETS = {"own": "aclrtCreateContext", "primary": "aclrtSetDevice"}  # the calls that make a context
TRIED = 3  # attempts of one reset


@pytest.fixture(params=["primary", "own"])
async def device(request: pytest.FixtureRequest) -> AsyncGenerator[aioacl.Device]:
    async with aioacl.open_device(0, context=request.param) as device:
        yield device


@pytest.fixture
async def primary() -> AsyncGenerator[aioacl.Device]:
    async with aioacl.open_device(0) as device:
        yield device


@pytest.fixture
async def own() -> AsyncGenerator[aioacl.Device]:
    async with aioacl.open_device(0, context="own") as device:
        yield device


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes calls count as stuck, and resets give up waiting for them, after a short time."""
    for name in "STUCK_SECONDS", "RETURN_SECONDS":
        monkeypatch.setattr(stuck, name, SOON)
    monkeypatch.setattr(limits, "BARRIER_SECONDS", SOON)


STUCK = """
async def main():
    device = await open_device(0)
    device.supervise().__enter__()
    simulator.hang_call("aclrtMalloc")
    threading.Thread(target=lambda: device.allocate(64).result(), daemon=True).start()
    while device.health.supervisor != "stuck":
        await anyio.sleep(0.001)
    say("stuck")
    raise SystemExit(3)
start(main)
"""


async def fail(device: aioacl.Device, sticky: int = 0) -> None:
    """Makes a task fail with a fault of the device. With `sticky`, the device keeps the fault until it is reset."""
    async with device.create_stream() as stream, device.allocate(4) as memory:
        options: dict[str, Any] = {"sticky": sticky} if sticky else {}
        with simulator.fault("copy", nth=1, async_error=FAULT, **options):
            await raises(aioacl.DeviceFault, stream.upload(memory, b"fail"))


def fail_resets(count: int = 1) -> None:
    """Makes the next resets fail."""
    simulator.fail_call(SETS[manager_of(0).context], 507000, TRIED * count)


async def quarantine(device: aioacl.Device) -> aioacl.ResetReport:
    """Quarantines the device by a reset that fails."""
    fail_resets()
    report = await device.force_reset()
    assert device.state is State.QUARANTINED
    return report


async def ready(device: aioacl.Device, supervisor: aioacl.Supervisor, resets: int = 1) -> None:
    """Returns when the supervisor has made so many resets, and the device works."""
    await until(lambda: device.health.ready and device.health.supervisor == "watching")
    assert len(supervisor.reports) == resets
    assert await works(device)


def look(device: aioacl.Device) -> None:
    """Makes the supervisor look at the device now, and waits until it has looked."""
    manager_of(device.index).supervision.act()


@contextmanager
def held_resets(device: aioacl.Device) -> Generator[threading.Event]:
    """Makes each reset wait in a hook until the event is set."""
    go_on = threading.Event()
    remove = device.before_reset(lambda _: go_on.wait(), timeout=60)
    try:
        yield go_on
    finally:
        go_on.set()
        remove()


def hook_runs() -> bool:
    return manager_of(0).hooks._running is not None


# --- when it resets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sticky", [0, FAULT])
async def test_59_failed_device_is_reset(device: aioacl.Device, sticky: int) -> None:
    before = device.generation
    async with device.supervise() as supervisor:
        await fail(device, sticky)
        await ready(device, supervisor)
    (report,) = supervisor.reports
    assert (report.ok, report.joined, report.requested_by) == (True, 1, "a supervisor")
    assert report.reason.startswith(f"supervisor: {FAULT} ")
    assert device.generation == before + 1
    assert device.health.supervisor == "none"


async def test_reason_of_a_reset_is_the_cause_also_if_an_effect_was_found_first(
    device: aioacl.Device,
) -> None:
    effect = 507899
    async with (
        device.supervise() as supervisor,
        device.create_stream() as stream,
        device.allocate(4) as memory,
    ):
        simulator.hold(stream)
        simulator.fail_next(stream, FAULT)
        ticket = stream.fill(memory, 1)
        with held_resets(device) as go_on:
            simulator.fail_call("aclrtMemsetAsync", effect)
            with pytest.raises(aioacl.DeviceFault):
                stream.fill(memory, 1)
            await until(hook_runs)
            simulator.release(stream)
            await raises(aioacl.DeviceFault, ticket)
            go_on.set()
        await ready(device, supervisor)
    (report,) = supervisor.reports
    assert report.reason.startswith(f"supervisor: {FAULT} ")


async def test_59_device_that_has_failed_before_the_block_is_reset(device: aioacl.Device) -> None:
    await fail(device)
    assert not device.health.ready
    with device.supervise() as supervisor:
        await ready(device, supervisor)


async def test_59_device_that_is_quarantined_at_entry_is_reset(device: aioacl.Device) -> None:
    report = await quarantine(device)
    with device.supervise() as supervisor:
        await ready(device, supervisor)
    assert supervisor.reports[0].reason == "supervisor: it was quarantined"
    assert report not in supervisor.reports


async def test_59_device_is_reset_while_the_event_loop_is_blocked(device: aioacl.Device) -> None:
    with device.supervise() as supervisor:
        await fail(device)
        assert until_now(lambda: supervisor.reports and device.health.ready)


async def test_59_device_is_reset_although_a_listener_has_lost_all_events(device: aioacl.Device) -> None:
    events = device.events()
    with device.supervise() as supervisor:
        for resets in range(1, 3):
            await fail(device)
            await until(lambda resets=resets: len(supervisor.reports) == resets)  # type: ignore[misc]
            events._queue.clear()
    assert device.health.ready


async def test_59_failure_of_one_task_causes_no_reset(device: aioacl.Device) -> None:
    with device.supervise() as supervisor:
        async with device.create_stream() as stream, device.allocate(4) as memory:
            error = await raises(aioacl.DeviceFault, failing_fill(stream, memory, TASK_FAULT))
            assert error.action == "new_stream"
            look(device)
            assert manager_of(0).procedure is None
            await stream.renew()
    assert supervisor.reports == ()


async def test_59_callers_reset_joins_that_of_the_supervisor(device: aioacl.Device) -> None:
    before = device.generation
    async with anyio.create_task_group() as group:
        with device.supervise() as supervisor, held_resets(device) as go_on:
            await fail(device)
            await until(hook_runs)
            joining = Waiting(group, lambda: device.force_reset(reason="too late"))
            procedure: Any = manager_of(0).procedure
            await until(lambda: procedure.joined == 2)
            assert device.health.supervisor == "resetting"
            go_on.set()
            report = await joining.outcome()
            await ready(device, supervisor)
            assert supervisor.reports == (report,)
            assert report.reason.startswith("supervisor: ")
    assert device.generation == before + 1


async def test_59_supervisor_waits_for_the_reset_of_a_caller(device: aioacl.Device) -> None:
    before = device.generation
    async with anyio.create_task_group() as group:
        with held_resets(device) as go_on:
            resetting = Waiting(group, lambda: device.force_reset(reason="caller"))
            await until(hook_runs)
            await fail(device)
            with device.supervise() as supervisor:
                look(device)
                assert device.health.supervisor == "resetting"
                go_on.set()
                assert (await resetting.outcome()).ok
                await until(lambda: device.health.supervisor == "watching")
                look(device)
                assert supervisor.reports == ()
    assert device.generation == before + 1


async def test_59_supervisor_resets_after_a_callers_reset_has_failed(device: aioacl.Device) -> None:
    with device.supervise() as supervisor:
        fail_resets()
        assert not (await device.force_reset()).ok
        await ready(device, supervisor)


async def test_hooks_run_around_the_reset_of_a_supervisor(device: aioacl.Device) -> None:
    ran: list[object] = []
    device.before_reset(ran.append)
    device.after_reset(ran.append)
    with device.supervise() as supervisor:
        await fail(device)
        await ready(device, supervisor)
    assert ran == [supervisor.reports[0].scope, supervisor.reports[0]]


async def test_supervisor_works_without_an_event_loop() -> None:
    def program() -> int:
        with (
            aioacl.open_device(0) as device,
            device.supervise() as supervisor,
            device.create_stream() as stream,
            device.allocate(4) as memory,
        ):
            with simulator.fault("copy", nth=1, async_error=FAULT), suppress(aioacl.DeviceFault):
                stream.upload(memory, b"fail").result()
            assert until_now(lambda: device.health.ready and supervisor.reports)
            return len(supervisor.reports)

    assert await anyio.to_thread.run_sync(program) == 1


async def test_foreign_reset_that_brings_the_device_back_needs_no_other() -> None:
    async with aioacl.open_device(0) as device:
        with device.supervise() as supervisor:
            reset_by_other_code()
            assert await works(device)
            look(device)
    assert supervisor.reports == ()


# --- stuck calls ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("soon")
async def test_60_no_reset_begins_while_a_call_is_stuck(device: aioacl.Device) -> None:
    call = Raised.hung_in("aclrtGetMemInfo", device.memory_info().result)
    with device.supervise() as supervisor:
        await until(lambda: device.health.supervisor == "stuck")
        manager = manager_of(0)
        with manager.admission.changed:
            fault = aioacl.DeviceFault("failed", code=FAULT, device=0, generation=device.generation)
            manager.failures.note_fault(fault)
        look(device)
        assert (device.health.supervisor, manager.procedure, supervisor.reports) == ("stuck", None, ())
        simulator.release_call("aclrtGetMemInfo")
        await ready(device, supervisor)
    await until(lambda: not call.running)


@pytest.mark.usefixtures("soon")
async def test_60_call_that_returns_causes_no_reset_of_a_device_that_works(device: aioacl.Device) -> None:
    call = Raised.hung_in("aclrtGetMemInfo", device.memory_info().result)
    with device.supervise() as supervisor:
        await until(lambda: device.health.supervisor == "stuck")
        simulator.release_call("aclrtGetMemInfo")
        await until(lambda: device.health.supervisor == "watching")
        look(device)
    assert supervisor.reports == ()
    call.join()


@pytest.mark.usefixtures("soon")
async def test_60_reset_that_a_stuck_call_has_prevented_is_repeated_when_the_call_returns(
    device: aioacl.Device,
) -> None:
    call = Raised.hung_in("aclrtGetMemInfo", device.memory_info().result)
    report = await device.force_reset(grace=0)
    assert (report.ok, report.attempts, len(report.stuck)) == (False, 0, 1)
    with device.supervise() as supervisor:
        await until(lambda: device.health.supervisor == "stuck")
        assert supervisor.reports == ()
        simulator.release_call("aclrtGetMemInfo")
        await ready(device, supervisor)
    await until(lambda: not call.running)


@pytest.mark.usefixtures("soon")
async def test_60_reset_that_was_not_attempted_does_not_count(device: aioacl.Device) -> None:
    stop = Stop()
    async with anyio.create_task_group() as group:
        job = Waiting(group, lambda: device.run(stop))
        await until(stop.begun.is_set)
        with device.supervise(grace=0, pauses=(), at_most=1) as supervisor:
            await fail(device)
            await until(lambda: supervisor.reports)
            assert (supervisor.reports[0].attempts, len(supervisor.reports[0].stuck)) == (0, 1)
            await until(lambda: device.health.supervisor == "stuck")
            assert device.health.recovering
            stop.go_on.set()
            await ready(device, supervisor, resets=2)
        with suppress(aioacl.AclError):
            await job.outcome()


# --- giving up --------------------------------------------------------------------------------------------------------


async def test_61_supervisor_pauses_after_each_reset_that_fails_and_then_gives_up(
    device: aioacl.Device,
) -> None:
    with clock_in_place() as clock:
        events = device.events()
        fail_resets(3)
        with device.supervise(pauses=(0.5, 50.0)) as supervisor:
            await fail(device)
            for resets, pause in enumerate((0.5, 50.0), 1):
                await until(lambda: device.health.supervisor == "pausing")
                await clock.ends_no_wait()
                assert len(supervisor.reports) == resets
                assert device.health.recovering
                clock.advance(pause)
                await until(lambda resets=resets: len(supervisor.reports) > resets)  # type: ignore[misc]
            await until(lambda: device.health.supervisor == "given up")
            health = device.health
            assert (health.state, health.recovering) == (State.QUARANTINED, False)
            assert health.problem.startswith("its supervisor gave up after 3 resets that failed: ")
            assert "given up: its supervisor gave up after 3 resets" in repr(supervisor)
            assert "supervisor: given up" in repr(device)
            error = await raises(aioacl.DeviceQuarantined, device.allocate(4))
            assert "its supervisor gave up" in str(error)
            assert error.report == supervisor.reports[-1]
            while "gave up" not in (event := await next_event(events, "quarantined")).text:
                pass
            assert event.report == supervisor.reports[-1]
            look(device)
            assert len(supervisor.reports) == 3


async def test_61_supervisor_goes_on_when_another_reset_has_brought_the_device_back(
    device: aioacl.Device,
) -> None:
    with device.supervise(pauses=()) as supervisor:
        fail_resets()
        await fail(device)
        await until(lambda: device.health.supervisor == "given up")
        assert (await device.force_reset()).ok
        await until(lambda: device.health.supervisor == "watching")
        await fail(device)
        await ready(device, supervisor, resets=2)


async def test_61_device_that_fails_again_and_again_is_given_up_and_quarantined(
    device: aioacl.Device,
) -> None:
    events = device.events()
    with device.supervise(at_most=2) as supervisor:
        for resets in 1, 2:
            await fail(device)
            await ready(device, supervisor, resets)
        async with device.lease() as lease:
            await fail(device)
            await until(lambda: device.state is State.QUARANTINED)
            assert not lease.held
        assert device.health.problem.startswith(
            "its supervisor gave up, because 2 resets within 3600 s did not help: "
        )
        assert str(FAULT) in device.health.problem
        assert (await next_event(events, "quarantined")).text == device.health.problem
        await raises(aioacl.DeviceQuarantined, device.allocate(4))
        assert (await device.force_reset()).ok


# --- other code -------------------------------------------------------------------------------------------------------


async def test_62_device_of_other_code_is_not_reset() -> None:
    sets_by_other_code(1)
    async with aioacl.open_device(0) as device:
        resets = simulator.resets()
        with device.supervise() as supervisor:
            assert device.health.supervisor == "forbidden"
            await fail(device)
            look(device)
            health = device.health
            assert (health.supervisor, health.state, health.recovering) == ("forbidden", State.OPEN, False)
            assert "other code of the process has perhaps set it" in health.problem
            assert (simulator.resets(), supervisor.reports) == (resets, ())
        with device.supervise(foreign=True) as supervisor:
            await ready(device, supervisor)
    assert supervisor.reports[0].foreign_sets == 1
    elsewhere("aclrtResetDevice")


async def test_62_supervisor_watches_again_when_other_code_has_reset_its_device() -> None:
    async with aioacl.open_device(0) as device:
        with device.supervise() as supervisor:
            sets_by_other_code(1)
            await fail(device)
            look(device)
            assert device.health.supervisor == "forbidden"
            reset_by_other_code()
            assert await works(device)
            await until(lambda: device.health.supervisor == "watching")
    assert supervisor.reports == ()


async def test_62_own_context_beside_other_code_is_replaced_and_the_device_is_not_reset() -> None:
    sets_by_other_code(1)
    async with aioacl.open_device(0, context="own") as device:
        resets = simulator.resets()
        with device.supervise() as supervisor:
            assert device.health.supervisor == "watching"
            await fail(device)
            await ready(device, supervisor)
            assert supervisor.reports[0].scope == "context"
        with device.supervise(pauses=()):
            await fail(device, sticky=FAULT)
            await until(lambda: device.health.supervisor == "given up")
            assert "Only the context of aioacl was replaced" in device.health.problem
            assert simulator.resets() == resets
        assert (await device.force_reset(foreign=True)).ok
    elsewhere("aclrtResetDevice")


async def test_62_own_context_is_replaced_before_the_device_is_reset(own: aioacl.Device) -> None:
    with own.supervise() as supervisor:
        await fail(own)
        await ready(own, supervisor)
        await fail(own)
        await ready(own, supervisor, resets=2)
        await fail(own, sticky=FAULT)
        await ready(own, supervisor, resets=3)
    assert [report.scope for report in supervisor.reports] == ["context", "device", "device"]
    assert [report.attempts for report in supervisor.reports] == [1, 1, 2]


@pytest.mark.parametrize("by", ["environment", "argument"])
@pytest.mark.parametrize("context", ["primary", "own"])
async def test_62_policy_forbids_resets_of_the_device(
    monkeypatch: pytest.MonkeyPatch, by: str, context: Any
) -> None:
    if by == "environment":
        monkeypatch.setenv("AIOACL_RESETS", "never")
    async with aioacl.open_device(0, context=context, resets=by != "argument") as device:
        resets = simulator.resets()
        with device.supervise(pauses=(), foreign=True):
            await fail(device, sticky=FAULT)
            expected = "forbidden" if context == "primary" else "given up"
            await until(lambda: device.health.supervisor == expected)
            look(device)
            assert simulator.resets() == resets
            if context == "primary":
                assert "AIOACL_RESETS=never or resets=False" in device.health.problem
        assert (await device.force_reset(foreign=True)).ok
    if context == "primary":  # the close has left one set
        elsewhere("aclrtResetDevice")


async def test_fault_of_one_task_leaves_the_device_ready_all_the_time(device: aioacl.Device) -> None:
    failures = manager_of(0).failures
    fault = aioacl.DeviceFault("one task", code=TASK_FAULT, device=0, generation=device.generation)
    assert fault.action == "new_stream"
    failures.note_fault(fault)
    assert (device.health.ready, device.health.unready_for) == (True, 0.0)
    await fail(device)
    assert device.health.unready_for > 0


async def test_pause_of_many_years_is_slept_in_parts(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    fail_resets()
    with device.supervise(pauses=(1e9,)):
        await fail(device)
        await until(lambda: device.health.supervisor == "pausing")
        assert (await device.force_reset()).ok
        await until(lambda: device.health.supervisor == "watching")
    assert reported == []


async def test_end_of_a_reset_is_noticed_although_nothing_wakes_the_thread(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with device.supervise() as supervisor:
        monkeypatch.setattr(manager_of(0).stuck_calls, "wake", lambda: None)
        await fail(device)
        look(device)
        await until(lambda: manager_of(0).procedure is None)
        look(device)
        await ready(device, supervisor)


# --- one of them, and its end -----------------------------------------------------------------------------------------


async def test_63_second_supervisor_is_refused_also_from_another_open(device: aioacl.Device) -> None:
    async with aioacl.open_device(0, context=manager_of(0).context) as other:
        with device.supervise():
            for each in device, other:
                with pytest.raises(aioacl.ParameterError, match="has a supervisor already"):
                    each.supervise().__enter__()
            await fail(other)
            await until(lambda: device.health.ready)
        with other.supervise() as supervisor:
            await fail(device)
            await ready(device, supervisor)


async def test_63_close_of_its_device_ends_the_supervisor_although_another_open_goes_on(
    device: aioacl.Device,
) -> None:
    other = await aioacl.open_device(0, context=manager_of(0).context)
    ended = other.supervise()
    with ended:
        assert "supervisor: watching" in repr(device)
        await other.close()
        assert "supervisor" not in repr(device)
        with device.supervise() as supervisor:
            await fail(device)
            await ready(device, supervisor)
    assert ended.reports == ()
    assert "ended" in repr(ended)


async def test_63_no_reset_begins_after_the_block(device: aioacl.Device) -> None:
    with device.supervise() as supervisor:
        assert "watching" in repr(supervisor)
    await fail(device)
    look(device)
    assert (manager_of(0).procedure, supervisor.reports) == (None, ())
    gc.collect()  # listeners of earlier tests, which need the thread too
    manager = manager_of(0)
    await until(lambda: manager.stuck_calls._thread is None or manager.admission.listeners.any)
    assert manager.supervision.current is None
    assert not device.health.ready


async def test_63_reset_that_runs_at_the_end_of_the_block_goes_on(device: aioacl.Device) -> None:
    with held_resets(device) as go_on:
        with device.supervise() as supervisor:
            await fail(device)
            await until(hook_runs)
        go_on.set()
        await until(lambda: supervisor.reports)
    assert supervisor.reports[0].ok
    assert await works(device)


async def test_63_cancelled_block_ends_the_supervisor(device: aioacl.Device) -> None:
    made: list[aioacl.Supervisor] = []

    async def block() -> None:
        async with device.supervise() as supervisor:
            made.append(supervisor)
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        waiting = Waiting(group, block)
        await until(lambda: made)
        assert device.health.supervisor == "watching"
        await waiting.cancel_and_wait()
    assert device.health.supervisor == "none"


async def test_63_generator_that_is_dropped_ends_its_supervisor_without_a_lock(device: aioacl.Device) -> None:
    def supervised() -> Generator[None]:
        with device.supervise():
            yield

    generator = supervised()
    next(generator)
    holds, go_on = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with manager_of(0).admission.changed:
            holds.set()
            go_on.wait()

    holding = Raised(hold_the_lock)
    assert until_now(holds.is_set)
    generator.close()
    go_on.set()
    holding.join()
    assert device.health.supervisor == "none"


async def test_63_close_during_the_reset_of_a_supervisor_waits_for_it() -> None:
    async with aioacl.open_device(0) as device:
        supervisor = device.supervise()
        with supervisor, held_resets(device) as go_on:
            await fail(device)
            await until(hook_runs)
            threading.Timer(SOON, go_on.set).start()
            await device.close()
    assert supervisor.reports[0].ok
    assert device.state is State.CLOSED
    assert manager_of(0).supervision.current is None


async def test_64_supervisor_uses_a_thread_of_the_device_and_calls_no_acl_function(
    device: aioacl.Device,
) -> None:
    before = {thread.name for thread in threading.enumerate()}
    with no_call(), device.supervise():
        look(device)
        manager_of(0).stuck_calls.wake()
        await until(lambda: device.health.supervisor == "watching")
        started = {thread.name for thread in threading.enumerate()} - before
    assert started <= {"aioacl-stuck-0"}


@pytest.mark.process
def test_64_process_ends_while_a_supervisor_waits_for_a_stuck_call() -> None:
    status, output, errors = run(STUCK, strict=False, stuck=True)
    assert (status, output) == (3, "stuck\n")
    assert "Traceback" not in errors


async def test_supervisor_can_be_entered_once(device: aioacl.Device) -> None:
    supervisor = device.supervise()
    assert "not entered" in repr(supervisor)
    with supervisor:
        pass
    with pytest.raises(aioacl.ParameterError, match="the supervisor was already entered"):
        supervisor.__enter__()


async def test_supervisor_of_a_closed_device_is_refused() -> None:
    async with aioacl.open_device(0) as device:
        supervisor = device.supervise()
    with pytest.raises(aioacl.ParameterError, match="the device is closed"):
        supervisor.__enter__()
    with pytest.raises(aioacl.ParameterError, match="the device is closed"):
        device.supervise()


async def test_supervisor_whose_thread_cannot_start_raises_resource_exhausted(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sync, "backend", FewThreads(0))
        with pytest.raises(aioacl.ResourceExhausted, match="no thread could be started"):
            device.supervise().__enter__()
    assert device.health.supervisor == "none"
    with device.supervise() as supervisor:
        await fail(device)
        await ready(device, supervisor)


async def test_reset_whose_thread_cannot_start_counts_as_failed(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    with device.supervise(pauses=()) as supervisor:
        with monkeypatch.context() as patch:
            patch.setattr(sync, "backend", FewThreads(0))
            await fail(device)
            await until(lambda: device.health.supervisor == "given up")
        assert supervisor.reports == ()
        assert (await device.force_reset()).ok
        await until(lambda: device.health.supervisor == "watching")


async def test_supervisor_and_device_leave_no_cycle() -> None:
    device = await aioacl.open_device(0)
    gc.disable()
    try:
        with device.supervise() as supervisor:
            await fail(device)
            await ready(device, supervisor)
        gone = weakref.ref(supervisor)
        del supervisor
        await until(lambda: gone() is None)
    finally:
        gc.enable()
        await device.close()


@pytest.mark.filterwarnings("ignore:device 0 was not closed:ResourceWarning")
async def test_63_device_that_is_dropped_ends_its_supervisor() -> None:
    device = await aioacl.open_device(0)
    supervisor = device.supervise()
    with supervisor:
        del device
        gc.collect()
        await until(lambda: manager_of(0).supervision.current is None)
    await until(lambda: manager_of(0).admission.state is State.CLOSED)


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_63_forked_child_has_no_supervisor() -> None:
    with aioacl.open_device(0) as device, device.supervise() as supervisor:
        child = os.fork()
        if child == 0:
            code = 1
            with suppress(BaseException):
                supervisor.__exit__()
                assert "of the parent process" in repr(supervisor)
                assert supervisor.reports == ()
                try:
                    device.supervise()
                except aioacl.ForkedProcessError:
                    code = 0
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert device.health.supervisor == "watching"


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"grace": 2, "timeout": 1}, "grace must not be above timeout"),
        ({"pauses": 1}, "pauses must be some seconds, got 1"),
        ({"pauses": (1, -1)}, "each of pauses must be a finite number of seconds, at least 0, got -1"),
        ({"pauses": "ab"}, "each of pauses must be a finite number of seconds, at least 0, got 'a'"),
        ({"at_most": 0}, "at_most must be an int of at least 1, got 0"),
        ({"at_most": True}, "at_most must be an int of at least 1, got True"),
        ({"per": float("inf")}, "per must be a finite number of seconds"),
        ({"foreign": None}, "foreign must be a bool, got None"),
    ],
)
async def test_wrong_arguments_are_refused(
    primary: aioacl.Device, arguments: dict[str, Any], found: str
) -> None:
    with pytest.raises(aioacl.ParameterError, match=found):
        primary.supervise(**arguments)
