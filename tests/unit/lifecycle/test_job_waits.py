"""Jobs on a device's executor that wait through aioacl are not inside the device during the wait."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base import sync
from aioacl._base.ffi import ffi, lib
from tests.kit import (
    FewThreads,
    Stop,
    Waiting,
    held_fill,
    hung_in,
    raises,
    reset_by_other_code,
    runs_out_of_time,
    until,
    works,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio


def bound_to() -> object:
    """The current context of the calling thread, or None."""
    context = ffi.new("aclrtContext *")
    return context[0] if lib.aio_u_aclrtGetCurrentContext(context) == 0 else None


class WaitsTwice:
    """A job that waits twice. Records the error of each wait, and the thread's context after the first wait."""

    def __init__(self, wait: Callable[[], object]) -> None:
        self._wait = wait
        self.error: Exception | None = None
        self.afterwards: Exception | None = None
        self.context: object = None

    def __call__(self) -> None:
        try:
            self._wait()
        except aioacl.AclError as error:
            self.error = error
        self.context = bound_to()
        try:
            self._wait()
        except aioacl.AclError as error:
            self.afterwards = error


async def test_reset_waits_for_a_job_that_waits_and_the_job_may_make_handles_meanwhile(
    open_device: OpenDevice,
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        back = bytearray(64)

        def job() -> int:
            begun.set()
            go_on.wait()
            stream.fill(memory, 7).result()
            with_its_own = device.create_stream().result()
            with_its_own.copy(back, memory).result()
            with_its_own.close().result()
            return device.run(lambda: device.generation).result()

        async with anyio.create_task_group() as group:
            running = Waiting(group, lambda: device.run(job))
            await until(begun.is_set)
            resetting = Waiting(group, lambda: device.force_reset(grace=20))
            await until(lambda: device.state is aioacl.State.DRAINING)
            go_on.set()
            before = await running.outcome()
            report = await resetting.outcome()
            assert (report.ok, report.generation, bytes(back)) == (True, before + 1, b"\7" * 64)


async def test_job_whose_work_does_not_end_gets_device_reset_and_is_inside_again_after_the_reset(
    open_device: OpenDevice,
) -> None:
    simulator.set_abort_supported(False)
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        generation = device.generation
        held_fill(stream, memory)
        job = WaitsTwice(lambda: stream.synchronize().result())
        async with anyio.create_task_group() as group:
            running = Waiting(group, lambda: device.run(job))
            await until(lambda: device._manager.jobs.outside)
            report = await device.force_reset(grace=0)
            await running.outcome()
            assert (report.ok, report.attempts, report.stuck) == (True, 1, ())
            assert isinstance(job.error, aioacl.DeviceReset)
            assert (job.error.generation, job.error.report) == (generation, report)
        assert job.context == await device.run(bound_to)
        assert isinstance(job.afterwards, aioacl.StaleHandleError)
        assert await works(device)


@pytest.mark.parametrize("busy", [False, True])
async def test_waiting_job_gets_device_reset_on_a_foreign_reset(open_device: OpenDevice, busy: bool) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        blocker = Stop()
        held_fill(stream, memory)
        job = WaitsTwice(lambda: stream.synchronize().result())
        async with anyio.create_task_group() as group:
            running = Waiting(group, lambda: device.run(job))
            await until(lambda: device._manager.jobs.outside)
            if busy:  # the maintenance thread
                device._manager.deferred.leave_note(blocker)
                await until(blocker.begun.is_set)
            reset_by_other_code()
            try:
                await until(lambda: job.error)
            finally:
                blocker.go_on.set()
            await running.outcome()
        assert isinstance(job.error, aioacl.DeviceReset)
        assert job.context == await device.run(bound_to)
        assert await works(device)


async def test_waiting_job_does_not_delay_the_last_close_and_gets_device_reset(
    open_device: OpenDevice,
) -> None:
    device = await open_device()
    stream, memory = await device.create_stream(), await device.allocate(64)
    held_fill(stream, memory)
    job = WaitsTwice(lambda: stream.synchronize().result())
    future = device.executor.submit(job)
    await until(lambda: device._manager.jobs.outside)
    await device.close()
    await until(future.done)
    assert future.result() is None
    assert isinstance(job.error, aioacl.DeviceReset)
    assert isinstance(job.afterwards, aioacl.StaleHandleError)
    assert simulator.retain_count() == 0


async def test_waiting_job_gets_device_quarantined_when_its_device_is_quarantined(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, open_device(1) as other:
        job = WaitsTwice(lambda: device.allocate(64).result())

        def job_and_more() -> int:
            job()
            return other.memory_info().result().free  # the job continues, but is not inside the device

        async with anyio.create_task_group() as group:
            running = await hung_in("aclrtMalloc", group, lambda: device.run(job_and_more))
            await until(lambda: device._manager.jobs.outside)
            await runs_out_of_time(device)
            assert await running.outcome()
            simulator.release_all()
        assert isinstance(job.error, aioacl.DeviceQuarantined)
        assert isinstance(job.afterwards, aioacl.DeviceQuarantined)
        assert (await device.force_reset()).ok


async def test_memory_made_for_a_job_that_gets_device_reset_is_freed(open_device: OpenDevice) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        go_on.wait()
        device.allocate(1 << 20).result()

    async with open_device() as device:
        free = (await device.memory_info()).free
        async with anyio.create_task_group() as group:
            running = Waiting(group, lambda: device.run(job))
            await until(begun.is_set)
            resetting = Waiting(group, lambda: device.force_reset(grace=0))
            await until(lambda: device.state is aioacl.State.RESETTING)
            go_on.set()
            with pytest.raises(aioacl.DeviceReset, match="the device was reset before the work was done"):
                await running.outcome()
            assert (await resetting.outcome()).ok
        await until(lambda: device.health.in_flight == 0)
        assert (await device.memory_info()).free == free


async def test_force_reset_from_a_job_of_the_same_device_is_refused(open_device: OpenDevice) -> None:
    async with open_device() as device, open_device(1) as other:
        generation = device.generation
        with pytest.raises(aioacl.LeaseHeldError, match="got a job on device 0") as caught:
            await device.run(lambda: device.force_reset().result())
        assert "outside" in caught.value.hint
        assert (await other.run(lambda: device.force_reset().result())).ok
        assert device.generation == generation + 1


# --- jobs that wait for jobs ------------------------------------------------------------------------------------------

NEST: dict[str, Callable[[aioacl.Device, Callable[[], int]], int]] = {
    "run": lambda device, job: device.run(job).result(),
    "submit": lambda device, job: device.executor.submit(job).result(),
    "map": lambda device, job: next(iter(device.executor.map(lambda _: job(), [0]))),
}


@pytest.mark.parametrize("way", NEST)
async def test_nested_jobs_deeper_than_the_thread_limit_all_end(open_device: OpenDevice, way: str) -> None:
    def nested(depth: int) -> int:
        return depth and 1 + NEST[way](device, lambda: nested(depth - 1))

    async with open_device() as device:
        executor = device.executor
        executor._limit = 1
        futures = [executor.submit(nested, 5) for _ in range(3)]
        await until(lambda: all(future.done() for future in futures))
        assert [future.result() for future in futures] == [5, 5, 5]
        await until(lambda: executor._workers <= executor._limit)
        assert await device.run(int) == 0


async def test_nested_job_without_a_thread_for_it_raises_resource_exhausted(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device:
        executor = device.executor
        executor._limit = 1
        threads = FewThreads(1)
        monkeypatch.setattr(sync, "backend", threads)
        with pytest.raises(aioacl.ResourceExhausted, match="no thread could be started") as caught:
            await device.run(lambda: executor.submit(int).result())
        assert (caught.value.call, caught.value.device) == ("pthread_create", 0)
        monkeypatch.undo()
        await until(lambda: not executor._items)
        assert await device.run(int) == 0
        assert executor._threads.waiting == 0


@pytest.mark.parametrize("way", NEST)
async def test_reset_during_nested_jobs_ends_all_their_waits(open_device: OpenDevice, way: str) -> None:
    simulator.set_abort_supported(False)
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        device.executor._limit = 1
        held_fill(stream, memory)

        def wait() -> int:
            stream.synchronize().result()
            return 0

        jobs = [WaitsTwice(lambda: NEST[way](device, wait)) for _ in range(3)]
        futures = [device.executor.submit(job) for job in jobs]
        await until(lambda: device._manager.jobs.outside == 2 * len(jobs))
        report = await device.force_reset(grace=0)
        assert (report.ok, report.stuck) == (True, ())
        await until(lambda: all(future.done() for future in futures))
        assert all(isinstance(job.error, aioacl.DeviceReset) for job in jobs)
        await until(lambda: device.health.in_flight == 0)  # the watcher checks work at intervals
        assert await works(device)


async def test_last_close_drops_a_queued_nested_job_and_its_parent_ends(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, blocker = await open_device(), Stop()
    executor = device.executor
    executor._limit = 2
    first = executor.submit(blocker)
    await until(blocker.begun.is_set)
    monkeypatch.setattr(sync, "backend", FewThreads(1))
    parent = executor.submit(lambda: executor.submit(int).result())
    await until(lambda: executor._threads.waiting)
    assert len(executor._items) == 1
    monkeypatch.undo()
    async with anyio.create_task_group() as group:
        closing = Waiting(group, device.close)
        await until(lambda: not executor._items)
        blocker.go_on.set()
        await closing.outcome()
        await until(parent.done)
    assert isinstance(parent.exception(), (CancelledError, aioacl.DeviceReset))
    assert first.done()


async def test_job_future_result_after_its_timeout_raises_timeout_error(open_device: OpenDevice) -> None:
    async with open_device() as device:
        blocker = Stop()
        future = device.executor.submit(blocker)
        await until(blocker.begun.is_set)
        assert future.running()
        assert not future.cancel()
        for ask in (future.result, future.exception):
            await raises(TimeoutError, anyio.to_thread.run_sync(ask, 0.01))
            with pytest.raises(TimeoutError):
                ask(0)
        assert not future._listeners
        blocker.go_on.set()
        await anyio.to_thread.run_sync(future.result)
        assert not future.running()
