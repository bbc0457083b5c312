"""The fixture of the tables of refused arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import aioacl
from tests.support.refused import Scene

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture
def scene(device: aioacl.Device) -> Generator[Scene]:
    with aioacl.open_device(1) as other:
        made = Scene(device, other)
        yield made
        made.close()
