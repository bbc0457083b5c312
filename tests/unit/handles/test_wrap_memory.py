"""Buffers of memory that another library allocated: which are refused, and when their owner is released."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aioacl
from aioacl import lowlevel, simulator, testing
from tests.kit import FAULT, Raised, held_fill, no_call, reset_by_other_code, turns, until

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
SIZE = 64


class Owner:
    """An object that keeps memory alive."""


def owned(
    device: aioacl.Device, memory: aioacl.DeviceBuffer
) -> tuple[aioacl.DeviceBuffer, weakref.ref[Owner]]:
    """Returns a wrapped buffer, and a weak reference to its owner."""
    owner = Owner()
    return device.wrap_memory(memory.address, memory.nbytes, owner=owner), weakref.ref(owner)


async def test_wrapped_memory_is_copied_and_filled_and_never_freed(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        with no_call():
            wrapped = device.wrap_memory(memory.address, SIZE)
        assert isinstance(wrapped, aioacl.DeviceBuffer)
        assert (wrapped.address, wrapped.nbytes, wrapped.stale) == (memory.address, SIZE, False)
        stream.fill(wrapped, 3)
        back = bytearray(SIZE)
        await stream.copy(back, memory)
        assert back == bytes([3]) * SIZE
        await stream.upload(wrapped, bytes(range(SIZE)))
        await stream.download(back, wrapped)
        assert back == bytes(range(SIZE))
        await wrapped.close()
        await wrapped.close()
        assert simulator.calls("aclrtFree") == 0
        with pytest.raises(aioacl.ParameterError, match="the device buffer is closed"):
            stream.fill(wrapped, 1)


async def test_wrapped_memory_of_a_raw_allocation_works(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        functions, pointer = lowlevel.on(device), lowlevel.ffi.new("void **")
        functions.aclrtMalloc(pointer, SIZE, lowlevel.constants.ACL_MEM_MALLOC_HUGE_FIRST)
        wrapped = device.wrap_memory(int(lowlevel.ffi.cast("uintptr_t", pointer[0])), SIZE)
        await stream.fill(wrapped, 9)
        await wrapped.close()
        functions.aclrtFree(pointer[0])


async def test_wrapped_memory_of_no_bytes_works(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        wrapped = device.wrap_memory(np.int64(memory.address), 0)
        await stream.copy(wrapped, b"")
        await stream.copy(memory, wrapped)
        await wrapped.close()
        assert simulator.calls("aclrtMemcpyAsync") == 0


def test_wrap_during_which_the_device_is_reset_raises_device_reset(device: aioacl.Device) -> None:
    class Resetting:
        def __index__(self) -> int:
            assert device.force_reset(grace=0).result().ok
            return SIZE

    with pytest.raises(aioacl.DeviceReset, match=r"wrap_memory on device 0.*was reset .*Make new handles"):
        device.wrap_memory(16, Resetting())
    buffer = device.wrap_memory(16, SIZE)
    buffer.close().result()


async def test_wrap_on_a_closed_device_raises_parameter_error(open_device: OpenDevice) -> None:
    device = await open_device()
    await device.close()
    with pytest.raises(aioacl.ParameterError, match="the device is closed"):
        device.wrap_memory(16, 1)


async def test_wrap_on_a_quarantined_device_raises_device_quarantined(open_device: OpenDevice) -> None:
    async with open_device() as device:
        simulator.fail_call("aclrtResetDeviceForce", FAULT, times=100)
        assert not (await device.force_reset(grace=0)).ok
        with pytest.raises(aioacl.DeviceQuarantined):
            device.wrap_memory(16, 1)
        simulator.clear()
        assert (await device.force_reset(grace=0)).ok


async def test_wrap_while_a_reset_drains_raises_device_resetting(open_device: OpenDevice) -> None:
    async with open_device() as device:
        async with device.lease():
            resetting = Raised(lambda: device.force_reset(grace=20).result())
            await until(lambda: device.state is aioacl.State.DRAINING)
            holder = device.wrap_memory(16, 1)  # a reset waits for the holder of a lease
            other = Raised(lambda: device.wrap_memory(16, 1))
            with pytest.raises(aioacl.DeviceResetting, match="the device is DRAINING"):
                other.join()
            del other
        await until(lambda: not resetting.running)
        assert holder.stale
        await holder.close()


async def test_closed_buffer_releases_its_owner(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(SIZE) as memory:
        wrapped, owner = owned(device, memory)
        await turns()
        assert owner() is not None
        await wrapped.close()
        assert owner() is None


async def test_buffer_closed_in_flight_releases_its_owner_when_the_last_work_is_done(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        wrapped, owner = owned(device, memory)
        with simulator.held(stream):
            ticket = stream.fill(wrapped, 1)
            await wrapped.close()
            del wrapped
            await turns()
            assert owner() is not None
        await ticket
        await until(lambda: owner() is None)


async def test_buffer_that_is_dropped_warns_and_releases_its_owner(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(SIZE) as memory:
        wrapped, owner = owned(device, memory)
        with pytest.warns(ResourceWarning, match="a device buffer of 64 bytes was not closed") as caught:
            del wrapped
        assert caught[0].filename == __file__
        await until(lambda: owner() is None)
        with pytest.warns(ResourceWarning, match="64 bytes was not closed"):
            device.wrap_memory(memory.address, SIZE)


async def test_buffer_in_a_cycle_with_its_owner_is_collected(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(SIZE) as memory:
        owner: Any = Owner()
        owner.buffer = device.wrap_memory(memory.address, SIZE, owner=owner)
        gone = weakref.ref(owner)
        del owner
        with pytest.warns(ResourceWarning, match="not closed"):
            gc.collect()
        await until(lambda: gc.collect() >= 0 and gone() is None)


@pytest.mark.parametrize("how", ["force_reset", "other code"])
async def test_reset_makes_the_buffer_stale_and_releases_its_owner(open_device: OpenDevice, how: str) -> None:
    async with open_device() as device, device.create_stream() as stream:
        memory = await device.allocate(SIZE)
        wrapped, owner = owned(device, memory)
        held_fill(stream, wrapped)
        if how == "force_reset":
            assert (await device.force_reset(grace=0)).ok
        else:
            reset_by_other_code()
        await until(lambda: device.state is aioacl.State.OPEN and owner() is None)
        assert wrapped.stale
        async with device.create_stream() as other:
            with pytest.raises(aioacl.StaleHandleError):
                other.fill(wrapped, 1)
        await wrapped.close()
        del wrapped  # no warning: a stale buffer need not be closed


async def test_buffers_made_after_a_reset_keep_their_owners_until_the_next_reset(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        first, second = Owner(), Owner()
        one = device.wrap_memory(16, 1, owner=first)
        assert (await device.force_reset(grace=0)).ok
        two = device.wrap_memory(16, 1, owner=second)
        gone = weakref.ref(first), weakref.ref(second)
        del first, second
        await until(lambda: gone[0]() is None)
        await device.memory_info()
        assert gone[1]() is not None
        assert (await device.force_reset(grace=0)).ok
        await until(lambda: gone[1]() is None)
        del one, two


async def test_close_of_the_device_releases_the_owners_of_open_buffers(open_device: OpenDevice) -> None:
    device = await open_device()
    owner = Owner()
    wrapped, gone = device.wrap_memory(16, 1, owner=owner), weakref.ref(owner)
    del owner
    await device.close()
    assert gone() is None
    await wrapped.close()


async def test_many_wrapped_buffers_leave_one_entry_for_the_next_reset(open_device: OpenDevice) -> None:
    async with open_device() as device:
        for _ in range(50):
            await device.wrap_memory(16, 1, owner=Owner()).close()
        assert len(device._manager.deferred.leftovers) <= 1


def test_audit_names_the_line_that_wrapped_the_memory(device: aioacl.Device) -> None:
    kept: list[aioacl.DeviceBuffer] = []

    def run() -> None:
        with testing.audit(patience=0):
            kept.append(device.wrap_memory(16, 1))
            assert testing.origin_of(kept[0]).startswith("tests/unit/handles/test_wrap_memory.py:")

    with pytest.raises(testing.AuditFailed, match=r"a device buffer of 1 bytes on device 0 .*still open"):
        run()
    kept[0].close().result()


async def test_wrapped_buffer_in_a_with_block_raises_and_names_close(open_device: OpenDevice) -> None:
    async with open_device() as device:
        wrapped: Any = device.wrap_memory(16, 1)
        with (
            pytest.raises(
                TypeError, match=r"expected an object that `with` can close, got .*`finally` block"
            ),
            wrapped,
        ):
            pass
        await wrapped.close()
