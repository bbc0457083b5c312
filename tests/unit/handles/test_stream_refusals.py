"""Invalid arguments to a stream are refused before C is called, with a message that states the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aioacl
from tests.kit import no_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
MEGABYTE = 1 << 20


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a source that is too large": (lambda s: s.stream.copy(s.memory, bytes(65)), "nbytes="),
    "a target that is too small": (lambda s: s.stream.copy(bytearray(3), s.memory), "nbytes="),
    "a copy longer than the memory": (
        lambda s: s.stream.copy(s.memory, bytes(64), nbytes=65),
        "nbytes=",
    ),
    "a negative size": (lambda s: s.stream.copy(s.memory, bytes(64), nbytes=-1), "number of bytes"),
    "a size that is not a number": (
        lambda s: s.stream.copy(s.memory, bytes(64), nbytes="1"),
        "number of bytes",
    ),
    "a size that is a bool": (lambda s: s.stream.copy(s.memory, bytes(64), nbytes=True), "number of bytes"),
    "a read-only target": (lambda s: s.stream.copy(bytes(64), s.memory), "pass a DeviceBuffer"),
    "a source without a buffer": (lambda s: s.stream.copy(s.memory, 5), "Pass a DeviceBuffer"),
    "text": (lambda s: s.stream.copy(s.memory, "text"), "Pass a DeviceBuffer"),
    "memory that is not contiguous": (
        lambda s: s.stream.copy(s.memory, np.zeros((8, 16), np.uint8)[:, ::2]),
        "contiguous buffer",
    ),
    "host to host": (lambda s: s.stream.copy(s.pinned, s.pinned), "Copy host memory yourself"),
    "pageable to pinned": (lambda s: s.stream.copy(s.pinned, bytes(64)), "Copy host memory yourself"),
    "pageable to pageable": (lambda s: s.stream.copy(bytearray(64), bytes(64)), "Copy host memory yourself"),
    "pageable memory that is too large": (
        lambda s: s.stream.copy(s.large, bytes(MEGABYTE + 1)),
        r"device.pinned\(n\), or `await stream.upload",
    ),
    "a fill of pageable memory": (lambda s: s.stream.fill(bytearray(4), 1), "Fill host memory yourself"),
    "a byte that is too large": (lambda s: s.stream.fill(s.memory, 256), "from 0 to 255"),
    "a negative byte": (lambda s: s.stream.fill(s.memory, -1), "from 0 to 255"),
    "a byte that is not an int": (lambda s: s.stream.fill(s.memory, b"x"), "from 0 to 255"),
    "a fill of too much": (lambda s: s.stream.fill(s.memory, 1, nbytes=65), "nbytes="),
    "an event that was never recorded": (lambda s: s.stream.wait_event(s.event), "event.record"),
    "a query of an event that was never recorded": (lambda s: s.event.query(), "event.record"),
    "an event of another device": (lambda s: s.stream.record(s.foreign_event), "stream's device"),
    "memory of another device": (lambda s: s.stream.copy(s.foreign, bytes(64)), "through pinned host memory"),
    "a closed buffer": (lambda s: s.stream.fill(s.closed, 1), "Make a new device buffer"),
}


class Things:
    """Handles that the tests pass as invalid arguments."""

    stream: aioacl.Stream
    memory: aioacl.DeviceBuffer
    large: aioacl.DeviceBuffer
    closed: aioacl.DeviceBuffer
    foreign: aioacl.DeviceBuffer
    pinned: aioacl.PinnedBuffer
    event: aioacl.Event
    foreign_event: aioacl.Event


@pytest.mark.parametrize(("use", "remedy"), REFUSED.values(), ids=REFUSED)
async def test_bad_input_to_a_stream_is_refused_before_c_with_the_remedy(
    open_device: OpenDevice, use: Callable[[Things], Any], remedy: str
) -> None:
    things = Things()
    async with (
        open_device() as device,
        open_device(1) as other,
        device.create_stream() as things.stream,
        device.allocate(64) as things.memory,
        device.allocate(2 * MEGABYTE) as things.large,
        other.allocate(64) as things.foreign,
        device.pinned(64) as things.pinned,
        device.create_event() as things.event,
        other.create_event() as things.foreign_event,
    ):
        things.closed = await device.allocate(64)
        await things.closed.close()
        with no_call(), pytest.raises(aioacl.ParameterError, match=remedy):
            use(things)


TRANSFERS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "an upload to the host": (lambda s, _: s.upload(bytearray(4), bytes(4)), "target comes first"),
    "a download from the host": (lambda s, _: s.download(bytearray(4), bytes(4)), "target comes first"),
    "an upload with target and source swapped": (
        lambda s, m: s.upload(bytearray(64), m),
        "target comes first",
    ),
    "a download with target and source swapped": (
        lambda s, m: s.download(m, bytearray(64)),
        "target comes first",
    ),
    "an empty upload from host to host": (
        lambda s, _: s.upload(bytearray(), b""),
        "target comes first",
    ),
    "an upload of too much": (lambda s, m: s.upload(m, bytes(65)), "at most the smaller"),
    "a download of too much": (lambda s, m: s.download(bytearray(63), m), "at most the smaller"),
    "an upload of more than the memory has": (
        lambda s, m: s.upload(m, bytes(64), nbytes=65),
        "at most the smaller",
    ),
    "a download of more than the memory has": (
        lambda s, m: s.download(bytearray(65), m, nbytes=65),
        "at most the smaller",
    ),
    "a negative size": (lambda s, m: s.upload(m, bytes(64), nbytes=-1), "number of bytes"),
    "a size that is not a number": (lambda s, m: s.download(bytearray(64), m, nbytes="1"), "number of bytes"),
    "a size that is a bool": (lambda s, m: s.upload(m, bytes(64), nbytes=True), "number of bytes"),
    "a read-only target": (lambda s, m: s.download(bytes(64), m), r"writable buffer \(a bytearray"),
    "a source without a buffer": (lambda s, m: s.upload(m, None), "Pass a DeviceBuffer"),
}


@pytest.mark.parametrize(("begin", "remedy"), TRANSFERS.values(), ids=TRANSFERS)
async def test_bad_upload_or_download_is_refused_before_c_with_the_remedy(
    open_device: OpenDevice, begin: Callable[..., Any], remedy: str
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        with no_call(), pytest.raises(aioacl.ParameterError, match=remedy):
            await begin(stream, memory)
