"""DLPack exports: buffers that other libraries take as tensors."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aioacl
from aioacl import lowlevel, simulator
from aioacl._base.ffi import pointer
from tests.kit import (
    FAULT,
    PATIENCE_SECONDS,
    TASK_FAULT,
    Blocker,
    Raised,
    held_fill,
    no_call,
    raises,
    streams,
    turns,
    until,
    until_now,
)
from tests.support.dlpack import ASCEND, BOTH, EXTENSION, Consumer, device_blocks, host_blocks

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, pytest.mark.uncached]
SIZE = 64
BYTES = (1, 8, 1)  # code, bits and lanes of uint8


# --- exports of device memory ---------------------------------------------------------------------------------------


@BOTH
async def test_device_buffer_exports_a_tensor_of_its_bytes(open_device: OpenDevice, version: Any) -> None:
    async with open_device() as device, device.allocate(SIZE) as memory:
        with no_call():
            assert memory.__dlpack_device__() == (EXTENSION, 0)
            consumer = Consumer(memory.__dlpack__(max_version=version))
        assert consumer.shown == ((EXTENSION, 0), [SIZE], [1], BYTES)
        assert (consumer.tensor.data, consumer.tensor.byte_offset) == (memory.address, 0)
        assert type(consumer.managed).__name__ == ("Versioned" if version else "Legacy")
        if version:
            assert (consumer.managed.major, consumer.managed.minor, consumer.managed.flags) == (1, 0, 0)
        consumer.end()


async def test_export_names_the_device_type_that_the_consumer_asks_for(open_device: OpenDevice) -> None:
    async with open_device(1) as device, device.allocate(SIZE) as memory:
        for kind in (EXTENSION, ASCEND):
            consumer = Consumer(memory.__dlpack__(dl_device=(kind, 1), copy=False, stream=-1))
            assert consumer.shown[0] == (kind, 1)
            consumer.end()


async def test_export_of_no_bytes_has_a_null_address(open_device: OpenDevice) -> None:
    async with open_device() as device:
        memory = device.wrap_memory(16, 0)
        consumer = Consumer(memory.__dlpack__())
        assert (consumer.tensor.data, consumer.shown[1]) == (None, [0])
        consumer.end()
        await memory.close()


# --- how long exported device memory is kept ------------------------------------------------------------------------


@BOTH
async def test_memory_closed_before_the_consumer_ends_is_freed_by_its_deleter(
    open_device: OpenDevice, version: Any
) -> None:
    async with open_device() as device, device.create_stream() as stream:
        before = device_blocks()
        memory = await device.allocate(SIZE)
        consumers = [Consumer(memory.__dlpack__(max_version=version)) for _ in range(2)]
        await memory.close()
        with pytest.raises(aioacl.ParameterError, match="the device buffer is closed"):
            stream.fill(memory, 1)
        del memory
        consumers[0].end()
        await device.memory_info()  # runs on the maintenance thread, after the notes of finalizers
        assert device_blocks() == before + 1
        ending = Raised(consumers[1].end)
        ending.join()
        await until(lambda: device_blocks() == before)
        assert simulator.calls("aclrtFree") == 1


async def test_memory_closed_after_the_consumer_ended_is_freed_by_close(open_device: OpenDevice) -> None:
    async with open_device() as device:
        before = device_blocks()
        memory = await device.allocate(SIZE)
        Consumer(memory.__dlpack__()).end()
        memory.__dlpack__()  # a capsule that no consumer takes
        assert device_blocks() == before + 1
        await memory.close()
        assert device_blocks() == before
        assert simulator.calls("aclrtFree") == 1


async def test_exported_memory_that_is_dropped_warns_and_is_freed_by_the_deleter(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        before = device_blocks()
        memory = await device.allocate(SIZE)
        capsule = memory.__dlpack__()
        with pytest.warns(ResourceWarning, match="64 bytes was not closed"):
            del memory
        await device.memory_info()
        assert device_blocks() == before + 1
        del capsule
        await until(lambda: device_blocks() == before)


async def test_exported_memory_in_flight_is_freed_after_consumer_and_work(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        before = device_blocks()
        memory = await device.allocate(SIZE)
        with simulator.held(stream):
            stream.fill(memory, 1)
            consumer = Consumer(memory.__dlpack__(stream=-1))
            await memory.close()
            consumer.end()
            await device.memory_info()
            assert device_blocks() == before + 1
        await until(lambda: device_blocks() == before)


@pytest.mark.parametrize("closes_first", [True, False])
async def test_consumer_that_ends_after_a_reset_frees_nothing(
    open_device: OpenDevice, closes_first: bool
) -> None:
    async with open_device() as device:
        memory = await device.allocate(SIZE)
        consumer = Consumer(memory.__dlpack__())
        if closes_first:
            await memory.close()
        assert (await device.force_reset(grace=0)).ok
        freed = simulator.calls("aclrtFree")  # the reset's probe frees memory
        consumer.end()
        await memory.close()
        del memory
        await device.memory_info()
        assert simulator.calls("aclrtFree") == freed


async def test_consumer_that_ends_after_the_close_of_the_device_frees_nothing(
    open_device: OpenDevice,
) -> None:
    device = await open_device()
    memory = await device.allocate(SIZE)
    consumer = Consumer(memory.__dlpack__())
    await memory.close()
    await device.close()
    with no_call():
        consumer.end()
    assert not device._manager.deferred.notes


async def test_exported_memory_after_a_device_fault_is_left_to_the_reset(open_device: OpenDevice) -> None:
    async with open_device() as device:
        memory = await device.allocate(SIZE)
        consumer = Consumer(memory.__dlpack__())
        await memory.close()
        simulator.fail_call("aclrtMalloc", FAULT)
        await raises(aioacl.DeviceFault, device.allocate(SIZE))
        consumer.end()
        assert simulator.calls("aclrtFree") == 0
        assert (await device.force_reset(grace=0)).ok


def test_exports_and_closes_on_eight_threads_free_each_buffer_once(device: aioacl.Device) -> None:
    before, rounds = device_blocks(), 40
    start = threading.Barrier(8)

    def work(buffers: list[aioacl.DeviceBuffer], number: int) -> None:
        for buffer in buffers:
            start.wait(PATIENCE_SECONDS)
            if number == 0:
                buffer.close().result()
                continue
            try:
                consumer = Consumer(buffer.__dlpack__(max_version=(1, 0) if number % 2 else None))
            except aioacl.ParameterError:  # the first thread was faster
                continue
            consumer.end()

    buffers = [device.allocate(SIZE).result() for _ in range(rounds)]
    threads = [Raised(partial(work, buffers, number)) for number in range(8)]
    for thread in threads:
        thread.join()
    assert until_now(lambda: device_blocks() == before)
    assert simulator.calls("aclrtFree") == rounds


# --- the order of work on the device --------------------------------------------------------------------------------


async def test_export_without_a_stream_is_refused_while_work_is_unfinished(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        with simulator.held(stream):
            ticket = stream.fill(memory, 1)
            message = "without unfinished work, got one that 1 unfinished operation uses; await it before"
            with pytest.raises(BufferError, match=message):
                memory.__dlpack__()
            stream.fill(memory, 2)
            with pytest.raises(BufferError, match="got one that 2 unfinished operations use"):
                memory.__dlpack__()
            Consumer(memory.__dlpack__(stream=-1)).end()
        await ticket
        await until(lambda: simulator.pending(stream) == 0)
        Consumer(memory.__dlpack__()).end()  # the second fill is done, although nothing awaits it


class Outside:
    """A native stream of other code."""

    def __init__(self, device: aioacl.Device) -> None:
        self.functions = lowlevel.on(device)
        made = lowlevel.ffi.new("aclrtStream *")
        self.functions.aclrtCreateStream(made)
        self.native = made[0]
        self.address = pointer(made[0])

    def done(self) -> bool:
        status = lowlevel.ffi.new("aclrtStreamStatus *")
        self.functions.aclrtStreamQuery(self.native, status)
        return bool(status[0] == lowlevel.constants.ACL_STREAM_STATUS_COMPLETE)

    def destroy(self) -> None:
        self.functions.aclrtDestroyStream(self.native)


async def test_native_stream_waits_for_all_work_that_uses_the_buffer(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        streams(device, 2) as (first, second),
        device.allocate(SIZE) as memory,
    ):
        outside = Outside(device)
        for stream in (first, second):
            held_fill(stream, memory)
        consumer = Consumer(memory.__dlpack__(stream=outside.address))
        assert simulator.calls("aclrtStreamWaitEvent") == 2
        simulator.release(first)
        await first
        assert not outside.done()
        simulator.release(second)
        await second
        await until(outside.done)
        consumer.end()
        outside.destroy()


async def test_native_stream_of_an_idle_buffer_gets_no_wait(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        await stream.fill(memory, 1)
        outside = Outside(device)
        Consumer(memory.__dlpack__(stream=outside.address)).end()
        assert simulator.calls("aclrtStreamWaitEvent") == 0
        outside.destroy()


async def test_stream_of_aioacl_waits_for_other_streams_and_not_for_itself(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        streams(device, 2) as (first, second),
        device.allocate(SIZE) as memory,
    ):
        with simulator.held(first):
            first.fill(memory, 1)
            Consumer(memory.__dlpack__(stream=pointer(first._core.native))).end()
            assert simulator.calls("aclrtStreamWaitEvent") == 0
            Consumer(memory.__dlpack__(stream=pointer(second._core.native))).end()
            assert simulator.calls("aclrtStreamWaitEvent") == 1
            assert not second.query()
        await second


async def test_export_ignores_a_stale_stream_at_the_address_of_the_new_one(open_device: OpenDevice) -> None:
    async with open_device() as device:
        stale = await device.create_stream()
        assert (await device.force_reset(grace=0)).ok
        async with streams(device, 2) as (first, second), device.allocate(SIZE) as memory:
            stale._core.native = second._core.native  # as if the runtime had used the address again
            with simulator.held(first):
                first.fill(memory, 1)
                Consumer(memory.__dlpack__(stream=pointer(second._core.native))).end()
                assert not second.query()
            await second
        await stale.close()


async def test_export_to_a_native_stream_while_a_failed_stream_has_work_raises_the_failure(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        streams(device, 2) as (stream, other),
        device.allocate(SIZE) as memory,
    ):
        outside, blocker = Outside(device), Blocker(other, memory)
        with simulator.held(stream):
            simulator.fail_next(stream, TASK_FAULT)
            stream.fill(memory, 1)
            blocker.block(stream)
            stream.fill(memory, 2)
        await until(lambda: stream.error)
        with pytest.raises(aioacl.DeviceFault) as caught:
            memory.__dlpack__(stream=outside.address)
        assert caught.value.code == TASK_FAULT
        blocker.release()
        outside.destroy()


async def test_export_to_an_unknown_stream_raises_the_code_of_the_runtime(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        before = device_blocks()
        with simulator.held(stream):
            stream.fill(memory, 1)
            simulator.fail_call("aclrtStreamWaitEvent", 107003)
            outside = Outside(device)
            with pytest.raises(aioacl.AclError, match="aclrtStreamWaitEvent") as caught:
                memory.__dlpack__(stream=outside.address)
            assert caught.value.code == 107003
        assert device_blocks() == before
        outside.destroy()


async def test_export_during_an_upload_is_refused(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(8 << 20) as memory:
        outside = Outside(device)
        simulator.hold(stream)
        upload = Raised(lambda: stream.upload(memory, bytes(8 << 20)).result())
        await until(lambda: memory._uses)
        with pytest.raises(
            BufferError, match="got one that 1 unfinished operation uses; await the upload or down"
        ):
            memory.__dlpack__(stream=outside.address)
        simulator.release(stream)
        await until(lambda: not upload.running)
        outside.destroy()


# --- exports of pinned memory ---------------------------------------------------------------------------------------


async def test_numpy_takes_a_pinned_buffer_without_a_copy(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(8) as memory,
        device.pinned(8) as pinned,
    ):
        assert pinned.__dlpack_device__() == (1, 0)
        array = np.from_dlpack(pinned)
        assert (array.dtype, array.shape, array.flags.writeable) == (np.dtype(np.uint8), (8,), True)
        array[:] = range(8)
        assert bytes(pinned.view) == bytes(range(8))
        back = bytearray(8)
        await stream.copy(memory, array)
        await stream.copy(back, memory)
        assert back == bytes(range(8))
        del array


@BOTH
async def test_pinned_memory_is_freed_when_the_last_consumer_ends(
    open_device: OpenDevice, version: Any
) -> None:
    async with open_device() as device:
        before = host_blocks()
        pinned = await device.pinned(8)
        consumer, array = Consumer(pinned.__dlpack__(max_version=version)), np.from_dlpack(pinned)
        await pinned.close()
        del pinned
        array[:2] = 5, 6
        assert consumer.tensor.data is not None
        consumer.end()
        await turns()
        assert host_blocks() == before + 1
        assert bytes(array[:2]) == b"\x05\x06"
        del array
        await until(lambda: host_blocks() == before)
        assert simulator.calls("aclrtFreeHost") == 1


async def test_export_of_pinned_memory_in_flight_is_refused(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(8) as memory,
        device.pinned(8) as pinned,
    ):
        with simulator.held(stream):
            stream.copy(pinned, memory)
            with pytest.raises(BufferError, match="expected a pinned buffer without unfinished work"):
                np.from_dlpack(pinned)
        await stream
        np.from_dlpack(pinned)
