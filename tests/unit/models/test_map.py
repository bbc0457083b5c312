"""`model.map(xs)`: order, errors, back-pressure, and the end of the block."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import simulator
from tests.kit import Waiting, raises, turns, until, until_now
from tests.support import offline
from tests.support.offline import WEIGHTS, rows

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop_in_ci]

FAILED = 507011
WRONG = np.zeros((3, 2), np.float32)  # an argument that the call refuses


class Broken(Exception):
    """An error of the program."""


def arguments(count: int) -> list[Any]:
    return [rows(number) for number in range(count)]


def product_of(y: Any) -> int:
    """The number of the argument whose product the result is."""
    for number in range(1000):
        if np.array_equal(y, rows(number) @ WEIGHTS):
            return number
    raise AssertionError(f"expected the product of an argument, got {y}")


class Counted:
    """An iterable that counts how many items were read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.read = 0

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.count):
            self.read += 1
            yield rows(number)


async def slowly(count: int, error: Exception | None = None) -> AsyncGenerator[Any]:
    for number in range(count):
        await anyio.lowlevel.checkpoint()
        yield rows(number)
    if error is not None:
        raise error


async def at_once(count: int) -> AsyncGenerator[Any]:
    for number in range(count):
        yield rows(number)


async def then_never(count: int) -> AsyncGenerator[Any]:
    for number in range(count):
        yield rows(number)
    await anyio.sleep_forever()


def failing_after(count: int) -> Iterator[Any]:
    yield from arguments(count)
    raise Broken("xs")


async def test_results_come_in_the_order_of_the_arguments(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product(), instances=2) as model,
        model.map(arguments(50)) as results,
    ):
        assert [product_of(y) async for y in results] == list(range(50))


async def test_unordered_results_come_as_they_are_ready(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product(), slots=1, instances=2) as model,
    ):
        held = offline.streams_of(model)[0]
        simulator.hold(held)
        async with model.map(arguments(12), ordered=False) as results:
            first = [product_of(await anext(results)) for _ in range(11)]
            simulator.release(held)
            last = [product_of(y) async for y in results]
        assert len(last) == 1
        assert sorted(first + last) == list(range(12))


async def test_arguments_may_come_from_an_async_iterable(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product()) as model,
        model.map(slowly(20)) as results,
    ):
        assert [product_of(y) async for y in results] == list(range(20))


@pytest.mark.parametrize("ordered", [True, False])
async def test_no_argument_gives_no_result(open_device: OpenDevice, ordered: bool) -> None:
    async with open_device() as device, device.load_model(offline.product()) as model:
        empty: list[Any] = [[], slowly(0)]
        for nothing in empty:
            async with model.map(nothing, ordered=ordered) as results:
                assert [y async for y in results] == []


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (3, 3), (None, 4)])
async def test_arguments_are_read_only_up_to_the_limit(
    open_device: OpenDevice, limit: int | None, expected: int
) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=2) as model:
        xs = Counted(20)
        async with model.map(xs, limit=limit) as results:
            await until(lambda: xs.read == expected)
            await until(lambda: offline.executions() == expected)
            await turns()
            assert xs.read == expected  # no result was taken
            for taken in range(1, 6):
                assert product_of(await anext(results)) == taken - 1
                await until(lambda taken=taken: xs.read == expected + taken)  # type: ignore[misc]
                await turns()
                assert xs.read == expected + taken
        assert xs.read == expected + 5


@pytest.mark.parametrize("ordered", [True, False])
async def test_error_of_an_item_is_raised_and_ends_the_iteration(
    open_device: OpenDevice, ordered: bool
) -> None:
    async with open_device() as device, device.load_model(offline.product()) as model:
        xs = [*arguments(3), WRONG, *arguments(3)]
        async with model.map(xs, limit=1, ordered=ordered) as results:
            assert [product_of(await anext(results)) for _ in range(3)] == [0, 1, 2]
            with pytest.raises(aioacl.ParameterError, match="expected the shape"):
                await anext(results)
            assert [y async for y in results] == []


async def test_failed_execution_is_the_error_of_its_own_item(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product()) as model:
        with simulator.fault("model", nth=4, async_error=FAILED):
            async with model.map(arguments(10), errors="return") as results:
                found = [y async for y in results]
        (failed,) = [number for number, y in enumerate(found) if isinstance(y, aioacl.DeviceFault)]
        assert found[failed].code == FAILED
        for number, y in enumerate(found):
            assert number == failed or product_of(y) == number


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("read", [arguments, slowly])
async def test_result_that_cannot_be_made_is_the_error_of_its_own_item(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, read: Any, ordered: bool
) -> None:
    without_memory, made = 3, list[Any]()

    def empty(*given: Any) -> Any:
        made.append(None)
        if len(made) - 1 == without_memory:
            raise MemoryError
        return np.zeros(*given)

    async with open_device() as device, device.load_model(offline.product()) as model:
        monkeypatch.setattr(np, "empty", empty)
        async with model.map(read(8), errors="return", limit=2, ordered=ordered) as results:
            found = [y async for y in results]
        failed: Any = next(y for y in found if isinstance(y, MemoryError))
        right = sorted(product_of(y) for y in found if y is not failed)
        assert right == [number for number in range(8) if number != product_of(failed.item @ WEIGHTS)]
        made.clear()
        async with model.map(arguments(8), limit=1, ordered=ordered) as results:
            assert [product_of(await anext(results)) for _ in range(3)] == [0, 1, 2]
            await raises(MemoryError, anext(results))
            assert [y async for y in results] == []


