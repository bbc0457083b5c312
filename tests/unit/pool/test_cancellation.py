"""A cancellation at each suspension of what uses a pool or a batcher leaves nothing open."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioacl import open_batcher, open_device, open_pool, simulator, testing
from tests.kit import until
from tests.unit.batches.test_models import BATCHES, first_ten, item

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop_in_ci, pytest.mark.thorough]


class Suspensions:
    """Awaits a coroutine, counts its suspensions, and calls `then` at the nth of them."""

    def __init__(self, body: Awaitable[object], nth: int, then: Callable[[], object]) -> None:
        self.count = 0
        self._body = body
        self._nth = nth
        self._then = then

    def __await__(self) -> Generator[Any, Any, None]:
        steps: Any = self._body.__await__()
        resume = steps.send
        value: Any = None
        while True:
            try:
                suspended = resume(value)
            except StopIteration:
                return
            self.count += 1
            if self.count == self._nth:
                self._then()
            try:
                resume, value = steps.send, (yield suspended)
            except BaseException as error:
                resume, value = steps.throw, error


async def pool() -> None:
    infer = await open_pool(BATCHES)
    try:
        await infer(item(0))
    finally:
        await infer.close()


async def items_of_a_pool() -> None:
    async with open_pool(BATCHES) as infer, infer.map(map(item, range(40)), limit=8) as results:
        async for _ in results:
            pass


async def models_of_a_pool() -> None:
    async with open_pool(BATCHES, (0,)) as infer, infer.devices[0].load_model(BATCHES) as new:
        await infer.replace(new)
        await infer(item(0))


async def batcher() -> None:
    async with (
        open_device() as device,
        device.load_model(BATCHES) as old,
        device.load_model(BATCHES) as new,
        open_batcher(old) as infer,
    ):
        await infer(item(0), timeout=20)
        await infer.replace(new)
        await infer(item(1))
        await infer.close()


@pytest.mark.parametrize("body", [pool, items_of_a_pool, models_of_a_pool, batcher])
async def test_cancellation_at_each_suspension_leaves_nothing(body: Callable[[], Awaitable[object]]) -> None:
    def nothing_is_left() -> bool:
        gc.collect()
        return not testing.snapshot().more_than(before)

    with simulator.register_model("digits_batches", first_ten):
        await body()  # the loop keeps its port
        before, nth, more = testing.snapshot(), 1, True
        while more:
            scope = anyio.CancelScope()
            suspensions = Suspensions(body(), nth, scope.cancel)
            with scope:
                await suspensions
            await until(nothing_is_left)
            more, nth = suspensions.count >= nth, nth + 1
    assert nth > 5
