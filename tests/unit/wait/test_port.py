"""Ports: how a wait begins, is refused, ends or is dropped, on each kind of event loop and on a plain thread."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import threading
import types
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base import sync
from aioacl._base.ffi import failure, ffi, lib
from aioacl._wait.asyncio import AsyncioPort
from aioacl._wait.current import current_holder, current_port, run_blocking, thread_ports
from aioacl._wait.port import TIMED_OUT, Port
from aioacl._wait.thread import ThreadPort
from tests.kit import PATIENCE_SECONDS, Raised, descriptors, held_fill, in_thread, raises, turns, until_now

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType

    from aioacl._base.ffi import CData
    from tests.kit import OpenDevice

pytestmark = pytest.mark.every_loop

T = TypeVar("T")

KINDS = {"asyncio": "AsyncioPort", "uvloop": "AsyncioPort", "trio": "TrioPort"}


QUICK_IN_A_ROW = 64
FEW_QUICK = 8


def asyncio_port_here() -> AsyncioPort:
    """The port of the asyncio loop that runs this test."""
    port = current_port()
    assert isinstance(port, AsyncioPort)
    return port


def complete(port: CData, key: int, result: int) -> int:
    """Completes a wait as the engine does: under any key, also if the wait was withdrawn."""
    token = ffi.new("aio_token **")
    code = lib.aio_token_take(port, key, token)
    lib.aio_token_post(token, result)
    return code


def posted(port: CData, key: int) -> int:
    """Begins a wait that completes at once."""
    return complete(port, key, 41)


def refused(_port: CData, _key: int) -> int:
    """Refuses to begin a wait."""
    return lib.AIO_STALE


def endless(_port: CData, _key: int) -> int:
    """Begins a wait that never completes."""
    return 0


async def wait_in_turns(answers: list[int], late: list[int]) -> None:
    """Waits four times at the current port: refused, completed, timed out, and completed before its deadline."""
    port = current_port()
    answers.append(await port.wait(refused))
    answers.append(await port.wait(posted, after=lambda: late.append(1)))
    answers.append(await port.wait(endless, deadline=sync.monotonic()))
    answers.append(await port.wait(posted, deadline=sync.monotonic() + 20))


EXPECTED = [failure(lib.AIO_STALE), 41, TIMED_OUT, 41]


@pytest.mark.anyio
async def test_wait_is_refused_or_completes_or_times_out(anyio_backend_name: str) -> None:
    answers: list[int] = []
    late: list[int] = []
    await wait_in_turns(answers, late)
    assert (answers, late) == (EXPECTED, [1])
    assert type(current_port()).__name__ == KINDS[anyio_backend_name]
    assert current_port().outstanding == 1  # the endless wait, which may still get its completion


def test_wait_on_a_plain_thread_is_refused_or_completes_or_times_out() -> None:
    answers: list[int] = []
    late: list[int] = []

    def body() -> type[Port]:
        run_blocking(lambda: wait_in_turns(answers, late), None)
        return type(current_port())

    assert in_thread(body) is ThreadPort
    assert (answers, late) == (EXPECTED, [1])


@pytest.mark.parametrize(("own", "outer"), [(20.0, 0.0), (0.0, 20.0), (None, 0.0), (0.0, None)])
def test_wait_on_a_thread_with_two_deadlines_ends_at_the_earlier_one(
    own: float | None, outer: float | None
) -> None:
    async def wait() -> int:
        deadline = None if own is None else sync.monotonic() + own
        return await current_port().wait(endless, deadline=deadline)

    assert in_thread(lambda: run_blocking(wait, outer)) == TIMED_OUT


def test_deadline_of_a_blocking_wait_does_not_outlive_the_wait() -> None:
    async def wait() -> int:
        return await current_port().wait(posted)

    async def nested() -> list[int]:
        port = current_port()
        inner = run_blocking(lambda: port.wait(endless), 0)
        return [inner, await port.wait(posted)]

    def body() -> tuple[list[int], int, float | None]:
        both = run_blocking(nested, 20)
        port = current_port()
        assert isinstance(port, ThreadPort)
        return both, run_blocking(wait, None), port.deadline

    assert in_thread(body) == ([TIMED_OUT, 41], 41, None)


def test_coroutine_that_suspends_outside_a_port_raises_on_a_plain_thread() -> None:
    ended: list[str] = []

    class Turn:
        """Suspends once."""

        def __await__(self) -> Generator[None]:
            yield

    async def suspend() -> None:
        try:
            await Turn()
        finally:
            ended.append("closed")

    def body() -> None:
        with pytest.raises(RuntimeError, match="suspended on a thread without an event loop"):
            run_blocking(suspend, None)

    in_thread(body)
    assert ended == ["closed"]


def test_wait_in_a_signal_handler_leaves_the_completion_of_the_interrupted_wait(
    open_device: OpenDevice,
) -> None:
    device, free = open_device().result(), []
    stream, memory = device.create_stream().result(), device.allocate(64).result()

    def handle(*_: object) -> None:
        simulator.release(stream)
        port = current_port()
        assert sync.readable(port.fd, PATIENCE_SECONDS)  # the port has the completion of the outer wait
        free.append(device.memory_info().result().free)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        ticket = held_fill(stream, memory)

        def interrupt() -> None:
            assert until_now(lambda: lib.aio_device_waits(device.index))
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        interrupting = Raised(interrupt)
        ticket.result(timeout=PATIENCE_SECONDS)
        port = current_port()
        assert isinstance(port, ThreadPort)
        assert port._depth == 0
        interrupting.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
        for thing in (stream, memory, device):
            thing.close().result()
    assert free


def test_port_without_a_free_descriptor_raises_resource_exhausted_and_leaks_nothing() -> None:
    before = descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(aioacl.ResourceExhausted, match=r"ulimit -n"):
            ThreadPort()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert descriptors() == before


def test_port_whose_making_ctrl_c_interrupts_at_any_line_is_dropped_without_an_error() -> None:
    made, lines = list[ThreadPort](), 0

    def raise_at(line: int) -> None:
        left = line

        def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
            nonlocal left
            if frame.f_code is not Port.__init__.__code__:
                return None
            left -= event == "line"
            if not left:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            made.append(ThreadPort())
        finally:
            sys.settrace(before)

    while not made:
        lines += 1
        with suppress(KeyboardInterrupt):
            raise_at(lines)
    assert lines > 5


def test_two_loops_that_alternate_on_a_thread_keep_their_ports() -> None:
    async def port() -> Port:
        return current_port()

    one, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        ports = [loop.run_until_complete(port()) for loop in (one, other, one, other)]
        assert ports[0] is ports[2] is not ports[1]
        assert ports[1] is ports[3]
    finally:
        one.close()
        other.close()


def refusal(steps: Generator[Any, Any, None]) -> str:
    """Runs a step of an await that is refused, and returns the message."""
    with pytest.raises(RuntimeError) as caught:
        steps.send(None)
    return str(caught.value)


def test_await_of_another_loop_is_refused_and_leaves_the_ports_of_both_loops(
    open_device: OpenDevice,
) -> None:
    async def run(function: Callable[[], T]) -> T:
        return function()

    async def wait(ticket: aioacl.Ticket) -> None:
        asyncio.get_running_loop().call_soon(simulator.release_all)
        await asyncio.wait_for(ticket, PATIENCE_SECONDS)

    one, other = asyncio.new_event_loop(), asyncio.new_event_loop()
    with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        for await_of in (one, other):
            ticket = held_fill(stream, memory)
            steps = await_of.run_until_complete(run(ticket.__await__))
            elsewhere = other if await_of is one else one
            message = elsewhere.run_until_complete(run(partial(refusal, steps)))
            assert "expected a step on the event loop that made the await" in message
            await_of.run_until_complete(wait(ticket))
    one.close()
    other.close()


def test_await_whose_loop_was_closed_raises_and_does_not_report_success(open_device: OpenDevice) -> None:
    async def begun(ticket: aioacl.Ticket) -> Generator[Any, Any, None]:
        steps = ticket.__await__()
        assert asyncio.isfuture(steps.send(None))
        return steps

    with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        steps = asyncio.run(begun(stream.fill(memory, 1)))
        assert "got one whose loop is closed" in refusal(steps)
        assert "the await has ended" in refusal(steps)
        assert stream._core.awaits == 0
        simulator.release_all()


def test_port_whose_reader_was_removed_is_replaced() -> None:
    async def use() -> int:
        asyncio.get_running_loop().remove_reader(current_port().fd)
        return await current_port().wait(posted)

    loop = asyncio.new_event_loop()
    try:
        assert [loop.run_until_complete(use()) for _ in range(2)] == [41, 41]
    finally:
        loop.close()


def test_port_of_a_thread_ends_with_the_thread() -> None:
    def body() -> int:
        port = current_port()
        assert current_port() is port
        assert port in thread_ports()
        return port.fd

    fd = in_thread(body)
    assert fd not in [port.fd for port in thread_ports()]


def test_drain_ignores_a_kick_and_a_second_completion_of_a_key() -> None:
    def body() -> list[int]:
        port, received = ThreadPort(), list[int]()
        key = port.expect(received.append, None)
        port.kick()
        for result in (2, 3):
            complete(port.handle, key, result)
        port.drain()
        return received

    assert in_thread(body) == [2]


def test_post_ends_a_wait_once_and_never_a_wait_that_was_refused() -> None:
    port, received = Port(), list[int]()

    def begin(take_token: Callable[[int], None], _port: CData, key: int) -> int:
        take_token(key)
        return 0

    assert port.begin(partial(begin, port.take_token), received.append, None) == 0
    assert port.begin(partial(begin, port.take_token), received.append, None) == 0
    assert port.refuse(2)
    for key, result in ((1, 7), (1, 8), (2, 9), (3, 10)):
        port.post(key, result)
    port.drain()
    port.post(1, 11)
    port.drain()
    assert (received, port._waits, port._tokens) == ([7], {}, {})
    fd = port.fd
    del port
    with pytest.raises(OSError, match="Bad file descriptor"):  # no token is left that refers to the port
        os.fstat(fd)


def test_descriptor_of_a_port_with_a_token_is_closed_with_the_port() -> None:
    port = Port()
    port.take_token(port.expect(lambda _: None, None))
    fd = port.fd
    del port
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_withdrawn_waits_are_passed_once_and_their_late_completions_are_ignored() -> None:
    port = Port()
    results: list[int] = []

    def end_all() -> None:
        for deliver in port.withdraw_all():
            deliver(7)

    def refused_too_late(_port: CData, _key: int) -> int:
        end_all()
        return lib.AIO_STALE

    assert port.begin(endless, results.append, None) == 0
    assert port.begin(refused, results.append, None) == lib.AIO_STALE
    assert port.begin(refused_too_late, results.append, None) == 0
    assert (results, port.outstanding) == ([7, 7], 0)
    for key in (1, 3):
        complete(port.handle, key, 41)
    port.drain()
    assert results == [7, 7]


def test_drain_with_callbacks_that_raise_runs_the_whole_batch_and_raises_the_first_error() -> None:
    def body() -> list[str]:
        port, done = ThreadPort(), []

        def fail(what: str) -> None:
            done.append(what)
            raise aioacl.AclWarning(what)

        port.begin(posted, lambda _: fail("deliver"), lambda: done.append("after it"))
        port.begin(posted, lambda _: done.append("delivered"), lambda: fail("after"))
        port.begin(posted, lambda _: done.append("last"), None)
        with pytest.raises(aioacl.AclWarning, match="deliver"):
            port.drain()
        assert not port._waits
        assert not port._came
        return done

    assert in_thread(body) == ["deliver", "after it", "delivered", "after", "last"]


def test_drain_that_is_interrupted_leaves_the_port_readable_for_the_rest() -> None:
    def body() -> list[int]:
        port, received = ThreadPort(), list[int]()

        def interrupt(result: int) -> None:
            received.append(-result)
            if received == [-41]:
                raise KeyboardInterrupt

        port.begin(posted, interrupt, None)
        port.begin(posted, received.append, None)
        with pytest.raises(KeyboardInterrupt):
            port.drain()
        assert sync.readable(port.fd, 0)
        port.drain()
        assert not port._waits
        return received

    assert in_thread(body) == [-41, -41, 41]


@pytest.mark.parametrize("begun", [(), ("lowlevel",)], ids=["no name", "lowlevel only"])
def test_current_port_while_another_thread_imports_trio_is_a_thread_port(
    monkeypatch: pytest.MonkeyPatch, begun: tuple[str, ...]
) -> None:
    half = types.ModuleType("trio")
    for name in begun:
        setattr(half, name, types.ModuleType(f"trio.{name}"))
    monkeypatch.setitem(sys.modules, "trio", half)
    assert in_thread(lambda: type(current_port())) is ThreadPort
    assert isinstance(in_thread(current_holder), threading.Thread)


def test_more_completions_than_one_batch_are_all_delivered() -> None:
    def body() -> int:
        port = ThreadPort()
        results: list[int] = []
        many = lib.AIO_BATCH * 2 + 1
        for _ in range(many):
            assert port.begin(posted, results.append, None) == 0
        while len(results) < many and sync.readable(port.fd, 20):
            port.drain()
        return len(results) - many

    assert in_thread(body) == 0


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("patience_us", "expected"), [(3600_000_000, [2, 2, 2, 2]), (0, [2, 8, 8, 8])], ids=["soon", "late"]
)
async def test_port_takes_more_completions_in_a_turn_if_some_are_left_behind_for_long(
    patience_us: int, expected: list[int]
) -> None:
    port = asyncio_port_here()
    results: list[int] = []
    for _ in range(sum(expected) + 1):
        assert port.begin(posted, results.append, None) == 0
    assert port._patience_us == 4000
    port._patience_us = patience_us
    taken: list[int] = []
    for _ in expected:
        before = len(results)
        port.drain()
        taken.append(len(results) - before)
    assert taken == expected
    assert sync.readable(port.fd, 0)
    port.drain()
    assert len(results) == sum(expected) + 1


@pytest.mark.asyncio
async def test_row_of_awaits_that_need_no_wait_lets_other_tasks_run() -> None:
    port = asyncio_port_here()
    port._quick_us = 3600_000_000
    others: list[int] = []
    task = asyncio.get_running_loop().create_task(asyncio.sleep(0))
    task.add_done_callback(lambda _: others.append(1))
    for _ in range(QUICK_IN_A_ROW):
        await port.breathe()
    await port.breathe()
    await turns(2)
    assert others == [1]


@pytest.mark.asyncio
async def test_count_of_awaits_that_need_no_wait_restarts_with_each_turn_of_the_loop() -> None:
    port, loop = asyncio_port_here(), asyncio.get_running_loop()
    port._quick_us = 3600_000_000
    for _ in range(3):
        others: list[int] = []
        await turns()
        loop.call_soon(others.append, 1)
        for _ in range(QUICK_IN_A_ROW - 1):
            await port.breathe()
        assert not others
        await port.breathe()
        assert others


@pytest.mark.asyncio
async def test_awaits_that_need_no_wait_add_a_turn_to_the_loop_only_if_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port, loop = asyncio_port_here(), asyncio.get_running_loop()
    port._quick_us = 3600_000_000
    port.drain()
    called: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_soon", lambda *arguments: called.append(arguments))
        for _ in range(FEW_QUICK):
            await port.breathe()
        port.drain()
        for _ in range(FEW_QUICK):
            await port.breathe()
        assert not called
        await port.breathe()
    assert called == [(port._new_turn,)]
    port._new_turn()


@pytest.mark.asyncio
async def test_awaits_that_need_no_wait_in_several_turns_do_not_give_way() -> None:
    port = asyncio_port_here()
    port._quick_us = 0
    for _ in range(3):
        await asyncio.sleep(0)
        assert not port._gives_way(asyncio.get_running_loop())


@pytest.mark.anyio
@pytest.mark.parametrize("many", [2, QUICK_IN_A_ROW])
async def test_port_that_gives_way_lets_each_other_task_run(anyio_backend_name: str, many: int) -> None:
    """`next_turn` always gives way. `breathe` always does so on trio; on asyncio, after 64 awaits in a turn.

    trio runs the tasks of a turn in random order, so the other task has run after two turns.
    """
    ran: list[str] = []

    async def other(name: str) -> None:
        ran.append(name)

    async with anyio.create_task_group() as group:
        group.start_soon(other, "during next_turn")
        await current_port().next_turn()
        await current_port().next_turn()
        assert ran == ["during next_turn"]
        group.start_soon(other, "during breathe")
        if isinstance(port := current_port(), AsyncioPort):
            port._quick_us = 3600_000_000  # otherwise a pause of this thread may restart the count
        for _ in range(many):
            await port.breathe()
        gave_way = anyio_backend_name == "trio" or many == QUICK_IN_A_ROW
        assert ran[1:] == ["during breathe"] * gave_way


@pytest.mark.anyio
async def test_cancelled_wait_does_not_affect_other_waits_at_the_port() -> None:
    port = current_port()
    keys: list[int] = []

    def begin(_: CData, key: int) -> int:
        keys.append(key)
        return 0

    ended: list[Any] = []

    async def wait() -> None:
        ended.append(await port.wait(begin))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        with anyio.move_on_after(0):
            await port.wait(begin)
        await turns()
        assert len(keys) >= 1
        for key in keys:
            complete(port.handle, key, 7)
    assert ended == [7]
    assert not port._waits


class CancelledMeanwhile(asyncio.Future[Any]):
    """A future that is cancelled just before it gets its result, as asyncio's handler of Ctrl-C may do."""

    def set_result(self, result: Any, /) -> None:
        self.cancel()
        super().set_result(result)


def test_wait_cancelled_by_a_signal_as_its_result_comes_raises_only_the_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reported: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        port = current_port()
        monkeypatch.setattr(loop, "create_future", lambda: CancelledMeanwhile(loop=loop))
        await raises(asyncio.CancelledError, port.wait(posted))

    asyncio.run(main())
    assert reported == []


@pytest.mark.asyncio
async def test_await_that_needs_no_wait_yields_after_a_time_in_one_turn() -> None:
    port, others = asyncio_port_here(), list[int]()
    assert port._quick_us == 1000
    port._quick_us = 3600_000_000
    await turns()
    asyncio.get_running_loop().call_soon(others.append, 1)
    await port.breathe()
    await port.breathe()
    assert not others
    port._quick_us = -1
    await port.breathe()
    assert others
