"""device.executor and device.run: the executor follows concurrent.futures, and its threads have the device bound."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base import sync
from aioacl._base.ffi import ffi, lib
from aioacl._lifecycle import executor as _executor
from aioacl._lifecycle.manager import manager_of
from tests.kit import FewThreads, Raised, Stop, Waiting, in_thread, raises, until

if TYPE_CHECKING:
    from tests.kit import OpenDevice

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")


def current_device() -> int:
    """The device that the runtime reports for the calling thread."""
    device = ffi.new("int32_t *")
    assert lib.aio_u_aclrtGetDevice(device) == 0
    return int(device[0])


def divide(one: int, other: int) -> float:
    return one / other


@pytest.mark.anyio
async def test_a_job_runs_with_the_device_bound_and_its_result_is_returned(open_device: OpenDevice) -> None:
    async with open_device() as device, open_device(1) as other:
        assert await device.run(current_device) == 0
        assert await other.run(current_device) == 1
        assert await device.run(divide, 6, other=3) == 2


@pytest.mark.anyio
async def test_exception_of_a_job_is_raised_by_its_await(open_device: OpenDevice) -> None:
    async with open_device() as device:
        await raises(ZeroDivisionError, device.run(divide, 1, 0))
        with pytest.raises(TypeError):
            await device.run(divide)  # type: ignore[call-arg]  # an argument is missing on purpose


@pytest.mark.anyio
async def test_a_job_sees_the_callers_context_variables(open_device: OpenDevice) -> None:
    variable.set("mine")
    async with open_device() as device:
        assert await device.run(variable.get) == "mine"


@pytest.mark.anyio
async def test_jobs_that_wait_for_each_other_do_not_block_the_creation_of_a_stream(
    open_device: OpenDevice,
) -> None:
    barrier = threading.Barrier(3)
    async with open_device() as device, anyio.create_task_group() as group:
        waiting = [Waiting(group, lambda: device.run(barrier.wait)) for _ in range(2)]
        await until(lambda: barrier.n_waiting == 2)
        async with device.create_stream() as stream:
            await stream
        await device.run(barrier.wait)
        assert sorted([await one.outcome() for one in waiting])


def test_a_threads_deadline_ends_its_wait_for_a_job(open_device: OpenDevice) -> None:
    go_on = threading.Event()

    def wait_for_a_job() -> aioacl.DeviceTimeout:
        with pytest.raises(aioacl.DeviceTimeout) as caught:
            device.run(go_on.wait).result(timeout=0.01)
        return caught.value

    device = open_device().result()
    try:
        error = in_thread(wait_for_a_job)
        assert (error.device, "continues" in error.hint) == (device.index, True)
    finally:
        go_on.set()
        device.close().result()


@pytest.mark.anyio
async def test_a_job_on_a_closed_device_is_refused(open_device: OpenDevice) -> None:
    async with open_device() as device:
        executor = device.executor
        await device.run(int)
    with pytest.raises(aioacl.ParameterError, match="open_device"):
        await device.run(int)
    with pytest.raises(aioacl.ParameterError, match="open_device"):
        _ = device.executor
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(int)


def test_a_closed_device_gets_no_new_executor(open_device: OpenDevice) -> None:
    device = open_device().result()
    device.close().result()
    with pytest.raises(aioacl.ParameterError, match="closed"):
        _ = manager_of(device.index).jobs.executor


@pytest.mark.anyio
async def test_the_executor_is_a_concurrent_futures_executor(open_device: OpenDevice) -> None:
    async with open_device() as device:
        executor = device.executor
        assert isinstance(executor, concurrent.futures.Executor)
        assert isinstance(executor, aioacl.DeviceExecutor)
        futures = [executor.submit(divide, i, 1) for i in range(100)]
        await until(lambda: all(future.done() for future in futures))
        assert [future.result() for future in futures] == list(range(100))
        assert list(executor.map(abs, [-1, -2])) == [1, 2]


@pytest.mark.anyio
async def test_jobs_set_no_attribute_of_the_executor(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor has a `__setattr__` in Python, so each attribute that a job sets would cost a call."""
    names: list[str] = []
    assign = aioacl.DeviceExecutor.__setattr__

    def noted(self: aioacl.DeviceExecutor, name: str, value: object) -> None:
        names.append(name)
        assign(self, name, value)

    async with open_device() as device:
        executor = device.executor
        with monkeypatch.context() as patch:
            patch.setattr(aioacl.DeviceExecutor, "__setattr__", noted)
            assert await device.run(current_device) == 0
            await until(lambda: executor._threads.idle)
    assert names == []


@pytest.mark.asyncio
async def test_run_in_executor_of_asyncio_accepts_the_executor(open_device: OpenDevice) -> None:
    async with open_device() as device:
        assert await asyncio.get_running_loop().run_in_executor(device.executor, current_device) == 0


@pytest.mark.anyio
async def test_close_of_a_device_drops_jobs_that_have_not_begun(open_device: OpenDevice) -> None:
    block = Stop()
    device = await open_device()
    device.executor._limit = 1

    first = device.executor.submit(block)
    await until(block.begun.is_set)
    second = device.executor.submit(int)
    async with anyio.create_task_group() as group:
        closing = Waiting(group, device.close)
        await until(second.cancelled)
        assert not closing.ended
        block.go_on.set()
        await closing.outcome()
    assert first.done()


