"""What a device's maintenance thread does unasked: it makes more of what runs low, and prods the runtime."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._lifecycle.procedures.limits import POOL_EVENTS
from aioacl._wait.workers import Job
from tests.kit import Waiting, live_streams, reset_by_somebody_else, until, works

if TYPE_CHECKING:
    from tests.kit import OpenDevice

MEGABYTE = 1 << 20
pytestmark = pytest.mark.anyio


def slots(device: aioacl.Device, *, large: bool) -> int:
    """Free ones of that size; what is small may take a large one when no other is left."""
    of_large: int = lib.aio_stage_free_slots(device.index, MEGABYTE)
    return of_large if large else lib.aio_stage_free_slots(device.index, 1) - of_large


async def looked_again(device: aioacl.Device) -> None:
    """The maintenance thread has done what it was kicked for by now: notes come first, then kicks, then jobs."""
    noted = threading.Event()
    device._manager.deferred.leave_note(noted.set)
    await until(noted.is_set)
    await (await device.create_stream()).close()


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
async def test_staging_memory_that_runs_low_becomes_more_although_some_is_left(
    open_device: OpenDevice, large: bool
) -> None:
    nbytes = MEGABYTE if large else 64
    async with open_device() as device, device.create_stream() as stream, device.allocate(nbytes) as memory:
        before = simulator.stats().host_bytes
        with simulator.held(stream):
            for _ in range(slots(device, large=large) - 1):
                stream.copy(memory, bytes(nbytes))
            await until(lambda: simulator.stats().host_bytes > before)
        await stream


async def test_a_pool_of_events_that_runs_low_is_filled_again_although_some_are_left(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await until(lambda: device.health.in_flight == 0)
        there = simulator.stats().events  # and those that tests before have left for good
        with simulator.held(stream):
            stream.fill(memory, 1)
            kept = [stream.record() for _ in range(POOL_EVENTS - 1)]
            await until(lambda: simulator.stats().events > there)
            await looked_again(
                device
            )  # events that were taken while it was filled may have it filled once more
            made = simulator.calls("aclrtCreateEventExWithFlag")
            kept += [stream.record() for _ in range(3)]
            assert simulator.calls("aclrtCreateEventExWithFlag") == made
        await kept[-1]


@pytest.mark.watch_only
async def test_a_wait_without_progress_wakes_the_runtime_by_a_stream_of_its_own(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        made = simulator.calls("aclrtCreateStream")
        with simulator.held(stream):
            ticket = stream.fill(memory, 1)
            async with anyio.create_task_group() as group:
                waiting = Waiting(group, lambda: ticket)
                await until(lambda: simulator.calls("aclrtCreateStream") > made)
                assert not waiting.ended
                simulator.release(stream)
                await waiting.outcome()
        assert live_streams() == 1


async def test_what_the_maintenance_thread_was_kicked_for_is_done_though_a_note_raises(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[sys.UnraisableHookArgs] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    begun, go = threading.Event(), threading.Event()

    def stay() -> None:
        begun.set()
        go.wait()

    def fail() -> None:
        raise aioacl.AclWarning("a clean-up that failed, where warnings are errors")

    async with open_device() as device:
        before = device.generation
        device._manager.maintenance.submit(Job(stay))
        await until(begun.is_set)
        device._manager.deferred.leave_note(fail)
        reset_by_somebody_else()
        go.set()
        await until(lambda: device.generation > before and device.state is aioacl.State.OPEN)
        assert await works(device)
    assert [args.exc_type for args in told] == [aioacl.AclWarning]
