"""Handles in reference cycles: the garbage collector finalizes whole cycles, even if parts are still in use."""

from __future__ import annotations

import asyncio
import gc
import warnings
import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import ffi, lib, owner, pointer
from aioacl._base.states import State
from aioacl._handles.operand import operand_of
from aioacl._lifecycle.manager import manager_of
from aioacl._lifecycle.procedures import limits
from tests.kit import (
    FAULT,
    PATIENCE_SECONDS,
    Raised,
    hanging,
    in_thread,
    live_streams,
    until,
    until_now,
    wait_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from tests.kit import OpenDevice

# Dropped handles emit ResourceWarnings, but these tests do not check them.
pytestmark = [pytest.mark.anyio, pytest.mark.uncached, pytest.mark.filterwarnings("ignore::ResourceWarning")]


class Cycle:
    """A reference cycle that holds objects; only the garbage collector frees it."""

    def __init__(self, *things: object) -> None:
        self.things = (self, *things)


def test_address_that_is_garbage_is_released_only_when_its_last_reference_is_dropped() -> None:
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


async def test_stream_that_is_garbage_is_destroyed_when_its_work_is_done(open_device: OpenDevice) -> None:
    async with open_device() as device:
        stream, memory = await device.create_stream(), await device.allocate(64)
        streams = live_streams()
        simulator.hold(stream)
        Cycle(stream, memory, stream.fill(memory, 1))
        # Held work makes the engine nudge the runtime, for which the engine creates a stream.
        await until(lib.aio_equipped)
        del stream, memory
        gc.collect()
        # The engine keeps the stream's record, because the maintenance thread waits for the stream.
        assert lib.aio_device_ask_streams(0) == 1
        assert live_streams() == streams
        simulator.release_all()
        await until(lambda: live_streams() == streams - 1)
        await until(lambda: lib.aio_device_ask_streams(0) == 0)


@pytest.mark.parametrize("kind", ["allocate", "pinned"])
async def test_memory_that_is_garbage_with_its_stream_stays_until_the_copy_is_done(
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
        await device.memory_info()  # returns after the maintenance thread has done the finalizers' work
        assert blocks() == before
        simulator.release_all()
        await until(lambda: blocks() == before - 2)


# --- garbage that is collected on a thread that holds the device's lock, such as tasks of closed event loops ----------


def abandoned(
    begin: Callable[[], Coroutine[Any, Any, object]], waits: Callable[[], object]
) -> Callable[[], object]:
    """Closes an event loop that has a waiting task; returns a weak reference to the task."""

    async def leave_behind() -> weakref.ref[asyncio.Task[object]]:
        task = asyncio.create_task(begin())
        await until(waits)
        return weakref.ref(task)

    def run() -> weakref.ref[asyncio.Task[object]]:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)  # the default one would report the pending task
        try:
            return loop.run_until_complete(leave_behind())
        finally:
            loop.close()

    return in_thread(run)


def collect_with_the_lock() -> None:
    """Collects garbage while it holds the locks, as may happen in any code that holds a lock."""
    manager = manager_of(0)
    with manager.admission.changed, manager.maintenance._changed:
        manager.admission.announce()  # an announcement drops the references to subscribers
        gc.collect()


@pytest.mark.parametrize("what", ["a stream", "a lease"])
def test_wait_for_a_reset_in_a_closed_loop_does_not_delay_the_reset(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(limits, "RESET_SECONDS", PATIENCE_SECONDS)  # the collection may be slow
    device = open_device().result()
    begin = {"a stream": lambda: wait_for(device.create_stream()), "a lease": device.lease().__aenter__}[what]
    reset = Raised.hung_in("aclrtResetDeviceForce", lambda: device.force_reset().result())
    there = abandoned(begin, lambda: manager_of(0).admission.turns._waiting)
    Raised(collect_with_the_lock).join()
    assert there() is None
    assert not manager_of(0).admission.turns._waiting
    simulator.release_call("aclrtResetDeviceForce")
    assert reset.join().ok
    assert device.health.leases == 0
    device.close().result()


@pytest.mark.parametrize("failing", [False, True])
def test_open_in_a_closed_loop_leaves_the_device_closed(open_device: OpenDevice, failing: bool) -> None:
    simulator.hang_call("aclrtSetDevice")
    there = abandoned(lambda: wait_for(open_device()), hanging("aclrtSetDevice"))
    Raised(collect_with_the_lock).join()
    assert there() is None
    if failing:
        simulator.fail_call("aclrtGetCurrentContext", FAULT)
    simulator.release_call("aclrtSetDevice")
    manager = manager_of(0)
    assert until_now(
        lambda: (
            manager.admission.state is State.CLOSED and not manager.procedure and not manager.admission.opens
        )
    )
    assert simulator.retain_count() == 0


def test_revoked_lease_of_a_closed_loop_is_collected_without_effect(open_device: OpenDevice) -> None:
    device = open_device().result()

    async def hold() -> None:
        async with device.lease():
            await asyncio.get_running_loop().create_future()

    there = abandoned(hold, lambda: device.health.leases)
    assert device.force_reset(grace=0).result().ok
    Raised(collect_with_the_lock).join()
    assert there() is None
    assert device.health.leases == 0
    device.close().result()


@pytest.mark.parametrize("what", ["create_stream", "allocate", "pinned", "create_event", "open"])
def test_handle_made_in_a_block_of_a_closed_loop_is_released(open_device: OpenDevice, what: str) -> None:
    device = open_device().result()
    before, inside = made(), []

    async def hold() -> None:
        sized = (64,) if what in ("allocate", "pinned") else ()
        async with open_device() if what == "open" else getattr(device, what)(*sized):
            inside.append(what)
            await asyncio.get_running_loop().create_future()

    there = abandoned(hold, lambda: inside)
    Raised(collect_with_the_lock).join()
    assert there() is None
    assert until_now(lambda: device._manager.admission.opens == 1)
    assert until_now(lambda: made() == before)
    device.close().result()
    assert simulator.retain_count() == 0


def made() -> tuple[int, ...]:
    """The numbers of live streams, device blocks and host blocks."""
    stats = simulator.stats()
    return live_streams(), stats.device_blocks, stats.host_blocks


def test_allocation_that_ends_after_its_loop_was_closed_is_freed(open_device: OpenDevice) -> None:
    device = open_device().result()
    before, maintenance = made(), manager_of(0).maintenance
    simulator.hang_call("aclrtMalloc")
    there = abandoned(lambda: wait_for(device.allocate(64)), hanging("aclrtMalloc"))
    assert maintenance._current is not None
    ended = maintenance._current._changed

    def collect() -> None:
        with ended:
            collect_with_the_lock()

    simulator.release_call("aclrtMalloc")
    assert until_now(lambda: maintenance._current is None)
    assert made() != before
    Raised(collect).join()
    assert there() is None
    assert until_now(lambda: made() == before)
    device.close().result()


@pytest.mark.parametrize("shared", [False, True])
def test_lease_of_a_generator_that_is_garbage_stays_held_while_it_is_shared(
    open_device: OpenDevice, shared: bool
) -> None:
    device = open_device().result()

    def holding() -> Generator[AbstractContextManager[object]]:
        with device.lease() as lease:
            yield lease.share() if shared else nullcontext()

    def body() -> None:
        Cycle(held := holding())
        with next(held):
            assert device.health.leases == 1
            del held
            collect_with_the_lock()
            device.memory_info().result()  # returns after the maintenance thread has done the finalizer's work
            assert device.health.leases == (1 if shared else 0)

    in_thread(body)
    assert until_now(lambda: device.health.leases == 0)
    report = device.force_reset(grace=PATIENCE_SECONDS).result()
    assert report.ok
    device.close().result()


def test_closed_buffer_whose_last_view_is_garbage_is_freed(open_device: OpenDevice) -> None:
    device = open_device().result()
    before = made()
    pinned = device.pinned(64).result()
    Cycle(pinned.view)
    pinned.close().result()
    assert made() != before
    Raised(collect_with_the_lock).join()
    assert until_now(lambda: made() == before)
    device.close().result()


def test_pinned_memory_that_is_garbage_after_the_last_close_is_freed_without_other_deferred_work(
    open_device: OpenDevice,
) -> None:
    device = open_device().result()
    pinned = device.pinned(64).result()
    address = ffi.cast("void *", pinned.address)
    Cycle(pinned.view)
    pinned.close().result()
    device.close().result()
    done: list[bool] = []
    # The deferred work reads the health, which needs the lock.
    device._manager.deferred.leave_note(lambda: done.append(device.health.leases == 0))
    simulator.fail_call("aclrtFreeHost", FAULT)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        Raised(collect_with_the_lock).join()
    assert [warning.category for warning in warned if issubclass(warning.category, aioacl.AclWarning)] == [
        aioacl.AclWarning
    ]
    assert not done
    open_device().result().close().result()
    assert done == [True]
    assert simulator.stats().host_blocks == 1
    assert lib.aio_u_aclrtFreeHost(address) == 0  # freed here, because other tests count all blocks


def test_operand_in_a_cycle_with_its_memoryview_is_collected(device: aioacl.Device) -> None:
    for writable in (True, False):
        view = memoryview(bytearray(24))
        cycle: list[Any] = [view, operand_of(view, device._manager, writable=writable)]
        cycle.append(cycle)
        alive = weakref.ref(view)
        del view, cycle
        gc.collect()
        assert alive() is None