@pytest.mark.anyio
async def test_job_without_a_new_thread_is_refused_or_waits_for_a_running_thread(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device:
        executor = device.executor
        threads = FewThreads(0)
        monkeypatch.setattr(sync, "backend", threads)
        refused: list[int] = []
        with pytest.raises(RuntimeError, match="can't start new thread"):
            executor.submit(refused.append, 1)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await device.run(refused.append, 2)
        threads.left = 1
        block = Stop()
        first = executor.submit(block)
        await until(block.begun.is_set)
        second = executor.submit(current_device)
        assert not second.done()
        block.go_on.set()
        await until(second.done)
        assert (first.result(), second.result(), refused) == (None, 0, [])
        assert executor._workers == 1
        monkeypatch.undo()


@pytest.mark.anyio
async def test_job_whose_thread_cannot_be_bound_fails_and_is_no_longer_inside(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        simulator.fail_call("aclrtSetCurrentContext", 507000)
        error = await raises(aioacl.DeviceFault, device.run(int))
        assert (error.call, error.code) == ("aclrtSetCurrentContext", 507000)
        assert device.health.in_flight == 0
        assert await device.run(current_device) == 0


@pytest.mark.anyio
async def test_a_job_that_was_cancelled_before_its_thread_failed_stays_cancelled(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        with simulator.fault("aclrtSetCurrentContext", rc=507000, hang="bind"):
            future = device.executor.submit(int)
            await until(lambda: simulator.hung("aclrtSetCurrentContext"))
            assert future.cancel()
            simulator.release_call("bind")
            await until(lambda: device.executor._threads.idle)
        assert future.cancelled()


@pytest.mark.anyio
async def test_job_whose_future_is_locked_does_not_stay_inside_the_device(open_device: OpenDevice) -> None:
    async with open_device() as device:
        block = Stop()
        future = device.executor.submit(block)
        await until(block.begun.is_set)
        with future._condition:  # `concurrent.futures.wait` holds this lock, and Ctrl-C may leave it locked
            block.go_on.set()
            assert (await device.force_reset()).ok
            assert not future.done()
        await until(future.done)


@pytest.mark.anyio
async def test_cancellation_that_ctrl_c_has_interrupted_is_completed_by_the_worker(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        with simulator.fault("aclrtSetCurrentContext", hang="bind"):
            future = device.executor.submit(int)
            await until(lambda: simulator.hung("aclrtSetCurrentContext"))
            future._unclaimed.pop()  # does only the first step of cancel()
            simulator.release_call("bind")
            await until(future.done)
        assert future.cancelled()


@pytest.mark.anyio
async def test_shutdown_with_wait_returns_after_all_submitted_jobs(open_device: OpenDevice) -> None:
    async with open_device() as device:
        executor = device.executor
        begun, go_on = threading.Event(), threading.Event()

        def block() -> int:
            begun.set()
            go_on.wait()
            return 1

        executor._limit = 1
        first, second = executor.submit(block), executor.submit(current_device)
        await until(begun.is_set)
        waiting = Raised(lambda: executor.shutdown(wait=True))
        await until(lambda: executor._closed)
        assert waiting.running
        assert not second.done()
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(int)
        go_on.set()
        waiting.join()
        assert (first.result(), second.result()) == (1, 0)
        assert executor._workers == 0


@pytest.mark.anyio
async def test_idle_thread_ends_after_a_while_and_a_later_job_starts_another(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_executor, "LINGER_SECONDS", 0.01)
    async with open_device() as device:
        executor = device.executor
        assert await device.run(current_device) == 0
        await until(lambda: executor._workers == 0)
        assert executor._threads.idle == 0
        assert await device.run(current_device) == 0


@pytest.mark.anyio
async def test_executor_starts_at_most_one_thread_per_job_up_to_its_limit(open_device: OpenDevice) -> None:
    barrier = threading.Barrier(4)
    async with open_device() as device:
        executor = device.executor
        assert executor._limit == _executor.default_workers() == min(32, (os.cpu_count() or 1) + 4)
        for _ in range(3):
            assert await device.run(current_device) == 0
            await until(lambda: executor._threads.idle == 1)
        assert executor._workers == 1
        executor._limit = 3
        futures = [executor.submit(barrier.wait) for _ in range(5)]
        await until(lambda: barrier.n_waiting == 3)
        assert executor._workers == 3
        barrier.wait()
        await until(lambda: barrier.n_waiting == 2)
        barrier.abort()
        await until(lambda: all(future.done() for future in futures))


@pytest.mark.anyio
async def test_executor_of_a_model_cannot_be_made_after_the_last_close(open_device: OpenDevice) -> None:
    async with open_device() as device:
        jobs = device._manager.jobs
    with pytest.raises(aioacl.ParameterError, match="the device is closed"):
        jobs.model_executor()


@pytest.mark.anyio
async def test_run_that_the_last_close_drops_raises_that_the_device_is_closed(
    open_device: OpenDevice,
) -> None:
    block = Stop()
    device = await open_device()
    device.executor._limit = 1

    device.executor.submit(block)
    await until(block.begun.is_set)
    async with anyio.create_task_group() as group:
        queued = Waiting(group, lambda: device.run(int))
        await until(lambda: device.executor._items)
        closing = Waiting(group, device.close)
        with pytest.raises(aioacl.ParameterError, match="the device is closed"):
            await queued.outcome()
        block.go_on.set()
        await closing.outcome()


@pytest.mark.anyio
async def test_run_on_an_executor_that_was_shut_down_uses_another_executor(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_device() as device:
        ended = device.executor
        with ended:  # a user may do this with any executor
            assert ended.submit(int).result() == 0
        assert await device.run(int) == 0
        given = iter([ended, device.executor])
        monkeypatch.setattr(type(manager_of(0).jobs), "executor", property(lambda _: next(given)))
        assert await device.run(int) == 0
        monkeypatch.undo()
