"""How a batch is executed on a model: the joined rows, the thread that sees the end, and what is left of it."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import ParameterError, open_batcher, simulator
from aioacl._base import sync
from aioacl._batches.execution import ModelDevice
from aioacl._batches.executor import Look
from aioacl._batches.thread import BatchThread
from tests.kit import Waiting, descriptors, in_thread, raises, until, until_now
from tests.support import offline
from tests.support.batching import tasks
from tests.support.offline import WEIGHTS, needs_onnxruntime, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, needs_onnxruntime]
asyncio_loops = pytest.mark.parametrize("anyio_backend", ["asyncio", "uvloop"], indirect=True)


async def run(infer: Any, items: Sequence[Any]) -> list[Any]:
    """The results of items that are awaited at once."""
    async with tasks() as group:
        calls = [Waiting(group, lambda x=x: infer(x)) for x in items]  # type: ignore[misc]  # mypy infers no type for a lambda with a default
    assert not any(call.error for call in calls)
    return [call.value for call in calls]


async def test_items_of_a_model_with_fixed_shapes_share_an_execution(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product()) as model,
        open_batcher(model) as infer,
    ):
        items = [rows(number, count=1) for number in (3, 7)]
        before = offline.executions()
        results = await run(infer, items)
        assert offline.executions() == before + 1
        (alone,) = await run(infer, items[:1])
    for x, y in zip([*items, items[0]], [*results, alone], strict=True):
        assert np.array_equal(y, x @ WEIGHTS)
        assert y.base is None


async def test_items_of_each_shape_of_dims_run_in_the_smallest_gear(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.dims("2,3;4,3;2,5;4,5")) as model,
        open_batcher(model) as infer,
    ):
        items = [np.full((1, size), at, np.float32) for at, size in enumerate((3, 5, 3, 5))]
        results = await run(infer, items)
        stats = infer.stats()
    assert all(np.array_equal(y, -x) for x, y in zip(items, results, strict=True))
    assert (stats.executions, stats.rows, stats.padded_rows) == (2, 4, 0)


async def test_item_with_several_tensors_gets_a_dict_of_its_rows(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.sums()) as model,
        open_batcher(model) as infer,
    ):
        pairs = [[rows(1, 1), rows(5, 1)], [rows(2, 1), rows(7, 1)]]
        results = await run(infer, pairs)
        assert infer.stats().executions == 1
    for (a, b), found in zip(pairs, results, strict=True):
        assert np.array_equal(found["plus"], a + b)
        assert np.array_equal(found["minus"], a - b)


async def test_73_next_batch_begins_while_the_loop_is_blocked(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product("2,4")) as model,
        open_batcher(model, in_flight=1) as infer,
        tasks() as group,
    ):
        offline.hold(model)
        calls = [Waiting(group, lambda: infer(rows(1)))]
        before = offline.executions()
        await until(lambda: infer.stats().running == 1)
        calls.append(Waiting(group, lambda: infer(rows(2))))
        await until(lambda: infer.waiting == 2)
        offline.release(model)
        until_now(lambda: offline.executions() == before + 2)  # the loop does not turn
        assert not any(call.ended for call in calls)
    assert all(np.array_equal(call.value, rows(at) @ WEIGHTS) for at, call in enumerate(calls, 1))


@asyncio_loops
async def test_loop_that_waits_for_all_items_handles_the_ends_itself(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchThread, "_serve", lambda *_: None)  # the thread ends at once
    async with open_device() as device, device.load_model(offline.product("2,4")) as model:
        infer = await open_batcher(model)
        results = await run(infer, [rows(number, count=2) for number in range(1, 9)])
        await infer.close()
    assert all(np.array_equal(y, rows(at, count=2) @ WEIGHTS) for at, y in enumerate(results, 1))


@asyncio_loops
async def test_batcher_that_is_closed_leaves_no_descriptor_and_no_reader(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product("2,4")) as model:
        await model(rows(1))  # makes the port of the loop
        before = descriptors()
        for _ in range(3):
            async with open_batcher(model) as infer:
                await infer(rows(1))
            del infer
        await until(lambda: gc.collect() >= 0 and descriptors() == before)


@asyncio_loops
async def test_item_of_a_thread_ends_while_the_loop_that_has_used_the_batcher_is_blocked(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product("2,4")) as model,
        open_batcher(model) as infer,
    ):
        await infer(rows(1))
        found = in_thread(lambda: infer(rows(2)).result())  # the loop does not turn
    assert np.array_equal(found, rows(2) @ WEIGHTS)


async def test_change_of_a_device_is_handled_without_its_lock(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product("2,4")) as model,
        open_batcher(model) as infer,
    ):
        core, changed, owned = infer._runner.core, device._manager.admission.changed, list[bool]()
        tell = core.tell

        def note(*arguments: Any, **details: Any) -> None:
            owned.append(sync.is_owned(changed))
            tell(*arguments, **details)

        monkeypatch.setattr(core, "tell", note)
        await device.force_reset()
        await until(lambda: bool(owned))
        assert np.array_equal(await infer(rows(1)), rows(1) @ WEIGHTS)
    assert not any(owned)


async def test_close_gives_up_the_executions_that_run(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product("2,4")) as model:
        async with tasks() as group:
            infer = await open_batcher(model)
            offline.hold(model)
            call = Waiting(group, lambda: raises(ParameterError, infer(rows(1))))
            await until(lambda: infer.stats().running == 1)
            await infer.close(grace=0)
            await until(lambda: call.ended)
            assert infer.stats().running == 0
            offline.release(model)
        assert "closed" in str(call.value)
        await until(lambda: offline.all_free(model))
        assert np.array_equal(await model(rows(2)), rows(2) @ WEIGHTS)


async def test_execution_after_the_end_of_the_thread_is_refused(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product()) as model,
        open_batcher(model) as infer,
    ):
        await infer.close()
        executor = infer._served[0].executor
        with pytest.raises(ParameterError, match="the batcher is closed"):
            executor.execute([executor.zeros], lambda _: None)


async def test_execution_behind_a_reset_loads_the_model_again(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product("2,4")) as model,
        open_batcher(model) as infer,
    ):
        await device.force_reset()
        assert offline.load_of(model).stale
        items: list[NDArray[np.float32]] = [rows(1), rows(2)]
        for x, y in zip(items, await run(infer, items), strict=True):
            assert np.array_equal(y, x @ WEIGHTS)
        assert infer.stats().repeats == 0


async def test_items_wait_for_the_slots_that_other_calls_use(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product("2,4"), slots=1) as model,
        open_batcher(model, in_flight=1) as infer,
        tasks() as group,
    ):
        offline.hold(model)
        call = Waiting(group, lambda: model(rows(1)))
        await until(lambda: model.busy == 1)
        item = Waiting(group, lambda: infer(rows(2)))
        await until(lambda: model.waiting == 1)
        offline.release(model)
    assert np.array_equal(call.value, rows(1) @ WEIGHTS)
    assert np.array_equal(item.value, rows(2) @ WEIGHTS)


async def test_execution_on_a_closed_model_fails_its_items(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product("2,4")) as model,
        open_batcher(model) as infer,
    ):
        await model.close()
        with anyio.fail_after(60):
            error = await raises(aioacl.AclError, infer(rows(1)))
        assert "closed" in str(error)
        assert simulator.violations() == []


async def test_device_in_a_reset_is_open_or_returns_at_each_look(open_device: OpenDevice) -> None:
    wrong, over = list[Look](), threading.Event()

    def watch(view: ModelDevice) -> None:
        while not over.is_set():
            look = view.look()
            if not (look.is_open or look.returns):
                wrong.append(look)

    async with (
        open_device() as device,
        device.load_model(offline.product()) as model,
        open_batcher(model) as infer,
    ):
        view = infer._served[0].device.view
        assert isinstance(view, ModelDevice)
        watching = threading.Thread(target=watch, args=(view,))
        watching.start()
        try:
            for _ in range(20):
                await device.force_reset()
        finally:
            over.set()
            watching.join()
    assert wrong == []
