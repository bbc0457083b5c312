"""The repr of objects shows state, device, generation and failure, in every state and without a call to ACL."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from tests.kit import (
    FAULT,
    TASK_FAULT,
    Stop,
    Waiting,
    equipped,
    failing_fill,
    held_fill,
    hung_in,
    in_thread,
    no_call_of_mine,
    raises,
    until,
)

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
FAILED = f"failed: {TASK_FAULT} ACL_ERROR_RT_AICORE_EXCEPTION"


def shown(thing: object) -> str:
    with no_call_of_mine():
        return repr(thing)


class Setup:
    """A device with a stream and a buffer."""

    device: aioacl.Device
    stream: aioacl.Stream
    memory: aioacl.DeviceBuffer

    def things(self) -> dict[str, Any]:
        """One object of each kind that may outlive a reset, a close or a fork."""
        return {
            "device": self.device,
            "stream": self.stream,
            "buffer": self.memory,
            "ticket": self.stream.fill(self.memory, 1),
            "event": self.stream.record(),
            "lease": self.device.lease(),
            "shared lease": self.device.lease().share(),
            "operation": self.stream.synchronize(),
            "operation of the device": self.device.synchronize(),
        }


async def use(*operations: aioacl.Operation[None]) -> None:
    """Awaits the operations, because an operation that is never awaited emits a warning."""
    for operation in operations:
        with suppress(aioacl.AclError):
            await operation


async def test_stream_shows_its_number_device_generation_and_that_it_is_closed(
    open_device: OpenDevice,
) -> None:
    async with open_device(1) as device:
        async with device.create_stream() as stream:
            number = stream._core.number
            assert shown(stream) == f"<Stream {number}, device 1, generation {device.generation}>"
        assert shown(stream) == f"<Stream {number}, device 1, generation {device.generation}, closed>"


async def test_repr_of_failed_work_shows_its_code_and_leaves_the_failure_uncollected(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        stream, failed = await device.create_stream(), device.health.failed_tasks
        before = stream.fill(memory, 1)
        await before
        ticket, event = failing_fill(stream, memory), stream.record()
        assert event._version is not None
        await until(lambda: device.health.failed_tasks > failed)
        number, generation = stream._core.number, device.generation
        where = f"stream {number}, device 0, generation {generation}"
        assert shown(stream) == f"<Stream {number}, device 0, generation {generation}, {FAILED}>"
        assert shown(before) == f"<Ticket 1 of {where}, done>"
        assert shown(ticket) == f"<Ticket {ticket.position} of {where}, {FAILED}>"
        assert shown(event) == f"<Event at position {event._version.position} of {where}, {FAILED}>"
        with pytest.warns(aioacl.AclWarning, match="no await raised the error"):  # a repr collects no failure
            await stream.close()


async def test_unfinished_work_shows_that_it_is_not_known_to_be_done(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        with simulator.held(stream):
            ticket, event = stream.fill(memory, 1), stream.record()
            assert shown(ticket).endswith(", not known to be done>")
            assert shown(event).endswith(", not known to be done>")
        await event
        assert shown(ticket).endswith(", done>")
        assert shown(event).endswith(", done>")


async def test_work_that_a_reset_or_a_close_drops_shows_that_it_was_dropped(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        stream = await device.create_stream()
        simulator.hold(stream)
        ticket, event = stream.fill(memory, 1), stream.record()
        assert (await device.force_reset(grace=0)).ok
        for thing in (ticket, event):
            assert shown(thing).endswith(", stale, dropped>")
        assert ticket.done
        async with device.create_stream() as another, device.allocate(64) as more:
            known = another.fill(more, 1)
            await known
            dropped = held_fill(another, more, 2)
    assert shown(dropped).endswith(", stale, dropped>")
    assert dropped.done
    assert shown(known).endswith(", stale, done>")


async def test_operation_shows_its_call_its_handle_and_its_progress(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory), anyio.create_task_group() as group:
        held_fill(stream, memory)
        operation, late = stream.synchronize(), stream.synchronize(timeout=0)
        of = f"stream.synchronize() of {stream!r}"
        assert shown(operation) == f"<Operation {of}, not started>"
        waiting = Waiting(group, lambda: operation)
        await until(lambda: shown(operation) == f"<Operation {of}, started>")
        await raises(aioacl.DeviceTimeout, late)
        assert shown(late) == f"<Operation {of}, raised DeviceTimeout>"
        simulator.release(stream)
        await waiting.outcome()
        assert shown(operation) == f"<Operation {of}, done>"
        blocking = stream.synchronize()
        with pytest.raises(RuntimeError, match="event loop"):
            blocking.result()
        assert shown(blocking) == f"<Operation {of}, refused>"
        in_thread(blocking.result)
        assert shown(blocking) == f"<Operation {of}, done>"


async def test_opening_shows_its_call_and_its_device(open_device: OpenDevice) -> None:
    opening = open_device()
    assert shown(opening) == "<Opening open_device(0), not started>"
    async with opening as device:
        making = device.allocate(64)
        assert shown(making) == f"<Opening allocate(64) of {device!r}, not started>"
        async with making as memory:
            assert shown(making) == f"<Opening allocate(64) of {device!r}, done>"
            generation = device.generation
            assert shown(memory) == f"<DeviceBuffer of 64 bytes, device 0, generation {generation}>"


async def test_lease_shows_whether_it_is_held(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        lease = device.lease()
        where = f"<Lease on device 0, generation {device.generation}"
        assert shown(lease) == f"{where}, not entered>"
        async with lease:
            assert shown(lease) == f"{where}, held by 1>"
            async with lease.share() as shared:
                assert shown(shared) == f"{where}, held by 2>"
            assert shown(lease.share()) == f"<SharedLease of {where}, held by 1>>"
            assert (await Waiting(group, lambda: device.force_reset(grace=0)).outcome()).ok
            assert shown(lease) == f"{where}, revoked>"  # the generation in which the lease was entered
        assert shown(lease) == f"{where}, left>"
        waiting = f"<Lease on device 0, generation {device.generation}, not entered>"
        assert shown(device.lease()) == waiting
        assert not waiting.startswith(f"{where},")


async def test_handle_that_is_closed_and_stale_shows_both(open_device: OpenDevice) -> None:
    async with open_device() as device:
        stream, memory = await device.create_stream(), await device.allocate(64)
        event = stream.record()
        await event
        for thing in (event, memory, stream):
            await thing.close()
        generation = device.generation
        assert (await device.force_reset()).ok
        for thing in (event, memory, stream):
            assert f"device 0, generation {generation}, stale, closed" in shown(thing)


async def test_ticket_of_a_closed_or_renewed_stream_shows_that_the_stream_has_ended(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        async with device.create_stream() as stream:
            ticket, event = stream.fill(memory, 1), stream.record()
            await event
            number = stream._core.number
            assert f" of stream {number}, device 0" in shown(ticket)
        assert f" of stream {number} (ended), device 0" in shown(ticket)
        assert f" of stream {number} (ended), device 0" in shown(event)
        async with device.create_stream() as stream:
            ticket, number = stream.fill(memory, 1), stream._core.number
            await stream.renew()
            assert f" of stream {number} (ended), device 0" in shown(ticket)


async def test_executor_shows_its_device_threads_and_jobs(open_device: OpenDevice) -> None:
    async with open_device(1) as device:
        executor, blocker = device.executor, Stop()
        of = f"of {executor._limit} threads"
        assert shown(executor) == f"<DeviceExecutor of device 1, 0 {of}, 0 jobs queued>"
        job = executor.submit(blocker)
        await until(job.running)
        assert shown(executor) == f"<DeviceExecutor of device 1, 1 {of}, 0 jobs queued>"
        blocker.go_on.set()
        await until(job.done)
        executor.shutdown()
        assert shown(executor) == f"<DeviceExecutor of device 1, 0 {of}, 0 jobs queued, shut down>"


async def test_device_shows_its_state_and_its_fault(open_device: OpenDevice) -> None:
    async with open_device() as device, open_device() as again:
        generation = device.generation
        assert shown(again) == f"<Device 0, OPEN, generation {generation}>"
        await again.close()
        assert shown(again) == f"<Device 0, OPEN, generation {generation}, closed>"
        async with device.create_stream() as stream, device.allocate(64) as memory:
            await raises(aioacl.DeviceFault, failing_fill(stream, memory, FAULT))
            fault = f"fault: {FAULT} ACL_ERROR_RT_"
            assert shown(device).startswith(f"<Device 0, OPEN, generation {generation}, {fault}")
        assert (await device.force_reset()).ok
        assert shown(device) == f"<Device 0, OPEN, generation {device.generation}>"


async def test_reprs_after_a_reset_and_after_a_close_name_the_state_and_do_not_raise(
    open_device: OpenDevice,
) -> None:
    setup = Setup()
    async with equipped(open_device) as (setup.device, setup.stream, setup.memory):
        things = setup.things()
        generation = setup.device.generation
        assert (await setup.device.force_reset()).ok
        for name in ("stream", "buffer", "ticket", "event"):
            assert f"device 0, generation {generation}, stale" in shown(things[name]), name
        assert "stale" in shown(things["operation"])
    assert shown(setup.device) == f"<Device 0, CLOSED, generation {setup.device.generation}>"
    for name, thing in things.items():
        assert shown(thing).startswith("<"), name
    await use(things["operation"], things["operation of the device"])


async def test_reprs_while_a_reset_runs_do_not_raise(open_device: OpenDevice) -> None:
    setup = Setup()
    async with (
        equipped(open_device) as (setup.device, setup.stream, setup.memory),
        anyio.create_task_group() as group,
    ):
        things = setup.things()
        await things["ticket"]
        resetting = await hung_in("aclrtResetDeviceForce", group, setup.device.force_reset)
        assert "RESETTING" in repr(setup.device)
        for name, thing in things.items():
            assert repr(thing).startswith("<"), name
        simulator.release_all()
        assert (await resetting.outcome()).ok
        await use(things["operation"], things["operation of the device"])
