"""Calls of a model that a reset, or a call of the runtime that hangs, meets between two of their steps."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.paths import DATA
from aioacl._models import loading
from aioacl._models.warming import warm_up
from tests.kit import Waiting, hanging, in_thread, raises, reset_call, runs_out_of_time, until, until_now

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioacl._models.loading import Load
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
MODEL = DATA / "digits.om"
EXECUTE, COPY, LOAD = "aclmdlExecuteAsync", "aclrtMemcpyAsync", "aclmdlLoadFromFileWithMem"
HOUR_SECONDS = 3600
DOWNLOAD_SECONDS = 0.2
ABORTED = 107023
X = np.zeros((1, 64), np.float32)


@pytest.fixture(autouse=True)
def _computes_nothing() -> Generator[None]:
    """Registers a function in place of the model, so that no test needs onnxruntime."""
    with simulator.register_model("digits", lambda _: None):
        yield


@pytest.mark.leaves("offline_models")  # the model whose execution was dropped is abandoned
async def test_call_that_waits_for_another_execution_in_a_reset_is_ended_and_the_reset_succeeds(
    open_device: OpenDevice,
) -> None:
    """The first execution lasts an hour. The reset begins while the second call uploads, before it waits for it."""
    async with open_device() as device, device.load_model(MODEL, slots=2) as model:
        async with anyio.create_task_group() as group:
            with simulator.fault(EXECUTE, late_complete=HOUR_SECONDS, nth=1):
                first = Waiting(group, partial(model, X))
                await until(lambda: simulator.calls(COPY) == 2)  # its upload and its download are enqueued
            simulator.hang_call(COPY)
            second = Waiting(group, partial(model, X))
            await until(hanging(COPY))
            reset = Waiting(group, partial(device.force_reset, grace=0))
            await until(lambda: device.state.name == "RESETTING")
            simulator.release_call(COPY)
            report = await reset.outcome()
            assert report.ok
            for call in (first, second):
                error = await raises(aioacl.DeviceReset, call.outcome())
                assert error.report is report
        assert (await model(X)).shape == (1, 10)


async def test_result_comes_while_the_thread_of_the_instance_hangs_in_a_later_call(
    open_device: OpenDevice,
) -> None:
    """The watcher queries in place of the thread, which hangs in the upload of the second call."""
    async with (
        open_device() as device,
        device.load_model(MODEL, slots=2) as model,
        anyio.create_task_group() as group,
    ):
        with simulator.fault(COPY, late_complete=DOWNLOAD_SECONDS, nth=2):
            first = Waiting(group, partial(model, X))
            await until(lambda: simulator.calls(COPY) == 2)
        simulator.hang_call(COPY)
        second = Waiting(group, partial(model, X))
        await until(hanging(COPY))
        assert (await first.outcome()).shape == (1, 10)
        assert not second.ended
        simulator.release_call(COPY)
        assert (await second.outcome()).shape == (1, 10)


@pytest.mark.leaves("offline_models")  # the end of its execution was not known at the reset
async def test_call_that_begins_to_wait_for_its_results_in_a_reset_raises_device_reset(
    open_device: OpenDevice,
) -> None:
    """The reset begins while the call enqueues its download. The abort of the stream may come before or after it."""
    async with open_device() as device, device.load_model(MODEL, slots=1) as model:
        async with anyio.create_task_group() as group:
            with simulator.fault(COPY, nth=2, hang="download") as download:
                call = Waiting(group, partial(model, X))
                await until(lambda: download.hits)
                reset = Waiting(group, partial(device.force_reset, grace=0))
                await until(lambda: device.state.name == "RESETTING")
                simulator.release_call("download")
                report = await reset.outcome()
                assert report.ok
                error = await raises(aioacl.DeviceReset, call.outcome())
                assert error.report is report
        assert (await model(X)).shape == (1, 10)


@pytest.mark.leaves("offline_models")  # the model is abandoned
async def test_call_that_waits_for_a_slot_when_a_reset_fails_raises_device_quarantined(
    open_device: OpenDevice,
) -> None:
    """The slot is not given back, because its work may run until a reset succeeds."""
    async with open_device() as device, device.load_model(MODEL, slots=1) as model:
        async with anyio.create_task_group() as group:
            with simulator.fault(EXECUTE, late_complete=HOUR_SECONDS, nth=1):
                calls = [Waiting(group, partial(model, X)) for _ in range(3)]
                await until(lambda: simulator.calls(COPY) == 2)
                await until(lambda: model._loaded().slots.waiting == 2)
            simulator.fail_call(reset_call(), 507899, -1)
            report = await device.force_reset(grace=0)
            assert not report.ok
            for call in calls:
                await raises(aioacl.DeviceQuarantined, call.outcome())
            await raises(aioacl.DeviceQuarantined, model(X))
        simulator.fail_call(reset_call(), 0, 0)
        assert (await device.force_reset(grace=0)).ok
        assert (await model(X)).shape == (1, 10)


@pytest.mark.leaves("offline_models")  # the end of the first execution was not known at the reset
async def test_call_that_a_reset_makes_wait_for_a_load_can_be_cancelled(open_device: OpenDevice) -> None:
    """The call continues in Python, where it waits for the load that all callers share."""
    async with (
        open_device() as device,
        device.load_model(MODEL, slots=1) as model,
        anyio.create_task_group() as group,
    ):
        with simulator.fault(EXECUTE, late_complete=HOUR_SECONDS, nth=1):
            first = Waiting(group, partial(model, X))
            await until(lambda: simulator.calls(COPY) == 2)
        call, other = model(X), Waiting(group, partial(model, X))
        second = Waiting(group, lambda: call)
        await until(lambda: model._loaded().slots.waiting == 2)
        simulator.hang_call(LOAD)
        assert (await device.force_reset(grace=0)).ok
        await until(hanging(LOAD))
        await second.cancel_and_wait()
        assert second.cancelled
        assert "raised Cancelled" in repr(call)
        simulator.release_call(LOAD)
        assert (await other.outcome()).shape == (1, 10)
        await raises(aioacl.DeviceReset, first.outcome())


@pytest.mark.leaves("offline_models")  # the end of the first execution was not known at the reset
async def test_call_that_waits_for_a_slot_in_a_reset_when_the_model_is_closed_names_the_close(
    open_device: OpenDevice,
) -> None:
    """The reset ends the wait while the loop of the call is blocked. Then the model is closed."""
    async with open_device() as device:
        model = await device.load_model(MODEL, slots=1)
        slots = model._loaded().slots

        def meanwhile() -> None:
            assert device.force_reset(grace=0).result().ok
            model(X).result()
            model.close().result()

        async with anyio.create_task_group() as group:
            with simulator.fault(EXECUTE, late_complete=HOUR_SECONDS, nth=1):
                first = Waiting(group, partial(model, X))
                await until(lambda: simulator.calls(COPY) == 2)
            second = Waiting(group, partial(model, X))
            await until(lambda: slots.waiting == 1)
            in_thread(meanwhile)
            await raises(aioacl.DeviceReset, first.outcome())
            with pytest.raises(aioacl.ParameterError, match="the model is closed"):
                await second.outcome()


async def test_copy_that_an_abort_ends_raises_device_reset(open_device: OpenDevice) -> None:
    """A reset may abort the stream of a call while the call enqueues a copy. The code stands for that moment."""
    async with open_device() as device, device.load_model(MODEL) as model:
        with simulator.fault(COPY, nth=2, rc=ABORTED), pytest.raises(aioacl.DeviceReset):
            await model(X)
        assert (await model(X)).shape == (1, 10)


@pytest.mark.leaves("offline_models")  # the model is abandoned
async def test_call_that_is_inside_c_when_a_reset_runs_out_of_time_raises_device_quarantined(
    open_device: OpenDevice,
) -> None:
    """The next step of the call is refused."""
    async with open_device() as device, device.load_model(MODEL, slots=1) as model:
        async with anyio.create_task_group() as group:
            simulator.hang_call(COPY)
            call = Waiting(group, partial(model, X))
            await until(hanging(COPY))
            await runs_out_of_time(device)
            simulator.release_call(COPY)
            await raises(aioacl.DeviceQuarantined, call.outcome())
        assert (await device.force_reset(grace=0)).ok
        assert (await model(X)).shape == (1, 10)


@pytest.mark.leaves("offline_models")  # the model is abandoned
async def test_warm_up_that_begins_after_a_reset_has_run_out_of_time_raises_device_quarantined(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job of the load is inside the device, so the reset cannot be tried."""
    async with open_device() as device, anyio.create_task_group() as group:
        begins = threading.Event()

        def late(load: Load) -> None:
            begins.set()
            assert until_now(lambda: device.state.name == "QUARANTINED")
            warm_up(load)

        with monkeypatch.context() as patch:
            patch.setattr(loading, "warm_up", late)
            first = Waiting(group, partial(device.load_model, MODEL, slots=1, warm_up=True))
            await until(begins.is_set)
            await runs_out_of_time(device)
            await raises(aioacl.DeviceQuarantined, first.outcome())
        assert (await device.force_reset(grace=0)).ok
        async with device.load_model(MODEL, slots=1, warm_up=True) as model:
            assert (await model(X)).shape == (1, 10)
