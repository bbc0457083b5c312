"""Many awaits at once: one native thread serves all awaits, no await delays another, and idle devices use no CPU."""

from __future__ import annotations

import gc
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from tests.kit import (
    Blocker,
    Waiting,
    descriptors,
    equipped,
    held_fill,
    native_threads,
    streams,
    until,
    until_now,
)

if TYPE_CHECKING:
    from tests.kit import OpenDevice

STREAMS = 16
COROUTINES = 1000


def activity(thread: int) -> tuple[int, int, int]:
    """A thread's CPU ticks, and its numbers of voluntary and involuntary context switches."""
    fields = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/self/task/{thread}/status").read_text().splitlines()
    switches = [int(line.split()[1]) for line in status if "ctxt_switches" in line]
    return int(fields[11]) + int(fields[12]), switches[0], switches[1]


def threads() -> int:
    """The number of threads of this process."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def busy_elsewhere() -> None:
    """Uses 0.2 s of CPU time on this thread."""
    end = time.thread_time() + 0.2
    while time.thread_time() < end:
        sum(range(1000))


def rests(thread: int) -> bool:
    """Returns True if the thread stayed idle while this thread used CPU time."""
    before = activity(thread)
    busy_elsewhere()
    return activity(thread) == before


@pytest.mark.anyio
@pytest.mark.watch_only
async def test_1000_coroutines_on_16_streams_use_one_native_thread_and_no_cpu_when_idle(
    open_device: OpenDevice,
) -> None:
    async with AsyncExitStack() as stack:
        device = await stack.enter_async_context(open_device())
        streams = [await stack.enter_async_context(device.create_stream()) for _ in range(STREAMS)]
        memory = await stack.enter_async_context(device.allocate(64))
        for stream in streams:
            held_fill(stream, memory)
        async with anyio.create_task_group() as group:
            waiting = [Waiting(group, streams[i % STREAMS].record().synchronize) for i in range(COROUTINES)]
            await until(lambda: lib.aio_device_waits(0) == COROUTINES)
            (thread,) = native_threads()
            assert lib.aio_threads() == 1
            simulator.release_all()
            for one in waiting:
                await one.outcome()
            assert native_threads() == [thread]
            assert until_now(lambda: rests(thread))


@pytest.mark.anyio
@pytest.mark.parametrize(("waits", "threads"), [("watch", 1), ("thread", 3)])
async def test_awaits_of_two_streams_use_the_watcher_only_or_one_more_thread_each(
    waits: Literal["watch", "thread"], threads: int
) -> None:
    async with (
        aioacl.open_device(0, waits) as device,
        device.allocate(64) as memory,
        streams(device, 2) as (one, other),
        anyio.create_task_group() as group,
    ):
        for stream in (one, other):
            held_fill(stream, memory)
        waiting = [Waiting(group, stream.synchronize) for stream in (one, other)]
        await until(lambda: lib.aio_device_waits(0) == len(waiting))
        await until(lambda: lib.aio_threads() == threads)  # a thread of an earlier test may still be ending
        simulator.release_all()
        for each in waiting:
            await each.outcome()


@pytest.mark.anyio
@pytest.mark.watch_only
async def test_open_device_without_awaits_uses_no_cpu(open_device: OpenDevice) -> None:
    async with open_device(), open_device(1):
        for thread in native_threads():
            assert until_now(partial(rests, thread))


@pytest.mark.anyio
async def test_await_of_an_idle_stream_returns_while_40_others_are_held(open_device: OpenDevice) -> None:
    async with AsyncExitStack() as stack:
        device = await stack.enter_async_context(open_device())
        memory = await stack.enter_async_context(device.allocate(64))
        idle = await stack.enter_async_context(device.create_stream())
        others = [await stack.enter_async_context(device.create_stream()) for _ in range(40)]
        async with anyio.create_task_group() as group:
            for stream in others:
                held_fill(stream, memory)
            waiting = [Waiting(group, stream.synchronize) for stream in others]
            await until(lambda: lib.aio_device_waits(0) == 40)
            await idle
            ticket = idle.fill(memory, 2)
            await idle
            await ticket
            await idle.fill(memory, 3)
            assert not any(one.ended for one in waiting)
            simulator.release_all()
            for one in waiting:
                await one.outcome()


@pytest.mark.anyio
@pytest.mark.parametrize("awaited", ["before the later work", "after the later work"])
async def test_ticket_on_a_stream_that_is_never_idle_completes_when_its_own_work_is_done(
    open_device: OpenDevice, awaited: str
) -> None:
    async with (
        open_device() as device,
        streams(device, 2) as (other, stream),
        device.allocate(64) as memory,
        anyio.create_task_group() as group,
    ):
        blocker = Blocker(other, memory)
        ticket = held_fill(stream, memory)
        early = Waiting(group, lambda: ticket) if awaited.startswith("before") else None
        if early:
            await until(lambda: lib.aio_device_waits(0) == 1)
            if device._manager.strategy == "thread":  # the ACL call waits for all work queued before the call
                await until(lambda: simulator.stats().inside == 1)
        blocker.block(stream)
        later = stream.fill(memory, 2)
        simulator.release(stream)
        await (early.outcome() if early else ticket)
        assert ticket.done
        assert simulator.pending(stream) > 0
        assert not later.done
        blocker.release()
        await later


@pytest.mark.anyio
async def test_tickets_of_a_stream_that_is_kept_busy_complete_one_by_one(
    open_device: OpenDevice,
) -> None:
    async with equipped(open_device) as (device, stream, memory), AsyncExitStack() as stack:
        blockers = []
        tickets = [stream.fill(memory, 0)]
        for i in range(8):
            other = await stack.enter_async_context(device.create_stream())
            blockers.append(Blocker(other, memory))
            blockers[-1].block(stream)
            tickets.append(stream.fill(memory, i))
        for blocker, ticket, following in zip(blockers, tickets[:-1], tickets[1:], strict=True):
            await ticket
            assert not following.done
            blocker.release()
        await tickets[-1]


@pytest.mark.anyio
async def test_stream_is_created_while_a_wait_for_the_device_is_pending(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        with simulator.held(stream):
            ticket = stream.fill(memory, 1)
            async with anyio.create_task_group() as group:
                waiting = Waiting(group, device.synchronize)
                await until(lambda: lib.aio_device_waits(0) == 1)
                async with device.create_stream() as another:
                    await another.fill(memory, 2)
                assert not waiting.ended
                simulator.release(stream)
                await waiting.outcome()
                assert ticket.done


@pytest.mark.anyio
async def test_stream_is_created_while_a_wait_for_work_of_other_code_is_pending(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        foreign = await device.run(ForeignStream)
        await device.run(foreign.hold)  # runs on a thread that has the context
        async with anyio.create_task_group() as group:
            waiting = Waiting(group, device.synchronize)
            await until(lambda: simulator.calls("aclrtSynchronizeDeviceWithTimeout") > 1)
            async with device.create_stream() as another, device.allocate(64) as memory:
                await another.fill(memory, 2)
            assert not waiting.ended
            foreign.release()
            await waiting.outcome()
        await device.run(foreign.destroy)


class ForeignStream:
    """A stream that other code has created, and its work."""

    def __init__(self) -> None:
        from aioacl._base.ffi import ffi

        made, memory = ffi.new("aclrtStream *"), ffi.new("void **")
        assert lib.aio_u_aclrtCreateStream(made) == 0
        assert lib.aio_u_aclrtMalloc(memory, 64, 0) == 0
        self.handle, self.memory = made[0], memory[0]

    def hold(self) -> None:
        """Holds the stream and enqueues a task."""
        simulator.hold(self.handle)
        assert lib.aio_u_aclrtMemsetAsync(self.memory, 64, 1, 64, self.handle) == 0

    def release(self) -> None:
        """Lets the stream run."""
        simulator.release(self.handle)

    def destroy(self) -> None:
        """Destroys the stream and frees its memory."""
        assert lib.aio_u_aclrtDestroyStream(self.handle) == 0
        assert lib.aio_u_aclrtFree(self.memory) == 0


@pytest.mark.parametrize("runner", ["asyncio", "uvloop", "trio"])
def test_10_runs_without_garbage_collection_leak_no_descriptors_and_no_threads(
    open_device: OpenDevice, runner: str
) -> None:
    options = {"use_uvloop": True} if runner == "uvloop" else {}

    async def main() -> None:
        async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
            with simulator.held(stream):
                ticket = stream.fill(memory, 1)
                # Not fail_after: on Python 3.12.1 and 3.13.0 its error is in a reference cycle.
                with anyio.move_on_after(0.001) as scope:
                    await ticket
                assert scope.cancelled_caught
            await ticket

    def run() -> None:
        anyio.run(main, backend="trio" if runner == "trio" else "asyncio", backend_options=options)

    gc.collect()
    gc.disable()
    try:
        run()
        assert until_now(lambda: lib.aio_threads() == 0)
        descriptors_before, threads_before = descriptors(), threads()
        for _ in range(10):
            run()
        assert until_now(lambda: lib.aio_threads() == 0)
        assert descriptors() <= descriptors_before
        assert until_now(lambda: threads() <= threads_before)
    finally:
        gc.enable()


@pytest.mark.anyio
async def test_loop_of_awaits_of_a_done_ticket_lets_other_tasks_run(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        ticket = stream.fill(memory, 1)
        await ticket
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while ticks < 10:
                ticks += 1
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            group.start_soon(tick)
            for _ in range(64 * 20):
                await ticket
            assert ticks == 10
