"""Producers of DLPack tensors that raise errors, or that reset, close or enqueue while aioacl calls them."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import lowlevel, simulator
from aioacl._handles.handle import Handle
from tests.kit import PATIENCE_SECONDS, TASK_FAULT, Raised, no_call, reset_by_other_code
from tests.support.dlpack import Consumer, Producer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
SIZE = 64


class Acting(Producer):
    """A tensor that calls a function before it makes its capsule."""

    act: Callable[[], object] | None = None

    def __dlpack__(self, **options: Any) -> object:
        if self.act is not None:
            self.act()
        return super().__dlpack__(**options)


@pytest.mark.parametrize("how", ["force_reset", "other code"])
def test_tensor_of_a_producer_that_resets_the_device_is_refused_and_deleted(
    device: aioacl.Device, how: str
) -> None:
    memory = device.allocate(SIZE).result()
    tensor = Acting(memory.address, (SIZE,))
    tensor.act = reset_by_other_code if how == "other code" else lambda: device.force_reset(grace=0).result()
    with pytest.raises(
        (aioacl.DeviceReset, aioacl.DeviceResetting), match=r"(was reset|RESETTING).*new handles"
    ):
        device.from_dlpack(tensor)
    gc.collect()
    assert len(tensor.deletes) == 1


async def test_tensor_of_a_producer_that_closes_the_device_is_refused_and_deleted(
    open_device: OpenDevice,
) -> None:
    device = await open_device()
    tensor = Acting(16, (1,))
    tensor.act = lambda: Raised(lambda: device.close().result()).join()
    with pytest.raises(aioacl.AclError):
        device.from_dlpack(tensor)
    assert len(tensor.deletes) == 1


def test_tensor_of_a_producer_that_closes_the_stream_is_imported(
    device: aioacl.Device, memory: aioacl.DeviceBuffer
) -> None:
    stream = device.create_stream().result()
    tensor = Acting(memory.address, (SIZE,))
    tensor.act = lambda: stream.close().result()
    buffer = device.from_dlpack(tensor, stream=stream)
    buffer.close().result()
    assert len(tensor.deletes) == 1


def test_producer_that_imports_its_own_tensor_is_deleted_once_for_each_capsule(
    device: aioacl.Device, memory: aioacl.DeviceBuffer
) -> None:
    tensor = Acting(memory.address, (SIZE,))
    inner: list[aioacl.DeviceBuffer] = []

    def again() -> None:
        tensor.act = None
        inner.append(device.from_dlpack(tensor))

    tensor.act = again
    outer = device.from_dlpack(tensor)
    for buffer in (*inner, outer):
        buffer.close().result()
    assert (len(tensor.requests), len(tensor.deletes)) == (2, 2)


def test_work_of_a_producer_that_raises_is_attributed_to_the_stream(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    class Failing(Producer):
        def __dlpack__(self, *, stream: int = 0, **_: Any) -> object:
            native = lowlevel.ffi.cast("aclrtStream", stream)
            lowlevel.on(device).aclrtMemsetAsync(memory, SIZE, 0, SIZE, native)
            raise BufferError("too late")

    with simulator.held(stream):
        simulator.fail_next(stream, TASK_FAULT)
        with pytest.raises(BufferError, match="too late"):
            device.from_dlpack(Failing(16, (1,)), stream=stream)
        ticket = stream.fill(memory, 1)
    with pytest.raises(aioacl.DeviceFault):
        ticket.result()


@pytest.mark.parametrize("count", [-1, 65, 2**31 - 1, -(2**31)])
def test_tensor_with_an_impossible_number_of_dimensions_is_refused(
    device: aioacl.Device, memory: aioacl.DeviceBuffer, count: int
) -> None:
    tensor = Producer(memory.address, (SIZE,), ndim=count)
    with no_call(), pytest.raises(aioacl.ParameterError, match="got no shape, or more dimensions"):
        device.from_dlpack(tensor)
    assert len(tensor.deletes) == 1


def test_tensor_without_a_deleter_is_imported_and_closed(
    device: aioacl.Device, memory: aioacl.DeviceBuffer
) -> None:
    for version in (None, (1, 0)):
        tensor = Producer(memory.address, (SIZE,), has_deleter=False, version=version)
        buffer = device.from_dlpack(tensor)
        assert buffer.size == SIZE
        buffer.close().result()
        assert tensor.deletes == []


def test_owner_that_refers_to_its_buffer_and_its_tensor_is_collected(
    device: aioacl.Device, memory: aioacl.DeviceBuffer
) -> None:
    class Owner:
        """Refers to the buffer that refers to it."""

    owner: Any = Owner()
    owner.wrapped = device.wrap_memory(memory.address, SIZE, owner=owner)
    owner.view = owner.wrapped[8:16]
    Consumer(owner.view.__dlpack__()).end()
    gone = weakref.ref(owner)
    owner.wrapped.close().result()
    del owner
    gc.collect()
    assert gone() is None


# --- closes while a buffer is exported ------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [slice(None), slice(2, 4)])
def test_export_of_pinned_memory_that_another_thread_closes_raises_parameter_error(
    device: aioacl.Device, monkeypatch: pytest.MonkeyPatch, part: slice
) -> None:
    pinned = device.pinned(8).result()
    exported = pinned[part] if part.stop else pinned
    pinned.close().result()
    monkeypatch.setattr(Handle, "_check", lambda _: None)  # as if the close came after the check
    uses: tuple[Callable[[], object], ...] = (
        lambda: memoryview(exported),
        lambda: exported.view,
        exported.__dlpack__,
    )
    for use in uses:
        with pytest.raises(aioacl.ParameterError, match="the pinned buffer is closed"):
            use()


def test_exports_on_threads_during_resets_free_no_memory_twice(device: aioacl.Device) -> None:
    before, rounds = simulator.stats().device_blocks, 10
    start = threading.Barrier(4)
    buffers: list[aioacl.DeviceBuffer] = []

    def work(number: int) -> None:
        for turn in range(rounds):
            if number == 0:
                buffers.append(device.allocate(SIZE).result())
            start.wait(PATIENCE_SECONDS)
            if number == 0:
                assert device.force_reset(grace=0).result().ok
                continue
            try:
                consumer = Consumer(buffers[turn][number:].__dlpack__(stream=-1))
            except aioacl.StaleHandleError:  # the reset was faster
                continue
            consumer.end()

    threads = [Raised(partial(work, number)) for number in range(4)]
    for thread in threads:
        thread.join()
    for buffer in buffers:
        buffer.close().result()
    device.memory_info().result()  # runs on the maintenance thread, after the notes of finalizers
    assert simulator.stats().device_blocks == before
    assert simulator.violations() == []
