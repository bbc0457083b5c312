"""What the metrics count: waits, resets, faults, memory, calls of models and batches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
import build_ffi
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._library.visible import physical_id
from aioacl._lifecycle import stuck
from aioacl._lifecycle.notifications import DeviceEvents, Listeners
from aioacl._models.calls import NOT_NOW
from tests.kit import (
    FAULT,
    TASK_FAULT,
    Waiting,
    equipped,
    failing_fill,
    hanging,
    held_fill,
    hung_in,
    raises,
    reset_by_other_code,
    until,
    wait_for,
)
from tests.support import offline
from tests.unit.metrics.conftest import Values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
FAILED = 507011  # an execution failed


# --- devices ----------------------------------------------------------------------------------------------------------


async def test_state_of_a_device_is_that_of_its_health(open_device: OpenDevice) -> None:
    async with open_device() as device:
        values = Values.now()
        assert (
            values.of("device_ready", device="0"),
            values.of("device_state", device="0", state="OPEN"),
        ) == (1, 1)
        assert values.of("device_generation", device="0") == device.generation
        assert values.of("device_state", device="0") == 1
    values = Values.now()
    assert values.of("device_ready", device="0") == 0
    assert values.of("device_state", device="0", state="CLOSED") == 1


async def test_device_with_a_fault_is_not_ready_until_a_reset(
    open_device: OpenDevice, changes: Callable[..., float]
) -> None:
    async with equipped(open_device) as (device, stream, memory):
        simulator.fail_next(stream, FAULT)
        await raises(aioacl.DeviceFault, stream.fill(memory, 1))
        await until(lambda: changes("faults_total", device="0", code=str(FAULT), action="reset") == 1)
        assert Values.now().of("device_ready", device="0") == 0
        await device.force_reset()
        assert Values.now().of("device_ready", device="0") == 1
    assert changes("resets_total", device="0", outcome="open", cause="fault") == 1
    assert changes("reset_duration_seconds_count", cause="fault") == 1
    assert changes("resets_total", cause="request") == 0


async def test_failed_task_is_counted_by_its_code(
    open_device: OpenDevice, changes: Callable[..., float]
) -> None:
    async with equipped(open_device) as (_, stream, memory):
        await raises(aioacl.DeviceFault, failing_fill(stream, memory))
        await until(lambda: changes("faults_total", code=str(TASK_FAULT), action="new_stream") == 1)
        assert Values.now().of("device_ready", device="0") == 1
    assert changes("await_duration_seconds_count", kind="stream", outcome="failed") == 1


async def test_reset_is_counted_by_its_outcome_and_cause(
    open_device: OpenDevice, changes: Callable[..., float]
) -> None:
    async with open_device() as device:
        await device.force_reset()
        assert changes("resets_total", outcome="open", cause="request") == 1
        simulator.fail_call("aclrtSetDevice", FAULT, 100)
        simulator.fail_call("aclrtCreateContext", FAULT, 100)
        assert not (await device.force_reset()).ok
        assert changes("resets_total", outcome="quarantined", cause="request") == 1
        assert changes("reset_duration_seconds_count") == 2
        simulator.clear()
        assert (await device.force_reset()).ok


async def test_foreign_reset_is_counted(open_device: OpenDevice, changes: Callable[..., float]) -> None:
    async with open_device() as device:
        generation = device.generation
        reset_by_other_code()
        await until(lambda: device.generation != generation and device.state is aioacl.State.OPEN)
        await until(lambda: changes("resets_total", cause="foreign", outcome="open") == 1)


async def test_missed_events_are_counted(open_device: OpenDevice, changes: Callable[..., float]) -> None:
    async with open_device() as device:
        listeners = Listeners(63)  # the listeners of device 0 may be those of earlier tests
        events = DeviceEvents(device._manager.admission, listeners, lambda: False)
        with device._manager.admission.changed:
            for _ in range(70):
                listeners.tell("opened", device.state, 1)
        assert changes("events_missed_total", device="63") == 70 - 64
        assert (await anext(events)).missed == 70 - 64


async def test_call_that_does_not_return_is_shown(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck, "STUCK_SECONDS", 0.0)
    async with open_device() as device, anyio.create_task_group() as group:
        making = await hung_in("aclrtMalloc", group, lambda: device.allocate(64))
        await until(lambda: Values.now().of("stuck_seconds", device="0") > 0)
        values = Values.now()
        assert values.of("calls_in_c", device="0", kind="lifetime") == 1
        assert values.of("device_ready", device="0") == 0
        simulator.release_call("aclrtMalloc")
        await (await making.outcome()).close()
        assert Values.now().of("stuck_seconds", device="0") == 0


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        (None, ["0", "1", "2"]),
        ("4,6", ["4", "6", ""]),
        (" 7 , 5", ["7", "5", ""]),
        ("x,1", ["", "1", ""]),
        ("", ["", "", ""]),
    ],
)
def test_physical_id_follows_the_variable(
    value: str | None, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    if value is not None:
        monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", value)
    assert [physical_id(index) for index in range(3)] == ids


# --- waits ------------------------------------------------------------------------------------------------------------


async def test_wait_is_in_flight_until_its_work_has_ended_also_if_it_is_cancelled(
    open_device: OpenDevice, changes: Callable[..., float]
) -> None:
    async with equipped(open_device) as (_, stream, memory):
        ticket = held_fill(stream, memory)
        async with anyio.create_task_group() as group:
            waiting = Waiting(group, lambda: wait_for(ticket))
            await until(lambda: Values.now().of("awaits_in_flight", kind="stream") == 1)
            assert changes("await_duration_seconds_count", kind="stream") == 0
            await waiting.cancel_and_wait()
        assert Values.now().of("awaits_in_flight", kind="stream") == 1
        simulator.release(stream)
        await until(lambda: Values.now().of("awaits_in_flight", kind="stream") == 0)
        assert changes("await_duration_seconds_count", kind="stream", outcome="done") == 1
        assert changes("await_duration_seconds_sum", kind="stream", outcome="done") > 0


async def test_wait_that_a_reset_ends_is_counted_as_reset(
    open_device: OpenDevice, changes: Callable[..., float]
) -> None:
    async with (
        equipped(open_device) as (device, stream, memory),
        anyio.create_task_group() as group,
    ):
        group.start_soon(raises, aioacl.ResetError, held_fill(stream, memory))
        await until(lambda: Values.now().of("awaits_in_flight", kind="stream") == 1)
        await device.force_reset(grace=0)
    assert changes("await_duration_seconds_count", kind="stream", outcome="reset") == 1
    assert Values.now().of("awaits_in_flight", kind="stream") == 0


# --- memory -----------------------------------------------------------------------------------------------------------


async def test_memory_is_shown_by_its_kind(open_device: OpenDevice) -> None:
    def of(kind: str) -> float:
        return Values.now().of("memory_bytes", device="0", kind=kind)

    async with open_device() as device:
        buffers, pinned = of("buffers"), of("pinned")
        assert buffers == 0
        async with device.allocate(1 << 20), device.pinned(1 << 16):
            assert (of("buffers"), of("pinned") - pinned) == (1 << 20, 1 << 16)
            assert of("cached") == 0
        assert (of("buffers"), of("cached")) == (0, 1 << 20)
        assert of("pinned") - pinned == 1 << 16  # in the cache
        async with device.load_model(offline.product()) as model:
            assert of("weights") == model.memory.weights
            assert of("workspace") == model.memory.workspace
            assert of("slots") > 0
            assert of("buffers") == 0
        assert (of("weights"), of("workspace"), of("slots")) == (0, 0, 0)
    assert (of("buffers"), of("cached")) == (0, 0)


# --- models -----------------------------------------------------------------------------------------------------------


async def test_calls_of_a_model_are_counted_by_their_outcome(
    open_device: OpenDevice, changes: Callable[..., float]
) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=1, label="m") as model:
        assert changes("model_requests_total", model="m") == 0  # the warm-up is not counted
        for _ in range(3):
            await model(offline.rows())
        with simulator.fault("model", nth=1, async_error=FAILED):
            await raises(aioacl.DeviceFault, model(offline.rows()))
        assert changes("model_requests_total", model="m", outcome="done") == 3
        assert changes("model_requests_total", model="m", outcome="failed") == 1
        assert changes("model_executions_total", model="m", outcome="done") == 3
        assert changes("model_executions_total", model="m", outcome="failed") == 1
        assert changes("model_rows_total", model="m", outcome="done") == 3
        assert changes("model_execution_seconds_count", model="m") == 3
        assert changes("model_slot_wait_seconds_count", model="m") == 4
        assert changes("await_duration_seconds_count", kind="model", outcome="done") == 3
    assert changes("model_loads_total", model="m") == 1
    assert changes("model_load_duration_seconds_count", model="m") == 1
    assert Values.now().of("awaits_in_flight", kind="model") == 0


async def test_rows_of_a_batch_are_counted_without_padding(
    open_device: OpenDevice, changes: Callable[..., float]
) -> None:
    async with open_device() as device, device.load_model(offline.product("1,4"), label="gears") as model:
        await model(offline.rows(0, 3))
    assert changes("model_rows_total", model="gears", outcome="done") == 3


async def test_cancelled_call_and_refused_call_are_counted(
    open_device: OpenDevice, changes: Callable[..., float]
) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=1, label="busy") as model:
        simulator.hang_call("aclmdlExecuteAsync")
        async with anyio.create_task_group() as group:
            waiting = Waiting(group, lambda: model(offline.rows()))
            await until(hanging("aclmdlExecuteAsync"))
            await raises(aioacl.QueueFull, model(offline.rows(), wait=False))
            assert changes("model_requests_total", model="busy", outcome="refused") == 1
            await waiting.cancel_and_wait()
        assert changes("model_requests_total", model="busy", outcome="cancelled") == 1
        simulator.release_call("aclmdlExecuteAsync")
        await until(lambda: changes("model_executions_total", model="busy") == 1)
        assert changes("model_executions_total", model="busy", outcome="cancelled") == 1
    assert changes("model_requests_total", model="busy", outcome="done") == 0
    assert Values.now().of("awaits_in_flight", kind="model") == 0


async def test_call_that_a_reset_repeats_is_counted_once(
    open_device: OpenDevice, changes: Callable[..., float]
) -> None:
    async with open_device() as device, device.load_model(offline.product(), label="again") as model:
        await device.force_reset()
        await model(offline.rows())
    assert changes("model_requests_total", model="again") == 1
    assert changes("model_loads_total", model="again") == 2


async def test_model_that_is_not_unloaded_is_counted(
    open_device: OpenDevice, changes: Callable[..., float]
) -> None:
    async with open_device() as device, device.load_model(offline.product(), label="lost") as model:
        with simulator.fault("model", nth=1, async_error=FAULT):
            await raises(aioacl.DeviceFault, model(offline.rows()))
        await device.force_reset()
    assert changes("model_abandoned_total", model="lost") == 1


async def test_label_of_a_model_is_its_file_name_without_the_folder(
    open_device: OpenDevice, tmp_path: Path, changes: Callable[..., float]
) -> None:
    path = tmp_path / "product.om"
    path.write_bytes(offline.product())
    async with open_device() as device, device.load_model(path):
        pass
    assert changes("model_loads_total", model="product.om") == 1
    assert str(tmp_path) not in aioacl.prometheus_text()


# --- batches ----------------------------------------------------------------------------------------------------------


async def gathered(infer: aioacl.Batcher, sizes: list[int]) -> list[Any]:
    """Adds items in one turn of the loop. Returns the result or the error of each."""
    found: dict[int, Any] = {}

    async def add(number: int, size: int) -> None:
        try:
            found[number] = await infer(offline.rows(number, size))
        except aioacl.AclError as error:
            found[number] = error

    async with anyio.create_task_group() as group:
        for number, size in enumerate(sizes):
            group.start_soon(add, number, size)
    return [found[number] for number in range(len(sizes))]


async def test_batches_are_counted_also_after_their_batcher_has_ended(
    open_device: OpenDevice, changes: Callable[..., float]
) -> None:
    async with open_device() as device, device.load_model(offline.product("1,4"), label="b") as model:
        padded = 0
        for _ in range(2):
            async with aioacl.open_batcher(model) as infer:
                await gathered(infer, [1, 2])
                padded += infer.stats().padded_rows
                assert changes("batch_items_total", model="b", outcome="done") in (2, 4)
        assert changes("batch_items_total", model="b", outcome="done") == 4
        assert changes("batch_wait_seconds_count", model="b") == 4
        assert changes("batch_rows_count", model="b") == changes("model_executions_total", model="b")
        assert changes("batch_rows_sum", model="b") == 6
        assert changes("batch_rows_bucket", model="b", le="4.0") == changes("batch_rows_count", model="b")
        assert changes("batch_padded_rows_total", model="b") == padded
    assert Values.now().of("batch_waiting_rows", model="b") == 0


async def test_repeats_of_a_divided_batch_are_counted_by_their_cause(
    open_device: OpenDevice, changes: Callable[..., float]
) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product("1,2,4"), label="divided") as model,
        aioacl.open_batcher(model) as infer,
    ):
        with simulator.fault("model", nth=1, async_error=FAILED):
            found = await gathered(infer, [2, 2])
        assert not any(isinstance(each, aioacl.AclError) for each in found)
        repeats = infer.stats().repeats
    assert repeats > 0
    assert changes("batch_repeats_total", model="divided", cause="task") == repeats
    assert changes("batch_repeats_total", model="divided") == repeats


def test_c_counts_no_call_that_python_repeats() -> None:
    """`count_failure` of call.c has the codes of `must_repeat`."""
    source = (build_ffi.BINDING / "call.c").read_text()
    named = set(
        re.findall(
            r"AIO_\w+", source.partition("static void count_failure")[2].partition(";")[2].partition(";")[0]
        )
    )
    assert {getattr(lib, name) for name in named} == {*NOT_NOW, lib.AIO_STREAM_FAILED}
