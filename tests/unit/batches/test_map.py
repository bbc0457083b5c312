"""`infer.map(xs)`: a task of an item that other code cancels, and what is left after the block."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import anyio
import pytest

from aioacl import ParameterError
from tests.kit import PATIENCE_SECONDS, until
from tests.support.batching import ByHand, OnThread, batching


class Result:
    """A result that can be referred to weakly."""


@pytest.mark.parametrize("errors", ["raise", "return"])
@pytest.mark.parametrize("ordered", [True, False])
def test_map_whose_tasks_are_cancelled_by_other_code_ends_as_cancelled(errors: Any, ordered: bool) -> None:
    async def scene() -> None:
        hand = ByHand()
        with batching(hand) as infer:
            before = asyncio.all_tasks()
            async with infer.map([1, 2], errors=errors, ordered=ordered) as results:
                await until(lambda: bool(hand.begun))
                for task in asyncio.all_tasks() - before:
                    task.cancel()
                with pytest.raises(asyncio.CancelledError), anyio.fail_after(PATIENCE_SECONDS):
                    await anext(results)
                assert [y async for y in results] == []
            assert infer.stats().cancelled == 2
            hand.end()

    asyncio.run(scene())


def test_items_that_cannot_be_iterated_over_are_refused_in_the_call() -> None:
    xs: Any = None
    with (
        batching(OnThread()) as infer,
        pytest.raises(ParameterError, match=r"^xs must be an iterable .* got None"),
    ):
        infer.map(xs)


@pytest.mark.anyio
@pytest.mark.parametrize("ordered", [True, False])
async def test_results_that_were_not_taken_are_dropped_at_the_end_of_the_block(ordered: bool) -> None:
    made = list[weakref.ref[Result]]()

    def execute(calls: list[Any]) -> list[Any]:
        results = [Result() for _ in calls]
        made.extend(map(weakref.ref, results))
        return results

    with batching(OnThread(execute)) as infer:
        async with infer.map(range(4), limit=4, ordered=ordered) as results:
            await anext(results)
            await until(lambda: infer.stats().done == 4)
            await until(lambda: len(results._outcomes) == 3)
        await infer(None)  # the thread keeps the results of its last execution
        gc.collect()
        assert [left() for left in made[:-1]] == [None] * 4
        assert [y async for y in results] == []
