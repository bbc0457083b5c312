"""BatchResults: the results of `infer.map` of a batcher.

Each item has a task, because an item is queued by its await.
"""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self

from aioacl._base.errors import ParameterError
from aioacl._base.public import publish
from aioacl._base.unique import Unique
from aioacl._models.results import each_of, unlike_an_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
    from types import TracebackType

    from anyio.abc import TaskGroup

    from aioacl._models.results import OnError


class BatchResults(Unique):
    """The results of `infer.map(xs)`. Enter it with `async with`, then iterate with `async for`, in one task.

    A task reads `xs` and starts one task for each item. At most `limit` items are in progress or wait to be taken.
    The results may be the `xs` of another `map`.
    """

    _noun = "iterator over results"

    def __init__(
        self,
        call: Callable[[Any], Awaitable[Any]],
        xs: Iterable[Any] | AsyncIterable[Any],
        limit: int,
        *,
        ordered: bool,
        errors: OnError,
    ) -> None:
        self._call = call
        self._xs = xs
        self._limit = limit
        self._ordered = ordered
        self._errors = errors
        self._group: TaskGroup | None = None
        self._outcomes: dict[int, tuple[Any, BaseException | None]] = {}  # known, and not taken yet
        self._ready: deque[int] = deque()  # the items whose outcome is known, if they are not taken in order
        self._started = self._taken = 0
        self._source_error: BaseException | None = None
        self._read_all = self._over = False

    async def __aenter__(self) -> Self:
        if self._group is not None:
            raise ParameterError("the results were already entered", hint="Call infer.map() once more.")
        import anyio  # noqa: PLC0415 - a program that maps nothing does not wait for this import

        self._new_event = anyio.Event
        self._room = anyio.Semaphore(self._limit)
        self._news = anyio.Event()
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._read)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Cancels the items that are not done, and waits until their tasks have ended."""
        assert self._group is not None, "the block was entered"
        self._over, self._source_error = True, None
        self._group.cancel_scope.cancel()
        try:
            # The error of the block is not passed on, because the group would wrap it in an ExceptionGroup.
            await self._group.__aexit__(None, None, None)
        finally:
            self._outcomes.clear()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._group is None:
            raise ParameterError(
                "expected results inside their block", hint="Write `async with infer.map(xs) as results:`."
            )
        while not self._over:
            number = self._next()
            if number is not None:
                return self._take(number)
            if self._read_all and self._taken == self._started:
                self._over = True
                if self._source_error is not None:
                    try:
                        raise unlike_an_end(self._source_error)
                    finally:
                        self._source_error = None  # its traceback refers to frames that refer to this object
                break
            self._news = self._new_event()
            await self._news.wait()
        raise StopAsyncIteration

    def _next(self) -> int | None:
        """The item to take next, or None if its outcome is not known yet."""
        if self._ordered:
            return self._taken if self._taken in self._outcomes else None
        return self._ready.popleft() if self._ready else None

    def _take(self, number: int) -> Any:
        result, error = self._outcomes.pop(number)
        self._taken += 1
        self._room.release()
        if error is None:
            return result
        if self._errors == "return" and isinstance(error, Exception):
            return error
        self._over = True
        try:
            raise unlike_an_end(error)
        finally:
            del error  # its traceback refers to this frame

    async def _read(self) -> None:
        """Reads the items. An error of `xs` itself comes after the results of the items before it."""
        assert self._group is not None, "the block was entered"
        try:
            async with aclosing(each_of(self._xs)) as items:
                await self._room.acquire()
                async for x in items:
                    self._started += 1
                    self._group.start_soon(self._one, self._started - 1, x)
                    await self._room.acquire()
        except BaseException as error:
            if not self._over:
                self._source_error = error  # for the iteration: a cancellation may arrive here first
            if not isinstance(error, Exception):
                raise
        finally:
            self._read_all = True
            self._news.set()

    async def _one(self, number: int, x: Any) -> None:
        try:
            result = await self._call(x)
        except BaseException as error:
            if (
                not self._over
            ):  # also if other code has cancelled this task: the iteration waits for its outcome
                self._end(number, None, error)
            if not isinstance(error, Exception):
                raise
            if self._errors == "return":
                error.item = x  # type: ignore[attr-defined]  # of any class
        else:
            self._end(number, result, None)

    def _end(self, number: int, result: Any, error: BaseException | None) -> None:
        self._outcomes[number] = result, error
        if not self._ordered:
            self._ready.append(number)
        self._news.set()


publish("aioacl", ["BatchResults"], of=__name__)
