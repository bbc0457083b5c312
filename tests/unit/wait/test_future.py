"""The Await as the future of asyncio for which its own task waits."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from asyncio import tasks
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import uvloop

import aioacl
from aioacl import simulator
from aioacl._wait.current import current_port
from tests.kit import BACKENDS, TASK_FAULT, held_fill, instances, raises, turns, until, until_now, wait_for
from tests.unit.wait.test_await_object import Setting, begun, finish, held, setting_on

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
PythonTask: Any = tasks._PyTask  # type: ignore[attr-defined]
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
# uvloop has no `_ready`, and its methods cannot be replaced.
asyncio_loop = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
every_loop = pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)


@pytest.fixture(params=list(LOOPS))
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return BACKENDS[request.param]


@pytest.fixture
async def setting(open_device: OpenDevice) -> AsyncGenerator[Setting]:
    async with setting_on(open_device) as made:
        yield made


def arrive(setting: Setting) -> None:
    """Releases the work, and takes all completions as the loop does, without running the next steps of the tasks."""
    port = current_port()
    simulator.release(setting.stream)

    def taken() -> bool:
        port.drain()
        return port.outstanding == 0

    assert until_now(taken)


@pytest.fixture(params=[asyncio.Task, PythonTask], ids=["task of C", "task of Python"])
def kind_of_task(request: pytest.FixtureRequest) -> Callable[..., asyncio.Task[None]]:
    made: Callable[..., asyncio.Task[None]] = request.param
    return made


# --- tasks ----------------------------------------------------------------------------------------------------------


async def test_both_kinds_of_tasks_end_with_the_work(
    setting: Setting, kind_of_task: Callable[..., asyncio.Task[None]]
) -> None:
    task = kind_of_task(wait_for(held(setting)))
    await turns()
    assert not task.done()
    simulator.release(setting.stream)
    await task


async def test_both_kinds_of_tasks_raise_the_failure(
    setting: Setting, kind_of_task: Callable[..., asyncio.Task[None]]
) -> None:
    simulator.fail_next(setting.stream, TASK_FAULT)
    task = kind_of_task(wait_for(held(setting)))
    await turns()
    simulator.release(setting.stream)
    await raises(aioacl.DeviceFault, task)


async def test_both_kinds_of_tasks_are_cancelled_with_their_message(
    setting: Setting, kind_of_task: Callable[..., asyncio.Task[None]]
) -> None:
    task = kind_of_task(wait_for(held(setting)))
    await turns()
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await task
    await finish(setting)


async def test_task_cancelled_before_its_first_step_begins_no_wait(setting: Setting) -> None:
    ticket = held(setting)
    task = asyncio.ensure_future(wait_for(ticket))
    task.cancel()
    await raises(asyncio.CancelledError, task)
    assert current_port().outstanding == 0
    simulator.release(setting.stream)
    await ticket


async def test_task_cancelled_during_the_step_that_suspends_it_is_cancelled_at_once(setting: Setting) -> None:
    ticket = held(setting)

    async def cancel_and_wait() -> None:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        await ticket

    await raises(asyncio.CancelledError, asyncio.ensure_future(cancel_and_wait()))
    await finish(setting)


async def test_cancellation_after_the_completion_is_raised_and_the_work_stays_done(setting: Setting) -> None:
    ticket = held(setting)
    task = asyncio.ensure_future(wait_for(ticket))
    await turns()
    arrive(setting)
    task.cancel()
    await raises(asyncio.CancelledError, task)
    await ticket


async def test_each_task_of_a_batch_goes_on_in_its_own_context(setting: Setting) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=-1)
    ticket = held(setting)
    seen: list[int] = []

    async def work(number: int) -> None:
        variable.set(number)
        await ticket
        seen.append(variable.get())

    running = [asyncio.ensure_future(work(number)) for number in range(10)]
    await turns()
    arrive(setting)
    await asyncio.gather(*running)
    assert sorted(seen) == list(range(10))
    assert variable.get() == -1


async def test_task_that_another_task_of_its_batch_cancels_is_cancelled(setting: Setting) -> None:
    ticket = held(setting)
    running: list[asyncio.Task[None]] = []

    async def work() -> None:
        await ticket
        for other in running:
            if other is not asyncio.current_task():
                other.cancel()

    running += [asyncio.ensure_future(work()) for _ in range(2)]
    await turns()
    arrive(setting)
    ends = await asyncio.gather(*running, return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["CancelledError", "NoneType"]


async def test_debug_mode_names_the_task_that_is_slow(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    async def slow() -> None:
        await ticket
        loop.slow_callback_duration = 0

    loop = asyncio.get_running_loop()
    ticket = held(setting)
    task = asyncio.create_task(slow(), name="the slow one")
    await turns()
    usual, loop.slow_callback_duration = loop.slow_callback_duration, 3600
    loop.set_debug(enabled=True)
    simulator.release(setting.stream)
    try:
        await task
    finally:
        loop.set_debug(enabled=False)
        loop.slow_callback_duration = usual
    assert "the slow one" in caplog.text


async def test_anyio_sees_that_the_task_is_blocked(setting: Setting) -> None:
    ticket = held(setting)
    async with anyio.create_task_group() as group:
        group.start_soon(wait_for, ticket)
        await anyio.wait_all_tasks_blocked()
        assert current_port().outstanding == 1
        simulator.release(setting.stream)


@every_loop
def test_exit_of_a_task_leaves_the_other_tasks_of_its_batch_to_the_next_run_of_the_loop(
    open_device: OpenDevice, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    ended: list[int] = []

    async def work(ticket: aioacl.Ticket, number: int) -> None:
        await ticket
        ended.append(number)
        if len(ended) == 1:
            raise SystemExit(3)

    async def main() -> None:
        async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
            ticket = held_fill(stream, memory)
            setting = Setting()
            setting.stream = stream
            running = [asyncio.ensure_future(work(ticket, number)) for number in range(2)]  # one batch
            await turns()
            arrive(setting)
            await asyncio.gather(*running, return_exceptions=True)
            await until(lambda: len(ended) == 2)

    loop = new_loop()
    task = loop.create_task(main())
    try:
        with pytest.raises(SystemExit):
            loop.run_until_complete(task)
        loop.run_until_complete(task)
        assert sorted(ended) == [0, 1]
    finally:
        loop.close()


# --- the protocol, by hand ------------------------------------------------------------------------------------------


def is_future(thing: object) -> bool:
    """Whether asyncio takes it for a future. The result does not narrow the type of the argument."""
    return asyncio.isfuture(thing)


async def test_await_is_a_future_only_while_its_task_is_suspended(setting: Setting) -> None:
    ticket = held(setting)
    steps: Any = ticket.__await__()
    assert not is_future(steps)
    assert steps.send(None) is steps
    assert is_future(steps)
    assert steps._asyncio_future_blocking
    assert steps.get_loop() is asyncio.get_running_loop()
    steps.close()
    assert not is_future(steps)
    simulator.release(setting.stream)
    await ticket


async def test_callback_runs_in_its_context_after_the_completion(setting: Setting) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    steps: Any = begun(held(setting))
    called: list[tuple[object, int]] = []
    context = contextvars.copy_context()
    context.run(variable.set, 7)
    steps.add_done_callback(lambda future: called.append((future, variable.get())), context=context)
    arrive(setting)
    assert steps.done()
    assert called == []
    await turns()
    assert called == [(steps, 7)]
    assert steps.result() is None
    assert not steps.cancelled()
    steps.close()


async def test_callback_that_is_added_after_the_completion_is_called(setting: Setting) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    variable.set(5)
    steps: Any = begun(held(setting))
    arrive(setting)
    called: list[int] = []
    steps.add_done_callback(lambda _: called.append(variable.get()))
    assert called == []
    await turns()
    assert called == [5]
    steps.close()


async def test_second_callback_is_refused(setting: Setting) -> None:
    steps: Any = begun(held(setting))
    steps.add_done_callback(print)
    with pytest.raises(RuntimeError, match="drive each await by one task"):
        steps.add_done_callback(print)
    steps.close()
    with pytest.raises(RuntimeError, match="expected a suspended await"):
        steps.add_done_callback(print)
    await finish(setting)


async def test_arguments_that_are_not_of_the_protocol_are_refused(setting: Setting) -> None:
    steps: Any = begun(held(setting))
    for arguments, keywords in (((), {}), ((print, print), {}), ((print,), {"loop": None})):
        with pytest.raises(TypeError, match="expected add_done_callback"):
            steps.add_done_callback(*arguments, **keywords)
    with pytest.raises(TypeError):
        steps.cancel(reason="no")
    del steps._asyncio_future_blocking
    assert not steps._asyncio_future_blocking
    steps.close()
    await finish(setting)


async def test_result_before_the_completion_raises(setting: Setting) -> None:
    steps: Any = begun(held(setting))
    with pytest.raises(asyncio.InvalidStateError, match="got one in progress"):
        steps.result()
    steps.close()
    await finish(setting)


def begun_with_callback(setting: Setting) -> tuple[Any, list[object]]:
    """Returns a suspended await, and the list of the calls of its callback."""
    steps: Any = begun(held(setting))
    called: list[object] = []
    steps.add_done_callback(called.append)
    return steps, called


async def test_only_the_first_cancellation_counts(setting: Setting) -> None:
    steps, called = begun_with_callback(setting)
    assert steps.cancel(msg="first")
    assert not steps.cancel(msg="second")
    assert (steps.done(), steps.cancelled()) == (True, True)
    with pytest.raises(asyncio.CancelledError, match="first"):
        steps.result()
    arrive(setting)
    await turns()
    assert called == [steps]
    steps.close()
    assert not steps.cancel()


@contextmanager
def reported() -> Generator[list[type]]:
    """The types of the exceptions that the loop reports inside the block."""
    reports: list[type] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, report: reports.append(type(report["exception"])))
    try:
        yield reports
    finally:
        loop.set_exception_handler(before)


async def test_callback_that_raises_does_not_keep_the_other_from_running(setting: Setting) -> None:
    ticket = held(setting)
    first: Any = begun(ticket)
    other = asyncio.ensure_future(wait_for(ticket))
    await turns()
    first.add_done_callback(lambda _: 1 / 0)
    with reported() as reports:
        arrive(setting)
        await other
        await until(lambda: reports)
    assert reports == [ZeroDivisionError]
    first.close()


async def test_callback_without_memory_for_the_next_step_is_called_again(setting: Setting) -> None:
    steps: Any = begun(held(setting))
    called: list[object] = []

    def step(future: object) -> None:
        called.append(future)
        if len(called) == 1:
            raise MemoryError

    steps.add_done_callback(step)
    with reported() as reports:
        arrive(setting)
        await turns()
    assert (called, reports) == ([steps, steps], [MemoryError])
    steps.close()


async def test_step_that_has_ended_the_await_is_not_repeated(setting: Setting) -> None:
    steps: Any = begun(held(setting))
    called: list[object] = []

    def step(future: object) -> None:
        called.append(future)
        with pytest.raises(StopIteration):
            steps.send(None)
        raise MemoryError

    steps.add_done_callback(step)
    with reported() as reports:
        arrive(setting)
        await turns()
    assert (called, reports) == ([steps], [MemoryError])


@pytest.mark.parametrize("first", ["completion", "close"])
async def test_await_that_is_closed_still_calls_its_callback(setting: Setting, first: str) -> None:
    steps, called = begun_with_callback(setting)
    if first == "completion":
        arrive(setting)
    steps.close()
    if first == "close":
        arrive(setting)
    await turns()
    assert called == [steps]


async def test_await_that_was_closed_can_be_cancelled(setting: Setting) -> None:
    steps, called = begun_with_callback(setting)
    steps.close()
    assert steps.cancel()
    await turns()
    assert called == [steps]
    assert steps.cancelled()
    arrive(setting)


async def test_removed_callback_is_not_called(setting: Setting) -> None:
    steps, called = begun_with_callback(setting)
    assert steps.remove_done_callback(print) == 0
    assert steps.remove_done_callback(called.append) == 1
    assert steps.remove_done_callback(called.append) == 0
    arrive(setting)
    await turns()
    assert called == []
    assert steps.exception() is None
    steps.close()


async def test_text_names_the_ticket(setting: Setting) -> None:
    ticket = held(setting)
    steps: Any = begun(ticket)
    assert repr(steps) == f"<await of {ticket!r}>"
    steps.close()
    assert repr(steps) == "<await that has ended>"
    arrive(setting)


async def test_cycle_through_the_message_is_collected(setting: Setting) -> None:
    class Noted:
        pass

    steps: Any = begun(held(setting))
    steps.cancel(msg=(steps, Noted()))
    steps.close()
    arrive(setting)
    assert instances(Noted) == 1
    del steps
    assert instances(Noted) == 0


# --- interrupts -----------------------------------------------------------------------------------------------------


@asyncio_loop
async def test_wake_up_that_the_loop_refuses_is_repeated(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(wait_for(held(setting)))
    await turns()
    call_soon = loop.call_soon
    refused: list[str] = []

    def refuse_once(callback: Any, *arguments: Any, context: Any = None) -> Any:
        if getattr(callback, "__name__", "") == "run_ready" and not refused:
            refused.append(callback.__name__)
            raise KeyboardInterrupt
        return call_soon(callback, *arguments, context=context)

    monkeypatch.setattr(loop, "call_soon", refuse_once)
    simulator.release(setting.stream)
    with pytest.raises(KeyboardInterrupt):
        until_now(lambda: current_port().drain())
    await task
    assert refused == ["run_ready"]


@asyncio_loop
async def test_cancellation_wakes_a_task_whose_wake_up_was_lost(setting: Setting) -> None:
    loop: Any = asyncio.get_running_loop()
    task = asyncio.ensure_future(wait_for(held(setting)))
    await turns()
    arrive(setting)
    loop._ready.clear()  # as an exception of a signal handler does, if it is raised before the handle runs
    task.cancel()
    await raises(asyncio.CancelledError, task)


async def test_finalizer_that_ends_the_await_during_its_cancellation_is_safe(setting: Setting) -> None:
    steps, called = begun_with_callback(setting)

    class Ender:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            steps.close()

    threshold = gc.get_threshold()
    gc.collect()
    Ender()
    gc.set_threshold(1)
    try:
        assert steps.cancel()
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    await turns()
    assert called == [steps]
    arrive(setting)


async def test_anyio_does_not_cancel_an_await_that_is_done(setting: Setting) -> None:
    ended: list[str] = []

    async def work() -> None:
        await ticket
        ended.append("completed")

    ticket = held(setting)
    async with anyio.create_task_group() as group:
        group.start_soon(work)
        await turns()
        arrive(setting)
        group.cancel_scope.cancel()
    assert ended == ["completed"]


def test_loop_that_is_closed_before_the_tasks_go_on_frees_them(open_device: OpenDevice) -> None:
    class Noted:
        pass

    async def work(ticket: aioacl.Ticket, noted: Noted) -> None:
        await ticket
        assert isinstance(noted, Noted)

    async def begin(stream: aioacl.Stream, memory: aioacl.DeviceBuffer, noted: Noted) -> None:
        running.append(asyncio.ensure_future(work(stream.fill(memory, 1), noted)))
        await turns()
        setting = Setting()
        setting.stream = stream
        arrive(setting)
        asyncio.get_running_loop().stop()

    running: list[asyncio.Task[None]] = []
    reports: list[object] = []
    noted = Noted()
    with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        loop = asyncio.new_event_loop()  # uvloop stops later, after the tasks have gone on
        loop.set_exception_handler(lambda _, report: reports.append(report["message"]))
        beginning = loop.create_task(begin(stream, memory, noted))
        loop.run_forever()
        loop.close()
        assert beginning.done()
        assert not running[0].done()
        running.clear()
        del noted, loop, beginning
        assert instances(Noted) == 0
        assert reports == ["Task was destroyed but it is pending!"]


@asyncio_loop
async def test_step_that_runs_the_loop_finds_the_other_tasks_of_its_batch(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nest_asyncio lets a step do, which leaves this mark in asyncio."""
    monkeypatch.setattr(asyncio, "_nest_patched", True, raising=False)
    loop: Any = asyncio.get_running_loop()
    functions: Any = tasks
    ticket = held(setting)
    arrived: list[int] = []
    seen: list[int] = []

    async def nesting(number: int) -> None:
        await ticket
        arrived.append(number)
        if len(arrived) == 1:
            task = asyncio.current_task()
            functions._leave_task(loop, task)
            for _ in range(10):
                loop.call_soon(int)  # so the turn does not wait
                loop._run_once()
            functions._enter_task(loop, task)
        seen.append(len(arrived))

    async with asyncio.TaskGroup() as group:
        for number in range(2):
            group.create_task(nesting(number))
        await turns()
        arrive(setting)
    assert seen == [2, 2]
