"""The events of loads, and closes of models whose calls are stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._models import lifetime
from tests.kit import Raised, in_thread, until
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
