"""One device used from many threads and loops, also during resets."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base import sync
from tests.kit import Raised, in_thread

if TYPE_CHECKING:
    from types import FrameType

    from tests.kit import OpenDevice

RESETS = 50
COROUTINES = 32
LOOPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("asyncio", {}),
    ("asyncio", {"use_uvloop": True}),
    ("trio", {}),
)
INTERRUPTED = (aioacl.DeviceReset, aioacl.DeviceResetting, aioacl.StaleHandleError, aioacl.StreamAborted)


class Traffic:
    """Copies to the device and back from any thread, until `stop` is set."""

    def __init__(self, device: aioacl.Device) -> None:
        self.device = device
        self.stop = threading.Event()
        self.trips = 0
        self.interruptions = 0

    async def coroutine(self, number: int) -> None:
        """Round trips in a coroutine, until `stop` is set."""
        while not self.stop.is_set():
            try:
                await self.trip(bytes([number]) * 256)
                self.trips += 1
            except INTERRUPTED:
                self.interruptions += 1

    async def trip(self, message: bytes) -> None:
        """Copies to the device and back. Each step is awaited in a different way."""
        device = self.device
        async with (
            device.create_stream() as stream,
            device.allocate(256) as memory,
            device.pinned(256) as pinned,
        ):
            pinned.view[:] = message
            await stream.copy(memory, pinned)
            halfway = stream.record()
            back = bytearray(256)
            ticket = stream.copy(back, memory)
            await halfway
            await stream
            await ticket
            assert back == message

    def thread(self) -> None:
        """Round trips by `.result()`, until `stop` is set."""
        while not self.stop.is_set():
            try:
                self.blocking_trip()
                self.trips += 1
            except INTERRUPTED:
                self.interruptions += 1

    def blocking_trip(self) -> None:
        """Copies to the device and back on a thread without a loop."""
        stream = self.device.create_stream().result()
        memory = self.device.allocate(256).result()
        try:
            back = bytearray(256)
            stream.copy(memory, b"t" * 256)
            stream.copy(back, memory).result()
            stream.result()
            assert back == b"t" * 256
        finally:
            memory.close().result()
            stream.close().result()

    def loop(self, backend: str, options: dict[str, Any], coroutines: int) -> None:
        """Runs coroutines on an event loop of this thread."""

        async def main() -> None:
            async with anyio.create_task_group() as group:
                for number in range(coroutines):
                    group.start_soon(self.coroutine, number)

        anyio.run(main, backend=backend, backend_options=options)

    def reset(self) -> int:
        """Resets the device RESETS times. Returns how many resets succeeded."""
        done = sum(self.device.force_reset(grace=0.002 * (i % 3)).result().ok for i in range(RESETS))
        self.stop.set()
        return done


def test_50_resets_succeed_while_32_coroutines_on_three_loops_and_a_plain_thread_copy(
    open_device: OpenDevice,
) -> None:
    device = open_device().result()
    generation = device.generation
    traffic = Traffic(device)
    shares = (11, 11, 10)
    assert sum(shares) == COROUTINES
    threads = [
        Raised(partial(traffic.loop, backend, options, share))
        for (backend, options), share in zip(LOOPS, shares, strict=True)
    ]
    threads.append(Raised(traffic.thread))
    resetting = Raised(traffic.reset)
    try:
        assert resetting.join(seconds=100) == RESETS
    finally:
        traffic.stop.set()
        for thread in threads:
            thread.join()
    assert device.generation == generation + RESETS
    assert traffic.trips > 0
    assert traffic.interruptions > 0
    in_thread(partial(traffic.blocking_trip))
    in_thread(lambda: device.close().result())
    assert simulator.violations() == []


@pytest.mark.parametrize(("backend", "options"), LOOPS, ids=["asyncio", "uvloop", "trio"])
def test_handles_made_on_one_thread_work_on_other_loops_and_threads(
    open_device: OpenDevice, backend: str, options: dict[str, Any]
) -> None:
    device = open_device().result()
    stream, memory = device.create_stream().result(), device.allocate(64).result()
    event = device.create_event().result()

    async def other() -> aioacl.Ticket:
        ticket = stream.fill(memory, 3)
        event.record(stream)
        await ticket
        return stream.copy(memory, bytes(64))

    ticket = in_thread(lambda: anyio.run(other, backend=backend, backend_options=options))
    for thing in (ticket, event, stream):
        thing.result()
        in_thread(thing.result)
    for closing in (event, memory, stream, device):
        closing.close().result()


def test_opens_from_many_threads_set_the_device_once_and_the_last_close_resets_it_once(
    open_device: OpenDevice,
) -> None:
    sets, resets = simulator.calls("aclrtSetDevice"), simulator.resets()
    barrier = threading.Barrier(8)

    def use() -> int:
        barrier.wait()
        device = open_device().result()
        barrier.wait()
        generation = device.generation
        device.close().result()
        return generation

    threads = [Raised(use) for _ in range(8)]
    assert len({thread.join() for thread in threads}) == 1
    assert simulator.calls("aclrtSetDevice") == sets + 1
    assert simulator.resets() == resets + 1


def test_condition_is_entered_and_left_without_python_code_that_could_be_interrupted() -> None:
    condition, lines = sync.condition(), list[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            lines.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        with condition:
            pass
    finally:
        sys.setprofile(None)
    assert lines == []


def test_condition_wakes_waiting_threads_and_is_free_after_the_block() -> None:
    condition, ready = sync.condition(), list[int]()

    def wait() -> bool:
        with condition:
            while not ready:
                condition.wait()
            return condition.wait(0)

    waiting = Raised(wait)
    with condition:
        ready.append(1)
        condition.notify_all()
    assert not waiting.join()
    with pytest.raises(KeyError), condition:
        raise KeyError
    with condition:
        pass
