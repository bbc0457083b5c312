"""The host memory of a copy is released when the copy is done, even if nothing awaits or queries the stream."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import simulator
from tests.kit import TASK_FAULT, Waiting, equipped, no_call_of_mine, reset_by_other_code, until, until_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

CHUNK = 1 << 20


def downloads(stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> tuple[weakref.ref[Any], aioacl.Ticket]:
    """A weak reference to a target that only the stream keeps alive, and the ticket of its copy."""
    target = np.zeros(64, np.uint8)
    return weakref.ref(target), stream.copy(target, memory)


def is_released(target: weakref.ref[Any]) -> bool:
    """Whether the target is released while this thread calls no ACL function."""
    with no_call_of_mine():
        return until_now(lambda: target() is None)


# --- copies -----------------------------------------------------------------------------------------------------------


def test_target_of_a_copy_that_nothing_awaits_is_released_when_it_is_done(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    simulator.hold(stream)
    target, ticket = downloads(stream, memory)
    assert target() is not None
    simulator.release(stream)
    assert is_released(target)
    assert ticket.done


def test_target_of_a_copy_on_a_stream_is_released_while_another_stream_is_busy(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    busy = device.create_stream().result()
    with simulator.held(busy):
        other, _ = downloads(busy, memory)
        target, _ = downloads(stream, memory)
        assert is_released(target)
        assert other() is not None
    assert is_released(other)
    busy.close().result()


def test_bytearray_that_was_copied_to_can_be_resized_when_the_copy_is_done(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    target = bytearray(64)
    stream.fill(memory, 7)
    stream.copy(target, memory)

    def grows() -> bool:
        try:
            target.append(1)
        except BufferError:  # the stream still refers to the memory
            return False
        return True

    assert until_now(grows)
    assert target == b"\7" * 64 + b"\1"


def test_target_is_released_when_done_of_its_ticket_reads_true(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    target, ticket = downloads(stream, memory)
    assert until_now(lambda: ticket.done)
    assert target() is None


def test_target_is_released_when_the_query_of_its_event_returns_true(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    target, _ = downloads(stream, memory)
    event = stream.record()
    assert until_now(event.query)
    assert target() is None


def test_source_of_an_upload_is_not_kept_at_all(stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> None:
    source = np.full(64, 7, np.uint8)
    kept = weakref.ref(source)
    with simulator.held(stream):
        ticket = stream.copy(memory, source)
        del source
        assert kept() is None
        assert not ticket.done
    back = bytearray(64)
    stream.copy(back, memory).result()
    assert back == b"\7" * 64


# --- copies that do not complete ------------------------------------------------------------------------------------


def test_target_of_a_failed_copy_is_released(stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> None:
    simulator.fail_next(stream, TASK_FAULT)
    failed, _ = downloads(stream, memory)
    assert is_released(failed)
    assert stream.error is not None


def test_target_of_a_copy_after_a_failed_task_is_released(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    with simulator.held(stream):
        simulator.fail_next(stream, TASK_FAULT)
        stream.fill(memory, 1)
        behind, _ = downloads(stream, memory)
    assert is_released(behind)
    assert stream.error is not None


def test_target_of_an_aborted_copy_is_released(stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> None:
    simulator.hold(stream)
    target, _ = downloads(stream, memory)
    stream.abort().result()
    assert is_released(target)
    simulator.release(stream)


@pytest.mark.parametrize(
    "reset",
    [lambda device: device.force_reset(grace=0).result(), lambda _: reset_by_other_code()],
    ids=["force reset", "foreign reset"],
)
def test_target_of_a_copy_that_a_reset_drops_is_released(
    device: aioacl.Device, reset: Callable[[aioacl.Device], object]
) -> None:
    stream, memory = device.create_stream().result(), device.allocate(64).result()
    simulator.hold(stream)
    target, ticket = downloads(stream, memory)
    reset(device)
    assert until_now(lambda: target() is None)
    with pytest.raises((aioacl.DeviceReset, aioacl.StaleHandleError)):
        ticket.result()


def test_target_of_a_copy_that_a_close_drops_is_released(open_device: OpenDevice) -> None:
    device = open_device().result()
    stream, memory = device.create_stream().result(), device.allocate(64).result()
    simulator.hold(stream)
    target, ticket = downloads(stream, memory)
    device.close().result()
    assert until_now(lambda: target() is None)
    assert ticket.done
    assert (stream.stale, memory.stale) == (True, True)


@pytest.mark.anyio
async def test_source_of_a_cancelled_upload_is_released_while_its_chunks_are_in_flight(
    open_device: OpenDevice,
) -> None:
    kept: list[weakref.ref[Any]] = []

    def begin(stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> aioacl.Operation[None]:
        source = np.zeros(8 * CHUNK, np.uint8)
        kept.append(weakref.ref(source))
        return stream.upload(memory, source)

    async with (
        equipped(open_device, 8 * CHUNK) as (_, stream, memory),
        anyio.create_task_group() as group,
    ):
        simulator.hold(stream)
        upload = Waiting(group, lambda: begin(stream, memory))
        await until(lambda: len(stream._core.in_flight) == 4)
        upload.cancel()
        await until(lambda: upload.ended)
        await until(lambda: kept[0]() is None)
        assert simulator.pending(stream) > 0
        simulator.release(stream)
