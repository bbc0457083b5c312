"""What the flight recorder gets of enqueues, awaits, calls of models, batches, faults and resets."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import _digits, simulator
from aioacl._base import flight_ring
from aioacl._base.ffi import lib, name_of_function
from aioacl._base.flight import LAYOUT, decode
from tests.kit import FAULT, Waiting, equipped, failing_fill, held_fill, raises, reset_by_other_code, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioacl._base.flight import FlightRecord
    from tests.kit import OpenDevice

anyio_test = pytest.mark.anyio


def recorder() -> Callable[[], list[FlightRecord]]:
    """Returns a function that returns the records since now."""
    before = flight_ring.count()

    def since() -> list[FlightRecord]:
        ring = flight_ring.of_this_process()
        newest = LAYOUT.size * (ring.written - before)
        records = decode(ring.raw[max(0, len(ring.raw) - newest) :])
        return [each for each in records if each.number >= before]

    return since


def only(records: list[FlightRecord], kind: str) -> FlightRecord:
    [found] = [each for each in records if each.kind == kind]
    return found


@anyio_test
async def test_await_of_unfinished_work_has_a_begin_and_an_end_of_the_entry(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        since = recorder()
        ticket = held_fill(stream, memory)
        async with anyio.create_task_group() as group:
            waiting = Waiting(group, lambda: ticket)
            await until(lambda: any(each.kind == "wait begins" for each in since()))
            simulator.release(stream)
            await waiting.outcome()
        enqueued, begins, ends = (only(since(), kind) for kind in ("enqueue", "wait begins", "wait ends"))
        assert enqueued.id == begins.id == ends.id
        assert (enqueued.position, enqueued.code, ends.code) == (1, 0, 0)
        assert enqueued.at <= begins.at <= ends.at
        assert ends.value == pytest.approx((ends.at - begins.at) * 1e6, abs=2)
        assert enqueued.thread == begins.thread
        wakes = [each for each in since() if each.kind == "wake" and each.thread == begins.thread]
        assert [each.value for each in wakes if each.at >= ends.at] == [1]


@anyio_test
async def test_await_of_finished_work_has_one_record(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        ticket = stream.fill(memory, 1)
        await stream
        since = recorder()
        await ticket
        await stream
        assert [(each.kind, each.position) for each in since() if each.device == 0] == [("no wait", 1)] * 2


@anyio_test
async def test_copy_has_its_bytes(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        since = recorder()
        await stream.upload(memory, bytes(16))
        await stream.copy(memory, memory)
        assert [each.value for each in since() if each.kind == "copy"] == [16, memory.size]


@anyio_test
async def test_fault_is_recorded_with_its_entry_and_code(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        since = recorder()
        error = await raises(aioacl.DeviceFault, failing_fill(stream, memory))
        fault, enqueued = only(since(), "fault"), only(since(), "enqueue")
        assert (fault.id, fault.code) == (enqueued.id, error.code)
        assert fault.value == stream._core.number >= 0


@anyio_test
async def test_refused_enqueue_is_recorded_with_its_code(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        simulator.fail_call("aclrtMemsetAsync", 207000)
        since = recorder()
        with pytest.raises(aioacl.AclError):
            stream.fill(memory, 1)
        assert (only(since(), "enqueue").code, only(since(), "enqueue").position) == (207000, 0)


@anyio_test
async def test_each_state_of_a_reset_is_recorded_in_order(open_device: OpenDevice) -> None:
    async with open_device() as device:
        since, generation = recorder(), device.generation
        await device.force_reset()
        states = [(aioacl.State(each.code), each.id) for each in since() if each.kind == "state"]
        assert states == [
            (aioacl.State.DRAINING, generation),
            (aioacl.State.RESETTING, generation),
            (aioacl.State.OPEN, generation + 1),
        ]


@anyio_test
async def test_call_of_a_model_has_its_slot_its_execution_and_its_load(open_device: OpenDevice) -> None:
    async with open_device() as device:
        since = recorder()
        async with device.load_model(_digits.MODEL) as model:
            loaded = [each for each in since() if each.kind == "load"]
            since = recorder()
            await model(_digits.inputs(_digits.digits().images[0]))
        records = since()
        taken, given = only(records, "slot taken"), only(records, "slot given")
        begins, ends = only(records, "execution begins"), only(records, "execution ends")
        assert (taken.id, taken.value, taken.code) == (given.id, given.value, given.code)
        assert begins.id == ends.id
        assert begins.stream == taken.value  # the stream of the slot
        assert [each.id for each in loaded] == [begins.value]
        assert taken.number < begins.number < ends.number < given.number


@anyio_test
async def test_call_that_gives_up_its_wait_for_a_slot_is_recorded(open_device: OpenDevice) -> None:
    x = _digits.inputs(_digits.digits().images[0])
    async with open_device() as device, device.load_model(_digits.MODEL) as model:
        since = recorder()
        simulator.hang_call("aclmdlExecuteAsync")
        calls = list[Waiting]()
        async with anyio.create_task_group() as group:
            for _ in range(3):
                Waiting(group, lambda: model(x))
            await until(lambda: model.busy == 3)
            calls += [Waiting(group, lambda: model(x)) for _ in range(5)]
            await until(lambda: model.waiting == len(calls) and simulator.hung("aclmdlExecuteAsync"))
            for call in calls:
                await call.cancel_and_wait()
            simulator.release_call("aclmdlExecuteAsync")
        wanted = [each.id for each in since() if each.kind == "slot wanted"]
        assert len(wanted) == len(calls)
        assert wanted == sorted(each.id for each in since() if each.kind == "slot refused")


@anyio_test
async def test_load_that_fails_is_recorded_with_its_code(open_device: OpenDevice) -> None:
    async with open_device() as device:
        simulator.fail_call("aclmdlLoadFromFileWithMem", 507000)
        since = recorder()
        await raises(aioacl.AclError, device.load_model(_digits.MODEL))
        assert (only(since(), "load").code, only(since(), "load").id) == (507000, 0)


@anyio_test
async def test_items_have_the_batch_in_which_they_ran(open_device: OpenDevice) -> None:
    images = _digits.digits().images
    async with open_device() as device, device.load_model(_digits.MODEL) as model:
        async with aioacl.open_batcher(model) as infer:
            since = recorder()
            async with anyio.create_task_group() as group:
                for image in images[:3]:
                    Waiting(group, partial(infer, _digits.inputs(image)))
        records = since()
        batches = [each for each in records if each.kind == "batch leaves"]
        items = [each for each in records if each.kind == "item done"]
        assert sum(batch.code for batch in batches) == 3
        ran = [batch.id for batch in batches for _ in range(batch.code)]
        assert sorted(item.stream for item in items) == ran  # executions in flight may end in any order
        assert {item.device for item in items} == {0}
        assert all(item.code == 0 for item in items)


@anyio_test
async def test_batch_that_fails_is_recorded_with_the_items_that_run_again(open_device: OpenDevice) -> None:
    x = _digits.inputs(_digits.digits().images[0])
    async with open_device() as device, device.load_model(_digits.MODEL) as model, device.supervise():
        async with aioacl.open_batcher(model) as infer:
            since = recorder()
            with simulator.fault("aclmdlExecuteAsync", nth=1, async_error=FAULT, sticky=FAULT):
                await infer(x)
        first, *_ = [each for each in since() if each.kind == "batch leaves"]
        failed, *_ = [each for each in since() if each.kind == "batch fails"]
        assert (failed.id, failed.value, failed.device) == (first.id, 1, 0)
        assert failed.code > 500_000
        assert failed in device.recent()


@anyio_test
async def test_item_whose_time_is_over_while_it_waits_to_run_again_is_recorded(
    open_device: OpenDevice,
) -> None:
    x = _digits.inputs(_digits.digits().images[0])
    async with (
        open_device() as device,
        device.load_model(_digits.MODEL) as model,
        device.supervise(),
        aioacl.open_batcher(model) as infer,
    ):
        simulator.fail_call("aclrtResetDeviceForce", FAULT, 1_000)
        since = recorder()
        with simulator.fault("aclmdlExecuteAsync", nth=1, async_error=FAULT, sticky=FAULT):
            error = await raises(aioacl.DeviceTimeout, infer(x, timeout=0.5))
            await until(lambda: infer.stats().expired == 1)
        simulator.clear()
        [gone] = [each for each in device.recent() if each.kind == "item gone" and each in since()]
        assert (gone.id, gone.code, error.started) == (1, 1, True)
        assert gone.value >= 500_000
        assert "its execution has failed, and it waits to run again" in str(error)
        await until(lambda: device.health.ready)


@anyio_test
async def test_item_of_a_caller_that_goes_away_is_recorded(open_device: OpenDevice) -> None:
    x = _digits.inputs(_digits.digits().images[0])
    async with open_device() as device, device.load_model(_digits.MODEL) as model:
        async with aioacl.open_batcher(model) as infer:
            simulator.hang_call("aclmdlExecuteAsync")
            since = recorder()
            async with anyio.create_task_group() as group:
                Waiting(group, lambda: infer(x))
                await until(lambda: simulator.hung("aclmdlExecuteAsync"))
                group.cancel_scope.cancel()
            await until(lambda: infer.stats().cancelled == 1)
            simulator.release_call("aclmdlExecuteAsync")
        gone = only(since(), "item gone")
        assert (gone.device, gone.id, gone.code) == (0, 1, 0)


@anyio_test
async def test_slow_call_is_recorded_with_its_function(open_device: OpenDevice) -> None:
    async with open_device() as device:
        since = recorder()
        simulator.hang_call("aclrtMalloc")
        async with anyio.create_task_group() as group:
            making = Waiting(group, lambda: device.allocate(1 << 20))
            await until(lambda: simulator.hung("aclrtMalloc"))
            since_hung = monotonic()
            await until(lambda: monotonic() - since_hung > 0.001)  # more than 100 us
            simulator.release_call("aclrtMalloc")
            await (await making.outcome()).close()
        slow = [name_of_function(each.code) for each in since() if each.kind == "slow call"]
        assert "aclrtMalloc" in slow


def failed_calls(records: Iterable[FlightRecord]) -> list[tuple[str, int]]:
    return [(name_of_function(each.value), each.code) for each in records if each.kind == "failed call"]


@anyio_test
async def test_calls_of_a_reset_that_fail_are_in_the_records_of_its_report(open_device: OpenDevice) -> None:
    async with open_device() as device:
        simulator.fail_call("aclrtResetDeviceForce", FAULT, 1)
        simulator.fail_call("aclrtSetDevice", FAULT, 1)
        simulator.fail_call("aclrtMalloc", FAULT, 1)  # of the probe
        since = recorder()
        report = await device.force_reset()
        failed = [each for each in since() if each.kind == "failed call" and each.code == FAULT]
        calls = ["aclrtResetDeviceForce", "aclrtSetDevice", "aclrtMalloc"]
        assert (report.ok, failed_calls(failed)) == (False, [(call, FAULT) for call in calls])
        assert {*failed} <= {*report.recent}
        simulator.clear()
        await device.force_reset()


@anyio_test
async def test_call_that_makes_something_and_fails_is_recorded(open_device: OpenDevice) -> None:
    async with open_device() as device:
        since = recorder()
        simulator.fail_call("aclrtMalloc", 207001, 10)
        await raises(aioacl.AclError, device.allocate(1 << 20))
        assert {*failed_calls(since())} == {("aclrtMalloc", 207001)}
        simulator.clear()


@anyio_test
async def test_device_that_is_used_and_reset_without_a_failure_has_no_failed_call(
    open_device: OpenDevice,
) -> None:
    since = recorder()
    async with equipped(open_device) as (device, stream, memory):
        await stream.fill(memory, 1)
        await device.force_reset()
    assert failed_calls(since()) == []


@anyio_test
async def test_foreign_reset_is_recorded(open_device: OpenDevice) -> None:
    async with open_device() as device:
        since, generation = recorder(), device.generation
        reset_by_other_code()
        await until(lambda: device.state is aioacl.State.OPEN and device.generation > generation)
        first = next(each for each in since() if each.kind == "state")
        assert (first.code, first.id, first.value) == (
            aioacl.State.RESETTING,
            generation + 1,
            lib.AIO_FOREIGN,
        )
