"""The steps of an item that are in C: its await on an asyncio loop, callers that go, and what is left afterwards."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioacl import ParameterError
from aioacl._base.ffi import LoopBase, TurnBase, bind_items, flight_batch, flight_items, move_items, new_item
from aioacl._batches.items import BatchItem, Mixed
from aioacl._batches.waiting import OVER, RUNNING, WAITING
from tests.kit import PATIENCE_SECONDS, Raised, Stop, in_thread, until
from tests.support.batching import ByHand, OnThread, batching, check
from tests.unit.batches.decisions import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator


def on_loop(scene: Callable[[Any, ByHand], Coroutine[Any, Any, None]]) -> None:
    """Runs a scene with a batcher. At its end, no item waits or runs."""

    async def run() -> None:
        hand = ByHand()
        with batching(hand, in_flight=1) as infer:
            await scene(infer, hand)
            while hand.begun:
                hand.end()
            assert infer._runner.core.empty

    asyncio.run(run())


@contextmanager
def no_collections() -> Generator[None]:
    """Objects are freed with their last reference, or not at all."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def refused(awaitable: Any) -> None:
    with pytest.raises(ParameterError):
        await awaitable


async def outcome_of(awaitable: Any, hand: ByHand, outcomes: Any = None) -> Any:
    """Ends the execution of an item, and returns its result."""
    task = asyncio.ensure_future(awaitable)
    await until(lambda: bool(hand.begun))
    hand.end(outcomes)
    return await task


async def cancelled(awaitable: Any) -> None:
    task = asyncio.ensure_future(awaitable)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task


@pytest.mark.parametrize("how", ["result", "error", "cancellation"])
def test_item_that_is_over_is_freed_without_the_garbage_collector(how: str) -> None:
    async def scene(infer: Any, hand: ByHand) -> None:
        item = infer(1)
        left = weakref.ref(item)
        if how == "cancellation":
            await cancelled(item)
            hand.end()  # the turn was over before the task
        elif how == "error":
            await outcome_of(refused(item), hand, ParameterError("no"))
        else:
            assert await outcome_of(item, hand) == 1
        del item
        await asyncio.sleep(0)
        assert left() is None

    with no_collections():
        on_loop(scene)


@pytest.mark.parametrize(("together", "batch"), [(1, [0]), (2, [0, 1, 2])])
def test_items_of_the_next_turn_join_several_items_and_not_a_lone_one(
    together: int, batch: list[int]
) -> None:
    async def scene(infer: Any, hand: ByHand) -> None:
        waits = [asyncio.ensure_future(infer(number)) for number in range(together)]
        await asyncio.sleep(0)  # they await
        waits.append(asyncio.ensure_future(infer(together)))
        await until(lambda: bool(hand.begun))
        assert list(hand.begun[0]) == batch
        hand.end(batch)
        if len(batch) == together:
            await until(lambda: bool(hand.begun))
            hand.end([together])
        assert await asyncio.gather(*waits) == list(range(together + 1))

    on_loop(scene)


def test_item_whose_task_is_dropped_never_runs() -> None:
    async def scene(infer: Any, hand: ByHand) -> None:
        steps = infer(1).__await__()
        next(steps)
        del steps
        infer._runner.last.end_turn()
        assert not hand.begun

    with no_collections():
        on_loop(scene)


@pytest.mark.parametrize("end", ["close", "throw", "throw a class"])
def test_item_whose_await_is_ended_never_runs(end: str) -> None:
    async def scene(infer: Any, hand: ByHand) -> None:
        steps: Any = infer(1).__await__()
        next(steps)
        if end == "close":
            steps.close()
        else:
            with pytest.raises(KeyError):
                steps.throw(KeyError("x") if end == "throw" else KeyError)
        infer._runner.last.end_turn()
        assert not hand.begun
        with pytest.raises(RuntimeError, match="the await has ended"):
            next(steps)

    on_loop(scene)


def test_throw_of_no_exception_is_refused() -> None:
    async def scene(infer: Any, _: ByHand) -> None:
        steps: Any = infer(1).__await__()
        with pytest.raises(TypeError, match="expected an exception to throw"):
            steps.throw(3)

    on_loop(scene)


def interrupted(*_: Any) -> None:
    """In the place of a method of the loop."""
    raise KeyboardInterrupt


