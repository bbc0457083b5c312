"""Streams: enqueueing, full queues and staging memory, streams that wait for events, aborts, and closes."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib, pointer
from aioacl._handles import transfer
from tests.kit import (
    Stop,
    Waiting,
    equipped,
    fill_queue,
    fill_staging,
    held_fill,
    live_streams,
    raises,
    turns,
    until,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
QUEUE_ENTRIES = 2046
MEGABYTE = 1 << 20


async def test_copies_through_every_kind_of_memory_return_the_same_bytes(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(4096) as first,
        device.allocate(4096) as second,
        device.pinned(4096) as pinned,
    ):
        source = np.random.default_rng(1).integers(0, 256, 4096, np.uint8)
        result = np.zeros_like(source)
        stream.copy(first, source)
        stream.copy(second, first)
        stream.copy(pinned, second)
        stream.copy(first, pinned)
        await stream.copy(result, first)
        assert (result == source).all()
        assert bytes(pinned.view) == source.tobytes()


@pytest.mark.parametrize("size", [1, 4095, 1 << 16, (1 << 16) + 1, MEGABYTE])
async def test_staged_copy_reads_its_source_at_once_and_fills_its_target_before_it_is_done(
    open_device: OpenDevice, size: int
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(size) as memory:
        source, target = bytearray(b"\x05" * size), bytearray(size)
        with simulator.held(stream):
            stream.copy(memory, source)
            source[:] = b"\x09" * size
            ticket = stream.copy(target, memory)
            assert not ticket.done
            assert not stream.query()
        await ticket
        assert target == b"\x05" * size


WAYS: dict[str, Callable[[aioacl.Stream, aioacl.Ticket, aioacl.Event], Any]] = {
    "await ticket": lambda _, ticket, __: ticket,
    "await stream": lambda stream, _, __: stream,
    "await event": lambda _, __, event: event,
    "ticket.done": lambda _, ticket, __: until(lambda: ticket.done),
    "stream.query": lambda stream, _, __: until(stream.query),
    "event.query": lambda _, __, event: until(event.query),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_download_is_reported_done_only_after_its_bytes_are_in_the_target(
    open_device: OpenDevice, way: Callable[..., Any]
) -> None:
    async with (
        equipped(open_device, MEGABYTE) as (_, stream, memory),
        anyio.create_task_group() as group,
    ):
        await stream.fill(memory, 7)
        for _ in range(8):
            target = bytearray(MEGABYTE)
            ticket = stream.copy(target, memory)
            event = stream.record()
            kicking = Waiting(group, stream.synchronize)  # `done` stays false if nothing waits for the stream
            await way(stream, ticket, event)
            assert target[0] == target[-1] == 7
            await kicking.outcome()


@pytest.mark.parametrize("size", [0, 1, MEGABYTE, 5 * MEGABYTE + 3])
async def test_upload_and_download_accept_pageable_memory_of_any_size(
    open_device: OpenDevice, size: int
) -> None:
    async with equipped(open_device, max(1, size)) as (device, stream, memory):
        source = np.random.default_rng(2).integers(0, 256, size, np.uint8)
        result = np.zeros_like(source)
        await stream.upload(memory, source)
        await stream.copy(bytearray(0), memory, nbytes=0)
        async with device.allocate(size) if size else device.allocate(1) as exact:
            if size:
                await stream.copy(exact, memory, nbytes=size)
                await stream.download(result, exact)
        assert (result == source).all()


async def test_enqueue_on_a_full_queue_is_refused_before_c_and_ready_waits_for_room(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        count = fill_queue(stream, memory)
        assert QUEUE_ENTRIES * 0.9 < count <= QUEUE_ENTRIES
        before = simulator.calls("aclrtMemsetAsync"), simulator.calls("aclrtMemcpyAsync")
        for enqueue in (
            lambda: stream.fill(memory, 1),
            lambda: stream.copy(memory, bytes(8)),
            lambda: stream.copy(bytearray(64), memory),
            stream.record,
        ):
            with pytest.raises(aioacl.QueueFull, match=r"await stream.ready\(\)"):
                enqueue()
        assert (simulator.calls("aclrtMemsetAsync"), simulator.calls("aclrtMemcpyAsync")) == before
        async with anyio.create_task_group() as group:
            waiting = Waiting(group, stream.ready)
            await until(lambda: lib.aio_device_waits(0) == 1)
            await turns()
            assert not waiting.ended
            simulator.release(stream)
            await waiting.outcome()
        await stream.fill(memory, 1)


async def test_copy_with_full_staging_memory_is_refused_before_c_and_ready_waits_for_room(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(MEGABYTE) as memory:
        simulator.hold(stream)
        tickets = []
        with pytest.raises(aioacl.QueueFull, match=r"ready.*device.pinned\(n\)"):  # noqa: PT012 - repeats until it raises
            while True:
                tickets.append(stream.copy(memory, bytes(MEGABYTE)))
        assert simulator.calls("aclrtMemcpyAsync") == len(tickets)
        simulator.release(stream)
        await stream.ready()
        tickets.append(stream.copy(memory, bytes(MEGABYTE)))
        for ticket in tickets:
            await ticket


async def test_staging_memory_has_a_limit_and_ready_waits_for_the_device_at_the_limit(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(MEGABYTE) as memory:
        simulator.hold(stream)
        async with anyio.create_task_group() as group:

            async def pump() -> None:
                for _ in range(100):
                    try:
                        stream.copy(memory, bytes(MEGABYTE))
                    except aioacl.QueueFull:
                        await stream.ready()
                        stream.copy(memory, bytes(MEGABYTE))

            waiting = Waiting(group, pump)
            await until(lambda: lib.aio_device_waits(0) == 1)
            assert simulator.stats().host_bytes < 100 * MEGABYTE
            simulator.release(stream)
            await waiting.outcome()
        await stream


async def test_ready_whose_staging_memory_is_released_before_more_is_allocated_returns(
    open_device: OpenDevice,
) -> None:
    busy = Stop()
    async with open_device() as device, device.create_stream() as stream, device.allocate(MEGABYTE) as memory:
        manager = device._manager
        simulator.hold(stream)
        await fill_staging(device, stream, memory)
        async with anyio.create_task_group() as group:
            manager.deferred.leave_note(busy)
            await until(busy.begun.is_set)
            waiting = Waiting(group, stream.ready)
            await until(lambda: manager.maintenance._calls)
            simulator.release(stream)
            await stream
            busy.go_on.set()
            await waiting.outcome()
        await stream.copy(memory, bytes(MEGABYTE))


@pytest.mark.parametrize("times", [1, -1])
async def test_upload_to_a_full_queue_waits_for_room_but_not_forever(
    open_device: OpenDevice, times: int
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(2 << 20) as memory:
        with simulator.fault("aclrtMemcpyAsync", after=1, times=times, rc=207014) as full:
            if times == 1:
                await stream.upload(memory, bytes(2 << 20))
            else:
                await raises(aioacl.QueueFull, stream.upload(memory, bytes(2 << 20)))
        assert full.hits > 0


@pytest.mark.parametrize("keep", ["stream", "nothing"])
async def test_staging_memory_of_work_that_a_reset_dropped_is_used_again(
    open_device: OpenDevice, keep: str
) -> None:
    async with open_device() as device:
        kept = []
        for _ in range(12):
            async with device.create_stream() as stream, device.allocate(MEGABYTE) as memory:
                simulator.hold(stream)
                for _ in range(4):
                    stream.copy(memory, bytes(MEGABYTE))
                kept += [stream] if keep == "stream" else []
                assert (await device.force_reset(grace=0)).ok
        assert simulator.stats().host_bytes < 48 * MEGABYTE


async def test_staging_memory_of_work_in_flight_is_freed_when_the_device_closes(
    open_device: OpenDevice,
) -> None:
    before = simulator.stats().host_blocks
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        ticket = stream.copy(memory, bytes(64))
    assert simulator.stats().host_blocks == before
    assert ticket.done  # done, because an await of the ticket raises at once
    del stream


async def test_stream_that_waits_for_an_event_of_another_device_runs_after_it(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        open_device(1) as other,
        device.create_stream() as first,
        other.create_stream() as second,
        device.allocate(64) as here,
        other.allocate(64) as there,
    ):
        held_fill(first, here, 5)
        event = first.record()
        second.wait_event(event)
        ticket = second.fill(there, 1)
        await turns()
        assert not second.query()
        simulator.release(first)
        await ticket
        assert event.query()


@pytest.mark.uncached
async def test_busy_stream_closes_at_once_and_is_destroyed_when_its_work_is_done(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        stream = await device.create_stream()
        ticket = held_fill(stream, memory, 5)
        await stream.close()
        assert simulator.calls("aclrtDestroyStream") == simulator.calls("aclrtStreamAbort") == 0
        with pytest.raises(aioacl.ParameterError, match="Make a new stream"):
            stream.fill(memory, 1)
        with pytest.raises(aioacl.ParameterError, match="Make a new stream"):
            await stream
        await stream.close()
        simulator.release(stream)
        await ticket
        await until(lambda: live_streams() == 0)


async def test_abort_ends_all_tickets_and_the_stream_stays_usable(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        done = stream.fill(memory, 1)
        await stream
        simulator.hold(stream)
        tickets = [stream.fill(memory, i) for i in range(3)]
        event = stream.record()
        async with anyio.create_task_group() as group:
            waiting = [Waiting(group, partial(wait_for, ticket)) for ticket in tickets[:2]]
            waiting.append(Waiting(group, stream.synchronize))
            await until(lambda: lib.aio_device_waits(0) == 3)
            await stream.abort()
            for one in waiting:
                await raises(aioacl.StreamAborted, one.outcome())
        for ended in (*tickets, event, stream):
            await raises(aioacl.StreamAborted, wait_for(ended))
        await done
        simulator.release(stream)
        await stream.fill(memory, 1)
        await stream


async def test_abort_that_fails_after_it_dropped_work_does_not_let_that_work_succeed(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        ticket = held_fill(stream, memory)
        with (
            simulator.fault("aclrtStreamAbort", rc_after=507000),
            pytest.raises(aioacl.AclError, match="507000"),
        ):
            await stream.abort()
        simulator.release(stream)
        await raises(aioacl.StreamAborted, ticket)
        await stream.fill(memory, 2)


async def test_abort_with_firmware_that_lacks_it_raises_not_supported(open_device: OpenDevice) -> None:
    simulator.set_abort_supported(supported=False)
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        ticket = held_fill(stream, memory)
        await raises(aioacl.NotSupported, stream.abort())
        simulator.release(stream)
        await ticket


@pytest.mark.parametrize("staged", [False, True])
async def test_buffer_of_a_refused_copy_is_not_referenced(open_device: OpenDevice, staged: bool) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as source:

        async def refused() -> weakref.ref[aioacl.DeviceBuffer]:
            async with device.allocate(64) as target:
                simulator.fail_call("aclrtMemcpyAsync", 107000)
                with pytest.raises(aioacl.ParameterError):
                    stream.copy(target, bytes(64) if staged else source)
                return weakref.ref(target)

        kept = await refused()
        gc.collect()
        assert kept() is None


async def test_upload_has_at_most_four_chunks_in_flight(open_device: OpenDevice) -> None:
    size = 6 << 20
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(size) as memory,
        device.pinned(size) as source,  # pinned, because the limit of staging memory must not matter here
        anyio.create_task_group() as group,
    ):
        before = simulator.calls("aclrtMemcpyAsync")
        simulator.hold(stream)
        uploading = Waiting(group, lambda: stream.upload(memory, source))
        await until(lambda: simulator.calls("aclrtMemcpyAsync") > before)
        await turns()
        assert simulator.calls("aclrtMemcpyAsync") == before + 4
        simulator.release(stream)
        await uploading.outcome()
        assert simulator.calls("aclrtMemcpyAsync") == before + 6


@pytest.mark.anyio
async def test_upload_of_pageable_memory_lets_other_tasks_run_between_chunks(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "TURN_SECONDS", -1.0)  # each chunk takes longer
    size = 4 << 20
    async with equipped(open_device, size) as (_, stream, memory), anyio.create_task_group() as group:
        await stream.upload(memory, bytes(size))  # makes the staging memory
        before = simulator.calls("aclrtMemcpyAsync")
        uploading = Waiting(group, lambda: stream.upload(memory, bytes(size)))
        seen = [before]
        while not uploading.ended:
            seen.append(simulator.calls("aclrtMemcpyAsync"))
            await anyio.lowlevel.checkpoint()
        await uploading.outcome()
        # trio runs the tasks of a turn in random order, so the upload may run twice between two turns of this task.
        assert max(later - earlier for earlier, later in pairwise(seen)) <= 2


@pytest.mark.anyio
@pytest.mark.watch_only  # a thread that waits needs a mark for each wait
async def test_work_after_finished_work_records_no_mark(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        tickets = []
        for _ in range(5):
            tickets.append(stream.fill(memory, 1))
            await tickets[-1]
        # On a slow machine the watcher also records an event, on its own stream, to wake the runtime.
        native = f"{pointer(stream._core.native):#x}"
        records = [call["args"] for call in simulator.journal() if call["call"] == "aclrtRecordEvent"]
        assert not [arguments for arguments in records if native in arguments]
