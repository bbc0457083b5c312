"""What becomes garbage together: the collector finalizes all of a cycle at once, and some of it is needed still."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

from aioacl import simulator
from aioacl._ffi import ffi, lib, owner, pointer
from tests.kit import until

if TYPE_CHECKING:
    from tests.kit import OpenDevice

# What is dropped says that it was not closed; that is not the question here.
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::ResourceWarning")]


class Cycle:
    """It and what it has in hand are found by the collector only."""

    def __init__(self, *things: object) -> None:
        self.things = (self, *things)


def test_an_address_is_given_back_when_its_last_reference_is_gone_and_not_when_it_is_garbage() -> None:
    class Saves:
        def __init__(self, thing: object) -> None:
            self.cycle, self.thing = self, thing

        def __del__(self) -> None:
            saved.append(self.thing)

    given: list[int] = []
    saved: list[Any] = []
    own = owner(lambda address: given.append(pointer(address)))
    Saves(own(ffi.cast("char *", 64)))
    gc.collect()
    assert (given, [pointer(address) for address in saved]) == ([], [64])
    saved.clear()
    assert given == [64]


async def test_a_stream_that_is_garbage_is_destroyed_when_its_work_is_done(open_device: OpenDevice) -> None:
    async with open_device() as device:
        stream, memory = await device.create_stream(), await device.allocate(64)
        streams = simulator.stats().streams
        simulator.hold(stream)
        Cycle(stream, memory, stream.fill(memory, 1))
        del stream, memory
        gc.collect()
        assert (
            lib.aio_device_sweep(0) == 1
        )  # the engine still has its record, for the maintenance thread's wait
        assert simulator.stats().streams == streams
        simulator.release_all()
        await until(lambda: simulator.stats().streams == streams - 1)
        await until(lambda: lib.aio_device_sweep(0) == 0)


@pytest.mark.parametrize("kind", ["allocate", "pinned"])
async def test_memory_that_is_garbage_beside_its_stream_stays_until_the_copy_is_done(
    open_device: OpenDevice, kind: str
) -> None:
    async with open_device() as device:
        stream, other = await device.create_stream(), await device.allocate(64)
        memory = await getattr(device, kind)(64)

        def blocks() -> int:
            stats = simulator.stats()
            return stats.device_blocks + stats.host_blocks

        before = blocks()
        simulator.hold(stream)
        Cycle(stream, memory, other, stream.copy(memory, other))
        del stream, memory, other
        gc.collect()
        await device.memory_info()  # the maintenance thread has read the notes that finalizers have left
        assert blocks() == before
        simulator.release_all()
        await until(lambda: blocks() == before - 2)
