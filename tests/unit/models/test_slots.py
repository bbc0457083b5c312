"""The queue for the slots of a model, and the close of a model."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest
import trio

import aioacl
from aioacl import simulator, testing
from aioacl._lifecycle.loaded_models import LoadedModels
from aioacl._models.slots import Slots
from aioacl._wait.current import run_blocking
from aioacl._wait.workers import call_on
from tests.kit import Raised, Waiting, settle_maintenance, turns, until, until_now
from tests.support import offline
from tests.support.offline import WEIGHTS, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice


def works(model: aioacl.Model) -> bool:
    return np.array_equal(model(rows()).result(), rows() @ WEIGHTS)


def waiters(model: aioacl.Model) -> int:
    return offline.load_of(model).slots.waiting


def fail_calls(model: aioacl.Model, count: int) -> None:
    """Lets calls fail, each on another slot."""
    offline.hold(model)
    with simulator.fault("model", async_error=507011):
        calls = [Raised(lambda: model(rows()).result()) for _ in range(count)]
        assert until_now(lambda: offline.enqueued() == count)
        offline.release(model)
        for call in calls:
            with pytest.raises(aioacl.DeviceFault):
                call.join()


def refused_or_works(model: aioacl.Model) -> bool:
    """Calls without a wait for a slot. Returns whether there was one."""
    try:
        return np.array_equal(model(rows(), wait=False).result(), rows() @ WEIGHTS)
    except aioacl.QueueFull:
        return False


class TestQueue:
    def test_call_that_must_not_wait_is_refused_if_all_slots_are_in_use(self, model: aioacl.Model) -> None:
        offline.hold(model)
        running = [Raised(lambda: model(rows()).result()) for _ in range(2)]
        assert until_now(lambda: offline.load_of(model).slots.free == 0)
        with pytest.raises(aioacl.QueueFull) as caught:
            model(rows(), wait=False).result()
        assert caught.value.message == "all 2 slots of the model are in use"
        assert caught.value.hint == (
            "Call the model again later, pass wait=True, or load it with more slots."
        )
        with pytest.raises(aioacl.DeviceTimeout) as late:
            model(rows(), timeout=0.02).result()
        assert late.value.message == "no slot of the model was free in time"
        assert waiters(model) == 0
        offline.release(model)
        for call in running:
            call.join()
        assert np.array_equal(model(rows(), wait=False).result(), rows() @ WEIGHTS)

    def test_maintenance_thread_tries_a_renewal_that_fails_once_for_each_call(
        self, device: aioacl.Device
    ) -> None:
        with device.load_model(offline.product(), slots=1) as model:
            with simulator.fault("aclrtCreateStream|aclrtCreateStreamWithConfig:rc=207001"):
                fail_calls(model, 1)
                slots = offline.load_of(model).slots
                assert until_now(lambda: slots.error is not None)
                run_blocking(lambda: call_on(model._life.manager.maintenance, lambda: None), None)
                with pytest.raises(aioacl.QueueFull):
                    model(rows(), wait=False).result()
            assert until_now(lambda: refused_or_works(model))

    def test_warning_that_is_raised_keeps_no_failed_slot_from_its_renewal(
        self, device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with device.load_model(offline.product(), slots=1, instances=2) as model:
            slots = offline.load_of(model).slots
            renew, tend = aioacl.Stream._renew_now, Slots.tend

            def renew_and_raise(stream: aioacl.Stream) -> None:
                renew(stream)
                raise aioacl.AclWarning("no await raised the error")

            with monkeypatch.context() as patch:
                patch.setattr(
                    Slots, "tend", lambda _: None
                )  # the maintenance thread leaves the slots to this test
                patch.setattr(aioacl.Stream, "_renew_now", renew_and_raise)
                fail_calls(model, 2)
                assert until_now(lambda: slots.busy == 0)
                assert slots.free == 0
                with pytest.raises(aioacl.AclWarning):
                    run_blocking(lambda: call_on(model._life.manager.maintenance, lambda: tend(slots)), None)
                assert slots.free == 2

    def test_instances_have_slots_of_their_own(self, device: aioacl.Device) -> None:
        with device.load_model(offline.product(), slots=2, instances=3) as model:
            assert offline.load_of(model).slots.free == 6

    def test_calls_of_loops_and_threads_get_slots_in_the_order_in_which_they_asked(
        self, device: aioacl.Device
    ) -> None:
        executed: list[float] = []

        def note(execution: simulator.Execution) -> None:
            executed.append(float(np.frombuffer(execution.inputs[0].memory, np.float32)[0]))

        def call(number: int) -> None:
            if number % 3 == 0:
                asyncio.run(awaits(number))
            elif number % 3 == 1:
                trio.run(awaits, number)
            else:
                model(rows(number)).result()

        async def awaits(number: int) -> None:
            await model(rows(number))

        with simulator.register_model("m", note), device.load_model(offline.product(), slots=1) as model:
            offline.hold(model)
            callers = [Raised(lambda: call(0))]
            assert until_now(lambda: offline.load_of(model).slots.free == 0)
            for number in range(1, 10):
                callers.append(Raised(lambda number=number: call(number)))  # type: ignore[misc]
                assert until_now(lambda number=number: waiters(model) == number)  # type: ignore[misc]
            offline.release(model)
            for caller in callers:
                caller.join()
        assert executed == list(range(10))

    @pytest.mark.anyio
    async def test_waiter_that_is_cancelled_leaves_the_queue_and_loses_no_slot(
        self, open_device: OpenDevice
    ) -> None:
        async with open_device() as device, device.load_model(offline.product(), slots=1) as model:
            offline.hold(model)
            async with anyio.create_task_group() as group:
                first = Waiting(group, lambda: model(rows(0)))
                await until(lambda: offline.load_of(model).slots.free == 0)
                others = [Waiting(group, lambda n=n: model(rows(n))) for n in range(1, 5)]  # type: ignore[misc]
                await until(lambda: waiters(model) == 4)
                others[0].cancel()
                others[2].cancel()
                await until(lambda: waiters(model) == 2)
                offline.release(model)
                for number, call in ((0, first), (2, others[1]), (4, others[3])):
                    assert np.array_equal(await call.outcome(), rows(number) @ WEIGHTS)
            assert offline.executions() == 3
            assert offline.all_free(model)

    @pytest.mark.anyio
    async def test_cancelled_waiters_lose_no_slot_whenever_the_slot_comes(
        self, open_device: OpenDevice
    ) -> None:
        async with open_device() as device, device.load_model(offline.product(), slots=1) as model:
            for number in range(30):
                async with anyio.create_task_group() as group:
                    calls = [Waiting(group, lambda: model(rows())) for _ in range(4)]
                    await turns(number)
                    calls[-1].cancel()
                    calls[1].cancel()
                await until(lambda: offline.all_free(model))
                assert waiters(model) == 0


class TestClose:
    def test_close_waits_for_running_calls_and_refuses_waiting_ones(self, device: aioacl.Device) -> None:
        model = device.load_model(offline.product(), slots=1).result()
        offline.hold(model)
        streams = offline.streams_of(model)
        running = Raised(lambda: model(rows(3)).result())
        assert until_now(lambda: offline.load_of(model).slots.free == 0)
        waiting = Raised(lambda: model(rows()).result())
        assert until_now(lambda: waiters(model) == 1)
        closing = [Raised(lambda: model.close().result()) for _ in range(2)]
        with pytest.raises(aioacl.ParameterError, match="the model is closed"):
            waiting.join()
        with pytest.raises(aioacl.DeviceTimeout, match="the model was not closed in time"):
            model.close().result(timeout=0.02)
        assert closing[0].running
        assert closing[1].running
        assert len(simulator.models()) == 1
        simulator.release(streams[0])
        assert np.array_equal(running.join(), rows(3) @ WEIGHTS)
        for close in closing:
            close.join()
        assert simulator.models() == ()

    def test_close_waits_for_the_work_of_a_call_that_timed_out(self, device: aioacl.Device) -> None:
        model = device.load_model(offline.product(), slots=1).result()
        offline.hold(model)
        streams = offline.streams_of(model)
        for limit in offline.short_limits():
            with pytest.raises(aioacl.DeviceTimeout):
                model(rows()).result(timeout=limit)
        closing = Raised(lambda: model.close().result())
        assert until_now(lambda: "closed" in repr(model))
        assert closing.running
        simulator.release(streams[0])
        closing.join()
        assert simulator.violations() == []

    def test_second_close_does_nothing(self, device: aioacl.Device) -> None:
        model = device.load_model(offline.product()).result()
        unloads = simulator.calls("aclmdlUnload")
        for _ in range(3):
            model.close().result()
        assert simulator.calls("aclmdlUnload") == unloads + 1

    def test_closed_model_that_is_still_referred_to_holds_nothing(self, device: aioacl.Device) -> None:
        device.empty_cache().result()
        before = testing.snapshot()
        with device.load_model(offline.product()) as model:
            assert works(model)
            assert "descriptions" in testing.snapshot().more_than(before)

        def grown() -> dict[str, tuple[int, int]]:
            device.empty_cache().result()  # the maintenance thread may give the memory to the cache after the close
            return testing.snapshot().more_than(before, "threads", "native_threads", "events")

        assert until_now(lambda: grown() == {}), grown()
        assert "closed" in repr(model)

    def test_model_that_is_dropped_warns_and_is_unloaded(self, device: aioacl.Device) -> None:
        model = device.load_model(offline.product()).result()
        assert works(model)
        held = [model]
        del model
        with pytest.warns(ResourceWarning, match="a model was not closed: close it, or load it with"):
            held.clear()
        assert until_now(lambda: simulator.models() == ())

    def test_model_that_is_dropped_while_a_call_runs_finishes_the_call(self, device: aioacl.Device) -> None:
        model = device.load_model(offline.product(), slots=1).result()
        offline.hold(model)
        streams = offline.streams_of(model)
        slots = offline.load_of(model).slots
        running = [Raised(model(rows(2)).result)]
        assert until_now(lambda: slots.free == 0)
        del model
        simulator.release(streams[0])
        assert np.array_equal(running[0].join(), rows(2) @ WEIGHTS)
        with pytest.warns(ResourceWarning, match="a model was not closed"):
            running.clear()
        assert until_now(lambda: simulator.models() == ())

    @pytest.mark.leaves("offline_models")  # the model is abandoned, because its work was not done
    @pytest.mark.filterwarnings("ignore:a model was not closed:ResourceWarning")
    def test_load_that_a_reset_ends_before_its_slots_are_back_is_not_garbage(
        self, device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The model was dropped. Only the close that waits for a slot still needs the load, which then frees memory."""
        model = device.load_model(offline.product(), slots=1).result()
        offline.hold(model)
        for limit in offline.short_limits():
            with pytest.raises(aioacl.DeviceTimeout):
                model(rows()).result(timeout=limit)
        load = weakref.ref(offline.load_of(model))
        del model
        settle_maintenance()  # it begins the close
        alive: list[bool] = []
        end_all = LoadedModels.end_all

        def collect(models: LoadedModels, *, healthy: bool) -> int:
            code = end_all(models, healthy=healthy)
            gc.collect()
            alive.append(load() is not None)
            return code

        with monkeypatch.context() as patch:
            patch.setattr(LoadedModels, "end_all", collect)
            assert device.force_reset(grace=0).result().ok
        assert alive == [True]
        assert until_now(lambda: load() is None)

    def test_close_during_a_load_that_fails_returns(self, device: aioacl.Device) -> None:
        model = device.load_model(offline.product()).result()
        assert device.force_reset().result().ok
        simulator.hang_call("aclmdlQuerySizeFromMem")
        simulator.fail_call("aclmdlGetDesc", 145006)
        loading = Raised(lambda: model(rows()).result())
        assert until_now(lambda: simulator.hung("aclmdlQuerySizeFromMem") > 0)
        closing = Raised(lambda: model.close().result())
        assert until_now(lambda: "closed" in repr(model))
        simulator.release_call("aclmdlQuerySizeFromMem")
        with pytest.raises(aioacl.ParameterError):
            loading.join()
        closing.join()

    def test_close_during_a_load_unloads_the_model(self, device: aioacl.Device) -> None:
        model = device.load_model(offline.product()).result()
        assert device.force_reset().result().ok
        loading = Raised.hung_in("aclmdlLoadFromMemWithMem", lambda: model(rows()).result())
        closing = Raised(lambda: model.close().result())
        assert until_now(lambda: "closed" in repr(model))
        simulator.release_call("aclmdlLoadFromMemWithMem")
        with pytest.raises(aioacl.ParameterError, match="the model is closed"):
            loading.join()
        closing.join()
        assert simulator.models() == ()

    def test_closed_models_leave_no_thread(self, device: aioacl.Device) -> None:
        for _ in range(3):
            with device.load_model(offline.product(), instances=2) as model:
                assert works(model)

        def names() -> list[str]:
            return [each.name for each in threading.enumerate() if "aioacl-model" in each.name]

        assert until_now(lambda: names() == [])

    def test_model_has_no_public_constructor(self) -> None:
        kind: Callable[..., Any] = aioacl.Model
        with pytest.raises(
            TypeError, match=r"Model has no public constructor: use device.load_model\(path\)"
        ):
            kind()
