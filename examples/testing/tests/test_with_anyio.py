"""With anyio's plugin: each test runs on asyncio and on trio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from framestore import FrameStore, open_store

from aioacl.testing import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store() -> AsyncIterator[FrameStore]:
    async with open_store() as store:
        yield store


async def test_frames_that_are_put_concurrently_are_all_kept(store: FrameStore) -> None:
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(store.put, str(number), bytes([number]) * 100)
    assert [await store.get(str(number)) for number in range(20)] == [bytes([n]) * 100 for n in range(20)]


async def test_a_reader_waits_for_a_slow_device(store: FrameStore, aioacl_simulator: Any) -> None:
    await store.put("moon", b"pale")
    found: list[bytes] = []

    async def read() -> None:
        found.append(await store.get("moon"))

    async with anyio.create_task_group() as group:
        with aioacl_simulator.held(store.stream):
            group.start_soon(read)
            await wait_until(lambda: aioacl_simulator.pending(store.stream) > 0)
            assert not found
    assert found == [b"pale"]
