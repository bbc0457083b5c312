"""In-flight references: a buffer that is closed stays allocated until the last work that uses it is done."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import ffi, lib
from aioacl._handles import in_flight
from aioacl._handles import memory as _memory
from aioacl._handles import stream as _stream
from aioacl._handles.event import native_event
from aioacl._handles.memory import discard
from aioacl._handles.operand import copy_size
from aioacl._handles.stream import discard_stream
from aioacl._lifecycle.procedures import limits
from tests.kit import Raised, Waiting, enqueue_in_python, hanging, in_thread, until, until_now, wait_for
from tests.support.interrupts import interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

CHUNK = 1 << 20
ROUNDS = 2000
pytestmark = pytest.mark.uncached
BOTH = pytest.mark.parametrize("kind", ["allocate", "pinned"])


def blocks() -> int:
    stats = simulator.stats()
    return stats.device_blocks + stats.host_blocks


def collected() -> int:
    """Collects garbage and returns the number of blocks. `gc.collect` does nothing while another thread collects."""
    gc.collect()
    return blocks()


# --- operations of several enqueues --------------------------------------------------------------------------------


def maintenance_is_idle(device: aioacl.Device) -> None:
    """Returns once the maintenance thread has handled every wait that has ended."""
    assert until_now(lambda: lib.aio_device_waits(0) == 0)
    in_thread(lambda: device.memory_info().result())


@pytest.mark.anyio
@pytest.mark.parametrize("direction", ["upload", "download"])
@pytest.mark.parametrize("host", ["pinned", "pageable"])
async def test_operation_whose_buffers_are_closed_between_chunks_keeps_them_until_its_end(
    open_device: OpenDevice, direction: str, host: str
) -> None:
    async with open_device() as device, device.create_stream() as stream, anyio.create_task_group() as group:
        size = 8 * CHUNK
        memory: Any = await device.allocate(size)
        other: Any = await device.pinned(size) if host == "pinned" else bytearray(size)
        closed = [thing for thing in (memory, other) if not isinstance(thing, bytearray)]
        ends = (memory, other) if direction == "upload" else (other, memory)
        simulator.hold(stream)
        operation = Waiting(group, lambda: getattr(stream, direction)(*ends))
        await until(lambda: len(stream._core.in_flight) == 4)
        await device.memory_info()  # runs after the allocation of staging memory on the maintenance thread
        held = blocks()
        for thing in closed:
            await thing.close()
        simulator.release(stream)
        # This blocks the event loop, so the operation is between its fourth and its fifth chunk.
        maintenance_is_idle(device)
        kept = blocks()  # the staging memory may have grown
        assert kept >= held
        await operation.outcome()
        assert simulator.calls("aclrtMemcpyAsync") == 8
        await until(lambda: blocks() <= kept - len(closed))


@pytest.mark.anyio
async def test_upload_that_is_cancelled_keeps_its_buffer_until_its_last_chunk_is_done(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, anyio.create_task_group() as group:
        memory = await device.allocate(8 * CHUNK)
        simulator.hold(stream)
        upload = Waiting(group, lambda: stream.upload(memory, bytes(8 * CHUNK)))
        await until(lambda: len(stream._core.in_flight) == 4)
        await upload.cancel_and_wait()
        assert not memory._unused()
        await memory.close()
        held = simulator.stats().device_blocks
        simulator.release(stream)
        await until(lambda: simulator.stats().device_blocks == held - 1)
        assert simulator.calls("aclrtMemcpyAsync") == 4


# --- close() during an enqueue ---------------------------------------------------------------------------------------


class Between:
    """Replaces the engine's functions: calls `act` just before a copy of pageable memory is enqueued."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def __getattr__(self, name: str) -> Any:
        real = getattr(lib, name)
        if name not in ("aio_upload", "aio_download"):
            return real

        def enqueue(*arguments: object) -> int:
            self._act()
            result: int = real(*arguments)
            return result

        return enqueue


ENQUEUES: dict[str, Callable[[aioacl.Stream, Any, Any], object]] = {
    "copy": lambda stream, buffer, other: stream.copy(other, buffer),
    "copy back": lambda stream, buffer, other: stream.copy(buffer, other),
    "fill": lambda stream, buffer, _other: stream.fill(buffer, 1),
}
STAGED: dict[str, Callable[[aioacl.Stream, Any], object]] = {
    "upload": lambda stream, buffer: stream.copy(buffer, bytes(64)),
    "download": lambda stream, buffer: stream.copy(bytearray(64), buffer),
}


