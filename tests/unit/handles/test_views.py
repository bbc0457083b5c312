"""Views: slices of buffers. And buffers of 0 bytes."""

from __future__ import annotations

import gc
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import simulator
from tests.kit import equipped, no_call, until

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, pytest.mark.uncached]
BOTH = pytest.mark.parametrize("kind", ["allocate", "pinned"])
BYTES = bytes(range(64))


def array_of(memory: Any, dtype: Any) -> Any:
    """Returns a NumPy array of the bytes. NumPy's stubs do not accept a PinnedBuffer before Python 3.12."""
    return np.frombuffer(memory, dtype)


@contextmanager
def no_call_of(*functions: str) -> Generator[None]:
    """Asserts that none of the ACL functions is called inside the block."""
    before = [simulator.calls(function) for function in functions]
    yield
    assert [simulator.calls(function) for function in functions] == before


@BOTH
@pytest.mark.parametrize(
    "part",
    [slice(2, 5), slice(60, 99), slice(-4, None), slice(None), slice(9, 3), slice(0, 64, 1), slice(64, 64)],
)
async def test_view_has_the_address_and_the_size_of_its_part(
    open_device: OpenDevice, kind: str, part: slice
) -> None:
    async with open_device() as device, getattr(device, kind)(64) as buffer:
        with no_call():
            view = buffer[part]
        expected = range(64)[part]
        assert (view.address, view.size) == (buffer.address + expected.start, len(expected))
        assert type(view) is type(buffer)
        assert view.base is buffer
        assert buffer.base is None
        assert view.generation == buffer.generation


@BOTH
async def test_view_of_a_view_has_the_buffer_as_its_base(open_device: OpenDevice, kind: str) -> None:
    async with open_device() as device, getattr(device, kind)(64) as buffer:
        view = buffer[8:40][4:12][2:]
        assert (view.address - buffer.address, view.size) == (14, 6)
        assert view.base is buffer
        assert "6 bytes at 14 of 64" in repr(view)


async def test_copies_and_fills_of_views_change_only_their_part(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory), device.pinned(64) as pinned:
        expected = np.zeros(64, np.uint8)
        await stream.fill(memory, 0)
        await stream.fill(memory[4:8], 7)
        expected[4:8] = 7
        stream.copy(memory[10:13], b"abc")
        expected[10:13] = list(b"abc")
        pinned.view[:] = BYTES
        stream.copy(memory[20:30], pinned[5:15])
        expected[20:30] = range(5, 15)
        stream.copy(memory[40:44], memory[20:24])
        expected[40:44] = expected[20:24]
        await stream.upload(memory[50:60][2:4], np.array([9, 8], np.uint8))
        expected[52:54] = 9, 8
        found = np.empty(64, np.uint8)
        await stream.download(found, memory)
        assert found.tolist() == expected.tolist()
        part = bytearray(3)
        await stream.download(part, memory[10:13])
        assert part == b"abc"


@BOTH
async def test_view_of_a_closed_buffer_is_refused(open_device: OpenDevice, kind: str) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(8) as other:
        buffer = await getattr(device, kind)(8)
        view = buffer[2:6]
        await buffer.close()
        for use in (
            lambda: stream.copy(other, view),
            lambda: stream.copy(view, other[:4]),
            lambda: stream.fill(view, 0),
            lambda: view[1:2],
            lambda: buffer[1:2],
        ):
            with (
                no_call_of("aclrtFree", "aclrtFreeHost"),
                pytest.raises(aioacl.ParameterError, match="is closed"),
            ):
                use()
        assert "closed" in repr(view)


async def test_view_of_a_closed_pinned_buffer_exports_no_memory(open_device: OpenDevice) -> None:
    async with open_device() as device:
        buffer = await device.pinned(8)
        view = buffer[2:6]
        await buffer.close()
        with pytest.raises(aioacl.ParameterError, match="is closed"):
            _ = view.view


