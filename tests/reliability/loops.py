"""Event loops that count their turns: a turn is one poll and all callbacks that are ready after it."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

BACKENDS = ("asyncio", "trio")


class Turns(trio.abc.Instrument):
    """The number of turns that the loop has had."""

    def __init__(self) -> None:
        self.count = 0

    def after_io_wait(self, timeout: float) -> None:
        """Counts the turns of trio, which calls this method once a turn."""
        del timeout
        self.count += 1


class _Selector(selectors.DefaultSelector):
    """Counts the turns of asyncio, which calls `select` once a turn."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._turns.count += 1
        return super().select(timeout)


def run(backend: str, body: Callable[[Turns], Awaitable[T]]) -> T:
    """Runs the body on a loop of its own."""
    turns = Turns()

    async def main() -> T:
        return await body(turns)

    if backend == "trio":
        return trio.run(main, instruments=[turns])
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_Selector(turns))) as runner:
        return runner.run(main())
