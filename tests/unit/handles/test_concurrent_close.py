"""If a thread uses a handle while another thread closes it, the error states that the handle is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._handles import stream as _stream
from aioacl._wait.workers import call_on
from tests.kit import Waiting, enqueue_in_python, hanging, hung_in, in_thread, streams, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


class Things:
    device: aioacl.Device
    stream: aioacl.Stream
    memory: aioacl.DeviceBuffer
    pinned: aioacl.PinnedBuffer
    event: aioacl.Event


ENQUEUES: dict[str, Callable[[Things], object]] = {
    "fill": lambda t: t.stream.fill(t.memory, 1),
    "copy of pinned memory": lambda t: t.stream.copy(t.memory, t.pinned),
    "copy to the device": lambda t: t.stream.copy(t.memory, bytes(64)),
    "copy from the device": lambda t: t.stream.copy(bytearray(64), t.memory),
    "upload": lambda t: t.stream.upload(t.memory, bytes(64)),
    "record": lambda t: t.stream.record(),
    "wait for an event": lambda t: t.stream.wait_event(t.event),
}


async def enqueue(
    open_device: OpenDevice,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    act: Callable[[Things], object],
) -> None:
    """Enqueues while another thread runs `act`."""
    things = Things()
    async with (
        open_device() as things.device,
        things.device.allocate(64) as things.memory,
        things.device.pinned(64) as things.pinned,
        streams(things.device, 2) as (other, things.stream),
    ):
        things.event = other.record()
        await things.event
        with monkeypatch.context() as patch:
            enqueue_in_python(patch, lambda: in_thread(lambda: act(things)))
            enqueued: Any = ENQUEUES[how](things)
            if how == "upload":
                await enqueued


@pytest.mark.parametrize("how", ENQUEUES)
async def test_enqueue_on_a_stream_that_another_thread_closes_raises_that_it_is_closed(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with pytest.raises(aioacl.ParameterError, match=r"the stream is closed. Make a new stream"):
        await enqueue(open_device, monkeypatch, how, lambda things: things.stream.close().result())


@pytest.mark.parametrize("how", ["fill", "copy of pinned memory", "copy to the device", "upload"])
async def test_enqueue_with_a_buffer_that_another_thread_closes_raises_that_it_is_closed(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def act(things: Things) -> None:
        things.memory.close().result()

    if how == "upload":  # the upload already uses the buffer, so the buffer is freed after the upload
        await enqueue(open_device, monkeypatch, how, act)
        return
    with pytest.raises(aioacl.ParameterError, match=r"the device buffer is closed. Make a new device buffer"):
        await enqueue(open_device, monkeypatch, how, act)


@pytest.mark.parametrize("how", ENQUEUES)
async def test_enqueue_on_a_device_that_another_thread_closes_raises_that_it_is_closed(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with pytest.raises(aioacl.StaleHandleError, match=r"got one of a closed device. Open the device again"):
        await enqueue(open_device, monkeypatch, how, lambda things: things.device.close().result())


@pytest.mark.parametrize("how", ["record", "wait_event"])
async def test_enqueue_with_an_event_that_another_thread_closes_raises_that_it_is_closed(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with open_device() as device, device.create_stream() as stream:
        event = stream.record()
        enqueue_in_python(monkeypatch, lambda: in_thread(lambda: event.close().result()))
        with pytest.raises(aioacl.ParameterError, match="the event is closed"):
            getattr(stream, how)(event)


async def test_abort_of_a_stream_that_another_thread_closes_raises_that_it_is_closed(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device, device.create_stream() as stream:

        async def after_the_close(*args: Any) -> Any:
            in_thread(lambda: stream.close().result())
            return await call_on(*args)

        monkeypatch.setattr(_stream, "call_on", after_the_close)
        with pytest.raises(aioacl.ParameterError, match="the stream is closed"):
            await stream.abort()


async def test_enqueue_while_the_last_close_drains_or_resets_raises_that_the_device_is_closed(
    open_device: OpenDevice,
) -> None:
    device = await open_device()
    stream, memory = await device.create_stream(), await device.allocate(64)
    async with anyio.create_task_group() as group:
        # The close first stops the maintenance thread, which hangs in this call.
        allocating = await hung_in("aclrtMalloc", group, lambda: device.allocate(64))
        closing = Waiting(group, device.close)
        await until(lambda: device.state is aioacl.State.DRAINING)
        with pytest.raises(aioacl.StaleHandleError, match="got one of a closed device"):
            stream.fill(memory, 1)
        simulator.hang_call("aclrtResetDevice")
        simulator.release_call("aclrtMalloc")
        await until(hanging("aclrtResetDevice"))
        with pytest.raises(aioacl.StaleHandleError, match="got one of a closed device"):
            stream.fill(memory, 1)
        simulator.release_all()
        await closing.outcome()
        await until(lambda: allocating.ended)
        if allocating.error is None:
            await allocating.value.close()
    await memory.close()
    await stream.close()
