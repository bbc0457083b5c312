"""Other code aborts all work of the device: aclrtDeviceTaskAbort, which `torch.npu.stop_device` calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import aioacl
from aioacl import lowlevel, simulator
from aioacl._base.ffi import lib
from tests.kit import Raised, hanging, held_fill, raises, until, works

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["primary", "own"])
async def device(request: pytest.FixtureRequest) -> AsyncGenerator[aioacl.Device]:
    async with aioacl.open_device(0, context=request.param) as device:
        yield device


def abort_by_other_code() -> None:
    """Aborts all work of device 0 on a thread of its own."""
    assert Raised(lambda: lib.aio_u_aclrtDeviceTaskAbort(0, 1000)).join() == 0


async def test_55_dropped_work_raises_stream_aborted_and_finished_work_does_not(
    device: aioacl.Device,
) -> None:
    before = device.health.device_aborts
    async with device.create_stream() as stream, device.allocate(64) as memory:
        done = stream.fill(memory, 1)
        await done
        dropped = held_fill(stream, memory)
        abort_by_other_code()
        await raises(aioacl.StreamAborted, dropped)
        simulator.release(stream)
        await done
        assert (device.health.device_aborts, device.health.ready) == (before + 1, True)
        await stream.fill(memory, 2)  # the simulator leaves the stream usable
    assert await works(device)


async def test_await_in_progress_raises_stream_aborted(device: aioacl.Device) -> None:
    async with device.create_stream() as stream, device.allocate(64) as memory:
        event = (held_fill(stream, memory), stream.record())[1]
        other = await device.create_stream()
        depends = other.wait_event(event)
        abort_by_other_code()
        await raises(aioacl.StreamAborted, event)
        await raises(aioacl.StreamAborted, depends)
        await other.close()


async def test_work_of_a_block_that_an_abort_drops_fails_its_ticket(device: aioacl.Device) -> None:
    async with device.create_stream() as stream, device.allocate(64) as memory:
        await stream.fill(memory, 1)  # all counted work is done
        simulator.hold(stream)
        with stream.launch(reported=True) as work:
            native = lowlevel.ffi.cast("aclrtStream", work.handle)
            lowlevel.functions.aclrtMemsetAsync(lowlevel.handle(memory), 64, 2, 64, native)
            abort_by_other_code()
        simulator.release(stream)
        await raises(aioacl.StreamAborted, work.ticket)
        await stream.fill(memory, 3)


async def test_work_that_an_abort_drops_before_it_is_counted_fails_its_ticket(device: aioacl.Device) -> None:
    async with device.create_stream() as stream, device.allocate(64) as memory:
        await stream.fill(memory, 1)
        simulator.hold(stream)
        simulator.hang_call("aclrtGetThreadLastTaskId")  # called after the runtime has accepted the work
        filling = Raised(lambda: stream.fill(memory, 2))
        await until(hanging("aclrtGetThreadLastTaskId"))
        abort_by_other_code()
        simulator.release_all()
        await raises(aioacl.StreamAborted, filling.join())
        await stream.fill(memory, 3)


async def test_abort_of_an_idle_device_fails_no_await(device: aioacl.Device) -> None:
    async with device.create_stream() as stream, device.allocate(64) as memory:
        ticket = stream.fill(memory, 1)
        await ticket
        abort_by_other_code()
        await ticket
        await stream.fill(memory, 1)
    assert simulator.violations() == []
