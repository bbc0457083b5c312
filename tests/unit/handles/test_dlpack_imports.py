"""DLPack imports: tensors of other libraries that become buffers, and both directions when a process ends."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import lowlevel, simulator
from aioacl._base.ffi import pointer
from tests.kit import PATIENCE_SECONDS, Raised, enqueue_in_python, held_fill, no_call, until
from tests.process.child import run
from tests.support.dlpack import ASCEND, BOTH, EXTENSION, READ_ONLY, Consumer, Producer, device_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
SIZE = 64


# --- imports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EXTENSION, ASCEND])
@BOTH
async def test_tensor_becomes_a_buffer_and_is_deleted_by_close(
    open_device: OpenDevice, version: Any, kind: int
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        tensor = Producer(memory.address, (4, 4), device=(kind, 0), dtype=(2, 32, 1), version=version)
        with no_call():
            buffer = device.from_dlpack(tensor)
        assert isinstance(buffer, aioacl.DeviceBuffer)
        assert (buffer.address, buffer.nbytes) == (memory.address, SIZE)
        await stream.upload(buffer, bytes(range(SIZE)))
        back = bytearray(SIZE)
        await stream.download(back, memory)
        assert back == bytes(range(SIZE))
        assert tensor.deletes == []
        await buffer.close()
        await buffer.close()
        assert tensor.deletes == [device._manager.maintenance.thread]
        assert simulator.calls("aclrtFree") == 0


@pytest.mark.parametrize("refuses", ["max_version", ""])
async def test_producer_older_than_dlpack_1_gets_no_version(open_device: OpenDevice, refuses: str) -> None:
    async with open_device() as device, device.allocate(SIZE) as memory:
        tensor = Producer(memory.address, (SIZE,), version=None, refuses=refuses)
        await device.from_dlpack(tensor).close()
        assert tensor.requests == ([{}] if refuses else [{"max_version": (1, 0)}])


SIZES: dict[str, tuple[dict[str, Any], int]] = {
    "no dimension": ({"shape": ()}, 1),
    "one byte offset": ({"shape": (5,), "offset": 3}, 5),
    "complex": ({"shape": (2, 2), "dtype": (5, 128, 1)}, 64),
    "lanes": ({"shape": (3,), "dtype": (2, 32, 4)}, 48),
    "bits in whole bytes": ({"shape": (4,), "dtype": (0, 4, 1)}, 2),
    "bits of padded values": ({"shape": (3,), "dtype": (0, 4, 1), "flags": 4}, 3),
    "strides": ({"shape": (2, 3, 4), "strides": (12, 4, 1)}, 24),
    "strides of dimensions of one": ({"shape": (1, 3, 1), "strides": (-7, 1, 99)}, 3),
    "strides without values": ({"shape": (2, 0), "strides": (5, 5)}, 0),
}


@pytest.mark.parametrize("case", SIZES)
async def test_tensor_of_any_type_becomes_its_bytes(open_device: OpenDevice, case: str) -> None:
    options, size = SIZES[case]
    async with open_device() as device, device.allocate(SIZE) as memory:
        tensor = Producer(memory.address, **options)
        buffer = device.from_dlpack(tensor)
        assert (buffer.address, buffer.nbytes) == (memory.address + options.get("offset", 0), size)
        await buffer.close()
        assert len(tensor.deletes) == 1


async def test_tensor_without_values_may_have_no_address(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        buffer = device.from_dlpack(Producer(None, (0,)))
        await stream.copy(memory, buffer)
        Consumer(buffer.__dlpack__()).end()
        await buffer.close()


class Capsules(Producer):
    """A tensor whose `__dlpack__` returns a fixed object."""

    returned: object = None

    def __dlpack__(self, **_: Any) -> object:
        return self.returned


async def test_capsule_that_was_taken_before_is_refused(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(SIZE) as memory:
        tensor = Capsules(memory.address, (SIZE,))
        tensor.returned = tensor.capsule()
        buffer = device.from_dlpack(tensor)
        with pytest.raises(
            aioacl.ParameterError, match=r'not taken, got <capsule object "used_dltensor_versioned"'
        ):
            device.from_dlpack(tensor)
        await buffer.close()
        assert len(tensor.deletes) == 1


async def test_import_on_a_closed_device_leaves_the_tensor_alone(open_device: OpenDevice) -> None:
    device = await open_device()
    await device.close()
    tensor = Producer(16, (1,))
    with pytest.raises(aioacl.ParameterError, match="the device is closed"):
        device.from_dlpack(tensor)
    assert tensor.requests == []


@pytest.mark.parametrize("in_python", [True, False])
async def test_read_only_tensor_may_be_a_source_but_not_a_target(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, in_python: bool
) -> None:
    if in_python:
        enqueue_in_python(monkeypatch)
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(SIZE) as memory,
        device.allocate(SIZE) as other,
        device.pinned(SIZE) as pinned,
    ):
        buffer = device.from_dlpack(Producer(memory.address, (SIZE,), flags=READ_ONLY))
        await stream.fill(memory, 4)
        await stream.copy(other, buffer)
        await stream.copy(pinned, buffer)
        back = bytearray(SIZE)
        await stream.download(back, buffer)
        assert back == bytes(pinned.view) == bytes([4]) * SIZE
        writes: list[Callable[[], object]] = [
            lambda: stream.fill(buffer, 1),
            lambda: stream.copy(buffer, other),
            lambda: stream.copy(buffer, pinned),
            lambda: stream.copy(buffer, back),
            lambda: stream.upload(buffer, back).result(),
            lambda: lowlevel.on(device).aclrtMemset(buffer, SIZE, 0, SIZE),
        ]
        for write in writes:
            with no_call(), pytest.raises(aioacl.ParameterError, match=r"read-only DLPack tensor.*Copy it"):
                Raised(write).join()
        with pytest.raises(
            BufferError, match=r"max_version=\(1, 0\) or later for a read-only .*got None; a tensor"
        ):
            buffer.__dlpack__()
        consumer = Consumer(buffer.__dlpack__(max_version=(1, 1)))
        assert consumer.managed.flags == READ_ONLY
        consumer.end()
        await buffer.close()


# --- how long imported tensors are kept -----------------------------------------------------------------------------


async def test_tensor_closed_in_flight_is_deleted_when_its_last_work_is_done(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        tensor = Producer(memory.address, (SIZE,))
        buffer = device.from_dlpack(tensor)
        with simulator.held(stream):
            ticket = stream.fill(buffer, 1)
            await buffer.close()
            del buffer
            await device.memory_info()
            assert tensor.deletes == []
        await ticket
        await until(lambda: len(tensor.deletes) == 1)


async def test_tensor_that_is_dropped_warns_and_is_deleted_on_the_maintenance_thread(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(SIZE) as memory:
        tensor = Producer(memory.address, (SIZE,))
        buffer = device.from_dlpack(tensor)
        with pytest.warns(ResourceWarning, match="64 bytes was not closed"):
            del buffer
        await until(lambda: tensor.deletes == [device._manager.maintenance.thread])


async def test_tensor_is_deleted_once_by_a_reset(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        memory = await device.allocate(SIZE)
        tensor = Producer(memory.address, (SIZE,))
        buffer = device.from_dlpack(tensor)
        held_fill(stream, buffer)
        assert (await device.force_reset(grace=0)).ok
        await until(lambda: len(tensor.deletes) == 1)
        assert buffer.stale
        await buffer.close()
        del buffer
        await device.memory_info()
        assert len(tensor.deletes) == 1


async def test_tensor_is_deleted_once_by_the_close_of_the_device(open_device: OpenDevice) -> None:
    device = await open_device()
    tensor = Producer(16, (1,))
    buffer = device.from_dlpack(tensor)
    await device.close()
    assert len(tensor.deletes) == 1
    del buffer
    assert len(tensor.deletes) == 1


async def test_imported_tensor_that_is_exported_again_is_deleted_after_both(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(SIZE) as memory:
        tensor = Producer(memory.address, (SIZE,))
        buffer = device.from_dlpack(tensor)
        consumer = Consumer(buffer.__dlpack__())
        await buffer.close()
        assert tensor.deletes == []
        consumer.end()
        assert len(tensor.deletes) == 1


@pytest.mark.uncached
async def test_buffer_of_aioacl_can_be_imported_as_a_tensor(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        before = device_blocks()
        memory = await device.allocate(SIZE)
        with simulator.held(stream):
            stream.fill(memory, 6)
            with pytest.raises(BufferError, match="unfinished"):
                device.from_dlpack(memory)
            buffer = device.from_dlpack(memory, stream=stream)
        await memory.close()
        back = bytearray(SIZE)
        await stream.copy(back, buffer)
        assert back == bytes([6]) * SIZE
        await buffer.close()
        await until(lambda: device_blocks() == before)


def test_imports_and_closes_on_eight_threads_delete_each_tensor_once(
    device: aioacl.Device, memory: aioacl.DeviceBuffer
) -> None:
    tensors = [Capsules(memory.address, (SIZE,), version=None) for _ in range(40)]
    for tensor in tensors:
        tensor.returned = tensor.capsule()
    start = threading.Barrier(8)

    def work() -> int:
        taken = 0
        for tensor in tensors:
            start.wait(PATIENCE_SECONDS)
            try:
                buffer = device.from_dlpack(tensor)
            except aioacl.ParameterError:  # another thread was faster
                continue
            taken += 1
            buffer.close().result()
        return taken

    threads = [Raised(work) for _ in range(8)]
    assert sum(thread.join() for thread in threads) == len(tensors)
    assert [len(tensor.deletes) for tensor in tensors] == [1] * len(tensors)


# --- the order of work of the producer ------------------------------------------------------------------------------


async def test_producer_gets_the_address_of_the_stream(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        tensor = Producer(memory.address, (SIZE,))
        for passed in (stream, 4096, -1):
            buffer = device.from_dlpack(tensor, stream=passed)
            await stream.fill(buffer, 1)
            await buffer.close()
        native = pointer(stream._core.native)
        assert [request["stream"] for request in tensor.requests] == [native, 4096, -1]


async def test_error_of_the_producer_is_raised(open_device: OpenDevice) -> None:
    class Refusing(Producer):
        def __dlpack__(self, **_: Any) -> object:
            raise BufferError("not now")

    async with open_device() as device, device.create_stream() as stream:
        for passed in (None, stream):
            with pytest.raises(BufferError, match="not now"):
                device.from_dlpack(Refusing(16, (1,)), stream=passed)


# --- other processes, and the end of the process --------------------------------------------------------------------

FORK = """
from tests.support.dlpack import Consumer, Producer
async def main():
    async with open_device() as device, device.allocate(64) as memory, device.pinned(64) as pinned:
        tensor = Producer(memory.address, (64,))
        buffer, consumer = device.from_dlpack(tensor), Consumer(memory.__dlpack__())
        child = os.fork()
        if child == 0:
            refused = []
            for use in (memory.__dlpack__, pinned.__dlpack__, lambda: device.from_dlpack(tensor),
                        lambda: device.wrap_memory(16, 1, owner=tensor)):
                try:
                    use()
                except ForkedProcessError:
                    refused.append(True)
            consumer.end()
            del buffer, use
            os._exit(42 if refused == [True] * 4 and not tensor.deletes and not simulator.violations() else 1)
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        consumer.end()
        await buffer.close()
        say(len(tensor.deletes))
start(main)
"""


@pytest.mark.process
def test_use_in_a_forked_child_raises_and_deletes_nothing() -> None:
    assert run(FORK) == (0, "42\n1\n", "")


END = """
import numpy
from tests.support.dlpack import Consumer, Producer
use_library("simulator")
device = open_device().result()
memory, pinned, closed = device.allocate(64).result(), device.pinned(64).result(), device.allocate(64).result()
tensor = Producer(memory.address, (64,))
buffer = device.from_dlpack(tensor)
wrapped = device.wrap_memory(16, 1, owner=tensor)
consumer, capsule, array = Consumer(memory.__dlpack__()), closed.__dlpack__(), numpy.from_dlpack(pinned)
closed.close().result()
class Late:
    def __del__(self, end=consumer.end):
        end()
late = Late()
say("end")
"""


@pytest.mark.process
def test_process_ends_while_tensors_of_both_kinds_exist() -> None:
    status, output, errors = run(END, strict=False)
    assert (status, output) == (0, "end\n")
    assert "Traceback" not in errors
