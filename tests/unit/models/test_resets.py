"""Models and resets: idle models are unloaded, running calls raise, and the next call loads the model once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import DeviceFault, simulator
from aioacl._base.ffi import ffi, lib
from aioacl._handles.stream_core import StreamCore
from aioacl._lifecycle.failures import LAST
from tests.kit import (
    FAULT,
    Waiting,
    drop_abandoned,
    hanging,
    hung_in,
    raises,
    reset_by_other_code,
    reset_call,
    until,
)
from tests.support import offline
from tests.support.offline import WEIGHTS, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop_in_ci]

FAILED = 507011
REFUSED = 507899  # the code of an enqueue on a device that has failed
LOAD_FROM_MEMORY = "aclmdlLoadFromMemWithMem"


async def kinds(events: aioacl.DeviceEvents, last: str) -> list[str]:
    """The kinds of the events up to and with the first one of the kind `last`."""
    found: list[str] = []
    async for event in events:
        found.append(event.kind)
        if event.kind == last:
            break
    return found


async def works(model: aioacl.Model, first: float = 0) -> bool:
    return np.array_equal(await model(rows(first)), rows(first) @ WEIGHTS)


def source_of(kind: str, path: Path) -> Any:
    return path if kind == "path" else offline.product()


@pytest.mark.parametrize("kind", ["path", "bytes"])
async def test_idle_model_is_unloaded_by_a_reset_and_loaded_once_for_all_later_callers(
    open_device: OpenDevice, path: Path, kind: str
) -> None:
    async with open_device() as device, device.load_model(source_of(kind, path), instances=2) as model:
        abandoned = device.health.abandoned_models
        assert await works(model)
        events = device.events()
        assert (await device.force_reset()).ok
        assert simulator.models() == ()
        assert "stale" in repr(model)
        assert model.inputs[0].shape == (2, 3)
        async with anyio.create_task_group() as group:
            calls = [Waiting(group, lambda number=number: works(model, number)) for number in range(10)]  # type: ignore[misc]
            assert all([await call.outcome() for call in calls])
        await device.force_reset()
        assert await works(model)
        assert await kinds(events, "reopened") == ["draining", "resetting", "reopened"]
        assert await kinds(events, "reopened") == [
            *("model_loading", "model_loaded"),
            *("draining", "resetting", "reopened"),
        ]
        assert device.health.abandoned_models == abandoned


async def test_events_of_a_load_have_its_name_duration_and_memory(
    open_device: OpenDevice, path: Path
) -> None:
    async with open_device() as device:
        events = device.events()
        async with device.load_model(path) as model:
            loading, loaded = await anext(events), await anext(events)
            assert [(each.kind, each.text) for each in (loading, loaded)] == [
                ("model_loading", str(path)),
                ("model_loaded", str(path)),
            ]
            assert (loading.seconds, loading.nbytes) == (0.0, 0)
            assert loaded.seconds > 0
            assert loaded.nbytes >= model.memory.weights + model.memory.workspace
            assert loaded.state is aioacl.State.OPEN


async def test_call_during_a_reset_waits_and_then_loads_the_model(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product()) as model,
        anyio.create_task_group() as group,
    ):
        reset = await hung_in(reset_call(), group, device.force_reset)
        call = Waiting(group, lambda: works(model))
        await raises(aioacl.DeviceResetting, model(rows(), wait=False))
        await raises(aioacl.DeviceTimeout, model(rows(), timeout=0.02))
        assert not call.ended
        simulator.release_call(reset_call())
        assert (await reset.outcome()).ok
        assert await call.outcome()


async def test_call_that_a_reset_interrupts_raises_device_reset_and_is_not_repeated(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=1) as model:
        abandoned = device.health.abandoned_models
        offline.hold(model)
        out = np.full((2, 4), -1, np.float32)
        async with anyio.create_task_group() as group:
            call = Waiting(group, lambda: model(rows(), out=out))
            await until(offline.enqueued)
            assert (await device.force_reset(grace=0)).ok
            await raises(aioacl.DeviceReset, call.outcome())
        assert np.all(out == -1)
        assert await works(model, 1)
        assert offline.executions() == 1
        assert device.health.abandoned_models == abandoned + 1
    drop_abandoned()


async def test_call_whose_execution_ends_within_the_grace_returns(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=1) as model:
        abandoned = device.health.abandoned_models
        offline.hold(model)
        async with anyio.create_task_group() as group:
            call = Waiting(group, lambda: works(model))
            await until(offline.enqueued)
            reset = Waiting(group, lambda: device.force_reset(grace=20))
            await until(lambda: device.state is aioacl.State.DRAINING)
            offline.release(model)
            assert await call.outcome()
            assert (await reset.outcome()).ok
        assert device.health.abandoned_models == abandoned
        assert await works(model)


async def test_map_raises_the_reset_for_the_items_that_ran_and_computes_the_others(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=1) as model:
        offline.hold(model)
        async with model.map([rows(number) for number in range(4)], limit=4, errors="return") as results:
            await until(lambda: offline.load_of(model).slots.waiting == 3)
            await until(offline.enqueued)
            await device.force_reset(grace=0)
            found = [y async for y in results]
        assert isinstance(found[0], aioacl.DeviceReset)
        assert all(np.array_equal(found[i], rows(i) @ WEIGHTS) for i in (1, 2, 3))
    drop_abandoned()


async def test_bytes_that_the_program_changed_after_the_load_are_not_used(open_device: OpenDevice) -> None:
    source = bytearray(offline.product())
    async with open_device() as device, device.load_model(source) as model:
        source[:] = bytes(len(source))
        assert (await device.force_reset()).ok
        assert await works(model)


async def test_model_that_must_not_be_loaded_again_is_stale_after_a_reset(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product(), reload=False) as model:
        assert await works(model)
        loads = simulator.calls(LOAD_FROM_MEMORY)
        assert (await device.force_reset()).ok
        for wait in (True, False):
            error = await raises(aioacl.StaleHandleError, model(rows(), wait=wait))
            assert error.message == "the device was reset after the model was loaded"
        assert simulator.calls(LOAD_FROM_MEMORY) == loads


@pytest.mark.parametrize("code", [FAULT, 145006])
async def test_load_that_fails_after_a_reset_fails_for_its_callers_and_is_tried_by_the_next(
    open_device: OpenDevice, code: int
) -> None:
    async with open_device() as device, device.load_model(offline.product()) as model:
        assert (await device.force_reset()).ok
        simulator.hang_call("aclmdlQuerySizeFromMem")
        simulator.fail_call(LOAD_FROM_MEMORY, code)
        async with anyio.create_task_group() as group:
            calls = [Waiting(group, lambda: model(rows())) for _ in range(3)]
            await until(hanging("aclmdlQuerySizeFromMem"))
            simulator.release_call("aclmdlQuerySizeFromMem")
            await until(lambda: all(call.ended for call in calls))
            errors = [call.error for call in calls]
            assert [getattr(error, "code", None) for error in errors] == [code] * 3
            assert len({id(error) for error in errors}) == 3  # each caller may add notes to its own
        if code == FAULT:
            assert (await device.force_reset()).ok
        assert await works(model)


async def reset_elsewhere(device: aioacl.Device) -> None:
    generation = device.generation
    reset_by_other_code()
    await until(lambda: device.generation > generation and device.state is aioacl.State.OPEN)


async def fault_and_reset(device: aioacl.Device) -> None:
    async with device.create_stream() as stream, device.allocate(64) as memory:
        simulator.fail_next(stream, FAULT)
        await raises(aioacl.DeviceFault, stream.fill(memory, 1))
    assert (await device.force_reset(grace=0)).ok


@pytest.mark.parametrize(
    "end", [pytest.param(reset_elsewhere, marks=pytest.mark.primary_only), fault_and_reset]
)
async def test_models_are_abandoned_by_a_foreign_reset_and_after_a_fault(
    open_device: OpenDevice, end: Callable[[aioacl.Device], Any]
) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product(), instances=2) as model,
        device.load_model(offline.identity()),
    ):
        abandoned = device.health.abandoned_models
        await end(device)
        assert device.health.abandoned_models == abandoned + 3
        assert await works(model)
        assert {each.state for each in simulator.models()} == {"stale", "loaded"}
    drop_abandoned()


async def test_model_of_a_faulty_device_that_is_closed_is_abandoned(open_device: OpenDevice) -> None:
    async with open_device() as device:
        async with device.load_model(offline.product()) as model:
            abandoned = device.health.abandoned_models
            with simulator.fault("model", nth=1, async_error=FAULT), pytest.raises(aioacl.DeviceFault):
                await model(rows())
            await until(lambda: device.health.last_fault)
        assert device.health.abandoned_models == abandoned + 1
        assert (await device.force_reset()).ok
    drop_abandoned()


async def test_last_close_unloads_a_model_that_is_open(open_device: OpenDevice) -> None:
    async with open_device() as device:
        model = await device.load_model(offline.product())
        assert await works(model)
    assert simulator.models() == ()
    for wait in (True, False):
        with pytest.raises(aioacl.ParameterError, match="the device is closed"):
            await model(rows(), wait=wait)
    await model.close()


async def test_last_close_ends_a_running_call(open_device: OpenDevice) -> None:
    async with anyio.create_task_group() as group:
        async with open_device() as device:
            model = await device.load_model(offline.product(), slots=1)
            offline.hold(model)
            call = Waiting(group, lambda: model(rows()))
            await until(offline.enqueued)
        await raises(aioacl.AclError, call.outcome())
        await model.close()
    drop_abandoned()


async def test_model_from_before_the_last_close_is_refused_on_the_reopened_device(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        model = await device.load_model(offline.product())
    async with open_device() as device:
        for wait in (True, False):
            error = await raises(aioacl.StaleHandleError, model(rows(), wait=wait))
            assert error.message == "the device was closed after the model was loaded"
            assert error.hint == "Load it again with load_model()."
        with pytest.raises(aioacl.StaleHandleError, match="the device was closed after"):
            model.enqueue(None, None)
        await model.close()


@pytest.mark.leaves("offline_models")  # the failed device keeps its model until the reset
async def test_task_of_a_call_whose_next_step_was_refused_counts_as_raised(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=1) as model:
        assert await works(model)
        load = model._life.load
        assert load is not None
        (core,) = load.slots.cores
        assert isinstance(core, StreamCore)
        with simulator.fault("aclmdlExecuteAsync", sticky=FAULT, nth=1):
            error = await raises(DeviceFault, model(rows(1)))
        assert (error.code, error.call) == (REFUSED, "aclrtMemcpyAsync")
        # The thread of the instance waits for the task, because the slot is not free before.
        await until(lambda: lib.aio_stream_error(core.handle, LAST, ffi.NULL) == FAULT)
        assert (await device.force_reset()).ok
        assert core.uncollected() is None
        assert await works(model)