@pytest.mark.parametrize("what", STAGED)
def test_buffer_closed_by_another_thread_before_the_call_to_c_is_freed_after_the_work(
    device: aioacl.Device, stream: aioacl.Stream, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    buffer = device.allocate(64).result()
    before, seen = blocks(), list[int]()

    def close() -> None:
        in_thread(lambda: buffer.close().result())
        seen.append(blocks())

    monkeypatch.setattr(_stream, "lib", Between(close))
    STAGED[what](stream, buffer)
    assert seen == [before]
    stream.result()
    assert until_now(lambda: blocks() == before - 1)


@BOTH
@pytest.mark.parametrize("what", ENQUEUES)
def test_buffer_closed_by_another_thread_during_the_call_to_c_is_freed_after_the_work(
    device: aioacl.Device, stream: aioacl.Stream, what: str, kind: str
) -> None:
    call = "aclrtMemsetAsync" if what == "fill" else "aclrtMemcpyAsync"
    with_other = device.allocate(64).result()
    buffer = getattr(device, kind)(64).result()
    before = blocks()
    simulator.hold(stream)
    enqueue = Raised.hung_in(call, lambda: ENQUEUES[what](stream, buffer, with_other))
    buffer.close().result()
    simulator.release_call(call)
    enqueue.join()
    assert blocks() == before
    simulator.release(stream)
    stream.result()
    assert until_now(lambda: blocks() == before - 1)
    with_other.close().result()


def native_of(event: aioacl.Event) -> int:
    """Returns the address of the native event of the newest record."""
    assert event._version is not None
    return int(ffi.cast("uintptr_t", native_event(event._version)))


def takes(stream: aioacl.Stream, native: int) -> bool:
    """Returns whether new records on the stream take this native event from the pool."""
    made = [stream.record() for _ in range(2 * limits.POOL_EVENTS)]
    stream.result()
    return native in map(native_of, made)


OF_EVENTS: dict[str, tuple[str, Callable[[aioacl.Stream, aioacl.Event], object]]] = {
    "record": ("aclrtRecordEvent", lambda stream, event: stream.record(event)),
    "wait_event": ("aclrtStreamWaitEvent", lambda stream, event: stream.wait_event(event)),
}


@pytest.mark.parametrize("what", OF_EVENTS)
def test_event_closed_by_another_thread_during_the_call_to_c_is_in_the_pool_again_after_the_work(
    device: aioacl.Device, stream: aioacl.Stream, what: str
) -> None:
    call, enqueue = OF_EVENTS[what]
    with device.create_stream() as recorder, device.create_stream() as spare, device.allocate(64) as memory:
        users = [recorder] if what == "record" else [recorder, stream]
        for user in users:
            simulator.hold(user)
        recorder.fill(memory, 1)
        event = recorder.record(device.create_event().result())
        native = native_of(event)
        enqueueing = Raised.hung_in(call, lambda: enqueue(stream, event))
        event.close().result()
        simulator.release_call(call)
        enqueueing.join()
        assert event._version is None
        for user in users:
            assert not takes(spare, native)
            simulator.release(user)
            user.result()
        assert until_now(lambda: takes(spare, native))


@pytest.mark.parametrize("what", STAGED)
def test_buffer_closed_before_a_refused_enqueue_is_freed(
    device: aioacl.Device, stream: aioacl.Stream, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    buffer = device.allocate(64).result()
    before = blocks()
    monkeypatch.setattr(_stream, "lib", Between(lambda: in_thread(lambda: buffer.close().result())))
    simulator.fail_call("aclrtMemcpyAsync", 107000)
    with pytest.raises(aioacl.AclError):
        STAGED[what](stream, buffer)
    assert until_now(lambda: blocks() == before - 1)
    assert not in_flight.deferred


@pytest.mark.parametrize("code", [0, 107000])
def test_buffer_closed_during_a_call_to_c_is_freed_although_ctrl_c_interrupts_its_end(
    device: aioacl.Device, stream: aioacl.Stream, code: int
) -> None:
    buffer = device.allocate(64).result()
    before = blocks()
    if code:
        simulator.fail_call("aclrtMemsetAsync", code)
    simulator.hang_call("aclrtMemsetAsync")

    def close_during_the_call() -> None:
        assert until_now(hanging("aclrtMemsetAsync"))
        buffer.close().result()
        assert until_now(lambda: len(in_flight.deferred) == 1)
        simulator.release_call("aclrtMemsetAsync")

    closing = Raised(close_during_the_call)
    assert interrupted(1, lambda: stream.fill(buffer, 1), where="free_deferred")
    closing.join()
    stream.result()
    assert until_now(lambda: blocks() == before - 1)
    assert not in_flight.deferred


@BOTH
def test_copy_whose_buffer_is_closed_after_its_check_is_refused_before_c(
    device: aioacl.Device, stream: aioacl.Stream, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    other, buffer = device.allocate(64).result(), getattr(device, kind)(64).result()
    size_of_copy = copy_size

    def close_first(*arguments: Any) -> int:
        in_thread(lambda: buffer.close().result())
        return size_of_copy(*arguments)

    enqueue_in_python(monkeypatch)
    monkeypatch.setattr(_stream, "copy_size", close_first)
    with pytest.raises(aioacl.ParameterError, match="is closed"):
        stream.copy(other, buffer)
    assert simulator.calls("aclrtMemcpyAsync") == 0
    assert not stream._core.in_flight
    other.close().result()


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="before 3.12, only types of C have the buffer protocol"
)
def test_copy_whose_source_closes_the_target_is_refused_before_c(
    device: aioacl.Device, stream: aioacl.Stream
) -> None:
    target = device.allocate(64).result()

    class Source:
        def __buffer__(self, _flags: int) -> memoryview:
            in_thread(lambda: target.close().result())
            return memoryview(bytes(64))

    with pytest.raises(aioacl.ParameterError, match="is closed"):
        stream.copy(target, Source())
    assert simulator.calls("aclrtMemcpyAsync") == 0


@BOTH
def test_buffers_closed_by_a_racing_thread_are_freed_once_and_after_their_copies(
    device: aioacl.Device, stream: aioacl.Stream, kind: str
) -> None:
    other, start = device.allocate(64).result(), threading.Barrier(2)
    before, made = blocks(), [getattr(device, kind)(64).result() for _ in range(ROUNDS // 10)]

    def closes() -> None:
        for buffer in made:
            start.wait()
            buffer._close_later()

    racer = Raised(closes)
    for buffer in made:
        start.wait()
        for _ in range(10):
            try:
                stream.copy(other, buffer)
            except aioacl.ParameterError:
                break
            except aioacl.QueueFull:
                stream.result()
    racer.join()
    stream.result()
    assert until_now(lambda: blocks() == before)
    other.close().result()


# --- each handle is released once ----------------------------------------------------------------------------------


@BOTH
def test_buffer_discarded_while_its_finalizer_warns_is_freed_once(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    buffer = getattr(device, kind)(64).result()
    before = blocks()

    def warn(*_: object, **__: object) -> None:
        device._manager.maintenance.call(lambda: discard(buffer), None)
        device._manager.maintenance.call(buffer._closing() or (lambda: None), None)

    monkeypatch.setattr(_memory, "warn_of_drop", warn)
    buffer.__del__()
    device.memory_info().result()
    assert blocks() == before - 1
    assert simulator.calls("aclrtFree" if kind == "allocate" else "aclrtFreeHost") == 1


def test_stream_discarded_while_its_finalizer_warns_is_destroyed_once(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = device.create_stream().result()

    def warn(*_: object, **__: object) -> None:
        device._manager.maintenance.call(lambda: discard_stream(stream), None)
        device._manager.maintenance.call(stream._closing() or (lambda: None), None)

    monkeypatch.setattr(_stream, "warn_of_drop", warn)
    stream.__del__()
    device.memory_info().result()
    assert simulator.calls("aclrtDestroyStream") == 1


@pytest.mark.parametrize("kind", ["allocate", "create_stream"])
def test_handle_closed_by_two_threads_is_released_once(device: aioacl.Device, kind: str) -> None:
    arguments = () if kind == "create_stream" else (64,)
    handle = getattr(device, kind)(*arguments).result()
    works = [handle._closing(), handle._closing()]
    for work in works:
        device._manager.maintenance.call(work, None)
    call = "aclrtFree" if kind == "allocate" else "aclrtDestroyStream"
    assert simulator.calls(call) == 1


# --- event loops that are closed -------------------------------------------------------------------------------------


def leave_pending(begin: Callable[[], object], call: str) -> None:
    """Closes an event loop whose task waits for a hung call. Then collects the loop while the call ends."""
    simulator.hang_call(call)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # the default one would report the pending task

    async def main() -> None:
        task = asyncio.ensure_future(wait_for(begin()))
        await until(hanging(call))
        assert not task.done()

    loop.run_until_complete(main())
    loop.close()
    del loop
    collecting = Raised(gc.collect)
    simulator.release_call(call)
    collecting.join()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_loop_closed_with_allocate_pending_and_collected_frees_the_block_once(device: aioacl.Device) -> None:
    before = blocks()
    for _ in range(8):
        in_thread(lambda: leave_pending(lambda: device.allocate(64), "aclrtMalloc"))
    assert until_now(lambda: collected() == before)
    assert simulator.calls("aclrtFree") == 8


def test_loop_closed_with_a_close_pending_and_collected_frees_the_block_once(device: aioacl.Device) -> None:
    before = blocks()
    for _ in range(8):
        leave_pending(device.allocate(64).result().close, "aclrtFree")
    assert until_now(lambda: blocks() == before)
    device.memory_info().result()
    assert simulator.calls("aclrtFree") == 8
