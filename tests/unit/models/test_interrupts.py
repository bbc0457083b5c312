"""Ctrl-C on a plain thread while it calls or closes a model: no slot and no model is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from aioacl import simulator
from tests.kit import PATIENCE_SECONDS, until_now
from tests.support import offline
from tests.support.interrupts import walk
from tests.support.offline import WEIGHTS, rows

if TYPE_CHECKING:
    import aioacl

pytestmark = pytest.mark.thorough


def test_close_that_is_interrupted_is_ended_by_the_next_close(device: aioacl.Device) -> None:
    def load() -> None:
        models[:] = [device.load_model(offline.product(), slots=1).result(PATIENCE_SECONDS)]

    def check() -> None:
        models[0].close().result(PATIENCE_SECONDS)
        assert simulator.models() == ()
        load()

    models: list[aioacl.Model] = []
    load()
    assert walk(lambda: models[0].close().result(), check) > 100
    models[0].close().result()


def test_call_that_is_interrupted_gives_its_slot_back(model: aioacl.Model) -> None:
    def check() -> None:
        assert until_now(lambda: offline.all_free(model))
        assert np.array_equal(model(rows()).result(PATIENCE_SECONDS), rows() @ WEIGHTS)

    assert walk(lambda: model(rows()).result(), check) > 20


def test_reload_that_is_interrupted_loads_the_model_once(model: aioacl.Model, device: aioacl.Device) -> None:
    def check() -> None:
        assert np.array_equal(model(rows()).result(PATIENCE_SECONDS), rows() @ WEIGHTS)
        assert len(simulator.models()) == 1
        assert device.force_reset(grace=0).result(PATIENCE_SECONDS).ok

    assert device.force_reset(grace=0).result().ok
    assert walk(lambda: model(rows()).result(), check) > 50


def test_close_after_an_interrupted_reload_unloads_the_model(device: aioacl.Device) -> None:
    def prepare() -> None:
        models[:] = [device.load_model(offline.product(), slots=1).result(PATIENCE_SECONDS)]
        assert device.force_reset(grace=0).result(PATIENCE_SECONDS).ok

    def check() -> None:
        models[0].close().result(PATIENCE_SECONDS)
        assert until_now(lambda: simulator.models() == ())
        prepare()

    models: list[aioacl.Model] = []
    prepare()
    assert walk(lambda: models[0](rows()).result(), check) > 50
    models[0].close().result()
