"""docs/contract.md, promise by promise. Each test has the number of its promise."""

from __future__ import annotations

import re
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from tests import kit
from tests.kit import (
    Raised,
    Waiting,
    draining,
    elsewhere,
    equipped,
    hanging,
    held_fill,
    hung_in,
    live_streams,
    no_call_of_mine,
    raises,
    reset_by_other_code,
    reset_call,
    runs_out_of_time,
    turns,
    until,
    wait_for,
    works,
)
from tests.process import test_metrics, test_pyacl, test_recorder, test_report
from tests.process.child import run
from tests.unit import test_contract_models
from tests.unit.base import test_health
from tests.unit.batches import test_checks, test_failures
from tests.unit.handles import test_borrowed, test_borrowed_events, test_contract_awaits, test_launch
from tests.unit.lifecycle import (
    test_heal,
    test_hooks,
    test_own_context,
    test_recent,
    test_supervisor,
    test_task_aborts,
)
from tests.unit.metrics import test_scrape
from tests.unit.pool import test_pool
from tests.unit.pyacl import test_beside, test_callbacks, test_random_programs, test_rows, test_threads

if TYPE_CHECKING:
    from tests.kit import OpenDevice

anyio_test = pytest.mark.anyio
PAGE = Path(__file__).parents[2] / "docs" / "contract.md"


def force_resets() -> int:
    return simulator.calls(reset_call())


def test_sentences_of_the_contract_and_numbers_of_tests_match() -> None:
    promised = re.findall(r"^(\d+)\. ", PAGE.read_text(), flags=re.MULTILINE)
    modules = [
        test_contract_awaits,
        test_contract_models,
        test_recorder,
        test_recent,
        test_report,
        test_own_context,
        test_launch,
        test_borrowed,
        test_borrowed_events,
        test_hooks,
        test_task_aborts,
        test_supervisor,
        test_health,
        test_heal,
        test_checks,
        test_failures,
        test_pool,
        test_scrape,
        test_metrics,
        test_rows,
        test_pyacl,
        test_beside,
        test_callbacks,
        test_random_programs,
        test_threads,
    ]
    names = [*globals(), *(name for module in modules for name in vars(module))]
    tested = [found[1] for name in names if (found := re.match(r"test_0*(\d+)_", name))]
    assert promised == [str(number) for number in range(1, len(promised) + 1)]
    assert sorted(set(tested), key=int) == promised


# --- force reset --------------------------------------------------------------------------------------------------


