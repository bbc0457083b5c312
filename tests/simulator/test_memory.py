"""Memory misuse that the usage checker reports: writes outside of blocks, reads of bytes that were never written."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

from aioacl import simulator
from tests.simulator.rawacl import opened

if TYPE_CHECKING:
    from tests.kit import OpenDevice


@pytest.mark.uncached
def test_write_after_a_pinned_buffer_is_reported_once(open_device: OpenDevice) -> None:
    with opened(open_device()) as device, opened(device.pinned(100)) as buffer:
        assert simulator.check_memory() == 0
        behind = ctypes.c_ubyte.from_address(ctypes.addressof(ctypes.c_ubyte.from_buffer(buffer)) + 100)
        behind.value = 1
        assert [simulator.check_memory(), simulator.check_memory()] == [1, 1]
        (violation,) = simulator.violations()
        assert "written outside its bounds, at offset 100" in violation
        simulator.forget()
    assert simulator.violations() == []


@pytest.mark.uncached
@pytest.mark.parametrize("offset", [-64, -1, 8, 9, 40, 63, 71])
def test_write_outside_a_small_device_block_is_reported(open_device: OpenDevice, offset: int) -> None:
    with opened(open_device()) as device, opened(device.allocate(8)) as block:
        ctypes.c_ubyte.from_address(block.address + offset).value = 1
        assert simulator.check_memory() == 1
        (violation,) = simulator.violations()
        assert (
            f"block {block.address:#x} (8 bytes) written outside its bounds, at offset {offset}" in violation
        )
        simulator.forget()


@pytest.mark.anyio
async def test_read_of_unwritten_bytes_is_reported_while_watched(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        simulator.watch_uninitialised()
        try:
            async with device.allocate(16) as block:
                await stream.copy(block, b"eight by")
                await stream.copy(bytearray(16), block)
        finally:
            simulator.watch_uninitialised(False)
        (violation,) = simulator.violations()
        assert "byte 8 was never written" in violation
        simulator.forget()
