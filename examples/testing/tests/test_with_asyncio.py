"""With pytest-asyncio: a slow device, a failing device and a full device."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from framestore import FrameLost, FrameStore, open_store

import aioacl
from aioacl.testing import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def store() -> AsyncIterator[FrameStore]:
    async with open_store() as store:
        yield store


async def test_get_returns_the_stored_frame(store: FrameStore) -> None:
    await store.put("dawn", b"\x10\x20\x30")
    assert await store.get("dawn") == b"\x10\x20\x30"


async def test_cancelled_read_from_a_slow_device_keeps_the_frame(
    store: FrameStore, aioacl_simulator: Any
) -> None:
    await store.put("noon", b"bright")
    with aioacl_simulator.held(store.stream):  # the stream starts no task until the block ends
        late = asyncio.create_task(store.get("noon"))
        await wait_until(lambda: aioacl_simulator.pending(store.stream) > 0)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
    assert await store.get("noon") == b"bright"


async def test_device_fault_loses_the_frames_but_not_the_store(
    store: FrameStore, aioacl_simulator: Any
) -> None:
    await store.put("dusk", b"red")
    aioacl_simulator.fail_next(store.stream, 507015)  # the next task ends in an AI core exception
    with pytest.raises(FrameLost):
        await store.get("dusk")
    assert not store.names
    await store.put("dusk", b"red again")
    assert await store.get("dusk") == b"red again"


async def test_full_device_raises_and_keeps_the_store_usable(
    store: FrameStore, aioacl_simulator: Any
) -> None:
    aioacl_simulator.fail_call("aclrtMalloc", 207001)  # the next allocation fails: out of memory
    with pytest.raises(aioacl.OutOfMemoryError):
        await store.put("night", b"dark")
    await store.put("night", b"dark")
