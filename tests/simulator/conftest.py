"""These tests check the simulator, which is in C and independent of the event loop, so they run only on asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioacl import simulator
from tests import kit

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Uses asyncio, with the same id, instead of the three event loops of tests/conftest.py."""
    return kit.BACKENDS[request.param]


@pytest.fixture
def models() -> Generator[None]:
    """Checks that the test leaves no violation and no model."""
    yield
    assert simulator.violations() == []
    assert simulator.stats().offline_models == 0
