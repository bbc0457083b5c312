"""Many cancellations, and closes that race with copies of other threads: nothing leaks.

`.ci/sanitized.py` runs these tests with the C side under ASan, which finds each use of freed memory.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._wait.current import current_port
from tests.kit import simulated, turns, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, pytest.mark.uncached]
SIZE: Final = 64
AT_ONCE: Final = 64
WORKERS: Final = 4
SLOTS: Final = 8


# --- cancellations ---------------------------------------------------------------------------------------------------


class Cancelled:
    """Counts the tasks that were cancelled during their await."""

    def __init__(self) -> None:
        self.count = 0

    async def wait(self, awaited: Any) -> None:
        """Awaits the object."""
        try:
            await awaited
        except anyio.get_cancelled_exc_class():
            self.count += 1
            raise


def awaited_of(stream: aioacl.Stream, memory: aioacl.DeviceBuffer, choose: random.Random) -> Any:
    """Enqueues work, and returns what awaits it. Nothing but the work refers to the bytearray."""
    ticket = stream.copy(bytearray(SIZE), memory) if choose.random() < 0.5 else stream.fill(memory, 7)
    return choose.choice((ticket, stream, stream.record()))


@pytest.mark.parametrize(
    ("cancellations", "seed"),
    [(1_000, 0), *(pytest.param(250_000, seed, marks=pytest.mark.slow) for seed in range(1, 5))],
)
async def test_many_cancelled_awaits_leave_nothing(
    open_device: OpenDevice, cancellations: int, seed: int
) -> None:
    choose, cancelled = random.Random(seed), Cancelled()
    before = simulated()
    async with open_device() as device, device.allocate(SIZE) as memory, device.create_stream() as stream:
        slots = lib.aio_stage_free_slots(0, SIZE)
        while cancelled.count < cancellations:
            with simulator.held(stream):
                async with anyio.create_task_group() as group:
                    for _ in range(AT_ONCE):
                        group.start_soon(cancelled.wait, awaited_of(stream, memory, choose))
                    await turns(choose.randrange(4))
                    if choose.random() < 0.5:
                        simulator.release(stream)  # some of the work ends before its cancellation
                    group.cancel_scope.cancel()
            await stream
        await until(lambda: current_port().outstanding == 0)
        assert lib.aio_device_waits(0) == 0
        await until(lambda: lib.aio_stage_free_slots(0, SIZE) >= slots)
    await until(lambda: simulated() == before)


# --- closes ----------------------------------------------------------------------------------------------------------


class Slot:
    """A stream and memory that other threads use while this test closes them."""

    def __init__(self, device: aioacl.Device) -> None:
        self._device = device
        self.stream = device.create_stream().result()
        self.memory, self.pinned = self._buffers()

    def _buffers(self) -> tuple[aioacl.DeviceBuffer, aioacl.PinnedBuffer]:
        return self._device.allocate(SIZE).result(), self._device.pinned(SIZE).result()

    def renew(self, *, stream: bool) -> int:
        """Closes the buffers, and the stream if so asked. Returns the number of closes."""
        old: list[Any] = [self.memory, self.pinned]
        self.memory, self.pinned = self._buffers()
        if stream:
            old.append(self.stream)
            self.stream = self._device.create_stream().result()
        for each in old:
            each.close().result()
        return len(old)

    def close(self) -> None:
        """Closes all."""
        for each in (self.memory, self.pinned, self.stream):
            each.close().result()


def copies_of(slot: Slot, other: Slot) -> tuple[Callable[[], aioacl.Ticket], ...]:
    """Copies between the memory of two slots and the host."""
    there = bytearray(SIZE)
    return (
        lambda: slot.stream.copy(slot.memory, other.memory),
        lambda: slot.stream.copy(slot.memory, slot.pinned),
        lambda: slot.stream.copy(other.pinned, slot.memory),
        lambda: slot.stream.copy(slot.memory, bytes(SIZE)),
        lambda: slot.stream.copy(there, slot.memory),
    )


def copy_until(over: threading.Event, slots: list[Slot], seed: int) -> tuple[int, int]:
    """Copies between random slots, and waits now and then. Returns the number of copies, and of those refused."""
    choose, made, refused = random.Random(seed), 0, 0
    while not over.is_set():
        try:
            ticket = choose.choice(copies_of(choose.choice(slots), choose.choice(slots)))()
            made += 1
            if made % 8 == 0:
                ticket.result()
        except aioacl.ParameterError as error:
            if "closed" not in str(error):
                raise
            refused += 1
    return made, refused


def close_many(device: aioacl.Device, closes: int, seed: int) -> tuple[int, int]:
    """Closes so many handles while other threads copy. Returns the number of copies, and of those refused."""
    slots = [Slot(device) for _ in range(SLOTS)]
    over, counts = threading.Event(), list[tuple[int, int]]()
    workers = [
        threading.Thread(target=lambda seed=seed: counts.append(copy_until(over, slots, seed)))
        for seed in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    choose, closed = random.Random(seed), 0
    try:
        while closed < closes and all(worker.is_alive() for worker in workers):
            closed += choose.choice(slots).renew(stream=choose.random() < 0.2)
    finally:
        over.set()
        for worker in workers:
            worker.join()
    for slot in slots:
        slot.close()
    assert len(counts) == WORKERS
    return sum(made for made, _ in counts), sum(refused for _, refused in counts)


@pytest.mark.parametrize(
    ("closes", "seed"),
    [(500, 18), *(pytest.param(25_000, seed, marks=pytest.mark.slow) for seed in range(1, 5))],
)
async def test_closes_that_race_with_copies_of_other_threads(
    open_device: OpenDevice, closes: int, seed: int
) -> None:
    before = simulated()
    async with open_device() as device:
        made, refused = await anyio.to_thread.run_sync(close_many, device, closes, seed)
        assert made > 0
        assert refused > 0 or closes < 25_000
    await until(lambda: simulated() == before)
