"""The items of callers: awaitables that an event loop, a trio run or a plain thread waits for.

On an asyncio loop, an item waits for a future of that loop. The items of one turn of the loop reach the core together,
at the end of the turn or of the next one, and the outcomes of a batch reach the loop together. In a trio run and on a
thread, an item waits on the port, as all other waits of aioacl.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import sys
from asyncio import _get_running_loop  # returns the running loop or None, in one call of C
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from aioacl._base import sync
from aioacl._base.errors import DeviceTimeout, ParameterError
from aioacl._base.ffi import ItemBase, LoopBase, bind_items, in_trio
from aioacl._base.options import deadline_of
from aioacl._base.public import publish
from aioacl._base.unique import Unique
from aioacl._batches.waiting import AGAIN, NEW, NOT_YET, RUNNING, WAITING, Turn
from aioacl._wait.current import run_blocking
from aioacl._wait.job_future import JobFuture
from aioacl._wait.thread import earlier

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioacl._base.options import Seconds
    from aioacl._batches.runner import Runner

TIMERS: Final = 256  # so many may be kept after their items have ended
STATES: Final = ("not awaited", "waiting", "waiting for room", "waiting again", "running", "over")


class Mixed(list[Any]):
    """The outcomes of an execution, if some of them are exceptions."""


class Loop(Protocol):
    """A loop, or all trio runs and threads, that wait for items."""

    def send(self, items: list[BatchItem], outcomes: list[Any], /) -> None:
        """Ends items with a result or an exception each. Any thread may call it."""
        ...


class _Ended:
    """In the place of the future of an item that has failed, or whose caller has gone."""

    __slots__ = ()

    def done(self) -> bool:
        """The item has ended."""
        return True

    def claim(self) -> bool:
        """The item has its outcome."""
        return False


ENDED: Final = _Ended()


class BatchItem(ItemBase, Unique):
    """An item of a batcher, made by `infer(x)`: await it, or call its `result()` on a thread without a running loop.

    It waits for its batch from its await on. An item can be awaited once.
    """

    __slots__ = ("__weakref__",)
    _noun = "item of a batch"
    if TYPE_CHECKING:
        _runner: Runner
        _turn: Turn[BatchItem]
        _timeout: Seconds | None

    def _await_in_python(self) -> Generator[Any, Any, Any]:
        return self._wait_on_port(None).__await__()

    async def _wait_on_port(self, timeout: Seconds | None) -> Any:
        """Waits in a trio run or on a thread. `timeout` is that of `result()`."""
        if self._state != NEW:
            raise ParameterError(
                f"the item was already awaited, and is {STATES[self._state]}",
                hint="Call the batcher once more: each item runs once.",
            )
        self._deadline = deadline = earlier(deadline_of(timeout), deadline_of(self._timeout))
        self._state, self._future = WAITING, JobFuture[Any]()
        try:
            self._runner.ports.add(self)
            in_time = await self._ended(deadline)
        except BaseException:
            if hasattr(self, "_turn"):  # else Ctrl-C came before it was added
                self._runner.gone(self)
            raise
        if not in_time:
            error = expired(self)
            self._runner.gone(self, expired=True)
            raise error
        future, self._future = self._future, ENDED
        try:
            return future.result(0)
        finally:
            del future  # the traceback of its exception refers to this frame

    async def _ended(self, deadline: float | None) -> bool:
        """Waits for the outcome. Returns False at the deadline."""
        future: JobFuture[Any] = self._future
        hold = self._runner.hold
        wake = sync.monotonic() + hold
        while hold and self._state == WAITING:  # the item may be the oldest of a batch that is held
            if await future.ended(earlier(wake, deadline)):
                return True
            now, leaves = sync.monotonic(), self._turn.born + hold
            if deadline is not None and now >= deadline:
                return False
            if now >= leaves:
                self._runner.look()
                break
            wake = min(leaves, now + hold)
        return await future.ended(deadline)

    def result(self, timeout: Seconds | None = None) -> Any:
        """Waits for the result, on a thread without a running event loop.

        Args:
            timeout: the longest wait in seconds; None waits without a limit, or until that of the item.

        Returns:
            The value that an await returns.

        Raises:
            RuntimeError: this thread runs an event loop.
            DeviceTimeout: the item was not done within `timeout` seconds; its result is dropped.
        """
        return run_blocking(
            lambda: self._wait_on_port(timeout), None, "await the item instead of calling result()"
        )

    def __repr__(self) -> str:
        return f"<BatchItem of {self._rows} rows, {STATES[self._state]}>"


def expired(item: BatchItem) -> DeviceTimeout:
    """Returns the error of an item whose time is over."""
    if item._state == AGAIN:
        return DeviceTimeout(
            "the item was not done in time: its execution has failed, and it waits to run again",
            hint="It does not run again: find the failure in the log, or pass a longer timeout=.",
            started=True,
        )
    if item._state == RUNNING:
        return DeviceTimeout(
            "the item was not done in time, and its execution has begun",
            hint="Its result is dropped: pass a longer timeout=.",
            started=True,
        )
    return DeviceTimeout(
        "the item was not done in time, and its execution has not begun",
        hint="It never runs: pass a longer timeout=, or fewer items.",
        started=False,
    )


class AsyncioLoop(LoopBase):
    """An asyncio loop that waits for items.

    Attributes:
        loop: the loop.
        turn: the items of the turn that runs; None if there are none.
        runner: the runner that gets them.
        hook: the hook for asynchronous generators of its newest run, by which C knows on which thread it runs.
        planned: whether the loop will call `end_turn`.
        call_soon, is_closed, new_future: the methods of the loop.
    """

    __slots__ = ("_most_timers", "_tie", "_timer", "_timers", "is_closed")

    if TYPE_CHECKING:
        turn: Turn[BatchItem] | None
        runner: Runner

    def __init__(self, runner: Runner, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.runner = runner
        self.call_soon = loop.call_soon
        self.is_closed = loop.is_closed
        self.new_future = loop.create_future
        self._timer: asyncio.TimerHandle | None = None
        self._timers: list[tuple[float, int, BatchItem]] = []
        self._tie = itertools.count()
        self._most_timers = TIMERS
        runner.thread.join(loop, self.between_tasks)

    def runs(self) -> None:
        """The loop runs on this thread, perhaps for the first time since its last run has ended."""
        hook = sys.get_asyncgen_hooks().firstiter
        mine = hook if getattr(hook, "__self__", None) is self.loop else None
        if mine is not self.hook:
            # Ctrl-C may have ended the run before this one, after asyncio had taken the call of `end_turn`.
            self.hook, self.planned = mine, False

    def _send_soon(self, items: list[BatchItem], outcomes: list[Any]) -> None:
        """Ends items as `send`, when a task of the loop perhaps runs."""
        loop: asyncio.AbstractEventLoop = self.loop
        if _get_running_loop() is loop:
            # Perhaps in the await of the item that has filled the batch, which must let other tasks run.
            loop.call_soon(self.deliver, items, outcomes)
        else:
            with suppress(RuntimeError):  # the loop is closed, so no task waits
                loop.call_soon_threadsafe(self.deliver, items, outcomes)

    # --- time limits ------------------------------------------------------------------------------------------------

    def limit(self, item: BatchItem) -> None:
        """Ends the item at its deadline, if it has no outcome by then."""
        item._deadline = deadline = deadline_of(item._timeout)
        if deadline is not None:
            timers = self._timers
            if len(timers) >= self._most_timers:
                self._drop_ended()
            heapq.heappush(timers, (deadline, next(self._tie), item))
            if timers[0][2] is item:
                self._arm()

    def _drop_ended(self) -> None:
        """Drops the items that have an outcome, before their deadlines. Few calls, so each item costs little."""
        timers = self._timers
        timers[:] = [each for each in timers if not each[2]._future.done()]
        heapq.heapify(timers)
        self._most_timers = max(TIMERS, 2 * len(timers))

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        timers = self._timers
        while timers and timers[0][2]._future.done():
            heapq.heappop(timers)
        if timers:
            self._timer = self.loop.call_later(max(0.0, timers[0][0] - sync.monotonic()), self._ring)

    def _ring(self) -> None:
        now, timers = sync.monotonic(), self._timers
        while timers and (timers[0][0] <= now or timers[0][2]._future.done()):
            item = heapq.heappop(timers)[2]
            if not item._future.done():
                error = expired(item)
                self.runner.gone(item, expired=True)
                item._future.set_exception(error)
        self._arm()

    def wake_at(self, when: float) -> None:
        """Calls `Runner.look` at that time."""

        def arm() -> None:
            self.loop.call_later(max(0.0, when - sync.monotonic()), self.runner.look)

        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(arm)


class Ports:
    """The trio runs and threads that wait for items, each on its port."""

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns: dict[object, Turn[BatchItem]] = {}  # of the trio runs, by their tokens

    def add(self, item: BatchItem) -> None:
        """Hands an item over: at the end of the turn in a trio run, and at once on a thread."""
        if not in_trio():
            item._turn = Turn(item, self)
            item._runner.arrive(item._turn)
            return
        token = sys.modules["trio"].lowlevel.current_trio_token()
        turn = self._turns.get(token)
        if turn is None:
            self._turns[token] = item._turn = turn = Turn(item, self)
            token.run_sync_soon(self._flush, token, item._runner)
        else:
            item._turn = turn
            turn.add(item)
        if turn.rows >= item._runner.max_rows:
            self._flush(token, item._runner)

    def _flush(self, token: object, runner: Runner) -> None:
        turn = self._turns.pop(token, None)
        if turn is not None:
            runner.arrive(turn)

    def send(self, items: list[BatchItem], outcomes: list[Any], /) -> None:
        """Ends items with a result or an exception each. Any thread may call it."""
        for item, outcome in zip(items, outcomes, strict=True):
            future: JobFuture[Any] = item._future
            if future.claim():
                failed = isinstance(outcomes, Mixed) and isinstance(outcome, BaseException)
                future.finish(partial(future.set_exception if failed else future.set_result, outcome))


bind_items(BatchItem, Turn, Mixed, ENDED, NOT_YET, NEW, WAITING)
publish("aioacl", ["BatchItem"], of=__name__)
