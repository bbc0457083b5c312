"""How much is copied or filled: all, so many bytes, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from tests.kit import TASK_FAULT, no_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
MEGABYTE = 1 << 20


@pytest.mark.parametrize("host", ["pageable", "pinned"])
@pytest.mark.parametrize("size", [0, 1, MEGABYTE + 1])
async def test_upload_and_download_with_nbytes_move_that_much_and_no_more(
    open_device: OpenDevice, size: int, host: str
) -> None:
    whole, kept = 2 * MEGABYTE, 2 * MEGABYTE - size
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(whole) as memory,
        device.pinned(whole) as pinned,
    ):
        there = pinned.view if host == "pinned" else memoryview(bytearray(whole))
        end: Any = pinned if host == "pinned" else there.obj
        await stream.fill(memory, 1)
        there[:] = bytes([2]) * whole
        await stream.upload(memory, end, nbytes=size)
        there[:] = bytes([3]) * whole
        await stream.download(end, memory)
        assert there == bytes([2]) * size + bytes([1]) * kept
        there[:] = bytes([3]) * whole
        await stream.download(end, memory, nbytes=size)
        assert there == bytes([2]) * size + bytes([3]) * kept
        there.release()
