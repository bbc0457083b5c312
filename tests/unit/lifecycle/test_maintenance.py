"""A device's maintenance thread refills pools that run low, and wakes the runtime."""

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
from aioacl._wait.internal_call import InternalCall
from aioacl._wait.workers import WorkerThread
from tests.kit import Waiting, live_streams, reset_by_other_code, until, works

if TYPE_CHECKING:
    from tests.kit import OpenDevice

MEGABYTE = 1 << 20
pytestmark = pytest.mark.anyio


def slots(device: aioacl.Device, *, large: bool) -> int:
    """The number of free staging slots, large or small. A small copy takes a large slot if no small slot is free."""
    of_large: int = lib.aio_stage_free_slots(device.index, MEGABYTE)
    return of_large if large else lib.aio_stage_free_slots(device.index, 1) - of_large


async def looked_again(device: aioacl.Device) -> None:
    """Returns once the maintenance thread has handled earlier requests of the engine.

    After each wake-up, the thread first does the deferred work, then what the engine requested, then its jobs.
    """
    noted = threading.Event()
    device._manager.deferred.leave_note(noted.set)
    await until(noted.is_set)
    await (await device.create_stream()).close()


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
async def test_staging_memory_that_runs_low_grows_before_it_is_used_up(
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


async def test_pool_of_events_that_runs_low_is_filled_again_before_it_is_empty(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await until(lambda: device.health.in_flight == 0)
        there = simulator.stats().events  # includes events that earlier tests have left
        with simulator.held(stream):
            stream.fill(memory, 1)
            kept = [stream.record() for _ in range(POOL_EVENTS - 1)]
            await until(lambda: simulator.stats().events > there)
            await looked_again(device)  # events taken while the pool was filled may cause another refill
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


async def test_maintenance_thread_handles_its_wake_up_although_deferred_work_raises(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[sys.UnraisableHookArgs] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    begun, go = threading.Event(), threading.Event()

    def stay() -> None:
        begun.set()
        go.wait()

    def fail() -> None:
        raise aioacl.AclWarning("a clean-up that failed, where warnings are errors")

    async with open_device() as device:
        before = device.generation
        device._manager.maintenance.submit(InternalCall(stay))
        await until(begun.is_set)
        device._manager.deferred.leave_note(fail)
        reset_by_other_code()
        go.set()
        await until(lambda: device.generation > before and device.state is aioacl.State.OPEN)
        assert await works(device)
    assert [args.exc_type for args in reported] == [aioacl.AclWarning]


async def test_thread_goes_on_after_a_turn_that_had_no_memory(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    turn, failing = WorkerThread._turn, [True]

    def turn_without_memory(worker: WorkerThread, shift: int) -> None:
        if failing:
            failing.pop()
            raise MemoryError
        turn(worker, shift)

    async with open_device() as device:
        monkeypatch.setattr(WorkerThread, "_turn", turn_without_memory)
        for _ in range(2):
            await device.memory_info()
    assert len(reported) == 1
