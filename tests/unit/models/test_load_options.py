"""What `load_model` and a model do for programs: labels, warm-up, early reloads, and the numbers of calls."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.paths import DATA
from tests.kit import TASK_FAULT, Raised, Waiting, hanging, raises, reset_call, until, until_now
from tests.support import offline
from tests.support.offline import WEIGHTS, rows

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.kit import OpenDevice

LOAD, EXECUTE = "aclmdlLoadFromMemWithMem", "aclmdlExecuteAsync"


def works(model: aioacl.Model) -> bool:
    return np.array_equal(model(rows()).result(), rows() @ WEIGHTS)


class TestLabel:
    def test_label_names_the_model_in_its_repr_and_events(self, device: aioacl.Device, path: Path) -> None:
        events = device.events()
        with device.load_model(path, label="ranking") as model:
            assert model.label == "ranking"
            assert model.name == str(path)
            assert "ranking" in repr(model)
        loading = next(events)
        assert (loading.kind, loading.text) == ("model_loading", "ranking")

    def test_label_is_the_name_of_the_file_without_its_folder_if_none_is_given(
        self, device: aioacl.Device, path: Path
    ) -> None:
        with device.load_model(path) as model:
            assert model.label == "product.om"
        content = offline.product()
        with device.load_model(content) as model:
            assert model.label == model.name == f"a model of {len(content)} bytes"


class TestWarmUp:
    @pytest.fixture
    def seen(self) -> Generator[list[bytes]]:
        """The inputs of each execution, which a function computes."""
        inputs = list[bytes]()

        def note(execution: simulator.Execution) -> None:
            inputs.append(bytes(execution.inputs[0].memory))

        with simulator.register_model("m", note):
            yield inputs

    def test_load_executes_each_gear_in_each_slot_with_zeros(
        self, device: aioacl.Device, seen: list[bytes]
    ) -> None:
        source = offline.product("2,4,8")
        with device.load_model(source, slots=2, instances=2, warm_up=True) as model:
            assert len(seen) == 2 * 2 * 3
            assert {*seen} == {bytes(24), bytes(48), bytes(96)}
            assert sum(each.executions for each in simulator.models()) == len(seen)
            assert {each.executions for each in simulator.models()} == {2 * 3}
            assert model.busy == 0

    def test_load_without_warm_up_executes_nothing(self, device: aioacl.Device, seen: list[bytes]) -> None:
        with device.load_model(offline.product()):
            assert seen == []

    def test_each_reload_warms_up_again(self, device: aioacl.Device, seen: list[bytes]) -> None:
        with device.load_model(offline.product(), slots=3, warm_up=True) as model:
            assert device.force_reset(grace=0).result().ok
            assert len(seen) == 3
            model(rows(1)).result()
            assert [each == bytes(24) for each in seen] == [True] * 6 + [False]

    def test_images_and_dims_warm_up_each_gear(self, device: aioacl.Device) -> None:
        for source, gears in ((offline.negated_image(), 2), (offline.dims(), 2)):
            before = simulator.calls(EXECUTE)
            with device.load_model(source, slots=1, warm_up=True):
                assert simulator.calls(EXECUTE) == before + gears

    def test_results_after_a_warm_up_are_right(self, device: aioacl.Device) -> None:
        with device.load_model(offline.product(), slots=2, warm_up=True) as model:
            assert all(works(model) for _ in range(4))

    def test_load_whose_warm_up_fails_raises_the_failure_and_leaves_nothing(
        self, device: aioacl.Device
    ) -> None:
        with (
            simulator.fault(EXECUTE, async_error=TASK_FAULT, nth=2),
            pytest.raises(aioacl.DeviceFault) as caught,
        ):
            device.load_model(offline.product(), slots=2, warm_up=True).result()
        assert caught.value.action == "new_stream"
        assert caught.value.hint == "The model was not loaded. Load it again, or with warm_up=False."
        assert until_now(lambda: simulator.models() == ())
        with device.load_model(offline.product(), slots=2, warm_up=True) as model:
            assert works(model)

    def test_reload_whose_warm_up_fails_raises_the_failure_and_the_next_call_loads(
        self, device: aioacl.Device
    ) -> None:
        with device.load_model(offline.product(), slots=1, warm_up=True) as model:
            assert device.force_reset(grace=0).result().ok
            with simulator.fault(EXECUTE, async_error=TASK_FAULT, nth=1), pytest.raises(aioacl.DeviceFault):
                model(rows()).result()
            assert works(model)

    @pytest.mark.leaves(
        "offline_models"
    )  # the execution that the reset dropped belongs to an abandoned model
    def test_reset_ends_a_warm_up_that_does_not_end(self, device: aioacl.Device) -> None:
        with simulator.fault(EXECUTE, late_complete=3600, nth=1):
            load = Raised(device.load_model(offline.product(), slots=1, warm_up=True).result)
            assert until_now(lambda: simulator.calls(EXECUTE) == 1)
            assert device.force_reset(grace=0).result().ok
            with pytest.raises(aioacl.ResetError):
                load.join()
        with device.load_model(offline.product(), slots=1, warm_up=True) as model:
            assert works(model)

    @pytest.mark.anyio
    @pytest.mark.parametrize("ends_by", ["cancellation", "timeout"])
    async def test_load_that_ends_early_in_its_warm_up_is_unloaded_when_the_warm_up_is_done(
        self, open_device: OpenDevice, ends_by: str
    ) -> None:
        async with open_device() as device, anyio.create_task_group() as group:
            simulator.hang_call(EXECUTE)
            if ends_by == "cancellation":
                load = Waiting(group, partial(device.load_model, offline.product(), warm_up=True))
                await until(hanging(EXECUTE))
                await load.cancel_and_wait()
                assert load.cancelled
            else:
                limit = 0.02
                while not hanging(EXECUTE)():
                    with suppress(aioacl.DeviceTimeout):
                        # An earlier load may hang by now, which had timed out before its warm-up.
                        async with device.load_model(offline.product(), warm_up=True, timeout=limit):
                            pass
                    limit *= 2
            simulator.release_call(EXECUTE)
            await until(lambda: not simulator.models())


class TestReload:
    def test_reload_after_a_reset_loads_once_and_the_next_call_does_not_load(
        self, device: aioacl.Device, model: aioacl.Model
    ) -> None:
        loads = simulator.calls(LOAD)
        model.reload().result()
        assert simulator.calls(LOAD) == loads
        assert device.force_reset(grace=0).result().ok
        model.reload().result()
        model.reload().result()
        assert works(model)
        assert simulator.calls(LOAD) == loads + 1

    def test_reload_loads_a_model_that_calls_must_not_load(self, device: aioacl.Device) -> None:
        with device.load_model(offline.product(), reload=False) as model:
            assert device.force_reset(grace=0).result().ok
            with pytest.raises(aioacl.StaleHandleError) as caught:
                model(rows()).result()
            assert "call model.reload() first" in caught.value.hint
            model.reload().result()
            assert works(model)

    def test_reload_of_a_closed_model_is_refused(self, device: aioacl.Device) -> None:
        model = device.load_model(offline.product()).result()
        reload = model.reload()
        model.close().result()
        with pytest.raises(aioacl.ParameterError, match="the model is closed"):
            reload.result()
        with pytest.raises(aioacl.ParameterError, match="the model is closed"):
            model.reload()

    def test_failed_reload_raises_the_error_and_the_next_one_loads(
        self, device: aioacl.Device, model: aioacl.Model
    ) -> None:
        assert device.force_reset(grace=0).result().ok
        simulator.fail_call(LOAD, 145006)
        with pytest.raises(aioacl.ParameterError) as caught:
            model.reload().result()
        assert caught.value.code == 145006
        model.reload().result()
        assert works(model)

    @pytest.mark.anyio
    async def test_reload_waits_for_the_reset_and_shares_the_load_of_a_call(
        self, open_device: OpenDevice
    ) -> None:
        async with open_device() as device, device.load_model(offline.product()) as model:
            loads = simulator.calls(LOAD)
            simulator.hang_call(reset_call())
            async with anyio.create_task_group() as group:
                reset = Waiting(group, partial(device.force_reset, grace=0))
                await until(hanging(reset_call()))
                await raises(aioacl.DeviceResetting, model.reload(wait=False))
                late = await raises(aioacl.DeviceTimeout, model.reload(timeout=0.02))
                assert isinstance(late, aioacl.DeviceTimeout)
                assert late.started is False
                waiting = [Waiting(group, model.reload), Waiting(group, lambda: model(rows()))]
                simulator.release_call(reset_call())
                assert (await reset.outcome()).ok
                for each in waiting:
                    await each.outcome()
            assert simulator.calls(LOAD) == loads + 1

    @pytest.mark.anyio
    async def test_cancelled_reload_ends_and_its_load_serves_the_next_call(
        self, open_device: OpenDevice
    ) -> None:
        async with open_device() as device, device.load_model(offline.product()) as model:
            loads = simulator.calls(LOAD)
            assert (await device.force_reset(grace=0)).ok
            simulator.hang_call(LOAD)
            async with anyio.create_task_group() as group:
                reload = Waiting(group, model.reload)
                await until(hanging(LOAD))
                await reload.cancel_and_wait()
                assert reload.cancelled
            simulator.release_call(LOAD)
            assert np.array_equal(await model(rows()), rows() @ WEIGHTS)
            assert simulator.calls(LOAD) == loads + 1


class TestBusyAndWaiting:
    def test_slots_in_use_and_calls_in_the_queue_are_counted(self, model: aioacl.Model) -> None:
        assert (model.busy, model.waiting) == (0, 0)
        offline.hold(model)
        calls = [Raised(lambda: model(rows()).result()) for _ in range(5)]
        assert until_now(lambda: (model.busy, model.waiting) == (2, 3))
        offline.release(model)
        for call in calls:
            call.join()
        assert until_now(lambda: (model.busy, model.waiting) == (0, 0))

    def test_slot_of_a_call_that_timed_out_is_busy_until_its_work_is_done(self, model: aioacl.Model) -> None:
        offline.hold(model)
        for limit in offline.short_limits():
            with pytest.raises(aioacl.DeviceTimeout):
                model(rows()).result(limit)
        assert model.busy >= 1
        assert model.waiting == 0
        offline.release(model)
        assert until_now(lambda: model.busy == 0)

    def test_closed_model_has_no_calls(self, device: aioacl.Device) -> None:
        model = device.load_model(DATA / "digits.om").result()
        model.close().result()
        assert (model.busy, model.waiting) == (0, 0)
