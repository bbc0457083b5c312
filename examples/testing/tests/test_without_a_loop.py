"""Without a loop: a device as a fixture, several devices, and a test for cards only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from framestore import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    import aioacl


def test_a_device_is_a_fixture(aioacl_device: aioacl.Device) -> None:
    with_stream = aioacl_device.create_stream().result()
    with_stream.close().result()
    assert aioacl_device.health.status == "ok"


def test_reset_of_one_device_leaves_the_other_unchanged(aioacl_open: Callable[[int], aioacl.Device]) -> None:
    first, second = aioacl_open(0), aioacl_open(1)
    before = second.generation
    assert first.force_reset(grace=0).result().ok
    assert second.generation == before


def test_store_works_with_asyncio_run() -> None:
    async def main() -> bytes:
        async with open_store() as store:
            await store.put("star", b"far")
            return await store.get("star")

    assert asyncio.run(main()) == b"far"


@pytest.mark.aioacl_hardware
def test_card_has_more_than_one_gibibyte(aioacl_device: aioacl.Device) -> None:
    assert aioacl_device.memory_info().result().total > 1 << 30
