"""`open_batcher(*models)` with models of the simulator: arguments, results, failures, resets, and the end."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import AclError, DeviceFault, NotSupported, ParameterError, open_batcher, simulator
from aioacl._base.paths import DATA
from tests.kit import FAULT, TASK_FAULT, Waiting, hanging, raises, reset_call, until
from tests.support.batching import tasks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

    from numpy.typing import NDArray

    from aioacl.simulator import Execution
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
FIXED = DATA / "digits.om"
BATCHES = DATA / "digits_batches.om"
EXECUTE = "aclmdlExecuteAsync"


def first_ten(execution: Execution) -> None:
    """The result of each row is its first ten numbers."""
    source = np.frombuffer(execution.inputs[0].memory, np.float32).reshape(-1, 64)
    target = np.frombuffer(execution.outputs[0].memory, np.float32).reshape(-1, 10)
    target[: len(source)] = source[:, :10]


gates: list[threading.Event] = []  # an execution waits for the first one


def execute(execution: Execution) -> None:
    for gate in gates:
        gate.wait(60)
    first_ten(execution)


@pytest.fixture(autouse=True)
def _function() -> Generator[None]:
    with simulator.register_model("digits", execute), simulator.register_model("digits_batches", execute):
        yield


@contextmanager
def slow_executions() -> Generator[threading.Event]:
    """Executions do not end until the event is set."""
    go_on = threading.Event()
    gates.append(go_on)
    try:
        yield go_on
    finally:
        go_on.set()
        gates.clear()


@pytest.fixture
async def model(open_device: OpenDevice) -> AsyncGenerator[aioacl.Model]:
    async with open_device() as device, device.load_model(BATCHES) as made:
        yield made


def item(number: int, rows: int = 1) -> NDArray[np.float32]:
    return np.arange(number, number + rows * 64, dtype=np.float32).reshape(rows, 64)


async def run(infer: Any, items: list[NDArray[np.float32]]) -> list[Any]:
    """The result or the error of each item."""
    found: dict[int, Any] = {}

    async def one(at: int) -> None:
        try:
            found[at] = await infer(items[at])
        except AclError as error:
            found[at] = error

    async with anyio.create_task_group() as group:
        for at in range(len(items)):
            group.start_soon(one, at)
    return [found[at] for at in range(len(items))]


def is_right(result: Any, x: NDArray[np.float32]) -> bool:
    return isinstance(result, np.ndarray) and np.array_equal(result, x[:, :10])


# --- results ------------------------------------------------------------------------------------------------------


async def test_each_item_gets_its_rows_in_memory_of_its_own(model: aioacl.Model) -> None:
    items = [item(number, rows=1 + number % 4) for number in range(12)]
    async with open_batcher(model) as infer:
        assert (infer.models, infer.max_rows, infer.waiting) == ((model,), 32, 0)
        results = await run(infer, items)
        stats = infer.stats()
    assert all(is_right(result, x) for result, x in zip(results, items, strict=True))
    assert all(result.base is None for result in results)
    assert (stats.rows, stats.padded_rows, stats.executions) == (30, 2, 1)
    assert infer.stats() == stats
    assert repr(infer) == "<Batcher of 1 models, at most 32 rows, closed>"


async def test_items_of_unaligned_memory_are_accepted(model: aioacl.Model) -> None:
    x = item(1, rows=2)
    unaligned = np.frombuffer(b"." + x.tobytes(), x.dtype, offset=1).reshape(x.shape)
    async with open_batcher(model) as infer:
        assert all(is_right(result, x) for result in await run(infer, [unaligned, x]))


async def test_model_of_fixed_rows_is_padded(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(FIXED) as model, open_batcher(model) as infer:
        assert infer.max_rows == 1
        items = [item(number) for number in range(3)]
        assert all(map(is_right, await run(infer, items), items))


async def test_max_rows_limits_a_batch(model: aioacl.Model) -> None:
    async with open_batcher(model, max_rows=5, in_flight=1) as infer:
        assert all(map(is_right, await run(infer, items := [item(n) for n in range(10)]), items))
        stats = infer.stats()
    assert (stats.executions, stats.rows, stats.padded_rows) == (2, 10, 6)


async def test_threads_use_a_batcher_with_a_plain_block(model: aioacl.Model) -> None:
    def work() -> None:
        with open_batcher(model) as infer:
            x = item(3, rows=2)
            assert is_right(infer(x).result(), x)

    await anyio.to_thread.run_sync(work)


# --- wrong arguments ------------------------------------------------------------------------------------------------

WRONG_ITEMS: list[tuple[Any, str]] = [
    (np.zeros((1, 64), np.float64), "expected float32"),
    (np.zeros((1, 63), np.float32), r"expected the shapes 'x' \[\?, 64\], got \[1, 63\]"),
    (np.zeros(64, np.float32), "expected the shapes"),
    (np.zeros((), np.float32), "expected the shapes"),
    (np.zeros((0, 64), np.float32), "1 to 32 rows, got 0"),
    (np.zeros((33, 64), np.float32), "1 to 32 rows, got 33"),
    ([], "expected 1 input"),
    ([[1.0]], "expected float32"),
]


@pytest.mark.parametrize(("x", "text"), WRONG_ITEMS)
async def test_wrong_item_raises_in_the_call(model: aioacl.Model, x: Any, text: str) -> None:
    async with open_batcher(model) as infer:
        with pytest.raises(ParameterError, match=text) as caught:
            infer(x)
        assert caught.value.hint


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_rows": 0}, "max_rows must be an int, at least 1"),
        ({"max_rows": 33}, "max_rows must be at most 32"),
        ({"max_rows": True}, "max_rows must be an int"),
        ({"limit": 31}, "limit must be an int, at least 32"),
        ({"limit_per_key": 31}, "limit_per_key must be an int, at least 32"),
        ({"in_flight": 0}, "in_flight must be an int, at least 1"),
        ({"in_flight": 4}, "in_flight must be at most 3"),
        ({"hold": -1}, "hold must be a finite number"),
        ({"attempts": 0}, "attempts must be an int, at least 1"),
    ],
)
async def test_wrong_option_is_refused(model: aioacl.Model, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ParameterError, match=text) as caught:
        open_batcher(model, **options)
    assert caught.value.hint


async def test_other_objects_than_models_are_refused(model: aioacl.Model) -> None:
    wrong: Any = "digits.om"
    for models in ((), (wrong,), (model, wrong)):
        with pytest.raises(ParameterError, match=r"expected (a Model|at least one)"):
            open_batcher(*models)


async def test_same_model_twice_is_refused(model: aioacl.Model) -> None:
    with pytest.raises(ParameterError, match="the same one twice"):
        open_batcher(model, model)
    async with open_batcher(model) as infer:
        with pytest.raises(ParameterError, match="the same one twice"):
            infer.replace(model, model)


async def test_replace_by_a_model_with_too_few_slots_is_refused(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(BATCHES) as old,
        device.load_model(BATCHES, slots=1) as new,
        open_batcher(old) as infer,
    ):
        with pytest.raises(ParameterError, match="in_flight must be at most 1"):
            infer.replace(new)


async def test_models_that_differ_are_refused(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(FIXED) as one, device.load_model(BATCHES) as other:
        with pytest.raises(ParameterError, match="the same inputs"):
            open_batcher(one, other)


async def test_wrong_options_of_a_call_are_refused(model: aioacl.Model) -> None:
    wrong: Any = "1"
    unhashable: Any = ["tenant"]
    async with open_batcher(model) as infer:
        for call in (
            lambda: infer(item(0), key=unhashable),
            lambda: infer(item(0), timeout=wrong),
            lambda: infer(item(0), wait=wrong),
            lambda: infer.map([], limit=0),
            lambda: infer.map([], errors=wrong),
            lambda: infer.map([], ordered=wrong),
            lambda: infer.close(grace=wrong),
            lambda: infer.replace(wrong),
        ):
            with pytest.raises(ParameterError):
                call()


async def test_item_of_more_rows_than_max_rows_is_refused_in_the_call(model: aioacl.Model) -> None:
    async with open_batcher(model, max_rows=8) as infer:
        with pytest.raises(ParameterError, match="expected an item of 1 to 8 rows, got 9"):
            infer(np.zeros((9, 64), np.float32))
        assert (await infer(np.zeros((8, 64), np.float32))).shape == (8, 10)


async def test_result_without_rows_is_not_supported(open_device: OpenDevice, tmp_path: Path) -> None:
    from tests.support import offline

    pytest.importorskip("onnxruntime")
    path = tmp_path / "sum.om"
    path.write_bytes(offline.converted(_sum()))
    async with open_device() as device, device.load_model(path) as model:
        with pytest.raises(NotSupported, match="output 'y'"):
            open_batcher(model)


def _sum() -> Any:
    from onnx import helper

    from tests.support.onnx_models import model, value

    return model(
        [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)], [value("x", [2, 3])], [value("y", [])]
    )


# --- failures -------------------------------------------------------------------------------------------------------


async def test_item_whose_task_fails_is_found_by_halves(model: aioacl.Model) -> None:
    items = [item(number) for number in range(1, 33)]
    async with open_batcher(model) as infer:
        with simulator.fault(EXECUTE, async_error=TASK_FAULT, nth=1):
            results = await run(infer, items)
        stats = infer.stats()
    assert all(map(is_right, results, items))
    assert (stats.executions, stats.repeats, stats.failed) == (3, 32, 0)


async def test_item_that_fails_alone_gets_the_failure(model: aioacl.Model) -> None:
    async with open_batcher(model) as infer:
        with simulator.fault(EXECUTE, async_error=TASK_FAULT):
            error = await raises(DeviceFault, infer(item(0)))
        assert error.action == "new_stream"
        assert is_right(await infer(item(1)), item(1))


async def test_one_attempt_gives_the_failure_to_the_whole_batch(model: aioacl.Model) -> None:
    async with open_batcher(model, attempts=1) as infer:
        with simulator.fault(EXECUTE, async_error=TASK_FAULT, nth=1):
            results = await run(infer, [item(number) for number in range(4)])
        assert [type(result) for result in results] == [DeviceFault] * 4
        assert len({id(result) for result in results}) == 4


@pytest.mark.leaves("offline_models")  # the model whose execution was dropped is abandoned
async def test_items_run_again_after_a_reset_that_a_caller_asked_for(open_device: OpenDevice) -> None:
    items = [item(number) for number in range(5)]
    async with open_device() as device, device.load_model(BATCHES) as model, open_batcher(model) as infer:
        with simulator.fault(EXECUTE, late_complete=3600, nth=1):
            async with tasks() as group:
                waiting = Waiting(group, lambda: run(infer, items))
                await until(lambda: simulator.calls(EXECUTE) == 1)
                await device.force_reset(grace=0)
        assert all(map(is_right, waiting.value, items))
        assert infer.stats().repeats == 5


@pytest.mark.leaves("offline_models")  # a model is not unloaded after a fault of its device
async def test_items_of_a_failed_device_get_its_failure_if_nothing_resets_it(open_device: OpenDevice) -> None:
    items = [item(number) for number in range(5)]
    async with open_device() as device, device.load_model(BATCHES) as model, open_batcher(model) as infer:
        with simulator.fault(EXECUTE, async_error=FAULT, nth=1):
            results = await run(infer, items)
        assert [type(result) for result in results] == [DeviceFault] * 5
        assert {result.action for result in results} == {"reset"}
        await raises(DeviceFault, infer(items[0]))
        await device.force_reset()
        assert all(map(is_right, await run(infer, items), items))


@pytest.mark.leaves("offline_models")  # as above
@pytest.mark.parametrize("how", ["block", "finalizer", "close"])
async def test_72_items_fail_when_the_supervisor_of_their_failed_device_ends(
    open_device: OpenDevice, how: str
) -> None:
    async with open_device() as device, device.load_model(BATCHES) as model, open_batcher(model) as infer:
        other = await open_device()
        supervisor = other.supervise(pauses=(1000,)).__enter__()
        with (
            simulator.fault(reset_call(), rc=507000),
            simulator.fault(EXECUTE, async_error=FAULT, nth=1),
        ):
            async with tasks() as group:
                call = Waiting(group, lambda: infer(item(0)))
                await until(lambda: device.health.supervisor == "pausing")
                assert not call.ended
                if how == "close":
                    await other.close()
                else:
                    supervisor.__exit__(GeneratorExit if how == "finalizer" else None)
                await raises(DeviceFault, call.outcome())
        await other.close()
        assert (await device.force_reset()).ok


@pytest.mark.leaves("offline_models")  # as above
async def test_items_of_a_failed_device_run_alone_after_the_reset_of_its_supervisor(
    open_device: OpenDevice,
) -> None:
    items = [item(number) for number in range(1, 6)]
    async with (
        open_device() as device,
        device.supervise(),
        device.load_model(BATCHES) as model,
        open_batcher(model) as infer,
    ):
        with simulator.fault(EXECUTE, async_error=FAULT, nth=1):
            results = await run(infer, items)
        assert all(map(is_right, results, items))
        assert infer.stats().executions == 7


@pytest.mark.leaves("offline_models")  # as above
async def test_repaired_failure_of_a_device_is_reported_at_no_close(open_device: OpenDevice) -> None:
    items = [item(number) for number in range(1, 13)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with (
            open_device() as device,
            device.supervise(),
            device.load_model(BATCHES) as model,
            open_batcher(model, max_rows=4, in_flight=2) as infer,
        ):
            with simulator.fault(EXECUTE, async_error=FAULT, nth=1):
                results = await run(infer, items)
            await run(infer, items)
    assert not [each for each in results if isinstance(each, AclError)]
    assert all(map(is_right, results, items))


async def test_closed_model_fails_the_items_and_no_caller_hangs(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(BATCHES) as model, open_batcher(model) as infer:
        await model.close()
        error = await raises(ParameterError, infer(item(0)))
        assert "closed" in str(error)


async def test_closed_device_fails_the_items_and_no_caller_hangs(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(BATCHES) as model, open_batcher(model) as infer:
        await device.close()
        await raises(AclError, infer(item(0)))


# --- models, and the end --------------------------------------------------------------------------------------------


async def test_replaced_model_gets_no_new_items_and_ends_what_it_has_begun(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(BATCHES) as old,
        device.load_model(BATCHES) as new,
        open_batcher(old) as infer,
    ):
        with slow_executions() as go_on:
            async with tasks() as group:
                first = Waiting(group, lambda: infer(item(0)))
                await until(lambda: simulator.calls(EXECUTE) == 1)
                go_on.set()
                await infer.replace(new)
        assert is_right(first.value, item(0))
        assert infer.models == (new,)
        await old.close()
        assert is_right(await infer(item(1)), item(1))


async def test_model_that_fails_its_first_execution_replaces_nothing(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(BATCHES) as old,
        device.load_model(BATCHES) as new,
        open_batcher(old) as infer,
    ):
        with simulator.fault(EXECUTE, async_error=TASK_FAULT, nth=1):
            await raises(DeviceFault, infer.replace(new))
        assert infer.models == (old,)
        assert is_right(await infer(item(1)), item(1))


async def test_close_during_the_first_execution_of_a_new_model_ends_the_replace(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.load_model(BATCHES) as old, device.load_model(BATCHES) as new:
        infer = await open_batcher(old)
        async with tasks() as group:
            simulator.hang_call(EXECUTE)
            replacing = Waiting(group, lambda: infer.replace(new))
            await until(hanging(EXECUTE))
            await infer.close()
            error = await raises(ParameterError, replacing.outcome())
            simulator.release_call(EXECUTE)
        assert "the batcher is closed" in str(error)


async def test_two_models_share_the_items(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(BATCHES) as one,
        device.load_model(BATCHES) as other,
        open_batcher(one, other) as infer,
    ):
        items = [item(number) for number in range(200)]
        assert all(map(is_right, await run(infer, items), items))
        assert all(each.state.rate > 0 for each in infer._served)


async def test_end_of_a_cancelled_block_leaves_no_caller_hanging(model: aioacl.Model) -> None:
    calls = list[Waiting]()
    with slow_executions():
        async with tasks() as group:
            with anyio.CancelScope() as scope:
                async with open_batcher(model) as infer:
                    calls.append(Waiting(group, lambda: infer(item(0))))
                    await until(lambda: simulator.calls(EXECUTE) == 1)
                    scope.cancel()
                    await anyio.sleep_forever()
            await until(lambda: calls[0].ended)
        assert isinstance(calls[0].error, ParameterError)


async def test_batcher_that_is_dropped_warns_and_is_freed(model: aioacl.Model) -> None:
    infer = await open_batcher(model)
    assert is_right(await infer(item(0)), item(0))
    runner = weakref.ref(infer._runner)
    with pytest.warns(ResourceWarning, match="a batcher was not closed"):
        del infer
    gc.collect()
    await until(lambda: not any(each.name == "aioacl-batch" for each in threading.enumerate()))
    admission = model._life.manager.admission
    with admission.changed:
        admission.announce()  # drops the subscription
    gc.collect()
    assert runner() is None


async def test_batcher_that_was_closed_emits_no_warning_and_ends_its_threads(model: aioacl.Model) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with open_batcher(model) as infer:
            await infer(item(0))
        await infer.close()
        del infer
        gc.collect()
    await until(lambda: not any(each.name == "aioacl-batch" for each in threading.enumerate()))
    with pytest.raises(TypeError, match="no public constructor"):
        aioacl.Batcher()  # type: ignore[call-arg]  # it raises


async def test_item_with_a_time_limit_that_has_its_result_keeps_no_array(model: aioacl.Model) -> None:
    async with open_batcher(model) as infer:
        x = item(3)
        y = await infer(x, timeout=600.0)
        left = weakref.ref(x), weakref.ref(y)
        del x, y
        await until(lambda: gc.collect() is not None and all(each() is None for each in left))


async def test_cancelled_item_gives_up_the_arrays_of_its_caller(model: aioacl.Model) -> None:
    with slow_executions() as go_on:
        async with open_batcher(model, in_flight=1) as infer, tasks() as group:
            running = Waiting(group, lambda: infer(item(0)))
            await until(lambda: simulator.calls(EXECUTE) == 1)
            x = item(5)
            dropped = weakref.ref(x)
            waiting = Waiting(group, lambda x=x: infer(x))  # type: ignore[misc]  # mypy infers no type for a lambda with a default
            await until(lambda: infer.waiting == 1)
            await waiting.cancel_and_wait()
            go_on.set()
            await until(lambda: running.ended)
            del x, waiting
            gc.collect()
            await until(lambda: gc.collect() is not None and dropped() is None)
