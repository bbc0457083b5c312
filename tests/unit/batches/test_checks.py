"""What a caller may rely on, whatever the other callers and the executions do: on each event loop, and across them.

The executions are Python functions. Most of them end when the test says so.
"""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

import aioacl
from aioacl import AclError, DeviceFault, DeviceTimeout, ParameterError, QueueFull
from aioacl._batches import recording
from aioacl._batches.items import BatchItem
from tests.kit import FAULT, PATIENCE_SECONDS, TASK_FAULT, Waiting, raises, turns, until
from tests.support.batching import WRONG, ZEROS, ByHand, OnThread, View, batching, tasks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from aioacl._batches.executor import Outcomes

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop_in_ci]


def task_fault() -> DeviceFault:
    return DeviceFault("a task has failed", code=TASK_FAULT, action="new_stream")


async def outcome_of(infer: Any, x: Any, **options: Any) -> Any:
    try:
        return await infer(x, **options)
    except AclError as error:
        return error


async def all_of(infer: Any, xs: Any, **options: Any) -> list[Any]:
    """The outcome of each item; all are awaited at once."""
    found: dict[int, Any] = {}

    async def one(at: int, x: Any) -> None:
        found[at] = await outcome_of(infer, x, **options)

    async with tasks() as group:
        for at, x in enumerate(xs):
            group.start_soon(one, at, x)
    return [found[at] for at in sorted(found)]


async def test_items_of_one_turn_are_one_execution() -> None:
    sizes = list[int]()

    def execute(calls: list[Any]) -> list[Any]:
        sizes.append(len(calls))
        return [call * 2 for call in calls]

    with batching(OnThread(execute)) as infer:
        assert await all_of(infer, range(20)) == [number * 2 for number in range(20)]
    assert sizes == [20]


class AtOnce(ByHand):
    """Executions that end before `execute` returns."""

    def execute(self, calls: list[Any], ended: Callable[[Outcomes], object]) -> None:
        super().execute(calls, ended)
        self.end()


async def test_item_that_fills_a_batch_lets_other_tasks_run() -> None:
    log = list[str]()
    with batching(AtOnce(), most=1) as infer:

        async def greedy() -> None:
            for number in range(10):
                assert await infer(number) == number
            log.append("greedy")

        async def other() -> None:
            await anyio.lowlevel.checkpoint()
            log.append("other")

        async with tasks() as group:
            group.start_soon(greedy)
            group.start_soon(other)
    assert log == ["other", "greedy"]


async def test_67_each_item_has_one_outcome_under_random_cancellations() -> None:
    chance, ended = random.Random(7), list[int]()
    with batching(OnThread(), limit=64) as infer:

        async def one(number: int) -> None:
            with anyio.CancelScope() as scope:
                if chance.random() < 0.4:
                    scopes.append(scope)
                assert await infer(number, key=number % 3) == number
            ended.append(number)

        scopes = list[anyio.CancelScope]()
        async with tasks() as group:
            for number in range(1024):
                group.start_soon(one, number)
                if number % 50 == 0:
                    await turns(2)
                    for scope in scopes:
                        scope.cancel()
                    scopes.clear()
        assert sorted(ended) == list(range(1024))
        await until(lambda: infer._runner.core.empty)
        stats = infer.stats()
    assert stats.done + stats.cancelled == 1024
    assert (stats.failed, stats.waiting) == (0, 0)


async def test_70_one_bad_item_fails_alone() -> None:
    def execute(calls: list[Any]) -> list[Any]:
        if 13 in calls:
            raise task_fault()
        return list(calls)

    with batching(OnThread(execute)) as infer:
        found = await all_of(infer, range(32))
        stats = infer.stats()
    assert isinstance(found[13], DeviceFault)
    assert [*found[:13], *found[14:]] == [number for number in range(32) if number != 13]
    assert (stats.executions, stats.failed, stats.done) == (11, 1, 31)


