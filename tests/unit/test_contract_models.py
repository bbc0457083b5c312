"""docs/contract.md from promise 35 on: calls of models. Each test has the number of its promise.

A registered function computes the model: the result of `x` is its first ten numbers. So no test needs onnxruntime.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.paths import DATA
from tests.kit import TASK_FAULT, Waiting, hanging, raises, until, until_now
from tests.support.dlpack import BOTH, Producer

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from anyio.abc import TaskGroup
    from numpy.typing import NDArray

    from aioacl.simulator import Execution
    from tests.kit import OpenDevice

anyio_test = pytest.mark.anyio
MODEL = DATA / "digits.om"
EXECUTE = "aclmdlExecuteAsync"


def first_ten(execution: Execution) -> None:
    """Copies the first numbers of the input to the output."""
    output = execution.outputs[0].memory
    output[:] = execution.inputs[0].memory[: len(output)]


@pytest.fixture(autouse=True)
def _function() -> Generator[None]:
    with simulator.register_model("digits", first_ten):
        yield


def numbers(start: float) -> NDArray[np.float32]:
    """An input of the model."""
    return np.arange(start, start + 64, dtype=np.float32).reshape(1, 64)


def is_result(y: NDArray[np.float32], x: NDArray[np.float32]) -> bool:
    return np.array_equal(y, x[:, :10])


@contextmanager
def slow_executions() -> Generator[threading.Event]:
    """Executions do not end until the event is set."""
    go_on = threading.Event()

    def execute(execution: Execution) -> None:
        go_on.wait(60)
        first_ten(execution)

    with simulator.register_model("digits", execute):
        try:
            yield go_on
        finally:
            go_on.set()


# --- 35: success and failure ------------------------------------------------------------------------------------------


@anyio_test
@pytest.mark.parametrize("which", [EXECUTE, "copy"])
async def test_35_call_with_a_failed_step_raises_and_other_calls_return(
    which: str, open_device: OpenDevice
) -> None:
    async with open_device() as device, device.load_model(MODEL) as model:
        inputs = [numbers(start) for start in range(6)]
        outs = [np.full((1, 10), -1, np.float32) for _ in inputs]
        calls = list[Waiting]()
        with simulator.fault(which, async_error=TASK_FAULT, nth=3):
            async with anyio.create_task_group() as group:
                for x, out in zip(inputs, outs, strict=True):
                    calls.append(Waiting(group, partial(model, x, out=out)))
        failed = [call.error for call in calls if call.error is not None]
        assert [(type(error), getattr(error, "action", "")) for error in failed] == [
            (aioacl.DeviceFault, "new_stream")
        ]
        for call, x, out in zip(calls, inputs, outs, strict=True):
            if call.error is None:
                assert call.value is out
                assert is_result(out, x)
            else:
                assert (out == -1).all()
        for x in inputs:
            assert is_result(await model(x), x)


# --- 36: resets -------------------------------------------------------------------------------------------------------


@anyio_test
@pytest.mark.leaves("offline_models")  # the model whose execution was dropped is abandoned
async def test_36_call_in_progress_raises_device_reset_and_waiting_calls_run_after_one_load(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.load_model(MODEL, slots=1) as model:
        loads = simulator.calls("aclmdlLoadFromFileWithMem")
        # The first execution lasts an hour, so the reset drops it.
        with simulator.fault(EXECUTE, late_complete=3600, nth=1):
            async with anyio.create_task_group() as group:
                running = Waiting(group, lambda: model(numbers(0)))
                await until(lambda: simulator.calls(EXECUTE) == 1)
                waiting = [Waiting(group, lambda: model(numbers(5))) for _ in range(3)]
                await until(lambda: model._loaded().slots.waiting == 3)
                assert (await device.force_reset(grace=0)).ok
                await raises(aioacl.DeviceReset, running.outcome())
                for call in waiting:
                    assert is_result(await call.outcome(), numbers(5))
        assert simulator.calls("aclmdlLoadFromFileWithMem") == loads + 1
        assert simulator.calls(EXECUTE) == 4


@anyio_test
async def test_36_file_that_has_changed_is_not_loaded_after_a_reset(
    open_device: OpenDevice, tmp_path: Path
) -> None:
    path = tmp_path / "digits.om"
    path.write_bytes(MODEL.read_bytes())
    async with open_device() as device, device.load_model(path) as model:
        path.write_bytes((DATA / "digits_batches.om").read_bytes())
        assert (await device.force_reset(grace=0)).ok
        for _ in range(2):
            with pytest.raises(aioacl.ParameterError, match="got a changed"):
                await model(numbers(0))


# --- 37: cancellation and timeouts ------------------------------------------------------------------------------------


@anyio_test
@pytest.mark.parametrize("ends_by", ["cancellation", "timeout"])
async def test_37_memory_of_a_call_that_ended_early_is_not_used_before_its_work_is_done(
    ends_by: str, open_device: OpenDevice
) -> None:
    async with open_device() as device, device.load_model(MODEL, slots=1) as model:
        with slow_executions() as go_on:
            async with anyio.create_task_group() as group:
                await (cancelled(model, group) if ends_by == "cancellation" else timed_out(model))
                await raises(aioacl.QueueFull, model(numbers(5), wait=False))
                later = Waiting(group, lambda: model(numbers(5)))
                go_on.set()
                assert is_result(await later.outcome(), numbers(5))


async def cancelled(model: aioacl.Model, group: TaskGroup) -> None:
    """Cancels a call whose execution does not end."""
    call = Waiting(group, lambda: model(numbers(0)))
    await until(lambda: simulator.calls(EXECUTE))
    await call.cancel_and_wait()
    assert call.cancelled


async def timed_out(model: aioacl.Model) -> None:
    """Lets a call time out whose execution does not end."""
    while not simulator.calls(EXECUTE):  # a call may time out before its execution is enqueued
        await raises(aioacl.DeviceTimeout, model(numbers(0), timeout=0.01))


# --- 56: whether the work of a call that timed out had begun ---------------------------------------------------------


async def timeout_of(model: aioacl.Model) -> bool | None:
    """Lets a call time out, and returns `started` of its error."""
    error = await raises(aioacl.DeviceTimeout, model(numbers(1), timeout=0.02))
    assert isinstance(error, aioacl.DeviceTimeout)
    return error.started


@anyio_test
async def test_56_call_that_timed_out_in_its_execution_had_begun(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(MODEL, slots=3) as model:
        with slow_executions():
            before = simulator.calls(EXECUTE)
            started = await timeout_of(model)
            while not started:  # a slow machine has not begun the call in time
                assert simulator.calls(EXECUTE) == before
                started = await timeout_of(model)


@anyio_test
async def test_56_call_that_timed_out_without_a_slot_never_begins(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(MODEL, slots=1) as model:
        before = simulator.calls(EXECUTE)
        with slow_executions() as go_on:
            async with anyio.create_task_group() as group:
                first = Waiting(group, lambda: model(numbers(0)))
                await until(lambda: simulator.calls(EXECUTE) > before)
                assert await timeout_of(model) is False
                go_on.set()
                assert is_result(await first.outcome(), numbers(0))
            assert is_result(await model(numbers(2)), numbers(2))
            assert simulator.calls(EXECUTE) == before + 2


@anyio_test
async def test_56_call_that_timed_out_behind_a_blocked_execution_never_begins(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.load_model(MODEL, slots=2) as model:
        before = simulator.calls(EXECUTE)
        simulator.hang_call(EXECUTE)
        async with anyio.create_task_group() as group:
            first = Waiting(group, lambda: model(numbers(0)))
            await until(hanging(EXECUTE))
            assert await timeout_of(model) is False
            simulator.release_call(EXECUTE)
            assert is_result(await first.outcome(), numbers(0))
        for start in (2, 3):  # both slots are free again
            assert is_result(await model(numbers(start)), numbers(start))
        assert simulator.calls(EXECUTE) == before + 3


@anyio_test
@pytest.mark.parametrize("where", ["aclrtResetDeviceForce", "aclmdlLoadFromFileWithMem"])
async def test_56_call_that_timed_out_in_a_reset_or_in_a_load_never_begins(
    where: str, open_device: OpenDevice
) -> None:
    async with open_device() as device, device.load_model(MODEL) as model:
        simulator.hang_call(where)
        async with anyio.create_task_group() as group:
            reset = Waiting(group, lambda: device.force_reset(grace=0, scope="device"))
            if where == "aclmdlLoadFromFileWithMem":
                assert (await reset.outcome()).ok
            else:
                await until(hanging(where))
            assert await timeout_of(model) is False
            await until(hanging(where))  # a load that began later would hang for ever
            simulator.release_call(where)
            assert (await reset.outcome()).ok
        before = simulator.calls(EXECUTE)
        assert is_result(await model(numbers(2)), numbers(2))
        assert simulator.calls(EXECUTE) == before + 1


# --- 57: warm-up ------------------------------------------------------------------------------------------------------


@anyio_test
async def test_57_no_call_gets_a_slot_before_each_slot_was_executed_with_zeros(
    open_device: OpenDevice,
) -> None:
    seen = list[bytes]()

    def note(execution: Execution) -> None:
        seen.append(bytes(execution.inputs[0].memory))
        first_ten(execution)

    zeros = bytes(64 * 4)
    with simulator.register_model("digits", note):
        async with open_device() as device, device.load_model(MODEL, slots=3, warm_up=True) as model:
            assert seen == [zeros] * 3
            assert (await device.force_reset(grace=0)).ok
            results: list[NDArray[np.float32] | None] = [None] * 4

            async def call(number: int) -> None:
                results[number] = await model(numbers(number + 1))

            async with anyio.create_task_group() as group:
                for number in range(4):
                    group.start_soon(call, number)
            assert seen[3:6] == [zeros] * 3
            assert len(seen) == 3 + 3 + 4
            for number, y in enumerate(results):
                assert y is not None
                assert is_result(y, numbers(number + 1))


@anyio_test
async def test_57_load_fails_if_an_execution_with_zeros_fails(open_device: OpenDevice) -> None:
    async with open_device() as device:
        with simulator.fault(EXECUTE, async_error=TASK_FAULT, nth=3):
            await raises(aioacl.DeviceFault, device.load_model(MODEL, slots=3, warm_up=True))
        async with device.load_model(MODEL, slots=3, warm_up=True) as model:
            assert is_result(await model(numbers(0)), numbers(0))
            assert (await device.force_reset(grace=0)).ok
            with simulator.fault(EXECUTE, async_error=TASK_FAULT, nth=1):
                await raises(aioacl.DeviceFault, model(numbers(0)))
            assert is_result(await model(numbers(0)), numbers(0))


# --- 58: tensors of other libraries -----------------------------------------------------------------------------------


def tensor_of(array: NDArray[np.float32], version: tuple[int, int] | None) -> Any:
    """A tensor on the CPU with the memory of an array, which the caller keeps."""
    return Producer(array.ctypes.data, array.shape, device=(1, 0), dtype=(2, 32, 1), version=version)


@anyio_test
@BOTH
async def test_58_tensors_of_a_call_are_released_once_after_its_work(
    version: tuple[int, int] | None, open_device: OpenDevice
) -> None:
    x, y = numbers(3), np.zeros((1, 10), np.float32)
    argument, out = tensor_of(x, version), tensor_of(y, version)
    async with open_device() as device, device.load_model(MODEL) as model:
        with slow_executions() as go_on:
            async with anyio.create_task_group() as group:
                call = Waiting(group, partial(model, argument, out=out))
                await until(lambda: simulator.calls(EXECUTE))
                assert out.deletes == []
                go_on.set()
                assert await call.outcome() is out
            assert is_result(y, x)
            for _ in range(3):
                await model(argument, out=out)
        assert len(argument.requests) == len(out.requests) == 4
        assert until_now(lambda: (len(argument.deletes), len(out.deletes)) == (4, 4))


@anyio_test
@BOTH
async def test_58_target_of_a_copy_is_released_once_after_the_copy(
    version: tuple[int, int] | None, open_device: OpenDevice
) -> None:
    x, y = numbers(3), np.zeros((1, 64), np.float32)
    source, target = tensor_of(x, version), tensor_of(y, version)
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(x.nbytes) as memory,
    ):
        await stream.copy(memory, source)
        simulator.hold(stream)
        ticket = stream.copy(target, memory)
        assert target.deletes == []
        simulator.release(stream)
        await ticket
        del ticket
        assert np.array_equal(x, y)
        assert until_now(lambda: (len(source.deletes), len(target.deletes)) == (1, 1))
