"""These tests check the simulator, which is in C and independent of the event loop, so they run only on asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioacl import simulator
from aioacl._library import runtime
from tests import kit
from tests.simulator import modelfiles
from tests.simulator.modelcalls import described

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Uses asyncio, with the same id, instead of the three event loops of tests/conftest.py."""
    return kit.BACKENDS[request.param]


@pytest.fixture(scope="session")
def onnxruntime() -> None:
    """Loads the installed onnxruntime, which keeps files open until the process ends."""
    runtime.load()
    with described(modelfiles.doubling_onnx()):
        pass


@pytest.fixture
def models() -> Generator[None]:
    """Checks that the test leaves no violation and no model."""
    yield
    assert simulator.violations() == []
    assert simulator.stats().offline_models == 0