async def test_wrong_shape_raises_in_the_call_and_other_shapes_run_apart() -> None:
    hand = ByHand()
    with batching(hand) as infer:
        async with tasks() as group:
            right = ((1, 1, "a"), (2, 1, "b"), (3, 1, "a"))
            calls = [Waiting(group, lambda x=x: infer(x)) for x in right]  # type: ignore[misc]  # mypy infers no type for a lambda with a default
            with pytest.raises(ParameterError, match="expected another shape"):
                infer((4, 1, WRONG))
            await until(lambda: hand.begun)
            await turns()
            hand.end()
            await until(lambda: hand.begun)
            hand.end()
    assert [call.value for call in calls] == list(right)
    assert [{x[2] for x in calls} for calls in hand.log] == [{"a"}, {"b"}] or [
        {x[2] for x in calls} for calls in hand.log
    ] == [{"b"}, {"a"}]


async def test_67_callers_of_a_failed_batch_get_an_exception_object_each() -> None:
    error = ValueError("wrong")

    def execute(_: list[Any]) -> list[Any]:
        raise error

    with batching(OnThread(execute)) as infer:
        found = list[ValueError]()

        async def one(number: int) -> None:
            found.append(await raises(ValueError, infer(number)))

        async with tasks() as group:
            for number in range(8):
                group.start_soon(one, number)
    assert len({id(each) for each in found}) == 8
    assert all(each.__cause__ is error for each in found)
    assert {str(each) for each in found} == {"wrong"}


async def test_68_item_that_is_cancelled_while_it_waits_never_runs() -> None:
    hand = ByHand()
    with batching(hand) as infer:
        async with tasks() as group:
            first = Waiting(group, lambda: infer(1))
            await until(lambda: hand.begun)
            gone, kept = Waiting(group, lambda: infer(2)), Waiting(group, lambda: infer(3))
            await until(lambda: infer.waiting == 2)
            await gone.cancel_and_wait()
            assert infer.waiting == 1
            hand.end()
            await until(lambda: hand.begun)
            hand.end()
    assert hand.log == [[1], [3]]
    assert (first.value, kept.value, gone.cancelled) == (1, 3, True)


async def test_68_item_that_is_cancelled_while_it_runs_harms_no_neighbour() -> None:
    hand = ByHand()
    with batching(hand) as infer:
        async with tasks() as group:
            calls = [Waiting(group, lambda number=number: infer(number)) for number in range(4)]  # type: ignore[misc]  # as above
            await until(lambda: hand.begun)
            await calls[1].cancel_and_wait()
            hand.end()
    assert [call.value for call in calls] == [0, None, 2, 3]


async def test_68_time_limit_ends_an_item_behind_an_execution_that_never_ends() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1) as infer:
        async with tasks() as group:
            running = Waiting(group, lambda: infer(1))
            await until(lambda: hand.begun)
            error = await raises(DeviceTimeout, infer(2, timeout=0.001))
            assert error.started is False
            assert "timeout=" in error.hint
            assert infer.waiting == 0
            assert infer.stats().expired == 1
            hand.end()
    assert running.value == 1
    assert hand.log == [[1]]


async def test_68_time_limit_ends_an_item_that_runs_and_its_result_is_dropped() -> None:
    hand, limit = ByHand(), 0.004
    with batching(hand) as infer:
        error = await raises(DeviceTimeout, infer(1, timeout=limit))
        while not hand.log:  # on a slow machine, the item may expire before it runs
            limit *= 2
            error = await raises(DeviceTimeout, infer(1, timeout=limit))
        assert error.started is True
        hand.end()
        assert infer.stats().done == 0


async def test_69_overload_is_refused_or_waits_as_the_caller_asks() -> None:
    hand = ByHand()
    with batching(hand, limit=32, in_flight=1) as infer:
        async with tasks() as group:
            first = Waiting(group, lambda: infer(0))
            await until(lambda: hand.begun)
            many = [Waiting(group, lambda: infer((1, 16, None))) for _ in range(2)]
            await until(lambda: infer.waiting == 32)
            error = await raises(QueueFull, infer(3, wait=False))
            assert (error.action, error.retry_after) == ("retry", None)
            assert "limit has no room" in str(error)
            assert "wait=True" in error.hint
            late = Waiting(group, lambda: infer(4))
            await turns()
            assert not late.ended
            for _ in range(3):
                await until(lambda: hand.begun)
                hand.end()
    assert (first.value, late.value) == (0, 4)
    assert all(call.error is None for call in many)
    assert hand.log[1:] == [[(1, 16, None)] * 2, [4]]


def items_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, BatchItem) for each in gc.get_objects())


