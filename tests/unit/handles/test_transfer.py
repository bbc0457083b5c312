"""How much is copied or filled: all bytes, `nbytes` bytes, or none."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from tests.kit import equipped, failing_fill, no_call, raises

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
MEGABYTE = 1 << 20


def address_of(memory: bytearray) -> int:
    """The address of the first byte."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


@pytest.mark.parametrize("host", ["pageable", "pinned"])
@pytest.mark.parametrize("size", [0, 1, MEGABYTE + 1])
async def test_upload_and_download_with_nbytes_copy_exactly_that_many_bytes(
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


@pytest.mark.parametrize("start", [0, 1, 15, 16, 63, 64])
@pytest.mark.parametrize("size", [262143, 262144, 262145, 262207, 262208, MEGABYTE - 1, MEGABYTE])
async def test_download_changes_exactly_its_target(open_device: OpenDevice, start: int, size: int) -> None:
    """A download of at least 256 KiB is copied in whole cache lines; the first and the last may be incomplete."""
    expected = bytes(range(1, 252)) * (size // 251 + 1)
    there = bytearray(MEGABYTE + 128)
    aligned = -address_of(there) % 64
    with memoryview(there) as view:
        target = view[aligned + start : aligned + start + size]
        async with equipped(open_device, size) as (_, stream, memory):
            await stream.upload(memory, expected, nbytes=size)
            await stream.download(target, memory)
        target.release()
    after = len(there) - aligned - start - size
    assert there == bytes(aligned + start) + expected[:size] + bytes(after)


# --- work of no bytes ------------------------------------------------------------------------------------------------

EMPTY: dict[str, Callable[[aioacl.Stream, aioacl.DeviceBuffer, aioacl.PinnedBuffer], aioacl.Ticket]] = {
    "copy of nothing": lambda stream, memory, _: stream.copy(memory, b""),
    "copy of no bytes to the host": lambda stream, memory, _: stream.copy(bytearray(), memory, nbytes=0),
    "copy of no bytes of pinned memory": lambda stream, memory, pinned: stream.copy(memory, pinned, nbytes=0),
    "fill of no bytes": lambda stream, memory, _: stream.fill(memory, 7, nbytes=0),
    "fill of no bytes of pinned memory": lambda stream, _, pinned: stream.fill(pinned, 7, nbytes=0),
}
of_each_kind = pytest.mark.parametrize("enqueue", EMPTY.values(), ids=EMPTY)


@of_each_kind
async def test_work_of_no_bytes_calls_no_acl_and_its_ticket_has_the_position_of_the_work_before(
    open_device: OpenDevice, enqueue: Callable[..., aioacl.Ticket]
) -> None:
    async with equipped(open_device) as (device, stream, memory), device.pinned(64) as pinned:
        with no_call():
            await enqueue(stream, memory, pinned)
        with simulator.held(stream):
            before = stream.fill(memory, 1)
            with no_call():
                ticket = enqueue(stream, memory, pinned)
            assert (ticket.position, ticket.done) == (before.position, False)
            del ticket  # dropping this ticket does not affect `before`
        await before
        failing_fill(stream, memory)
        ticket = enqueue(stream, memory, pinned)
        await raises(aioacl.DeviceFault, ticket)
        await stream.renew()


@pytest.mark.parametrize("direction", ["upload", "download"])
async def test_transfer_of_no_bytes_calls_no_acl(open_device: OpenDevice, direction: str) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        host = bytearray(64)
        ends: Any = (memory, host) if direction == "upload" else (host, memory)
        with no_call():
            await getattr(stream, direction)(*ends, nbytes=0)


@of_each_kind
async def test_work_of_no_bytes_on_a_closed_buffer_is_refused(
    open_device: OpenDevice, enqueue: Callable[..., aioacl.Ticket]
) -> None:
    async with open_device() as device, device.create_stream() as stream:
        memory, pinned = await device.allocate(64), await device.pinned(64)
        await memory.close()
        await pinned.close()
        with pytest.raises(aioacl.ParameterError, match="is closed"):
            enqueue(stream, memory, pinned)
