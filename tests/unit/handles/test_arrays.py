"""Buffers as arrays, bytes and views: pinned memory exports them; device memory and closed buffers raise."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aioacl

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


async def test_array_of_a_pinned_buffer_has_its_bytes(open_device: OpenDevice) -> None:
    async with open_device() as device, device.pinned(8) as pinned:
        pinned.view[:] = b"12345678"
        array = np.asarray(pinned)
        assert bytes(array) == b"12345678"
        del array


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        np.array,
        np.frombuffer,
        np.ascontiguousarray,
        lambda buffer: np.asarray(buffer, dtype=np.uint8),
        lambda buffer: np.array([buffer]),
        lambda buffer: np.add(buffer, 1),
        memoryview,
        bytes,
        bytearray,
        (ctypes.c_ubyte * 8).from_buffer,
    ],
)
async def test_array_or_view_of_a_closed_pinned_buffer_raises_that_it_is_closed(
    open_device: OpenDevice, convert: Callable[[Any], object]
) -> None:
    async with open_device() as device:
        async with device.pinned(8) as pinned:
            pass
        with pytest.raises(
            aioacl.ParameterError, match=r"the pinned buffer is closed. Make a new pinned buffer"
        ):
            convert(pinned)


async def test_array_protocol_of_a_pinned_buffer_shares_or_copies_its_memory(open_device: OpenDevice) -> None:
    async with open_device() as device, device.pinned(8) as pinned:
        array = pinned.__array__()
        array[:] = 7
        assert bytes(pinned.view) == b"\7" * 8
        wide = pinned.__array__(np.float32, copy=True)
        assert wide.tolist() == [7.0] * 8
        del array