async def test_items_that_have_ended_are_not_kept_until_their_time_limits() -> None:
    with batching(OnThread(lambda calls: calls)) as infer:
        before = items_in_memory()
        for _ in range(20):
            await all_of(infer, range(50), timeout=60)
        assert items_in_memory() - before <= 320  # of 1,000


async def test_item_that_its_key_has_no_room_for_names_limit_per_key() -> None:
    hand = ByHand()
    with batching(hand, limit_per_key=32, in_flight=1) as infer:
        async with tasks() as group:
            Waiting(group, lambda: infer(0, key="first"))
            await until(lambda: hand.begun)
            Waiting(group, lambda: infer((1, 32, None), key="first"))
            await until(lambda: infer.waiting == 32)
            error = await raises(QueueFull, infer(2, key="first", wait=False))
            assert "limit_per_key has no room" in str(error)
            Waiting(group, lambda: infer(3, key="second", wait=False))
            await until(lambda: infer.waiting == 33)
            while hand.begun:
                hand.end()


async def test_67_close_executes_what_waits_and_then_refuses() -> None:
    hand = ByHand()
    with batching(hand, in_flight=2) as infer:
        async with tasks() as group:
            calls = [Waiting(group, lambda: infer(1))]
            await until(lambda: hand.begun)
            calls.append(Waiting(group, lambda: infer(2)))
            await until(lambda: infer.waiting == 1)
            closing = Waiting(group, infer.close)
            await until(lambda: len(hand.begun) == 2)  # at once, beside the execution that runs
            assert not closing.ended
            hand.end()
            hand.end()
        assert [call.value for call in calls] == [1, 2]
        with pytest.raises(ParameterError, match="closed"):
            infer(3)
        await infer.close()
    assert hand.closed


async def test_67_close_fails_what_is_left_after_its_grace_time() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1) as infer:
        async with tasks() as group:
            calls = [Waiting(group, lambda: infer(1))]
            await until(lambda: hand.begun)
            calls.append(Waiting(group, lambda: infer(2)))
            await until(lambda: infer.waiting == 1)
            await infer.close(grace=0.01)
        assert [str(type(call.error).__name__) for call in calls] == ["ParameterError"] * 2
        hand.end()


@pytest.mark.parametrize("count", [0, 3, 5])
async def test_67_wrong_number_of_results_fails_that_batch_only(count: int) -> None:
    wrong = True

    def execute(calls: list[Any]) -> list[Any]:
        # The items may come in several turns, and so in several batches.
        return [0] * max(0, len(calls) + count - 4) if wrong else list(calls)

    with batching(OnThread(execute)) as infer:
        found = await all_of(infer, range(4))
        assert {type(each) for each in found} == {AclError}
        assert "one result for each of the " in str(found[0])
        wrong = False
        assert await all_of(infer, range(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt, StopIteration, SystemExit])
async def test_67_exception_that_would_end_a_task_reaches_callers_as_an_error(
    kind: type[BaseException],
) -> None:
    hand = ByHand()
    with batching(hand) as infer:
        async with tasks() as group:
            calls = [Waiting(group, lambda: infer(1)), Waiting(group, lambda: infer(2))]
            await until(lambda: hand.begun)
            hand.end(kind())
        assert {type(call.error) for call in calls} == {AclError}
        assert {type(call.error.__cause__) for call in calls if call.error is not None} == {kind}
        async with tasks() as group:
            again = Waiting(group, lambda: infer(3))
            await until(lambda: hand.begun)
            hand.end()
        assert again.value == 3


async def test_executor_that_raises_fails_that_batch_only() -> None:
    class Broken(ByHand):
        def execute(self, calls: list[Any], ended: Callable[[Any], object]) -> None:
            if not self.log:
                self.log.append(calls)
                raise MemoryError
            super().execute(calls, ended)

    hand = Broken()
    with batching(hand) as infer:
        await raises(MemoryError, infer(1))
        async with tasks() as group:
            call = Waiting(group, lambda: infer(2))
            await until(lambda: hand.begun)
            hand.end()
        assert call.value == 2