def test_interrupt_while_a_turn_is_planned_ends_that_item_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(infer: Any, hand: ByHand) -> None:
        await outcome_of(infer(0), hand)
        loop = infer._runner.last

        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_soon", interrupted)
            with pytest.raises(KeyboardInterrupt):
                infer(1).__await__()
        assert await outcome_of(infer(2), hand) == 2
        assert hand.log == [[0], [2]]

    on_loop(scene)


def test_interrupt_while_a_turn_is_planned_once_more_loses_no_item(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(infer: Any, hand: ByHand) -> None:
        await outcome_of(infer(0), hand)
        loop = infer._runner.last

        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_soon", lambda *_: None)  # the test ends the turn
            waits = [asyncio.ensure_future(infer(number)) for number in (1, 2)]
            await asyncio.sleep(0)  # they await
            patch.setattr(loop, "call_soon", interrupted)
            with pytest.raises(KeyboardInterrupt):
                loop.end_turn()
        assert hand.begun == [[1, 2]]
        hand.end()
        assert await asyncio.gather(*waits) == [1, 2]
        assert await outcome_of(infer(3), hand) == 3

    on_loop(scene)


def test_items_arrive_in_the_next_run_of_a_loop_that_has_lost_the_end_of_a_turn() -> None:
    async def lost(infer: Any) -> Any:
        infer._runner.loop_here().call_soon = lambda *_: None  # Ctrl-C has ended the run before the call
        wait = asyncio.ensure_future(infer(1))
        await asyncio.sleep(0)  # it awaits
        return wait

    async def later(infer: Any, wait: Any) -> list[int]:
        loop = infer._runner.last
        loop.call_soon = loop.loop.call_soon
        return await asyncio.wait_for(asyncio.gather(wait, infer(2)), PATIENCE_SECONDS)

    with batching(OnThread()) as infer, closing(asyncio.new_event_loop()) as loop:
        wait = loop.run_until_complete(lost(infer))
        assert loop.run_until_complete(later(infer, wait)) == [1, 2]


def test_close_on_another_thread_takes_the_items_of_a_turn_that_goes_on() -> None:
    async def scene(infer: Any, hand: ByHand) -> None:
        waits = [asyncio.ensure_future(infer(number)) for number in range(3)]
        await asyncio.sleep(0)  # they await
        in_thread(infer._runner.close)
        assert hand.begun == [[0, 1, 2]]
        hand.end()
        assert await asyncio.gather(*waits) == [0, 1, 2]

    on_loop(scene)


def test_item_that_arrives_after_the_end_can_be_cancelled_before_its_error_comes() -> None:
    async def scene(infer: Any, _: ByHand) -> None:
        item = infer(1)
        in_thread(infer._close_later)
        task = asyncio.ensure_future(item)
        await asyncio.sleep(0)  # it awaits
        in_thread(infer._runner.last.flush)  # as if that thread still drove at the end of the turn
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert infer.stats().failed == 1

    on_loop(scene)


def test_item_that_is_awaited_while_its_future_is_made_is_refused_once() -> None:
    async def scene(infer: Any, hand: ByHand) -> None:
        await outcome_of(infer(0), hand)
        loop, item = infer._runner.last, infer(1)
        original, inner = loop.new_future, list[Any]()

        def new_future() -> Any:
            loop.new_future = original
            inner.append(item.__await__())
            return original()

        loop.new_future = new_future
        outer = item.__await__()
        with pytest.raises(ParameterError, match="already awaited"):
            next(outer)
        assert next(inner[0]) is item._future

    on_loop(scene)


async def loop_of_an_item(infer: Any) -> Any:
    """The loop for which an item waits that is awaited here. Nothing is left."""
    item = infer(1)
    steps = item.__await__()
    next(steps)
    loop = item._future.get_loop()
    steps.close()
    await asyncio.sleep(0)
    return loop


def test_item_waits_on_the_loop_of_its_thread_also_after_another_loop_has_moved() -> None:
    stop, moved, mine = Stop(), asyncio.new_event_loop(), asyncio.new_event_loop()

    async def held() -> None:
        stop()

    with batching(OnThread()) as infer, closing(moved), closing(mine):
        assert moved.run_until_complete(loop_of_an_item(infer)) is moved
        elsewhere = Raised(lambda: moved.run_until_complete(held()))
        assert stop.begun.wait(PATIENCE_SECONDS)
        assert mine.run_until_complete(loop_of_an_item(infer)) is mine
        stop.go_on.set()
        elsewhere.join()
        assert moved.run_until_complete(loop_of_an_item(infer)) is moved


def test_item_waits_on_the_loop_of_its_thread_also_with_hooks_of_the_program() -> None:
    def hook(_: object) -> None:
        """Replaces the hook of the loop until the end of its run."""

    async def scene(infer: Any) -> Any:
        sys.set_asyncgen_hooks(firstiter=hook)
        return await loop_of_an_item(infer)

    loops = asyncio.new_event_loop(), asyncio.new_event_loop()
    with batching(OnThread()) as infer:
        for _ in range(2):
            for loop in loops:
                assert loop.run_until_complete(scene(infer)) is loop
        for loop in loops:
            loop.close()


class Interrupted:
    """A future whose result is interrupted by a signal handler."""

    def set_result(self, _: Any) -> None:
        raise KeyboardInterrupt


def test_interrupt_of_one_outcome_leaves_the_others_their_outcomes() -> None:
    async def scene(infer: Any, _: ByHand) -> None:
        loop, items = asyncio.get_running_loop(), [infer(number) for number in range(4)]
        for item in items:
            item._future = loop.create_future()
        items[0]._future = items[2]._future = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            LoopBase().deliver(items, [0, 10, 20, 30])
        assert [items[at]._future.result() for at in (1, 3)] == [10, 30]

    on_loop(scene)


def test_exception_is_a_result_unless_the_outcomes_are_mixed() -> None:
    async def scene(infer: Any, _: ByHand) -> None:
        error, items = ValueError("x"), [infer(0), infer(1), infer(2)]
        for item in items:
            item._future = asyncio.get_running_loop().create_future()
        items[2]._future.cancel()
        LoopBase().deliver(items[:1], [error])
        LoopBase().deliver(items[1:], Mixed([error, error]))
        assert items[0]._future.result() is error
        assert items[1]._future.exception() is error
        assert items[2]._future.cancelled()

    on_loop(scene)


def test_items_move_until_one_is_in_another_state() -> None:
    with batching(ByHand()) as infer:
        items: list[Any] = [infer(0), Job(), infer(1), Job()]
        for item in items[:3]:
            item._state = RUNNING
        assert move_items(items, RUNNING, OVER) == 3
        assert [item._state for item in items] == [OVER, OVER, OVER, WAITING]
        assert move_items(items, RUNNING, OVER) == 0
        with pytest.raises(AttributeError):
            move_items([object()], RUNNING, OVER)


def test_calls_of_c_with_wrong_arguments_are_refused() -> None:
    with batching(ByHand()) as infer:
        runner = infer._runner
        wrong: list[Callable[[], object]] = [
            lambda: new_item(3, check, 1),  # type: ignore[arg-type]  # on purpose
            lambda: new_item(runner, lambda _: 3, 1),  # type: ignore[arg-type,return-value]  # on purpose
            lambda: new_item(runner, lambda _: (1, "x", 3), 1),  # type: ignore[arg-type,return-value]  # on purpose
            lambda: LoopBase().deliver([infer(1)], []),
            lambda: LoopBase().send([infer(1)], ()),  # type: ignore[arg-type]  # on purpose
            runner.tell,
            lambda: runner.tell(print, 1, 2, 3),
            lambda: flight_batch(0, 1, (), 0.0),  # type: ignore[arg-type]  # on purpose
            lambda: flight_batch(0, 1, [], "x"),  # type: ignore[arg-type]  # on purpose
            lambda: flight_items(0, 1, (), 0),  # type: ignore[arg-type]  # on purpose
            lambda: flight_items("x", 1, [], 0),  # type: ignore[arg-type]  # on purpose
            lambda: bind_items(TurnBase, TurnBase, list, None, 0.0, 0, 1),  # type: ignore[arg-type]  # on purpose
            lambda: move_items((), RUNNING, OVER),  # type: ignore[arg-type]  # on purpose
            lambda: move_items([], "x", OVER),  # type: ignore[arg-type]  # on purpose
            BatchItem,
        ]
        for call in wrong:
            with pytest.raises(TypeError):
                call()


def test_records_of_a_batcher_can_be_collected() -> None:
    turn, loop = TurnBase(), LoopBase()
    turn.items, turn.of, loop.turn = [turn], loop, turn

    class Marked(TurnBase):
        """A turn that can be referred to weakly."""

    mark = Marked()
    left = weakref.ref(mark)
    turn.items.append(mark)
    del turn, loop, mark
    gc.collect()
    assert left() is None