@anyio_test
async def test_01_reset_waits_until_no_call_is_inside(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        making = await hung_in("aclrtMalloc", group, lambda: device.allocate(64))
        resetting = Waiting(group, lambda: device.force_reset(grace=0))
        await until(lambda: device.state is aioacl.State.RESETTING)
        assert force_resets() == 0
        simulator.release_call("aclrtMalloc")
        assert (await resetting.outcome()).ok
        await (await making.outcome()).close()
    assert simulator.violations() == []  # a reset during a running call would be a violation


@anyio_test
async def test_02_concurrent_callers_share_a_reset_and_a_later_caller_gets_a_new_one(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        generation = device.generation
        simulator.hang_call(reset_call())
        callers = [Waiting(group, device.force_reset) for _ in range(3)]
        await until(hanging(reset_call()))
        simulator.release_call(reset_call())
        reports = [await caller.outcome() for caller in callers]
        assert (reports[0].joined, force_resets(), device.generation) == (3, 1, generation + 1)
        assert reports[1:] == [reports[0], reports[0]]
        await device.force_reset()
        assert (force_resets(), device.generation) == (2, generation + 2)


@anyio_test
async def test_03_reset_whose_caller_is_cancelled_goes_on(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        generation = device.generation
        caller = await hung_in(reset_call(), group, device.force_reset)
        await caller.cancel_and_wait()
        simulator.release_call(reset_call())
        await until(lambda: device.state is aioacl.State.OPEN)
        assert device.generation == generation + 1


@anyio_test
async def test_04_reset_waits_for_a_lease_then_revokes_it_and_opens_stay_valid(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, open_device() as another, device.lease() as lease:
        stream = await device.create_stream()
        report = await in_a_task(lambda: device.force_reset(grace=0))
        assert report.ok
        assert another.generation == report.generation
        assert not lease.held
        with pytest.raises(aioacl.DeviceResetting, match="revoked"):
            await device.allocate(64)
        await raises(aioacl.StaleHandleError, stream)
    async with open_device() as device:
        before = force_resets()
        async with device.lease(), anyio.create_task_group() as group:
            resetting = await draining(group, device)
            assert force_resets() == before
            group.start_soon(until, lambda: resetting.ended)
            nested = device.lease()
            await nested.__aenter__()  # succeeds while the device drains
            await nested.__aexit__()
            assert not resetting.ended
            group.cancel_scope.cancel()
        await until(lambda: device.state is aioacl.State.OPEN and force_resets() == before + 1)


async def in_a_task(begin: Any) -> Any:
    """The outcome of an await in a new task, which holds no lease."""
    async with anyio.create_task_group() as group:
        return await Waiting(group, begin).outcome()


@anyio_test
async def test_05_drain_lets_lease_holders_and_jobs_go_on_and_others_wait_or_are_refused(
    open_device: OpenDevice,
) -> None:
    async with equipped(open_device) as (device, stream, memory), anyio.create_task_group() as group:
        begun, go_on = threading.Event(), threading.Event()

        def job() -> None:
            begun.set()
            go_on.wait()
            stream.fill(memory, 3).result()
            device.allocate(64).result().close().result()

        running = Waiting(group, lambda: device.run(job))
        await until(begun.is_set)
        async with device.lease():
            resetting = await draining(group, device)
            go_on.set()
            await running.outcome()
            await stream.fill(memory, 1)
            await device.run(lambda: None)
            async with device.allocate(64):
                pass
            patient = Waiting(group, lambda: device.allocate(64))
            hasty = Waiting(group, lambda: device.allocate(64, wait=False))

            async def enqueue() -> None:
                stream.fill(memory, 2)

            for refused in (hasty, Waiting(group, enqueue)):
                await raises(aioacl.DeviceResetting, refused.outcome())
            assert not patient.ended
            assert not resetting.ended
        assert (await resetting.outcome()).ok
        await (await patient.outcome()).close()


@anyio_test
async def test_06_reset_by_a_lease_holder_or_a_job_raises_lease_held_error(open_device: OpenDevice) -> None:
    async with open_device() as device:
        async with device.lease():
            with pytest.raises(aioacl.LeaseHeldError, match=r"got one that holds a lease on .*Leave the"):
                await device.force_reset()
        await raises(aioacl.LeaseHeldError, device.run(lambda: device.force_reset().result()))
        assert force_resets() == 0


@anyio_test
async def test_07_resets_and_waiting_operations_alternate(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        first = await hung_in(reset_call(), group, device.force_reset)
        waiter = Waiting(group, device.create_stream)
        await until(lambda: bool(device._manager.admission.turns._waiting))
        second = Waiting(group, lambda: reset_again(device, first))
        simulator.release_call(reset_call())
        report = await second.outcome()
        assert waiter.ended
        stream = await waiter.outcome()
        assert stream.generation == report.generation - 1  # the stream was made between the two resets
        await stream.close()


async def reset_again(device: aioacl.Device, first: Waiting) -> Any:
    """Requests the next reset in the same turn of the loop in which the first reset ended."""
    while not first.ended:
        await anyio.lowlevel.checkpoint()
    return await device.force_reset(grace=0)


@anyio_test
async def test_08_reset_that_fails_or_times_out_quarantines_the_device(open_device: OpenDevice) -> None:
    async with open_device() as device:
        with simulator.fault("aclrtMemcpy", rc=507000, after=0):
            report = await device.force_reset()
        assert (report.ok, report.attempts) == (False, 3)
        assert ("aclrtMemcpy", 507000) in report.codes
        assert "failed in all 3 attempts" in report.problem
        for make in (lambda: device.allocate(64), device.create_stream, open_device):
            with no_call_of_mine(), pytest.raises(aioacl.DeviceQuarantined):
                await make()
        assert device.health.problem == report.problem
        assert (await device.force_reset()).ok
        assert await works(device)
        memory = await device.allocate(64)
        async with anyio.create_task_group() as group:
            making = await hung_in("aclrtMalloc", group, lambda: device.allocate(64))
            await runs_out_of_time(device)
            await memory.close()
            await raises(aioacl.DeviceQuarantined, making.outcome())
        simulator.release_all()
        assert (await device.force_reset()).ok


@anyio_test
async def test_09_reset_while_a_call_is_stuck_is_not_attempted(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        generation = device.generation
        making = await hung_in("aclrtMalloc", group, lambda: device.allocate(64))
        report = await runs_out_of_time(device)
        assert [stuck.function for stuck in report.stuck] == ["aclrtMalloc"]
        assert (report.generation, device.generation, force_resets()) == (generation, generation, 0)
        with pytest.raises(aioacl.DeviceQuarantined, match="aclrtMalloc") as caught:
            await making.outcome()
        assert (caught.value.report, caught.value.generation) == (report, generation)
        assert device.health.status == "poisoned"
        simulator.release_call("aclrtMalloc")
        assert (await device.force_reset()).ok
        assert await works(device)


@anyio_test
@pytest.mark.primary_only
async def test_10_reset_that_reports_success_without_a_reset_is_repeated(open_device: OpenDevice) -> None:
    async with open_device() as device:
        with simulator.fault("aclrtResetDeviceForce", reset_lies=True, nth=1):
            report = await device.force_reset()
        assert (report.ok, report.attempts) == (True, 2)
        assert [code for call, code in report.codes if call.startswith("aclrt")] != []


@anyio_test
@pytest.mark.leaves("streams", "device_bytes", "device_blocks")  # the reset releases these
async def test_11_handles_closed_after_a_device_fault_are_left_to_the_reset(open_device: OpenDevice) -> None:
    one_by_one = ("aclrtDestroyEvent", "aclrtDestroyStream", "aclrtFree", "aclrtFreeHost")
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        idle = await device.create_stream(), await device.allocate(64), await device.pinned(64)
        await idle[0].record()
        with simulator.fault("aclrtMemsetAsync", sticky=507013):
            ticket = stream.fill(memory, 1)
            await raises(aioacl.DeviceFault, ticket)
        assert device.health.status == "poisoned"
        for handle in idle:
            await handle.close()
        assert [simulator.calls(function) for function in one_by_one] == [0, 0, 0, 0]
        assert (await device.force_reset(grace=0)).ok
        destroyed = [entry["seq"] for entry in simulator.journal() if entry["call"] == "aclrtDestroyEvent"]
        (reset,) = [entry["seq"] for entry in simulator.journal() if entry["call"] == "aclrtResetDeviceForce"]
        assert len(destroyed) >= 32
        assert max(destroyed) < reset
        assert await works(device)
        assert simulator.calls("aclrtFreeHost") == 1  # a reset does not free host memory
    if kit.context == "own":
        kit.forget_uses_of_ended_contexts()  # the fault makes aclrtDestroyContext fail


@anyio_test
@pytest.mark.primary_only
async def test_12_last_close_after_a_reset_releases_only_the_set_of_that_reset(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, open_device():
        await device.force_reset()
        assert simulator.calls("aclrtResetDevice") == 0
    assert simulator.calls("aclrtResetDevice") == 1
    async with open_device() as device:
        with simulator.fault("aclrtSetDevice", rc=507033, after=0):
            assert not (await device.force_reset()).ok
    assert simulator.calls("aclrtResetDevice") == 1  # the device is not set, so the close does not reset it
    assert simulator.retain_count() == 0


# --- handles and waits --------------------------------------------------------------------------------------------


@anyio_test
async def test_13_stale_handle_is_refused_before_c(open_device: OpenDevice) -> None:
    async with open_device() as device:
        stream, memory, event = (
            await device.create_stream(),
            await device.allocate(64),
            await device.create_event(),
        )
        await device.force_reset()
        assert await works(device)
        for use in (
            lambda: stream.fill(memory, 1),
            stream.record,
            lambda: event.record(stream),
            stream.query,
        ):
            with no_call_of_mine(), pytest.raises(aioacl.StaleHandleError):
                use()
        given_back = [simulator.calls(name) for name in ("aclrtDestroyStream", "aclrtFree")]
        for thing in (stream, memory, event):
            await thing.close()
        assert [simulator.calls(name) for name in ("aclrtDestroyStream", "aclrtFree")] == given_back


@anyio_test
async def test_14_wait_during_a_reset_raises_device_reset(open_device: OpenDevice) -> None:
    async with open_device() as device:
        for reset in (our_reset, foreign_reset)[: 2 if kit.context == "primary" else 1]:
            async with (
                device.create_stream() as stream,
                device.allocate(64) as memory,
                anyio.create_task_group() as group,
            ):
                ticket = held_fill(stream, memory)
                waits = (partial(wait_for, ticket), stream.synchronize, device.synchronize)
                waiting = [Waiting(group, wait) for wait in waits]
                await until(lambda: lib.aio_device_waits(0) >= 3)
                await reset(device)
                for one in waiting:
                    await raises(aioacl.DeviceReset, one.outcome())
                for _ in range(2):
                    with no_call_of_mine(), pytest.raises(aioacl.DeviceReset):
                        await ticket
            assert await works(device)


@anyio_test
@pytest.mark.parametrize("closed", ["stream", "device"])
async def test_14_close_of_the_device_ends_waits_and_close_of_a_stream_does_not(
    open_device: OpenDevice, closed: str
) -> None:
    device = await open_device()
    stream, memory = await device.create_stream(), await device.allocate(64)
    simulator.hold(stream)
    ticket, event = stream.fill(memory, 1), stream.record()
    waits = (partial(wait_for, ticket), partial(wait_for, event), device.synchronize)
    async with anyio.create_task_group() as group:
        waiting = [Waiting(group, wait) for wait in waits]
        await until(lambda: lib.aio_device_waits(0) >= 3)
        if closed == "device":
            await device.close()
            for one in waiting:
                await raises(aioacl.DeviceReset, one.outcome())
        else:
            await stream.close()
            assert not any(one.ended for one in waiting)
            simulator.release_all()
            for one in waiting:
                await one.outcome()
            await device.close()


async def our_reset(device: aioacl.Device) -> None:
    await device.force_reset(grace=0)


async def foreign_reset(_: aioacl.Device) -> None:
    reset_by_other_code()


@anyio_test
async def test_15_cancelled_copy_ends_its_await_and_still_copies_its_bytes(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory), anyio.create_task_group() as group:
        source = bytearray(b"x" * 64)
        simulator.hold(stream)
        waiting = Waiting(group, partial(wait_for, stream.copy(memory, source)))
        await turns()
        waiting.cancel()
        await turns(3)
        assert waiting.cancelled
        source[:] = b"y" * 64  # pageable memory was staged, so this does not change the copy
        back = bytearray(64)
        simulator.release(stream)
        await stream.copy(back, memory)
        assert bytes(back) == b"x" * 64


@pytest.mark.uncached
@anyio_test
async def test_16_allocation_whose_await_was_cancelled_is_freed(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        making = await hung_in("aclrtMalloc", group, lambda: device.allocate(64))
        await making.cancel_and_wait()
        blocks = simulator.stats().device_blocks
        simulator.release_call("aclrtMalloc")
        await until(lambda: simulator.calls("aclrtFree") == 1)
        assert simulator.stats().device_blocks == blocks


@pytest.mark.uncached
@anyio_test
async def test_17_failed_creation_raises_and_failed_free_warns(open_device: OpenDevice) -> None:
    async with open_device() as device:
        streams = live_streams()
        with (
            simulator.fault("aclrtCreateStream*", rc=207008, after=0),
            pytest.raises(aioacl.ResourceExhausted),
        ):
            await device.create_stream()
        assert live_streams() == streams
        memory = await device.allocate(64)
        with simulator.fault("aclrtFree", rc=507000, nth=1), pytest.warns(aioacl.AclWarning, match="507000"):
            await in_order(device, memory)
        assert await works(device)


async def in_order(device: aioacl.Device, memory: aioacl.DeviceBuffer) -> None:
    """Closes the buffer, and returns when the maintenance thread has freed it."""
    await memory.close()
    async with device.allocate(64):
        pass


@pytest.mark.uncached
@anyio_test
async def test_18_handle_closed_twice_is_released_once(open_device: OpenDevice) -> None:
    async with open_device() as device:
        stream, memory = await device.create_stream(), await device.allocate(64)
        async with anyio.create_task_group() as group:
            for thing in (stream, stream, memory, memory):
                group.start_soon(wait_closed, thing)
        await stream.close()
        assert simulator.calls("aclrtDestroyStream") == 1
        assert simulator.calls("aclrtFree") == 1
        async with device.create_stream() as stream, device.allocate(64) as memory:
            held_fill(stream, memory)
            await memory.close()
            with pytest.raises(aioacl.ParameterError, match="closed"):
                stream.fill(memory, 2)
            assert simulator.calls("aclrtFree") == 1
            simulator.release(stream)
        await until(lambda: simulator.calls("aclrtFree") == 2)


async def wait_closed(thing: Any) -> None:
    await thing.close()


# --- other code, processes, loops ---------------------------------------------------------------------------------


@anyio_test
@pytest.mark.primary_only
async def test_19_foreign_reset_reopens_the_device_and_the_counts_stay_right(open_device: OpenDevice) -> None:
    async with open_device() as device:
        generation = device.generation
        await foreign_reset(device)
        assert await works(device)
        assert device.generation == generation + 1
        elsewhere("aclrtSetDevice")
        assert simulator.retain_count() == 2
    assert simulator.retain_count() == 1  # the set of the other code is left
    elsewhere("aclrtResetDevice")


INITIALISED_BEFORE = """
async def main():
    use_library("simulator")
    aioacl.list_devices()
    from aioacl._base.ffi import ffi, lib
    assert lib.aio_u_aclInit(ffi.NULL) == 0  # as torch_npu does
    async with open_device():
        pass
    say([simulator.calls(name) for name in ("aclInit", "aclFinalize", "aclFinalizeReference")])
start(main)
"""


@pytest.mark.process
def test_20_acl_that_other_code_initialised_is_not_finalized() -> None:
    assert run(INITIALISED_BEFORE) == (0, "[2, 0, 0]\n", "")


FORK = """
async def main():
    async with Copies() as copies:
        child = os.fork()
        if child == 0:
            refused = []
            for use in (copies.stream.record, copies.device.lease, aioacl.list_devices):
                try:
                    use()
                except ForkedProcessError:
                    refused.append(True)
            del use, copies
            os._exit(42 if refused == [True] * 3 and not simulator.violations() else 1)
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
start(main)
"""


@pytest.mark.process
def test_21_use_in_a_forked_child_raises_forked_process_error() -> None:
    assert run(FORK) == (0, "42\n", "")


STUCK = """
async def main():
    async with Copies() as copies:
        simulator.hang_call("aclrtMalloc")
        threading.Thread(target=lambda: copies.device.allocate(64).result(), daemon=True).start()
        while not simulator.hung("aclrtMalloc"):
            await anyio.sleep(0.001)
        say("leaving")
        sys.stdout.flush()
        raise SystemExit(3)
class Copies(Copies):
    async def __aexit__(self, *raised):
        pass
start(main)
"""


@pytest.mark.process
def test_22_process_ends_while_a_call_is_stuck() -> None:
    status, output, errors = run(STUCK, strict=False)
    assert (status, output) == (3, "leaving\n")
    assert "Traceback" not in errors


@anyio_test
async def test_23_event_loop_keeps_running_while_a_call_is_inside(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory), anyio.create_task_group() as group:
        held_fill(stream, memory)
        simulator.hang_call("aclrtMalloc")
        slow = [Waiting(group, lambda: device.allocate(64)), Waiting(group, stream.synchronize)]
        await until(hanging("aclrtMalloc"))
        await turns(100)
        assert not any(one.ended for one in slow)
        simulator.release_call("aclrtMalloc")
        simulator.release(stream)
        await (await slow[0].outcome()).close()
        await slow[1].outcome()


@anyio_test
async def test_24_health_and_events_report_without_a_call_to_acl(open_device: OpenDevice) -> None:
    async with open_device() as device:
        with no_call_of_mine():
            events, health = device.events(), device.health
            assert (health.status, health.ready, health.generation) == ("ok", True, device.generation)
        report = await device.force_reset()
        with no_call_of_mine():
            received = [await anext(events) for _ in range(3)]
        assert [event.kind for event in received] == ["draining", "resetting", "reopened"]
        assert [event.report for event in received] == [None, None, report]
        assert received[-1].generation == device.generation
    assert [event.kind async for event in events] == ["draining", "resetting", "closed"]


@pytest.mark.thorough
@anyio_test
async def test_24_call_that_health_calls_stuck_sends_one_event_and_another_one_when_it_returns(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        events = device.events()
        simulator.hang_call("aclrtGetMemInfo")
        call = Raised(device.memory_info().result)
        stuck = await anext(events)
        assert (stuck.kind, device.health.status) == ("stuck", "stuck")
        assert 1.0 < stuck.seconds < device.health.stuck_for
        simulator.release_call("aclrtGetMemInfo")
        recovered = await anext(events)
        assert (recovered.kind, recovered.text, device.health.status) == ("recovered", stuck.text, "ok")
        await until(lambda: not call.running)
    assert [event.kind async for event in events] == ["draining", "resetting", "closed"]
