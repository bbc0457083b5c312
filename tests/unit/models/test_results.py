"""The memory of results: new arrays and `out=`, written on the loop or by the thread of the instance."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest
from onnx import TensorProto

import aioacl
from aioacl import simulator
from aioacl._base.ffi import check_arguments, plain_awaits
from aioacl._models.calls import Call
from tests.kit import Waiting, hanging, in_thread, raises, turns, until
from tests.support import offline
from tests.support.offline import LARGE, WEIGHTS, rows

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop_in_ci]

COPY = "aclrtMemcpyAsync"
FAILED = 507011


def large(first: int = 0) -> Any:
    """An argument of a model whose results the thread of the instance writes."""
    return np.arange(first, first + LARGE, dtype=np.float32)


def batched_call(model: aioacl.Model, *xs: Any) -> Call:
    """One run of the model for the rows of several calls."""
    spec = model._life.spec
    checked = tuple(check_arguments(spec, x) for x in xs)
    assert all(checked)
    return Call(model, checked, None, None, wait=True, timeout=None)  # type: ignore[arg-type]


async def test_cancellation_is_held_back_while_out_is_written(open_device: OpenDevice) -> None:
    """The thread that writes is inside the upload of another call, so the copy has not begun at the cancellation."""
    async with (
        open_device() as device,
        device.load_model(offline.identity(TensorProto.FLOAT, (LARGE,)), slots=2) as model,
        anyio.create_task_group() as group,
    ):
        x, out = large(), np.zeros(LARGE, np.float32)
        offline.hold(model)
        first = Waiting(group, lambda: model(x, out=out))
        await until(lambda: simulator.calls(COPY) == 2)
        simulator.hang_call(COPY)
        second = Waiting(group, lambda: model(large(1)))
        await until(hanging(COPY))
        offline.release(model)
        await until(lambda: first_is_written_next(model))
        first.cancel()
        await turns()
        assert not first.ended
        assert not out.any()
        simulator.release_call(COPY)
        await until(lambda: first.ended)
        assert np.array_equal(out, x)
        assert first.error is None
        assert np.array_equal(await second.outcome(), large(1))


def first_is_written_next(model: aioacl.Model) -> bool:
    """Whether a call waits for the thread of the instance to write its results."""
    return offline.load_of(model).slots.writing == 1


async def test_cancelled_call_with_a_large_result_gives_its_slot_back(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.identity(TensorProto.FLOAT, (LARGE,)), slots=2) as model,
        anyio.create_task_group() as group,
    ):
        offline.hold(model)
        first = Waiting(group, lambda: model(large()))
        await until(lambda: simulator.calls(COPY) == 2)
        simulator.hang_call(COPY)
        second = Waiting(group, lambda: model(large(1)))
        await until(hanging(COPY))
        offline.release(model)
        await until(lambda: first_is_written_next(model))
        await first.cancel_and_wait()
        assert first.cancelled
        simulator.release_call(COPY)
        assert np.array_equal(await second.outcome(), large(1))
        await until(lambda: offline.all_free(model))


async def test_large_results_of_concurrent_calls_are_their_own(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.identity(TensorProto.FLOAT, (LARGE,)), slots=3) as model,
        anyio.create_task_group() as group,
    ):
        calls = [Waiting(group, lambda n=n: model(large(n))) for n in range(6)]  # type: ignore[misc]
        for number, call in enumerate(calls):
            assert np.array_equal(await call.outcome(), large(number))


async def test_arguments_of_a_cancelled_call_are_dropped_when_the_thread_has_read_them(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product(), slots=1) as model,
        anyio.create_task_group() as group,
    ):
        x = rows()
        alive = weakref.ref(x)
        simulator.hang_call(COPY)
        call = Waiting(group, lambda x=x: model(x))  # type: ignore[misc]
        await until(hanging(COPY))
        await call.cancel_and_wait()
        del x, call
        gc.collect()
        assert alive() is not None
        simulator.release_call(COPY)
        await until(lambda: alive() is None)
        await until(lambda: offline.all_free(model))


async def test_calls_of_one_batch_get_results_of_their_own(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product("2,4,8")) as model:
        xs = [rows(1, 1), rows(2, 3), rows(3, 2)]
        results = await batched_call(model, *xs)
        assert offline.executions() == 1
        for x, y in zip(xs, results, strict=True):
            assert np.array_equal(y, x @ WEIGHTS)
        results[0][:] = 0
        assert np.array_equal(results[1], xs[1] @ WEIGHTS)
        assert all(y.base is None for y in results)


async def test_batch_of_calls_with_several_tensors_is_split_by_rows(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.sums("4,8")) as model:
        pairs = [[rows(1, 2), rows(5, 2)], [rows(2, 3), rows(7, 3)]]
        for (a, b), found in zip(pairs, await batched_call(model, *pairs), strict=True):
            assert np.array_equal(found["plus"], a + b)
            assert np.array_equal(found["minus"], a - b)


async def test_failed_batch_raises_and_the_next_batch_works(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product("2,4"), slots=1) as model:
        xs = [rows(1, 1), rows(2, 2)]
        with simulator.fault("model", nth=1, async_error=FAILED):
            await raises(aioacl.DeviceFault, batched_call(model, *xs))
        assert len(await batched_call(model, *xs)) == 2


async def test_batch_that_fits_no_gear_is_refused(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product("2,4")) as model:
        with pytest.raises(ValueError, match="expected rows that fit into one gear"):
            await batched_call(model, rows(1, 3), rows(2, 3))
        assert offline.executions() == 0


async def test_batch_of_a_plain_thread_returns_the_results_of_each_call(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product("2,4")) as model:
        xs = [rows(1, 1), rows(2, 2)]
        results = in_thread(lambda: batched_call(model, *xs).result())
        assert [np.array_equal(y, x @ WEIGHTS) for x, y in zip(xs, results, strict=True)] == [True, True]


async def test_returned_error_has_the_item_of_its_call(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product()) as model:
        xs: list[Any] = [rows(0), rows(1), np.zeros((3, 2), np.float32), rows(3)]
        with simulator.fault("model", nth=2, async_error=FAILED):
            async with model.map(xs, errors="return") as results:
                found = [y async for y in results]
        assert [type(y) for y in found[1:3]] == [aioacl.DeviceFault, aioacl.ParameterError]
        assert found[1].item is xs[1]
        assert found[2].item is xs[2]
        assert aioacl.AclError().item is None


@pytest.mark.parametrize("timeout", [None, 60])
async def test_call_whose_await_runs_in_python_returns_its_results(
    open_device: OpenDevice, timeout: float | None
) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.identity(TensorProto.FLOAT, (LARGE,))) as model,
    ):
        plain_awaits(True)
        try:
            assert np.array_equal(await model(large(), timeout=timeout), large())
        finally:
            plain_awaits(False)
        assert np.array_equal(await model(large(1), timeout=timeout), large(1))


async def test_slot_whose_stream_cannot_be_renewed_fails_its_callers_until_a_reset(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=1) as model:
        slots = offline.load_of(model).slots
        with simulator.fault("aclrtCreateStream|aclrtCreateStreamWithConfig:rc=207001"):
            with simulator.fault("model", nth=1, async_error=FAILED):
                await raises(aioacl.DeviceFault, model(rows()))
            await until(lambda: slots.error is not None)
            await raises(aioacl.OutOfMemoryError, model(rows()))
            assert slots.free == 0
        assert (await device.force_reset()).ok
        await until(lambda: slots.free == 1)
        assert np.array_equal(await model(rows()), rows() @ WEIGHTS)
