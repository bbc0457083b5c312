"""`model.map(xs)` whose `xs` raises what is not an ordinary error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import until
from tests.support import offline
from tests.support.offline import rows
from tests.unit.models.test_map import product_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import aioacl
    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop_in_ci]


class Interrupt(BaseException):
    """An interrupt of the program, as KeyboardInterrupt is one."""


class Raising:
    """An iterator that raises once, before item `at`."""

    def __init__(self, error: BaseException, at: int, count: int = 8) -> None:
        self.error: BaseException | None = error
        self.at = at
        self.count = count
        self.next = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.next == self.at and self.error is not None:
            error, self.error = self.error, None
            raise error
        if self.next == self.count:
            raise StopIteration
        self.next += 1
        return rows(self.next - 1)


async def take(results: aioacl.ModelResults, got: list[int]) -> None:
    async for y in results:
        got.append(product_of(y))  # noqa: PERF401 - kept if the iteration raises


@pytest.mark.parametrize("ordered", [True, False])
async def test_stop_async_iteration_of_xs_is_an_error(open_device: OpenDevice, ordered: bool) -> None:
    """`async for` would take the exception for the end of the results."""
    got = list[int]()
    async with (
        open_device() as device,
        device.load_model(offline.product()) as model,
        model.map(Raising(StopAsyncIteration(), 3), ordered=ordered) as results,
    ):
        with pytest.raises(RuntimeError, match="StopAsyncIteration"):
            await take(results, got)
    assert sorted(got) == [0, 1, 2]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("at", [1, 4, 7])
async def test_interrupt_of_xs_loses_no_result(open_device: OpenDevice, ordered: bool, at: int) -> None:
    got = list[int]()
    async with (
        open_device() as device,
        device.load_model(offline.product(), slots=1) as model,
        model.map(Raising(Interrupt(), at), limit=1, ordered=ordered) as results,
    ):
        with pytest.raises(Interrupt):
            await take(results, got)
        await take(results, got)
    assert sorted(got) == list(range(8))


async def test_interrupt_of_xs_at_the_entry_leaves_no_slot_in_use(open_device: OpenDevice) -> None:
    async with open_device() as device, device.load_model(offline.product(), slots=2) as model:
        results = model.map(Raising(Interrupt(), 1), limit=2)
        with pytest.raises(Interrupt):
            await results.__aenter__()
        await until(lambda: offline.all_free(model))
        assert results._port is None
        assert not results._items
