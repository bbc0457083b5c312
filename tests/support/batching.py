"""For the tests of the runner: a batcher whose executions are a Python function, and a device of the test."""

from __future__ import annotations

import queue
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from aioacl import ParameterError
from aioacl._batches.batcher import Batcher
from aioacl._batches.executor import Look, Watched
from aioacl._batches.state import Rules

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Hashable

    from anyio.abc import TaskGroup

    from aioacl._batches.executor import Outcomes

GEARS = (1, 2, 4, 8, 16, 32)
ZEROS = "zeros"
WRONG = "a shape that no model takes"


class View:
    """A device. Change its attributes, and call `tell`."""

    def __init__(self) -> None:
        self.generation = 1
        self.is_open = True
        self.failed = False
        self.returns = False
        self._listeners: list[Callable[[], object]] = []

    def look(self) -> Look:
        return Look(self.generation, self.is_open, self.failed, self.returns)

    def listen(self, changed: Callable[[], object]) -> Callable[[], object]:
        self._listeners.append(changed)
        return lambda: self._listeners.remove(changed)

    def reset(self) -> None:
        """Ends a failure, and notifies the batcher."""
        self.generation += 1
        self.is_open, self.failed = True, False
        self.tell()

    def tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()


class ByHand:
    """Executions that the test ends. `begun` has the calls of each execution that has not ended."""

    zeros = ZEROS
    is_alone = False

    def __init__(self) -> None:
        self.begun: list[list[Any]] = []
        self.log: list[list[Any]] = []
        self.closed = False
        self._ended: list[Callable[[Outcomes], object]] = []

    def execute(self, calls: list[Any], ended: Callable[[Outcomes], object]) -> None:
        self.begun.append(calls)
        self.log.append(calls)
        self._ended.append(ended)

    def end(self, outcomes: Outcomes | None = None, which: int = 0) -> None:
        """Ends an execution; by default, each result is its call."""
        calls, ended = self.begun.pop(which), self._ended.pop(which)
        ended(list(calls) if outcomes is None else outcomes)

    def alone(self) -> Callable[[], bool]:
        return lambda: self.is_alone

    def close(self) -> None:
        self.closed = True


class OnThread:
    """Executions on a thread of their own, by a function of the calls that returns the results."""

    zeros = ZEROS

    def __init__(self, function: Callable[[list[Any]], list[Any]] = list) -> None:
        self._function = function
        self._work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def execute(self, calls: list[Any], ended: Callable[[Outcomes], object]) -> None:
        self._work.put((calls, ended))

    def alone(self) -> Callable[[], bool]:
        return lambda: False

    def close(self) -> None:
        self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            calls, ended = work
            try:
                outcomes: Outcomes = self._function(calls)
            except BaseException as error:
                outcomes = error
            ended(outcomes)


def check(x: Any) -> tuple[Any, int, Hashable]:
    """An item is a number of one row, or a tuple of a number, rows and shape. The shape WRONG is refused."""
    if isinstance(x, tuple) and x[2] == WRONG:
        raise ParameterError("expected another shape", hint="Pass it.")
    return (x, *x[1:]) if isinstance(x, tuple) else (x, 1, None)


@contextmanager
def batching(*executors: Any, view: View | None = None, **rules: Any) -> Generator[Any]:
    """A batcher over executors, each on a device of its own or on `view`, or over pairs of an executor and a device.

    The models of `replace_by` are such executors or pairs too. At the end, all items have an outcome.
    """

    def serve(models: Any, _: object) -> list[Any]:
        pairs = [each if isinstance(each, tuple) else (each, view or View()) for each in models or executors]
        return [(executor, Watched(device)) for executor, device in pairs]

    batcher = Batcher._make(Rules(GEARS, **rules), check, serve)
    try:
        yield batcher
    finally:
        batcher._close_later()
    assert batcher._runner.core.waiting.rows == 0
    assert not batcher._runner.core.waiting.outside


async def replace_by(batcher: Any, *executors: Any) -> None:
    """Replaces the executors, as `replace` does with models."""
    await batcher._replace(executors)


@asynccontextmanager
async def tasks() -> AsyncGenerator[TaskGroup]:
    """A task group. A type checker knows that its block does not swallow an exception."""
    async with anyio.create_task_group() as group:
        yield group