@pytest.mark.parametrize("step", ["arrive_alone", "ended", "next"])
async def test_56_error_of_the_batcher_itself_reaches_all_callers(
    step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    with batching(OnThread(), in_flight=1) as infer:
        core = infer._runner.core
        with monkeypatch.context() as patch:
            patch.setattr(core, step, broken)
            if step == "next":
                patch.setattr(core, "arrive_alone", lambda *_: None)
            error = await raises(AclError, infer(1))
        assert isinstance(error.__cause__, RuntimeError)
        assert "the batcher has failed" in str(error)
        assert await infer(2) == 2
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("step", ["leaves", "done"])
async def test_67_error_of_the_batcher_between_its_steps_reaches_all_callers(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("sys.unraisablehook", lambda _: None)
    with batching(OnThread(), in_flight=1) as infer:
        assert await infer(0) == 0
        with monkeypatch.context() as patch:
            patch.setattr(recording, step, broken)
            with anyio.fail_after(PATIENCE_SECONDS), pytest.raises((AclError, RuntimeError)) as caught:
                await infer(1)
        assert RuntimeError in (type(caught.value), type(caught.value.__cause__))
        with anyio.fail_after(PATIENCE_SECONDS):
            assert await infer(2) == 2
        await until(lambda: infer._runner.core.empty)
        assert infer.stats().running == 0


async def test_large_items_run_one_in_a_batch() -> None:
    sizes = list[int]()

    def execute(calls: list[Any]) -> list[Any]:
        sizes.append(len(calls))
        return list(calls)

    with batching(OnThread(execute)) as infer:
        items = [(number, 20, None) for number in range(5)]
        assert await all_of(infer, items) == items
    assert sizes == [1] * 5


async def test_69_second_key_is_served_after_one_batch_of_the_first_which_fills_the_limit() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1, limit=64) as infer:
        async with tasks() as group:
            for _ in range(200):
                Waiting(group, lambda: infer("first", key=1))
            await until(lambda: hand.begun)
            await turns()
            Waiting(group, lambda: infer("second", key=2))
            await turns()
            served = list[list[Any]]()
            while hand.begun:
                served.append(hand.begun[0])
                hand.end()
                await turns(3)
    assert ["second" in calls for calls in served[:4]] == [False, False, True, False]
    assert sum(map(len, served)) == 201


async def test_item_is_awaited_once() -> None:
    with batching(OnThread()) as infer:
        item = infer(1)
        assert repr(item) == "<BatchItem of 1 rows, not awaited>"
        assert await item == 1
        error = await raises(ParameterError, item)
        assert "over" in str(error)
        assert "Call the batcher once more" in error.hint


async def test_item_that_is_not_awaited_does_not_run() -> None:
    hand = ByHand()
    with batching(hand) as infer:
        infer(1)
        await turns()
    assert hand.log == []


async def test_batch_is_held_until_its_oldest_item_has_waited() -> None:
    with batching(OnThread(), hold=0.01) as infer:
        assert await all_of(infer, range(3)) == [0, 1, 2]
        stats = infer.stats()
    assert stats.executions == 1
    assert stats.wait_p50 >= 0.01


async def test_batch_is_held_again_if_the_timer_was_early() -> None:
    hand = ByHand()
    with batching(hand, hold=0.02) as infer:
        async with tasks() as group:
            call = Waiting(group, lambda: infer(1))
            while not hand.begun:
                infer._runner.look()  # as an early timer does
                await anyio.sleep(0.001)
            hand.end()
        assert call.value == 1
        stats = infer.stats()
    assert stats.wait_p50 >= 0.02


async def test_full_batch_is_not_held() -> None:
    hand = ByHand()
    with batching(hand, hold=1000.0) as infer:
        async with tasks() as group:
            calls = [Waiting(group, lambda: infer(1)) for _ in range(32)]
            await until(lambda: hand.begun)
            hand.end()
    assert {call.value for call in calls} == {1}


async def test_map_keeps_the_order_and_gives_errors_in_place() -> None:
    def execute(calls: list[Any]) -> list[Any]:
        if 5 in calls:
            raise task_fault()
        return list(calls)

    with batching(OnThread(execute)) as infer:
        async with infer.map(range(40), errors="return") as results:
            found = [y async for y in results]
    assert isinstance(found[5], DeviceFault)
    assert getattr(found[5], "item", None) == 5
    assert [*found[:5], *found[6:]] == [number for number in range(40) if number != 5]


async def test_map_whose_reader_is_cancelled_first_ends_as_cancelled() -> None:
    async def then_never() -> AsyncGenerator[int]:
        yield 0
        await anyio.sleep_forever()

    got = list[int]()
    with batching(OnThread()) as infer:
        with anyio.CancelScope() as scope:
            async with aclosing(then_never()) as xs, infer.map(xs) as results:
                async for y in results:
                    got.append(y)
                    scope.cancel()
                got.append(-1)  # the end of `xs`
        assert scope.cancelled_caught
    assert got == [0]


async def test_map_whose_execution_raises_stop_async_iteration_raises() -> None:
    def stops(_calls: list[Any]) -> list[Any]:
        raise StopAsyncIteration

    with batching(OnThread(stops)) as infer:
        async with infer.map([1]) as results:
            with pytest.raises(RuntimeError, match="StopAsyncIteration"):
                await anext(results)


# --- devices ------------------------------------------------------------------------------------------------------


async def test_error_that_a_batcher_keeps_refers_to_no_frame_of_a_caller() -> None:
    """The caller's frame refers to the batcher, so the two would be garbage for the collector."""
    hand = ByHand()
    with batching(hand, attempts=1) as infer:
        async with tasks() as group:
            call = Waiting(group, lambda: infer(1))
            await until(lambda: hand.begun)
            hand.end(DeviceFault("the device has failed", code=FAULT))
        (served,) = infer._runner._served.values()
    assert isinstance(call.error, DeviceFault)
    assert isinstance(served.device.error, DeviceFault)
    assert served.device.error is not call.error
    assert served.device.error.__traceback__ is None


async def test_71_items_of_a_failed_device_run_alone_after_its_reset() -> None:
    hand, view = ByHand(), View()
    view.returns = True
    with batching(hand, view=view) as infer:
        async with tasks() as group:
            calls = [Waiting(group, lambda number=number: infer(number)) for number in range(3)]  # type: ignore[misc]  # as above
            await until(lambda: hand.begun)
            hand.end(DeviceFault("the device has failed", code=FAULT))
            assert hand.begun == []
            view.reset()
            assert hand.begun == [[ZEROS]]
            for _ in range(4):
                (running,) = hand.begun
                hand.end(DeviceFault("again", code=FAULT) if running == [1] else None)
                if running == [1]:
                    view.reset()
        assert [call.value for call in calls] == [0, None, 2]
        assert isinstance(calls[1].error, DeviceFault)
    assert sorted(map(len, hand.log)) == [1, 1, 1, 1, 3]


async def test_72_items_fail_at_once_if_their_device_will_not_come_back() -> None:
    hand, view = ByHand(), View()
    with batching(hand, view=view, in_flight=1) as infer:
        async with tasks() as group:
            calls = [Waiting(group, lambda: infer(1))]
            await until(lambda: hand.begun)
            calls.append(Waiting(group, lambda: infer(2)))
            await until(lambda: infer.waiting == 1)
            hand.end(DeviceFault("the device has failed", code=FAULT))
        assert [type(call.error) for call in calls] == [DeviceFault] * 2
        await raises(DeviceFault, infer(3))


async def test_72_items_fail_when_the_supervisor_of_their_device_gives_up() -> None:
    hand, view = ByHand(), View()
    with batching(hand, view=view) as infer:
        view.is_open, view.returns = False, True
        view.tell()
        async with tasks() as group:
            call = Waiting(group, lambda: infer(1))
            await until(lambda: infer.waiting == 1)
            assert hand.begun == []
            view.returns = False
            view.tell()
        assert isinstance(call.error, aioacl.DeviceQuarantined)
        view.reset()
        async with tasks() as group:
            call = Waiting(group, lambda: infer(1))
            await until(lambda: hand.begun)
            hand.end()
        assert call.value == 1


async def test_device_that_failed_in_other_work_gets_no_batch_before_its_reset() -> None:
    hand, view = ByHand(), View()
    view.returns = True
    with batching(hand, view=view) as infer:
        view.failed = True
        view.tell()
        async with tasks() as group:
            call = Waiting(group, lambda: infer(1))
            await until(lambda: infer.waiting == 1)
            assert hand.begun == []
            view.reset()
            hand.end()
            await until(lambda: hand.begun)
            hand.end()
        assert call.value == 1
    assert hand.log == [[ZEROS], [1]]


# --- threads and several loops --------------------------------------------------------------------------------------


async def test_threads_wait_for_results() -> None:
    with batching(OnThread()) as infer:
        found = list[Any]()

        def work() -> None:
            for number in range(5):
                found.append(infer(number, key="thread").result())
            with pytest.raises(DeviceTimeout):
                infer_by_hand(1).result(timeout=0.01)
            with pytest.raises(DeviceTimeout):
                infer_by_hand(1, timeout=0.01).result()
            with pytest.raises(QueueFull):
                infer_by_hand((1, 32, None), wait=False).result()

        with batching(ByHand(), limit=32) as infer_by_hand:
            async with tasks() as group:
                group.start_soon(anyio.to_thread.run_sync, _first_of(infer_by_hand, work))
                assert await all_of(infer, range(10)) == list(range(10))
        assert found == list(range(5))


def _first_of(infer: Any, work: Callable[[], None]) -> Callable[[], None]:
    """Fills the limit of a batcher whose executions never end, calls `work`, and lets its items go."""

    def run() -> None:
        threads = list[threading.Thread]()
        for x, rows in ((1, 1), ((2, 31, None), 31), ((3, 32, None), 32)):

            def wait(x: Any = x) -> None:
                with pytest.raises(ParameterError, match="closed"):
                    infer(x).result()

            threads.append(threading.Thread(target=wait))
            threads[-1].start()
            core = infer._runner.core
            while core.waiting.rows + sum(model.rows for model in core.models) < rows:
                pass
        work()
        infer._close_later()
        for thread in threads:
            thread.join()

    return run


async def test_result_on_a_thread_with_a_loop_names_the_cure() -> None:
    with batching(OnThread()) as infer, pytest.raises(RuntimeError, match="await the item"):
        infer(1).result()


def in_thread(function: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    """Runs a function on a thread, which keeps its error."""
    errors = list[BaseException]()

    def run() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


async def test_two_loops_share_executions_and_each_gets_its_own_results() -> None:
    with batching(OnThread()) as infer:
        found = list[Any]()

        async def other() -> None:
            for _ in range(10):
                found.append(await all_of(infer, range(20)))

        thread, errors = in_thread(lambda: anyio.run(other))
        for _ in range(10):
            assert await all_of(infer, range(100, 130)) == list(range(100, 130))
        await until(lambda: not thread.is_alive())
        assert errors == []
    assert found == [list(range(20))] * 10


async def test_73_loop_that_blocks_delays_no_other_loop_and_its_items_are_dropped_when_it_is_closed() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1) as infer:
        blocked, go_on = threading.Event(), threading.Event()

        def other() -> None:
            loop = asyncio.new_event_loop()
            tasks = [loop.create_task(outcome_of(infer, number)) for number in ("running", "waiting")]
            tasks[1].cancel()
            loop.call_later(0, lambda: tasks.append(loop.create_task(outcome_of(infer, "waiting"))))
            while infer.waiting == 0:
                loop.run_until_complete(asyncio.sleep(0.001))
            blocked.set()
            go_on.wait(60)  # the loop does not turn
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # the tasks are left on purpose
            loop.close()

        thread, errors = in_thread(other)
        await until(blocked.is_set)
        async with tasks() as group:
            mine = Waiting(group, lambda: infer("mine"))
            await until(lambda: infer.waiting == 2)
            hand.end()  # the blocked loop gets its result later
            assert hand.begun == [["waiting", "mine"]]
            hand.end()
            await until(lambda: mine.ended)
            assert mine.value == "mine"
            last = Waiting(group, lambda: infer("last"))
            await until(lambda: hand.begun)
            go_on.set()
            await until(lambda: not thread.is_alive())
            hand.end()
        assert errors == []
        assert last.value == "last"
        await until(lambda: len(infer._runner.loops) <= 1)
    gc.collect()


async def test_73_waiting_items_of_a_closed_loop_never_run() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1) as infer:

        def other() -> None:
            loop = asyncio.new_event_loop()
            tasks = [loop.create_task(outcome_of(infer, number)) for number in range(2)]
            loop.run_until_complete(asyncio.sleep(0))
            loop.run_until_complete(asyncio.sleep(0))
            tasks += [loop.create_task(outcome_of(infer, number)) for number in range(2, 5)]
            while infer.waiting < 3:
                loop.run_until_complete(asyncio.sleep(0))
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # as above
            loop.close()

        thread, errors = in_thread(other)
        await until(lambda: not thread.is_alive())
        assert errors == []
        hand.end()
        assert infer.waiting == 0
        assert hand.begun == []
    gc.collect()