async def test_errors_are_returned_in_place_of_results(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product()) as model:
        xs = [rows(0), WRONG, rows(2), None]
        async with model.map(xs, errors="return") as results:
            found = [y async for y in results]
        assert [type(y).__name__ for y in found] == ["ndarray", "ParameterError", "ndarray", "ParameterError"]


@pytest.mark.parametrize("errors", ["raise", "return"])
@pytest.mark.parametrize("ordered", [True, False])
async def test_error_of_the_arguments_is_raised_after_the_results_before_it(
    open_device: OpenDevice, errors: Any, ordered: bool
) -> None:
    async with open_device() as device, device.load_model(offline.product()) as model:
        for xs in (failing_after(3), slowly(3, Broken("xs"))):
            async with model.map(xs, errors=errors, ordered=ordered) as results:
                found = [product_of(await anext(results)) for _ in range(3)]
                await raises(Broken, anext(results))
                assert [y async for y in results] == []
            assert sorted(found) == [0, 1, 2]


async def test_error_of_the_arguments_leaves_errors_of_items_to_be_returned(open_device: OpenDevice) -> None:
    def xs() -> Iterator[Any]:
        yield WRONG
        raise Broken("xs")

    async with (
        open_device() as device,
        device.load_model(offline.product()) as model,
        model.map(xs(), errors="return") as results,
    ):
        await turns()
        assert type(await anext(results)) is aioacl.ParameterError
        await raises(Broken, anext(results))


async def test_leaving_the_block_early_cancels_the_calls_and_waits_for_them(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=2) as model:
        offline.hold(model)
        xs = Counted(20)
        async with model.map(xs) as results:
            await until(lambda: offline.load_of(model).slots.free == 0 and xs.read == 4)
        assert xs.read == 4
        assert [y async for y in results] == []
        offline.release(model)
        await until(lambda: offline.all_free(model))
        assert product_of(await model(rows(5))) == 5


async def test_break_ends_the_iteration_before_all_arguments_were_read(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product()) as model:
        xs = Counted(1000)
        async with model.map(xs, limit=2) as results:
            async for y in results:
                assert product_of(y) == 0
                break
        assert xs.read <= 3


async def test_error_in_the_block_is_raised_as_it_is(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product()) as model:
        error = Broken("block")

        async def block() -> None:
            async with model.map(arguments(5)) as results:
                await anext(results)
                raise error

        with pytest.raises(Broken) as caught:
            await block()
        assert caught.value is error
        assert caught.value.__context__ is None


async def test_error_of_an_item_leaves_the_block_as_it_is(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product()) as model:

        async def collect() -> list[Any]:
            async with model.map([WRONG, rows(1)]) as results:
                return [y async for y in results]

        with pytest.raises(aioacl.ParameterError, match="expected the shape"):
            await collect()


async def test_cancelled_map_ends_its_calls_and_frees_its_slots(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=2) as model:
        offline.hold(model)

        async def collect() -> list[Any]:
            async with model.map(arguments(10)) as results:
                return [y async for y in results]

        async with anyio.create_task_group() as group:
            waiting = Waiting(group, collect)
            await until(lambda: offline.load_of(model).slots.free == 0)
            await waiting.cancel_and_wait()
            assert waiting.cancelled
        offline.release(model)
        await until(lambda: offline.all_free(model))


async def test_cancelled_wait_for_a_result_loses_no_result(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=2) as model:
        offline.hold(model)
        async with model.map(arguments(5)) as results, anyio.create_task_group() as group:
            for _ in range(2):
                waiting = Waiting(group, lambda: anext(results))
                await turns()
                await waiting.cancel_and_wait()
                assert waiting.cancelled
            offline.release(model)
            assert [product_of(y) async for y in results] == list(range(5))


async def test_results_are_taken_in_order_while_calls_wait_for_slots(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product(), slots=1) as model,
        model.map(arguments(200), limit=20) as results,
    ):
        assert [product_of(y) async for y in results] == list(range(200))


async def test_small_results_free_their_slots_before_they_are_taken(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product(), slots=1) as model,
        model.map(arguments(6), limit=6) as results,
    ):
        assert until_now(lambda: offline.load_of(model).slots.waiting == 0 and offline.all_free(model))
        assert [product_of(y) async for y in results] == list(range(6))


