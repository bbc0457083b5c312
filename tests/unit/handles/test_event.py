"""Events mark points of a stream. They are recorded once or repeatedly, timed, and released."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from tests.kit import Blocker, Waiting, held_fill, no_call, streams, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


async def test_pooled_event_needs_no_close_and_does_not_warn(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        created = simulator.stats().events
        for _ in range(200):
            stream.fill(memory, 1)
            await stream.record()
        assert simulator.stats().events <= created + 8


async def test_event_is_done_when_earlier_work_is_done_and_later_work_is_not(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, streams(device, 2) as (other, stream), device.allocate(64) as memory:
        simulator.hold(stream)
        blocker = Blocker(other, memory)
        stream.fill(memory, 1)
        event = stream.record()
        assert not event.query()
        blocker.block(stream)
        later = stream.record()
        simulator.release(stream)
        await event
        assert event.query()
        assert not later.query()
        blocker.release()
        await later


async def test_event_recorded_again_does_not_affect_awaits_of_its_older_version(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        streams(device, 2) as (first, second),
        device.create_event() as event,
        device.allocate(64) as memory,
        anyio.create_task_group() as group,
    ):
        simulator.hold(first)
        simulator.hold(second)
        first.fill(memory, 1)
        event.record(first)
        older = Waiting(group, event.synchronize)
        await until(lambda: lib.aio_device_waits(0) == 1)
        second.fill(memory, 2)
        assert event.record(second) is event
        newer = Waiting(group, event.synchronize)
        await until(lambda: lib.aio_device_waits(0) == 2)
        simulator.release(first)
        await older.outcome()
        assert not newer.ended
        assert not event.query()
        simulator.release(second)
        await newer.outcome()
        assert event.query()


async def test_stream_that_waits_for_an_older_version_does_not_wait_for_a_later_record(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        streams(device, 3) as (first, second, third),
        device.create_event() as event,
        device.allocate(64) as memory,
    ):
        simulator.hold(first)
        simulator.hold(third)
        first.fill(memory, 1)
        event.record(first)
        second.wait_event(event)
        ticket = second.fill(memory, 2)
        third.fill(memory, 3)
        event.record(third)
        simulator.release(first)
        await ticket
        simulator.release(third)
        await event


NEVER: dict[str, Callable[[aioacl.Event, aioacl.Stream], Any]] = {
    "await": lambda event, _: event,
    "synchronize": lambda event, _: event.synchronize(),
    "query": lambda event, _: event.query(),
    "wait_event": lambda event, stream: stream.wait_event(event),
    "elapsed_since": lambda event, _: event.elapsed_since(event),
}


async def used(use: Callable[..., Any], event: aioacl.Event, stream: aioacl.Stream) -> None:
    await use(event, stream)


@pytest.mark.parametrize("use", NEVER.values(), ids=NEVER)
async def test_event_that_was_never_recorded_is_refused_where_acl_would_succeed(
    open_device: OpenDevice, use: Callable[..., Any]
) -> None:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.create_event(timing=True) as event,
    ):
        assert not event.recorded
        with no_call(), pytest.raises(aioacl.ParameterError, match=r"event\.record"):
            await used(use, event, stream)
        assert event.record(stream).recorded
        await event


@pytest.mark.parametrize("timing", ["yes", 1 << 40, None, float("nan")])
async def test_timing_of_any_type_is_read_as_its_truth_value(open_device: OpenDevice, timing: Any) -> None:
    async with open_device() as device, device.create_event(timing=timing) as event:
        assert event._timing is bool(timing)


@pytest.mark.parametrize("use", NEVER.values(), ids=NEVER)
async def test_closed_event_is_refused(open_device: OpenDevice, use: Callable[..., Any]) -> None:
    async with open_device() as device, device.create_stream() as stream:
        event = await device.create_event(timing=True)
        event.record(stream)
        await event.close()
        await event.close()
        with no_call(), pytest.raises(aioacl.ParameterError, match="Make a new event"):
            await used(use, event, stream)
        with pytest.raises(aioacl.ParameterError, match="Make a new event"):
            event.record(stream)


async def test_elapsed_since_returns_seconds_on_the_device(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.create_event(timing=True) as start,
        device.create_event(timing=True) as end,
        device.allocate(64) as memory,
    ):
        start.record(stream)
        stream.fill(memory, 1)
        end.record(stream)
        await end
        assert 0 <= end.elapsed_since(start) < 20
        assert start.elapsed_since(start) == 0


async def test_elapsed_since_with_an_event_without_timing_is_refused(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.create_event(timing=True) as timed,
    ):
        plain = stream.record()
        timed.record(stream)
        await timed
        for later, earlier in ((timed, plain), (plain, timed)):
            with no_call(), pytest.raises(aioacl.ParameterError, match="timing=True"):
                later.elapsed_since(earlier)


async def test_elapsed_since_an_event_of_another_device_or_another_type_is_refused(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        open_device(1) as other,
        device.create_event(timing=True) as mine,
        other.create_event(timing=True) as theirs,
    ):
        wrong: Any = "x"
        for start, problem in (
            (theirs, "expected an event of device 0, got one of device 1"),
            (wrong, "expected an Event"),
        ):
            with no_call(), pytest.raises(aioacl.ParameterError, match=problem) as caught:
                mine.elapsed_since(start)
            assert caught.value.hint


async def test_elapsed_since_while_an_event_is_not_done_raises(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.create_event(timing=True) as start,
        device.create_event(timing=True) as end,
        device.allocate(64) as memory,
    ):
        start.record(stream)
        held_fill(stream, memory)
        end.record(stream)
        with pytest.raises(aioacl.AclError):
            end.elapsed_since(start)
        simulator.release(stream)
        await end


async def test_failed_record_keeps_the_older_version(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.create_event() as event,
    ):
        event.record(stream)
        await event
        simulator.fail_call("aclrtRecordEvent", 507000)
        with pytest.raises(aioacl.AclError) as caught:
            event.record(stream)
        assert caught.value.code == 507000
        assert event.query()


async def test_repr_of_an_event_shows_its_position_and_device(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        event = stream.record()
        assert repr(event).startswith(
            f"<Event at position 1 of stream {stream._core.number}, device 0, generation"
        )
        assert not event.timing
        async with device.create_event(timing=True) as timed:
            assert timed.timing
            assert repr(timed) == f"<Event never recorded, device 0, generation {device.generation}>"


def test_ticket_whose_creation_was_interrupted_is_finalized_without_an_error() -> None:
    ticket = aioacl.Ticket.__new__(aioacl.Ticket)  # the state after a Ctrl-C at the start of __init__
    del ticket
