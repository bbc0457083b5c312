"""What unfinished work and other code still use is kept; each test guards one check that other tests do not notice."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import InFlight, lib
from aioacl._handles import in_flight
from aioacl._lifecycle.manager import manager_of
from tests.kit import (
    FAULT,
    TASK_FAULT,
    Waiting,
    elsewhere,
    held_fill,
    hung_in,
    live_streams,
    no_call_of_mine,
    reset_by_other_code,
    runs_out_of_time,
    until,
    until_now,
    wait_for,
)

if TYPE_CHECKING:
    from tests.kit import OpenDevice


def counts() -> tuple[int, int, int]:
    return manager_of(0).cache.counts


class Owner:
    """An owner of memory that can be referred to weakly."""


# --- memory that work uses ------------------------------------------------------------------------------------------


def test_memory_that_one_of_two_streams_uses_is_not_given_to_the_cache(
    device: aioacl.Device, stream: aioacl.Stream
) -> None:
    memory = device.allocate(64).result()
    done = device.create_stream().result()
    position = done.fill(memory, 1).position
    with simulator.held(stream):
        stream.fill(memory, 2)
        # The query does not drop the reference of the work that is done, as an await would.
        assert until_now(lambda: lib.aio_stream_query(done._core.handle, position) == 1)
        assert not memory._close_now()
        memory._close_later()
        assert counts()[1] == 0
    assert until_now(lambda: counts()[1] == 1)
    done.close().result()


def test_work_that_follows_finished_work_is_in_the_uses_of_its_buffer(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    stream.fill(memory, 1).result()
    assert not memory._uses
    with simulator.held(stream):
        stream.fill(memory, 2)
        assert len(list(memory._uses)) == 1


def test_block_of_pinned_memory_that_a_finalizer_leaves_is_not_given_to_the_cache_while_work_uses_it(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    opening = device.pinned(64)
    pinned = opening.__enter__()
    with simulator.held(stream):
        stream.copy(memory, pinned)
        opening.__exit__(GeneratorExit)
        assert counts()[2] == 0
    assert until_now(lambda: counts()[2] == 1)


@pytest.mark.anyio
async def test_memory_that_work_of_a_quarantined_device_uses_is_freed_after_the_next_reset(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        pinned = await device.pinned(64)
        simulator.hold(stream)
        stream.copy(memory, pinned)
        simulator.fail_call("aclrtStreamAbort", 207000, -1)
        async with anyio.create_task_group() as group:
            allocating = await hung_in("aclrtMalloc", group, lambda: device.allocate(1 << 20))
            assert not (await runs_out_of_time(device)).ok
            await until(lambda: allocating.ended)
            simulator.clear()
            simulator.release_call("aclrtMalloc")
        await pinned.close()
        await until(lambda: manager_of(0).deferred.leftovers)  # the wait for the work was refused
        assert pinned._bytes is not None
        assert (await device.force_reset(grace=0)).ok
        await until(lambda: pinned._bytes is None)


def test_enqueue_that_has_ended_is_not_waited_for(stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> None:
    reference = InFlight(stream._core, (memory,), None)
    assert reference.position == in_flight.UNKNOWN
    reference.position = 0  # the enqueue ends after the close has read the position
    assert not in_flight.wait_for_enqueue(reference, memory)
    assert reference not in in_flight.deferred


def test_memory_that_another_call_frees_is_not_given_to_the_cache(device: aioacl.Device) -> None:
    memory = device.allocate(64).result()
    assert memory._claim()
    memory._closed = True
    assert not manager_of(0).cache.keep_buffer(memory)
    assert counts()[1] == 0
    memory._free()
    assert counts()[1] == 1


# --- memory that the cache does not take ----------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["size", "fault"])
def test_close_of_pinned_memory_that_the_cache_does_not_take_is_left_to_the_maintenance_thread(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer, reason: str
) -> None:
    cache, before = manager_of(0).cache, simulator.stats().host_blocks
    cache.enabled = reason == "fault"
    pinned = device.pinned(1000).result()  # without a cache, its block has not the whole size of a class
    cache.enabled = True
    if reason == "fault":
        simulator.fail_next(stream, FAULT)
        with pytest.raises(aioacl.DeviceFault):
            stream.fill(memory, 1).result()
    assert not pinned._close_now()
    assert pinned._owed
    pinned._close_later()
    if reason == "fault":
        assert device.force_reset(grace=0).result().ok
    assert until_now(lambda: simulator.stats().host_blocks == before)


def test_memory_that_was_taken_before_newer_memory_is_left_alone(device: aioacl.Device) -> None:
    cache = manager_of(0).cache
    for pinned in [device.pinned(size).result() for size in (64, 1000)]:
        pinned.close().result()
    pinned = device.pinned(64).result()  # in the list of all pinned memory, the other block is newer
    cache.enabled = False
    pinned.close().result()
    cache.enabled = True
    assert (cache.left, counts()[2]) == (0, 1)
    assert cache.end_left() is None


# --- streams that other code uses -----------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["in C", "in Python"])
async def test_stream_whose_work_a_task_awaits_is_not_given_to_the_cache(
    open_device: OpenDevice, how: str
) -> None:
    async with open_device() as device, device.allocate(64) as memory, anyio.create_task_group() as group:
        stream = await device.create_stream()
        core = stream._core
        simulator.hold(core.native)  # not the Stream itself: the cache would not keep it
        ticket = stream.fill(memory, 1)
        waiting = Waiting(group, lambda: wait_for(ticket) if how == "in C" else core.arrive(ticket.position))
        await until(lambda: core.awaits if how == "in C" else core.waiting)
        simulator.release(core.native)
        assert until_now(lambda: lib.aio_stream_is_spent(core.handle))  # the task runs only after this block
        assert not stream._close_now()
        assert counts()[0] == 0
        await waiting.outcome()
        await stream.close()
        assert counts()[0] == 1


def test_close_of_a_failed_stream_does_not_destroy_it_on_the_thread_of_the_caller(
    device: aioacl.Device, memory: aioacl.DeviceBuffer
) -> None:
    stream = device.create_stream().result()
    simulator.fail_next(
        stream._core.native, TASK_FAULT
    )  # with the Stream itself, the cache would not keep it
    with pytest.raises(aioacl.DeviceFault):
        stream.fill(memory, 1).result()
    with no_call_of_mine():
        assert not stream._close_now()
    stream.close().result()
    assert (counts()[0], live_streams()) == (0, 0)


def test_stream_that_is_closed_after_a_fault_keeps_its_references_until_the_reset(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    busy = device.create_stream().result()
    core = busy._core
    held_fill(busy, memory)
    simulator.fail_next(stream, FAULT)
    with pytest.raises(aioacl.DeviceFault):
        stream.fill(memory, 1).result()
    busy.close().result()
    assert len(core.in_flight) == 1
    assert device.force_reset(grace=0).result().ok
    assert until_now(lambda: not core.in_flight)


def test_record_of_a_stream_owns_it_until_the_cache_does(
    device: aioacl.Device, memory: aioacl.DeviceBuffer
) -> None:
    stream = device.create_stream().result()
    ticket, core = stream.fill(memory, 1), stream._core
    ticket.result()
    assert (core.owned, counts()[0]) == (True, 0)
    stream.close().result()  # the ticket refers to the record, so the next stream gets a new one
    assert (core.owned, counts()[0]) == (False, 1)
    stream = device.create_stream().result()
    assert stream._core is not core
    assert (stream._core.owned, counts()[0]) == (True, 0)
    stream.close().result()


# --- a foreign reset that is not handled yet ------------------------------------------------------------------------


def test_references_of_work_are_kept_until_a_foreign_reset_has_ended_it(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    held_fill(stream, memory)
    with manager_of(device.index).admission.changed:  # the foreign reset is handled when this lock is free
        reset_by_other_code()
        stream._core.release_done()
        assert len(stream._core.in_flight) == 1
    assert until_now(lambda: not stream._core.in_flight)


def test_owner_of_stale_memory_is_kept_until_a_foreign_reset_has_ended_the_work(
    device: aioacl.Device,
) -> None:
    owner = Owner()
    released = weakref.ref(owner)
    wrapped = device.wrap_memory(1 << 20, 64, owner=owner)
    del owner
    with manager_of(0).admission.changed:  # the foreign reset is handled when this lock is free
        reset_by_other_code()
        assert not wrapped._close_now()
        wrapped._free_once()
        assert released() is not None
    assert until_now(lambda: released() is None)


def test_staging_memory_is_kept_until_a_foreign_reset_has_ended_the_work(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    def free_slots() -> int:
        free: int = lib.aio_stage_free_slots(0, 64)
        return free

    stream.copy(memory, bytes(64)).result()  # so that there is staging memory
    slots = free_slots()
    simulator.hold(stream)
    stream.copy(memory, bytes(64))
    with manager_of(device.index).admission.changed:  # the foreign reset is handled when this lock is free
        reset_by_other_code()
        lib.aio_device_flush(0)
        assert free_slots() == slots - 1
    assert until_now(lambda: free_slots() == slots)


def test_second_foreign_reset_aborts_nothing_of_the_generation_that_the_first_has_ended(
    device: aioacl.Device,
) -> None:
    def calls() -> tuple[int, int]:
        return simulator.calls("aclrtGetCurrentContext"), simulator.calls("aclrtSetCurrentContext")

    generation = device.generation
    with manager_of(device.index).admission.changed:  # the foreign resets are handled when this lock is free
        reset_by_other_code()
        elsewhere("aclrtSetDevice")
        before = calls()
        reset_by_other_code()
        assert calls() == before
    assert until_now(lambda: device.state is aioacl.State.OPEN and not lib.aio_gate_foreign(0))
    assert device.generation > generation