async def test_async_iterable_that_was_not_read_to_its_end_can_be_read_on(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product()) as model,
        aclosing(slowly(5)) as xs,
    ):
        async with model.map(xs, limit=1) as results:
            await until(lambda: offline.executions() == 1)
        assert [y async for y in results] == []
        async with model.map(xs) as results:
            assert [product_of(y) async for y in results] == [1, 2, 3, 4]


async def test_two_maps_of_one_model_keep_their_results_apart(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=2) as model:

        async def collect(first: int) -> list[int]:
            async with model.map(rows(first + i) for i in range(20)) as results:
                return [product_of(y) async for y in results]

        async with anyio.create_task_group() as group:
            one, two = Waiting(group, lambda: collect(0)), Waiting(group, lambda: collect(100))
            assert await one.outcome() == list(range(20))
            assert await two.outcome() == list(range(100, 120))


async def test_ordered_results_leave_nothing_behind(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product()) as model,
        model.map(arguments(30)) as results,
    ):
        async for _ in results:
            assert len(results._items) <= 6
        assert not results._items


async def test_items_that_wait_for_a_slot_when_the_model_closes_raise_that_it_is_closed(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        model = await device.load_model(offline.product(), slots=1)
        offline.hold(model)
        async with model.map(arguments(4), limit=4, errors="return") as results:
            await until(lambda: offline.load_of(model).slots.waiting == 3)
            closing = Waiting(group, model.close)
            streams = offline.streams_of(model)
            await until(lambda: not offline.load_of(model).slots.waiting)
            simulator.release(streams[0])
            found = [y async for y in results]
        assert product_of(found[0]) == 0
        assert [str(y).partition(". ")[0] for y in found[1:]] == ["device 0: the model is closed"] * 3
        await closing.outcome()


class TestMisuse:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"limit": 0}, "limit must be an int, at least 1, or None, got 0"),
            ({"limit": -1}, "limit must be an int, at least 1, or None, got -1"),
            ({"limit": 1.5}, "limit must be an int, at least 1, or None, got 1.5"),
            ({"limit": "2"}, "limit must be an int, at least 1, or None, got '2'"),
            ({"errors": "ignore"}, 'errors must be "raise" or "return", got \'ignore\''),
            ({"errors": None}, 'errors must be "raise" or "return", got None'),
        ],
    )
    async def test_wrong_option_is_refused(
        self, open_device: OpenDevice, options: dict[str, Any], message: str
    ) -> None:
        async with open_device() as device, device.load_model(offline.product()) as model:
            with pytest.raises(aioacl.ParameterError) as caught:
                model.map([], **options)
            assert caught.value.message == message

    async def test_items_that_cannot_be_iterated_over_are_refused_in_the_call(
        self, open_device: OpenDevice
    ) -> None:
        message = r"^xs must be an iterable or an async iterable, got 3\. Pass a list"
        xs: Any = 3
        async with open_device() as device, device.load_model(offline.product()) as model:
            with pytest.raises(aioacl.ParameterError, match=message):
                model.map(xs)

    async def test_iteration_outside_the_block_is_refused(self, open_device: OpenDevice) -> None:
        async with open_device() as device, device.load_model(offline.product()) as model:
            with pytest.raises(aioacl.ParameterError, match=r"^expected results inside their block"):
                await anext(model.map([]))

    async def test_block_that_is_entered_twice_is_refused(self, open_device: OpenDevice) -> None:
        async with open_device() as device, device.load_model(offline.product()) as model:
            results = model.map(arguments(1))
            async with results:
                assert product_of(await anext(results)) == 0
            with pytest.raises(aioacl.ParameterError, match=r"^the results were already entered"):
                await results.__aenter__()


async def test_item_that_is_read_while_the_block_ends_begins_no_call(open_device: OpenDevice) -> None:
    """The first result makes room for the next item, which is read after the block has given up its calls."""
    async with open_device() as device, device.load_model(offline.product(), slots=2) as model:
        async with aclosing(at_once(100)) as items, model.map(items, limit=1) as results:
            async for y in results:
                assert product_of(y) == 0
                break
        await until(lambda: offline.all_free(model))
        assert offline.enqueued() == 1


@pytest.mark.parametrize("ordered", [True, False])
async def test_map_whose_reader_is_cancelled_first_ends_as_cancelled(
    open_device: OpenDevice, ordered: bool
) -> None:
    """The cancellation reaches the task that reads `xs` before the task that iterates."""
    got = list[int]()
    async with open_device() as device, device.load_model(offline.product(), slots=2) as model:
        with anyio.CancelScope() as scope:
            async with (
                aclosing(then_never(2)) as items,
                model.map(items, ordered=ordered) as results,
            ):
                async for y in results:
                    got.append(product_of(y))
                    if len(got) == 2:
                        scope.cancel()
                got.append(-1)  # the end of `xs`
        assert scope.cancelled_caught
        assert -1 not in got
        await until(lambda: offline.all_free(model))
