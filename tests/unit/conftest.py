"""Fixtures of tests without an event loop: a device, a stream and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    import aioacl
    from tests.kit import OpenDevice


@pytest.fixture
def device(open_device: OpenDevice) -> Generator[aioacl.Device]:
    opened = open_device().result()
    yield opened
    opened.close().result()


@pytest.fixture
def stream(device: aioacl.Device) -> Generator[aioacl.Stream]:
    made = device.create_stream().result()
    yield made
    made.close().result()


@pytest.fixture
def memory(device: aioacl.Device) -> Generator[aioacl.DeviceBuffer]:
    made = device.allocate(64).result()
    yield made
    made.close().result()
