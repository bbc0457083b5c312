"""These tests check the simulator, which is C. The event loop makes no difference, so they run on asyncio only."""

from __future__ import annotations

from typing import Any

import pytest

from tests import kit


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Uses asyncio, with the same id, instead of the three event loops of tests/conftest.py."""
    return kit.BACKENDS[request.param]