async def test_view_of_device_memory_is_stale_after_a_reset(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(8) as buffer:
        view = buffer[2:6]
        await device.force_reset()
        assert view.stale
        async with device.create_stream() as stream:
            with pytest.raises(aioacl.StaleHandleError):
                stream.fill(view, 0)


async def test_view_of_pinned_memory_outlives_a_reset(open_device: OpenDevice) -> None:
    async with open_device() as device, device.pinned(8) as buffer:
        view = buffer[2:6]
        view.view[:] = b"keep"
        await device.force_reset()
        async with device.create_stream() as stream, device.allocate(4) as memory:
            await stream.copy(memory, view)
            found = bytearray(4)
            await stream.download(found, memory)
        assert found == b"keep"


@BOTH
async def test_view_keeps_its_buffer(open_device: OpenDevice, kind: str) -> None:
    async with open_device() as device:
        buffer = await getattr(device, kind)(8)
        kept, view = weakref.ref(buffer), buffer[2:6]
        del buffer
        gc.collect()
        assert kept() is view.base
        assert view.base is not None
        await view.base.close()


@BOTH
async def test_dropped_view_warns_of_nothing_and_frees_nothing(open_device: OpenDevice, kind: str) -> None:
    async with open_device() as device, getattr(device, kind)(8) as buffer:
        view = buffer[2:6]
        with no_call_of("aclrtFree", "aclrtFreeHost"):
            del view
            gc.collect()
        assert not buffer._closed


@BOTH
async def test_buffer_is_no_sequence(open_device: OpenDevice, kind: str) -> None:
    async with open_device() as device, getattr(device, kind)(8) as buffer:
        for use in (lambda: list(buffer), lambda: 3 in buffer, lambda: len(buffer)):
            with pytest.raises(TypeError):
                use()
        with pytest.raises(TypeError, match=r"got an assignment; use stream\.copy"):
            buffer[0:4] = bytes(4)


async def test_buffer_closed_while_a_copy_uses_its_view_is_freed_after_the_copy(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream:
        buffer = await device.allocate(64)
        before = simulator.calls("aclrtFree")
        with simulator.held(stream):
            stream.fill(buffer[8:16], 1)
            await buffer.close()
            assert simulator.calls("aclrtFree") == before
        await until(lambda: simulator.calls("aclrtFree") == before + 1)


async def test_view_of_a_pinned_buffer_has_the_buffer_protocol(open_device: OpenDevice) -> None:
    async with open_device() as device, device.pinned(16) as pinned:
        pinned.view[:] = BYTES[:16]
        view = pinned[4:12]
        assert bytes(memoryview(view)) == BYTES[4:12]
        array = array_of(view, np.uint16)
        assert array.tobytes() == BYTES[4:12]
        view.view[0] = 255
        assert pinned.view[4] == 255
        del array


async def test_array_of_a_view_keeps_the_memory_after_the_close(open_device: OpenDevice) -> None:
    async with open_device() as device:
        before = simulator.stats().host_blocks
        pinned = await device.pinned(16)
        pinned.view[:] = BYTES[:16]
        array = array_of(pinned[4:12], np.uint8)
        await pinned.close()
        assert array.tobytes() == BYTES[4:12]
        assert simulator.stats().host_blocks > before
        del array
        gc.collect()
        await until(lambda: simulator.stats().host_blocks <= before)


@BOTH
async def test_buffer_of_no_bytes_calls_no_acl_function(open_device: OpenDevice, kind: str) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(8) as other:
        with no_call_of("aclrtMalloc", "aclrtMallocHost", "aclrtFree", "aclrtFreeHost", "aclrtMemcpyAsync"):
            buffer = await getattr(device, kind)(0)
            assert (buffer.size, buffer.address) == (0, 0)
            await stream.copy(other[:0], buffer)
            await stream.copy(buffer, other[:0])
            await stream.fill(buffer, 1)
            await buffer.close()
            await buffer.close()
            with pytest.raises(aioacl.ParameterError, match="is closed"):
                stream.fill(buffer, 1)


def fill_until_refused(stream: aioacl.Stream, buffer: aioacl.DeviceBuffer) -> None:
    def fill() -> NoReturn:
        while True:
            stream.fill(buffer[8:16], 1).result()

    with pytest.raises(aioacl.ParameterError, match="is closed"):
        fill()


async def test_views_are_made_and_used_on_threads_while_the_buffer_is_closed(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        for _ in range(50):
            buffer = await device.allocate(64)

            async with anyio.create_task_group() as group:
                for _ in range(2):
                    group.start_soon(anyio.to_thread.run_sync, fill_until_refused, stream, buffer)
                await buffer.close()
        await stream


async def test_tensor_of_a_pinned_view_has_its_bytes_and_keeps_them(open_device: OpenDevice) -> None:
    async with open_device() as device:
        pinned = await device.pinned(16)
        pinned.view[:] = BYTES[:16]
        tensor: Any = np.from_dlpack(pinned[4:12])
        await pinned.close()
        assert tensor.tobytes() == BYTES[4:12]


async def test_exported_view_of_device_memory_keeps_the_whole_buffer(open_device: OpenDevice) -> None:
    async with open_device() as device:
        buffer = await device.allocate(64)
        before = simulator.calls("aclrtFree")
        capsule = buffer[8:16].__dlpack__(stream=-1)
        await buffer.close()
        assert simulator.calls("aclrtFree") == before
        del capsule
        gc.collect()
        await until(lambda: simulator.calls("aclrtFree") == before + 1)


async def test_view_of_wrapped_memory_is_used_like_its_buffer(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await stream.copy(memory, BYTES)
        wrapped = device.wrap_memory(memory.address, 64, owner=memory)
        found = bytearray(4)
        await stream.copy(found, wrapped[8:12])
        assert found == BYTES[8:12]
        await wrapped.close()
        with pytest.raises(aioacl.ParameterError, match="is closed"):
            stream.copy(found, wrapped[8:12])
