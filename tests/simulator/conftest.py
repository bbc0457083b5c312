"""These tests check the simulator, which is in C and independent of the event loop, so they run only on asyncio."""

from __future__ import annotations

from typing import Any

import pytest

from tests import kit


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Uses asyncio, with the same id, instead of the three event loops of tests/conftest.py."""
    return kit.BACKENDS[request.param]
