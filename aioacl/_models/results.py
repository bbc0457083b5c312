"""ModelResults: the results of `model.map`, computed concurrently.

No item has a task. An item that is read begins its call at once, in C, and the call needs no code of Python until its
result is taken. If a call has not begun, because a reset or a load comes first, the iteration makes it when the item's
turn comes.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, Self

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import in_trio
from aioacl._base.options import is_one_of, repr_of
from aioacl._base.public import publish
from aioacl._base.unique import Unique
from aioacl._wait.current import current_port

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
    from types import TracebackType

    from anyio.abc import TaskGroup

    from aioacl._base.ffi import Await
    from aioacl._models.calls import ModelRun
    from aioacl._models.loading import Load
    from aioacl._models.model import Model
    from aioacl._wait.port import Port

OnError = Literal["raise", "return"]


def must_be_mappable(xs: object, errors: object) -> None:
    """Checks the arguments of a `map`. Raises ParameterError."""
    if not any(hasattr(type(xs), name) for name in ("__iter__", "__aiter__", "__getitem__")):
        raise ParameterError(
            f"xs must be an iterable or an async iterable, got {repr_of(xs)}",
            hint="Pass a list of items, a generator or an async generator.",
        )
    if not is_one_of(errors, "raise", "return"):
        raise ParameterError(
            f'errors must be "raise" or "return", got {repr_of(errors)}', hint='Omit errors for "raise".'
        )


class _Item:
    """One item of `xs`, and its call.

    Attributes:
        x: the item.
        load, run, started: the load and the call, if it has begun.
        error: why the item has no call; None if it has or may get one.
        result: its result, if an interrupt came before the iteration could return it.
    """

    __slots__ = ("error", "load", "result", "run", "started", "x")
    load: Load

    def __init__(self, x: Any) -> None:
        self.x = x
        self.run: ModelRun | None = None
        self.started: Await | None = None
        self.error: Exception | None = None
        self.result: Any = None


class ModelResults(Unique):
    """The results of `model.map(xs)`. Enter it with `async with`, then iterate with `async for`, in one task.

    At most `limit` items are in progress or wait to be taken. An async `xs` is read by a task of its own.
    The results may be the `xs` of another `map`.
    """

    _noun = "iterator over results"

    def __init__(
        self,
        model: Model,
        xs: Iterable[Any] | AsyncIterable[Any],
        limit: int,
        *,
        ordered: bool,
        errors: OnError,
    ) -> None:
        self._model = model
        self._xs = xs
        self._limit = limit
        self._ordered = ordered
        self._in_turn = ordered  # the task waits for the call of the first item
        self._errors = errors
        self._items = deque[_Item]()  # read and not taken, in the order of `xs`
        self._source: Iterator[Any] | None = None  # of an `xs` that is not async
        self._port: Port | None = None  # while the results are entered
        self._group: TaskGroup | None = None  # with the task that reads an async `xs`
        self._room: Any = None
        self._source_error: BaseException | None = None
        self._wakes: Callable[[], object] | None = None  # wakes the task that waits for news
        self._entered = self._read_all = self._over = False

    async def __aenter__(self) -> Self:
        if self._entered:
            raise ParameterError("the results were already entered", hint="Call model.map() once more.")
        self._entered = True
        self._port = current_port()
        self._port.if_closed[self] = self._give_up
        self._in_turn = self._ordered and not in_trio()  # only asyncio can wait for a call that has begun
        try:
            await self._begin()
        except BaseException:  # an interrupt: the end of the block is not reached
            self._give_up()
            raise
        return self

    async def _begin(self) -> None:
        if isinstance(self._xs, AsyncIterable):
            await self._begin_reading(self._xs)
            return
        try:
            self._source = iter(self._xs)
        except Exception as error:  # noqa: BLE001 - the iteration raises it
            self._source_error, self._read_all = error, True
        self._refill()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Gives up the calls that run, and waits until the task that reads an async `xs` has ended."""
        self._give_up()
        if self._group is not None:
            self._group.cancel_scope.cancel()
            # The error of the block is not passed on, because the group would wrap it in an ExceptionGroup.
            await self._group.__aexit__(None, None, None)

    def _give_up(self) -> None:
        """Gives up all calls at the end of the block or of its loop. A failed call keeps its slot until then."""
        self._over = True
        self._source = self._source_error = None
        while self._items:
            run = self._items.popleft().run
            if run is not None:
                run.leave()
        port, self._port = self._port, None
        if port is not None:
            port.if_closed.pop(self, None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if not self._entered:
            raise ParameterError(
                "expected results inside their block", hint="Write `async with model.map(xs) as results:`."
            )
        while not self._over:
            item = self._next()
            if item is not None:
                result = self._result_of(item)
                if result is None:  # the call has failed, or must be made now
                    return await self._take(item)
                return self._given(item, result)
            first = self._items[0].started if self._items and self._in_turn else None
            if first is not None:
                await first
            elif self._read_all and not self._items:
                self._end()
            else:
                await self._news()
        raise StopAsyncIteration

    def _end(self) -> None:
        self._over = True
        if self._source_error is not None:
            try:
                raise unlike_an_end(self._source_error)
            finally:
                self._source_error = None  # its traceback refers to frames that refer to this object

    def _next(self) -> _Item | None:
        """Removes the item to take next. Returns None if its outcome is not known yet."""
        items = self._items
        for at, item in enumerate(items):
            if item.started is None or item.started.done():
                del items[at]
                return item
            if self._ordered:
                break
        return None

    @staticmethod
    def _result_of(item: _Item) -> Any:
        """Takes the result of a call that has ended. Returns None if there is none."""
        try:
            return None if item.started is None else item.started.take()
        except Exception as error:  # noqa: BLE001 - there was no memory for the result
            item.error = error.with_traceback(None)  # which refers to the item
            return None

    async def _take(self, item: _Item) -> Any:
        try:
            result = await self._outcome(item)
        except Exception as error:  # noqa: BLE001 - raised or yielded
            if self._errors == "raise":
                self._over = True
                raise unlike_an_end(error)  # noqa: B904 - the same error, or one with a cause
            error.item = item.x  # type: ignore[attr-defined]  # of any class
            result = error.with_traceback(None)
        except BaseException:  # cancelled before the result was there: the next step makes the call again
            item.started = None
            self._items.appendleft(item)
            raise
        return self._given(item, result)

    def _given(self, item: _Item, result: Any) -> Any:
        """Reads on, and returns the result. If an interrupt comes from `xs`, the next step returns the result."""
        try:
            self._make_room()
        except BaseException:
            item.result, item.started = result, None
            self._items.appendleft(item)
            raise
        return result

    async def _outcome(self, item: _Item) -> Any:
        if item.result is not None:
            return item.result
        if item.error is not None:
            raise item.error
        if item.run is not None and item.started is not None:
            item.run.must_repeat(item.load)
        return await self._model(item.x)

    def _make_room(self) -> None:
        if self._source is not None:
            self._refill()
        elif self._room is not None:
            self._room.release()

    # --- reading ----------------------------------------------------------------------------------------------------

    def _refill(self) -> None:
        """Reads items up to the limit. An error of `xs` itself comes after the results of the items before it."""
        source, items = self._source, self._items
        while source is not None and len(items) < self._limit:
            try:
                x = next(source)
            except StopIteration:
                self._source, self._read_all = None, True
                return
            except Exception as error:  # noqa: BLE001 - the iteration raises it
                self._source, self._read_all, self._source_error = None, True, error
                return
            self._start(x)

    def _start(self, x: Any) -> None:
        """Begins the call of an item, unless the block has ended: the task that reads `xs` may be cancelled later."""
        if self._over:
            return
        item = _Item(x)
        try:
            begun = self._model._new_run(x)
            if begun is not None:
                item.load, item.run = begun
                item.started = item.run._start(None if self._in_turn else self._wake)
        except Exception as error:  # noqa: BLE001 - the iteration raises or yields it
            item.error = error
        self._items.append(item)

    async def _begin_reading(self, xs: AsyncIterable[Any]) -> None:
        import anyio  # noqa: PLC0415 - a program that maps no async iterable does not wait for this import

        self._room = anyio.Semaphore(self._limit)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._read, xs)

    async def _read(self, xs: AsyncIterable[Any]) -> None:
        try:
            async with aclosing(each_of(xs)) as items:
                await self._room.acquire()
                async for x in items:
                    self._start(x)
                    self._wake()
                    await self._room.acquire()
        except BaseException as error:
            if not self._over:
                self._source_error = error  # for the iteration: a cancellation may arrive here first
            if not isinstance(error, Exception):
                raise
        finally:
            self._read_all = True
            self._wake()

    # --- waiting ----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Wakes the task that waits for news. The completion of each call does so, too."""
        wakes, self._wakes = self._wakes, None
        if wakes is not None:
            wakes()

    async def _news(self) -> None:
        """Waits until a call has ended or an item was read. Nothing else runs between the check and the wait."""
        if in_trio():
            event = sys.modules["trio"].Event()
            self._wakes = event.set
            await event.wait()
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        self._wakes = wake
        await future


def unlike_an_end(error: BaseException) -> BaseException:
    """Returns the error to raise: `async for` would take StopAsyncIteration for the end of the results."""
    if not isinstance(error, StopAsyncIteration):
        return error
    raised = RuntimeError("an item, or the iterable of the items, raised StopAsyncIteration")
    raised.__cause__ = error
    return raised


async def each_of(xs: Iterable[Any] | AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
    """Yields the elements of an iterable or of an async iterable."""
    if isinstance(xs, AsyncIterable):
        async for x in xs:
            yield x
    else:
        for x in xs:
            yield x


publish("aioacl", ["ModelResults"], of=__name__)
