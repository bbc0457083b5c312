"""The fixtures of the tables of refused arguments, and of other code that owns streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import aioacl
from tests.support.other_code import Owner
from tests.support.refused import Scene

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.kit import OpenDevice


@pytest.fixture
def scene(device: aioacl.Device) -> Generator[Scene]:
    with aioacl.open_device(1) as other:
        made = Scene(device, other)
        yield made
        made.close()


@pytest.fixture
def owner(open_device: OpenDevice) -> Generator[Owner]:
    del open_device  # the library is loaded
    made = Owner()
    yield made
    made.end()
