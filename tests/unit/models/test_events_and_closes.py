"""The events of loads, and closes of models whose calls are stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._models import lifetime
from tests.kit import FAULT, Raised, Waiting, drop_abandoned, elsewhere, in_thread, raises, until
from tests.support import offline
from tests.support.offline import rows

if TYPE_CHECKING:
    from tests.kit import OpenDevice


@pytest.mark.anyio
async def test_load_wakes_a_listener_for_events(open_device: OpenDevice) -> None:
    kinds = list[str]()
    async with open_device() as device, anyio.create_task_group() as group:
        events = device.events()

        async def listen() -> None:
            kinds.extend([(await anext(events)).kind for _ in range(2)])

        group.start_soon(listen)
        await until(lambda: device._manager.admission._subscribers)
        async with device.load_model(offline.product()):
            await until(lambda: len(kinds) == 2)
    assert kinds == ["model_loading", "model_loaded"]


def test_close_does_not_wait_for_a_call_that_is_stuck_in_c(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetime, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(lifetime, "STUCK_SECONDS", 1.0)
    model = device.load_model(offline.product()).result()
    call = Raised.hung_in("aclmdlExecuteAsync", model(rows(2)).result)
    with pytest.warns(
        aioacl.AclWarning, match="the close of a model waits for a call that has been inside C"
    ):
        in_thread(model.close().result)
    monkeypatch.undo()  # on a slow machine, the unload could seem to be stuck
    simulator.release_call("aclmdlExecuteAsync")
    call.join()
    model.close().result()
    assert simulator.models() == ()


async def fail(model: aioacl.Model) -> None:
    """Poisons the device with a call whose work is never known to be done."""
    with simulator.fault("aclmdlExecuteAsync", sticky=FAULT, nth=1):
        await raises(aioacl.DeviceFault, model(rows(2)))
    assert model._life.load is not None
    assert not model._life.load.slots.back


@pytest.mark.anyio
@pytest.mark.leaves("offline_models")  # a device that has failed keeps its model
@pytest.mark.parametrize("resets", ["allowed", pytest.param("never", marks=pytest.mark.primary_only)])
async def test_91_close_after_a_fault_does_not_wait_for_a_reset(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, resets: str
) -> None:
    monkeypatch.setattr(lifetime, "FAULTY_SECONDS", 0.0)
    monkeypatch.setenv("AIOACL_RESETS", resets)
    async with open_device() as device:
        async with device.load_model(offline.product()) as model:
            abandoned = device.health.abandoned_models
            await fail(model)
        assert not model._life._over
        assert (await device.force_reset(foreign=True)).ok
        await until(lambda: model._life._over)
        assert device.health.abandoned_models == abandoned + 1
    if resets == "never":  # the close has left one set
        elsewhere("aclrtResetDevice")


@pytest.mark.anyio
@pytest.mark.leaves("offline_models")
async def test_91_last_close_ends_the_close_of_a_model_after_a_fault(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetime, "FAULTY_SECONDS", 0.0)
    async with open_device() as device, device.load_model(offline.product()) as model:
        await fail(model)
    assert device.state is aioacl.State.CLOSED
    await model.close()
    assert model._life._over


@pytest.mark.anyio
@pytest.mark.leaves("offline_models")
async def test_91_close_after_a_fault_waits_for_the_reset_of_a_supervisor(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifetime, "FAULTY_SECONDS", 0.0)
    async with open_device() as device, device.supervise():
        model = await device.load_model(offline.product())
        await fail(model)
        await model.close()
        assert model._life._over


@pytest.mark.anyio
async def test_last_close_frees_a_closed_model_whose_call_had_not_ended(open_device: OpenDevice) -> None:
    async with anyio.create_task_group() as group:
        async with open_device() as device:
            model = await device.load_model(offline.product(), slots=1)
            offline.hold(model)
            call = Waiting(group, lambda: model(rows(2)))
            await until(offline.enqueued)
            assert model._close_later()  # the end of a cancelled block
            assert simulator.models()
        assert model._life._over
        await raises(aioacl.AclError, call.outcome())
    drop_abandoned()
