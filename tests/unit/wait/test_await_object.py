"""The object that `__await__` of a Ticket, Event or Stream returns on an asyncio loop, driven by hand and by tasks."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

import aioacl
from aioacl import simulator
from aioacl._base.ffi import Awaitable, lib
from aioacl._wait.current import current_port
from tests.kit import equipped, failing_fill, held_fill, in_thread, raises, until, until_now, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from tests.kit import OpenDevice

pytestmark = pytest.mark.asyncio


class Setting:
    device: aioacl.Device
    stream: aioacl.Stream
    memory: aioacl.DeviceBuffer


@asynccontextmanager
async def setting_on(open_device: OpenDevice) -> AsyncGenerator[Setting]:
    made = Setting()
    async with equipped(open_device) as (made.device, made.stream, made.memory):
        yield made
        simulator.release_all()


@pytest_asyncio.fixture
async def setting(open_device: OpenDevice) -> AsyncGenerator[Setting]:
    async with setting_on(open_device) as made:
        yield made


def held(setting: Setting) -> aioacl.Ticket:
    """Returns a ticket of new work that waits for `simulator.release`."""
    return held_fill(setting.stream, setting.memory)


async def finish(setting: Setting) -> None:
    """Releases the work, and returns when no wait is left."""
    simulator.release(setting.stream)
    await until(lambda: current_port().outstanding == 0)


def begun(ticket: aioacl.Ticket) -> Generator[Any, Any, None]:
    """Makes the await of a ticket whose work is held, and runs its first step."""
    steps = ticket.__await__()
    future = steps.send(None)
    assert asyncio.isfuture(future)
    return steps


async def test_step_before_the_completion_is_refused_and_leaves_the_await_usable(setting: Setting) -> None:
    steps = begun(held(setting))
    with pytest.raises(RuntimeError, match="expected no step before the future is done"):
        steps.send(None)
    await finish(setting)
    with pytest.raises(StopIteration):
        steps.send(None)
    with pytest.raises(RuntimeError, match="the await has ended"):
        steps.send(None)


async def test_await_that_is_closed_or_dropped_leaves_its_stream_usable(setting: Setting) -> None:
    ticket = held(setting)
    closed, dropped = begun(ticket), begun(ticket)
    assert setting.stream._core.awaits == 2
    closed.close()
    assert setting.stream._core.awaits == 1
    del dropped
    assert current_port().outstanding == 2  # the port keeps both waits until their completions have come
    simulator.release(setting.stream)
    await ticket
    await until(lambda: current_port().outstanding == 0)
    assert setting.stream._core.awaits == 0


async def test_first_step_on_another_thread_is_refused_and_ends_the_await(setting: Setting) -> None:
    steps = held(setting).__await__()
    with pytest.raises(RuntimeError, match="got a step on another thread"):
        in_thread(lambda: steps.send(None))
    with pytest.raises(RuntimeError, match="the await has ended"):
        steps.send(None)


async def test_await_that_is_driven_within_its_own_step_is_refused(setting: Setting) -> None:
    refused: list[str] = []

    def drive_again(_: object) -> tuple[object, int, str]:
        for drive in (steps.send, steps.throw):
            with pytest.raises(RuntimeError, match="whose step has not returned") as caught:
                drive(KeyError())
            refused.append(str(caught.value))
        with pytest.raises(RuntimeError, match="whose step has not returned"):
            steps.close()
        ticket = setting.stream.fill(setting.memory, 1)
        return ticket._core, ticket._position, ""

    simulator.hold(setting.stream)
    kind = type("Reentrant", (Awaitable,), {"_target": drive_again})
    steps = kind().__await__()
    assert asyncio.isfuture(steps.send(None))
    assert setting.stream._core.awaits == 1
    assert len(refused) == 2
    steps.close()
    assert setting.stream._core.awaits == 0


async def test_exception_thrown_into_an_await_is_raised_and_ends_it(setting: Setting) -> None:
    ticket = held(setting)
    steps = begun(ticket)
    with pytest.raises(KeyError, match="it"):
        steps.throw(KeyError("it"))
    assert setting.stream._core.awaits == 0
    steps = begun(ticket)
    with pytest.raises(TypeError, match="expected an exception"):
        steps.throw("no exception")  # type: ignore[call-overload]
    await finish(setting)


async def test_task_that_is_cancelled_as_its_completion_comes_raises_only_the_cancellation(
    setting: Setting,
) -> None:
    task = asyncio.ensure_future(wait_for(held(setting)))
    await until(lambda: lib.aio_device_waits(0) == 1)
    simulator.release(setting.stream)
    while lib.aio_device_waits(0):  # blocks the loop until the watcher has published the completion
        pass
    task.cancel()
    await raises(asyncio.CancelledError, task)
    await until(lambda: current_port().outstanding == 0)


async def test_await_that_waits_forms_no_cycle_that_outlives_its_task(setting: Setting) -> None:
    task = asyncio.ensure_future(wait_for(setting.stream.fill(setting.memory, 1)))
    await task
    last = weakref.ref(task)
    gc.disable()
    try:
        del task
        await asyncio.sleep(0)  # the handle in the loop that woke this task refers to the other task
        assert last() is None
    finally:
        gc.enable()


async def test_tickets_are_made_by_streams_only() -> None:
    with pytest.raises(TypeError):
        aioacl.Ticket(object(), 1)  # type: ignore[arg-type]
    ticket = aioacl.Ticket.__new__(aioacl.Ticket)
    with pytest.raises(RuntimeError, match="expected a ticket of a stream"):
        await ticket


@pytest.mark.watch_only
async def test_wait_that_fails_within_its_usual_time_raises_the_failure(setting: Setting) -> None:
    with simulator.fault("aclrtMemsetAsync", late_complete=0.02):
        for _ in range(5):
            await setting.stream.fill(setting.memory, 1)
    await raises(aioacl.DeviceFault, failing_fill(setting.stream, setting.memory))


@pytest.mark.watch_only
async def test_wait_beyond_its_usual_time_ends_with_its_work(setting: Setting) -> None:
    with simulator.fault("aclrtMemsetAsync", late_complete=0.001):
        for _ in range(5):
            await setting.stream.fill(setting.memory, 1)
    with simulator.fault("aclrtMemsetAsync", late_complete=0.04):
        await setting.stream.fill(setting.memory, 1)
    assert setting.stream.query()


@pytest.mark.filterwarnings("ignore:a stream was not closed:ResourceWarning")
async def test_stream_of_an_await_that_a_finalizer_ends_at_its_completion_stays(setting: Setting) -> None:
    """The delivery of the completion releases the target of the copy, and still needs the StreamCore afterwards."""
    device, held = setting.device, [await setting.device.create_stream()]
    stays: list[bool] = []

    class Target(bytearray):
        def __del__(self) -> None:
            steps.close()
            held.clear()
            assert until_now(lambda: simulator.calls("aclrtDestroyStream") >= 1)
            in_thread(lambda: device.memory_info().result())  # the maintenance thread no longer uses the core
            stays.append(core() is not None)

    core, native = weakref.ref(held[0]._core), held[0]._core.native
    simulator.hold(held[0])
    steps = begun(held[0].copy(Target(64), setting.memory))
    simulator.release(native)
    await until(lambda: stays)
    assert stays == [True]


async def test_unfinished_await_of_failed_work_that_the_collector_frees_warns(
    open_device: OpenDevice,
) -> None:
    """The collector clears the StreamCore and the Await of the cycle in any order."""
    async with open_device() as device, device.allocate(64) as memory, device.create_stream() as stream:
        simulator.hold(stream)
        cycle: list[Any] = [begun(failing_fill(stream, memory))]
        cycle.append(cycle)
        simulator.release(stream)
        await until(lambda: current_port().outstanding == 0)
    del stream, memory, device, cycle
    with pytest.warns(aioacl.AclWarning, match="its stream was closed"):
        gc.collect()


async def test_cancellation_by_trio_of_an_await_on_asyncio_is_refused(setting: Setting) -> None:
    steps: Any = begun(held(setting))
    with pytest.raises(RuntimeError, match="only trio calls this function"):
        steps._abort(None)
    steps.close()
