"""Calls, loads, closes and resets of models that meet: nothing hangs, and no model is lost."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator

pytest.importorskip(
    "onnx", reason="the models of these tests need the package onnx: pip install 'aioacl[onnx]'"
)
pytest.importorskip("onnxruntime", reason="executing a model needs onnxruntime: pip install 'aioacl[onnx]'")

import anyio
import numpy as np
from onnx import helper

from aioacl._models.calls import enqueue
from aioacl.simulator._atc import Options, convert
from tests.kit import Raised, Waiting, hanging, hung_in, in_thread, reset_call, until, until_now
from tests.support.onnx_models import model as onnx_model
from tests.support.onnx_models import value

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.kit import OpenDevice

LOAD = "aclmdlLoadFromMemWithMem"
X = np.arange(4, dtype=np.float32)
OUT_OF_MEMORY = 207001


@cache
def negation() -> bytes:
    """The .om file of y = -x, for x of [4]."""
    source = onnx_model([helper.make_node("Neg", ["x"], ["y"])], [value("x", [4])], [value("y", [4])])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(source.SerializeToString())
        return convert(path, Options(), "m")


def loaded() -> int:
    """The number of models that are loaded in the simulator, without abandoned models of other tests."""
    return sum(each.state == "loaded" for each in simulator.models())


def is_negation(y: Any) -> bool:
    return bool((y == -X).all())


@pytest.fixture
def model(device: aioacl.Device) -> Generator[aioacl.Model]:
    made = device.load_model(negation(), slots=2).result()
    yield made
    made.close().result()


class TestCloseDuringALoad:
    def test_close_just_after_a_reload_ends(self, device: aioacl.Device, model: aioacl.Model) -> None:
        device.force_reset().result()
        stale = model._life.load
        call = Raised.hung_in("aclmdlDestroyDesc", model(X).result)
        with device._manager.admission.changed:  # the load cannot report its end, so its job does not end
            simulator.release_call("aclmdlDestroyDesc")
            assert until_now(lambda: model._life.load is not stale)
            close = Raised(model.close().result)
            assert until_now(lambda: model._life.closed)
        close.join()
        with pytest.raises(aioacl.ParameterError, match="the model is closed"):
            call.join()
        assert loaded() == 0

    def test_close_during_a_reload_that_fails_ends(self, device: aioacl.Device, model: aioacl.Model) -> None:
        device.force_reset().result()
        simulator.hang_call("aclmdlQuerySizeFromMem")
        with simulator.fault(LOAD, rc=OUT_OF_MEMORY):
            call = Raised(model(X).result)
            assert until_now(hanging("aclmdlQuerySizeFromMem"))
            close = Raised(model.close().result)
            assert until_now(lambda: model._life.closed)
            simulator.release_call("aclmdlQuerySizeFromMem")
            close.join()
            with pytest.raises(aioacl.OutOfMemoryError):
                call.join()
        assert loaded() == 0


class TestReload:
    @pytest.mark.anyio
    async def test_late_waiter_for_the_reset_uses_the_load_of_another_call(
        self, open_device: OpenDevice
    ) -> None:
        async with open_device() as device, device.load_model(negation()) as model:
            await device.force_reset()
            load = None
            async with anyio.create_task_group() as group:
                reset = await hung_in(reset_call(), group, device.force_reset)
                late = Waiting(group, lambda: model(X))
                await until(lambda: len(device._manager.admission._subscribers) == 2)
                simulator.release_call(reset_call())
                # The loop is blocked until the thread's call has loaded the model.
                assert is_negation(in_thread(lambda: model(X).result()))
                load = model._life.load
                assert is_negation(await late.outcome())
                await reset.outcome()
            assert model._life.load is load
            assert loaded() == 1
        assert loaded() == 0

    def test_call_after_the_last_close_raises_although_the_device_is_open_again(
        self, open_device: OpenDevice
    ) -> None:
        device = open_device().result()
        model = device.load_model(negation()).result()
        device.close().result()
        with open_device(), pytest.raises(aioacl.StaleHandleError, match="closed"):
            model(X).result()
        model.close().result()


class TestCallInC:
    """A thread is inside aclmdlExecuteAsync when the device is closed or reset."""

    @pytest.mark.leaves("offline_models")  # the model of the call is abandoned
    def test_close_of_the_device_unloads_after_the_call_has_returned(self, open_device: OpenDevice) -> None:
        device = open_device().result()
        model = device.load_model(negation()).result()
        call = Raised.hung_in("aclmdlExecuteAsync", model(X).result)
        close = Raised(device.close().result)
        assert until_now(lambda: device.state is aioacl.State.RESETTING)  # the gate refuses further calls
        simulator.release_call("aclmdlExecuteAsync")
        close.join()
        with pytest.raises(aioacl.DeviceReset):
            call.join()
        model.close().result()

    @pytest.mark.leaves("offline_models")  # the model of the call is abandoned
    def test_reset_unloads_no_model_whose_call_began_before_and_returned_later(
        self, device: aioacl.Device
    ) -> None:
        before = device.health.abandoned_models
        with device.load_model(negation(), slots=1) as model:
            assert model._life.load is not None
            simulator.hold(model._life.load._streams[0])
            call = Raised.hung_in("aclmdlExecuteAsync", model(X).result)
            reset = Raised(device.force_reset(grace=0).result)
            assert until_now(lambda: simulator.calls("aclrtStreamAbort"))
            simulator.release_call("aclmdlExecuteAsync")
            assert reset.join().ok
            with pytest.raises(aioacl.DeviceReset):
                call.join()
        assert device.health.abandoned_models == before + 1


class TestLoopThatIsClosed:
    def test_calls_of_a_loop_that_is_closed_give_their_slots_back(self, model: aioacl.Model) -> None:
        async def call() -> None:
            await model(X)

        load = model._life.load
        assert load is not None
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)  # asyncio reports each task that was dropped
        with ExitStack() as stack:
            for stream in load._streams:
                stack.enter_context(simulator.held(stream))
            tasks = [loop.create_task(call()) for _ in range(4)]
            while load.slots.waiting < 2:
                loop.run_until_complete(asyncio.sleep(0))
            loop.close()
            del tasks, loop
            gc.collect()

        def all_free() -> bool:
            gc.collect()  # a job that waited for the held stream referred to its loop
            return load.slots.free == 2

        assert until_now(all_free)


class TestUnload:
    @pytest.mark.leaves("offline_models")  # one model is not unloaded
    def test_unload_that_fails_leaves_no_other_instance_loaded(self, device: aioacl.Device) -> None:
        before = device.health.abandoned_models
        model = device.load_model(negation(), instances=3).result()
        with simulator.fault("aclmdlUnload", nth=1, rc=500002), pytest.raises(aioacl.AclError):
            model.close().result()
        assert loaded() == 1
        assert device.health.abandoned_models == before + 1
        device.force_reset().result()

    def test_enqueue_during_the_unload_is_refused(self, device: aioacl.Device, model: aioacl.Model) -> None:
        load = model._life.load
        assert load is not None
        memory = device.allocate(16).result()
        close = Raised.hung_in("aclmdlUnload", model.close().result)
        try:
            data = load._made[0]
            with pytest.raises(aioacl.ParameterError, match="the model is closed"):
                enqueue(load, (memory,), data.input_data, data.output_data)
        finally:
            simulator.release_call("aclmdlUnload")
            close.join()
            memory.close().result()


class TestMap:
    @pytest.mark.anyio
    async def test_block_that_is_left_early_closes_its_iterator(self, open_device: OpenDevice) -> None:
        async with open_device() as device, device.load_model(negation()) as model:
            async with model.map([X] * 9, limit=1) as results:
                assert is_negation(await anext(results))
            del results
            gc.collect()  # trio warns of an async generator that was not closed

    @pytest.mark.anyio
    async def test_results_in_order_keep_nothing_of_the_items_that_were_taken(
        self, open_device: OpenDevice
    ) -> None:
        async with open_device() as device, device.load_model(negation()) as model:
            async with model.map([X] * 9) as results:
                assert [is_negation(y) async for y in results] == [True] * 9
            assert len(results._items) == 0


class TestFiles:
    def test_fifo_is_refused_at_once(self, device: aioacl.Device, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "m.om")
        with pytest.raises(aioacl.ParameterError, match=r"m\.om.*regular file"):
            Raised(lambda: device.load_model(tmp_path / "m.om")).join()

    def test_endless_device_is_refused_at_once(self, device: aioacl.Device) -> None:
        with pytest.raises(aioacl.ParameterError, match="regular file"):
            Raised(lambda: device.load_model("/dev/zero")).join()

    def test_fifo_in_place_of_the_file_makes_the_reload_raise(
        self, device: aioacl.Device, tmp_path: Path
    ) -> None:
        path = tmp_path / "m.om"
        path.write_bytes(negation())
        with device.load_model(path) as model:
            path.unlink()
            os.mkfifo(path)
            device.force_reset().result()
            with pytest.raises(aioacl.ParameterError, match="regular file"):
                Raised(model(X).result).join()
