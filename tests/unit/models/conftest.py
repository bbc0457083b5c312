"""Fixtures of the tests of models: no test leaves a model in the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioacl import simulator

pytest.importorskip(
    "onnx", reason="the models of these tests need the package onnx: pip install 'aioacl[onnx]'"
)
pytest.importorskip("onnxruntime", reason="executing a model needs onnxruntime: pip install 'aioacl[onnx]'")

from tests.kit import drop_abandoned, until_now
from tests.support import offline

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    import aioacl


@pytest.fixture(autouse=True)
def _no_model_is_left(request: pytest.FixtureRequest) -> Generator[None]:
    """The maintenance thread unloads a model that was dropped, so the fixture waits."""
    if simulator.models():  # of a device that failed in a test of another folder
        drop_abandoned()
    yield
    if request.node.get_closest_marker("leaves"):
        return
    until_now(lambda: simulator.models() == (), 5)
    left = simulator.models()
    if left:
        drop_abandoned()
    assert left == ()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of `offline.product()`."""
    made = tmp_path / "product.om"
    made.write_bytes(offline.product())
    return made


@pytest.fixture
def model(device: aioacl.Device) -> Generator[aioacl.Model]:
    """`offline.product()` with two slots."""
    made = device.load_model(offline.product(), slots=2).result()
    yield made
    made.close().result()
