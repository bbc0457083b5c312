"""Runs the decisions of the core: the items of loops and threads, the executions, and the outcomes.

Theory of operation. A thread that has news calls `tell`, which appends it, and then drives: it handles the news, asks
the core what is next, begins the executions, and sends the outcomes. One thread at a time drives: the news that other
threads have meanwhile is handled by the driver. This is in C, in `driver.c`, which says why no news is missed. What
handles the end of an execution (`thread.py`) drives as well, so the next batch begins also if all event loops are
blocked.

Ctrl-C must not interrupt the driver, because the items of all callers would fail. So if the signal raises
KeyboardInterrupt in any line of the main thread, the main thread puts it off while it drives. On an event loop the
signal usually does not: asyncio cancels the main task instead, and trio protects the functions of aioacl.
"""

from __future__ import annotations

import os
import weakref
from asyncio import _get_running_loop  # returns the running loop or None
from functools import partial
from operator import attrgetter
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import sync
from aioacl._base.errors import AclError, DeviceQuarantined
from aioacl._base.ffi import RunnerBase
from aioacl._base.flight import EVERY_DEVICE
from aioacl._batches import recording, totals
from aioacl._batches.core import Core
from aioacl._batches.failures import (
    closed_error,
    ending_of,
    error_for_each,
    queue_full,
    refuse,
    without_frames,
    wrong_count,
)
from aioacl._batches.items import AsyncioLoop, Mixed, Ports
from aioacl._batches.state import Ending
from aioacl._batches.thread import BatchThread
from aioacl._batches.waiting import AGAIN, RUNNING
from aioacl._library.runtime import must_not_be_forked
from aioacl._wait.job_future import JobFuture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioacl._batches.executor import Outcomes, Served
    from aioacl._batches.items import BatchItem, Loop
    from aioacl._batches.state import Execution, ModelState, Rules
    from aioacl._batches.waiting import Turn

_call_of: Final = attrgetter("_call")
_all: Final[weakref.WeakSet[Runner]] = weakref.WeakSet()


class Runner(RunnerBase):
    """The runner of one batcher.

    Attributes:
        core: the decisions.
        hold: how long an idle model may wait for more items.
        max_rows: the most rows of a batch.
        spec, shape: of the usual items, which C checks; None if Python checks all.
        driver: the number of the thread that drives; 0 if none does.
        loops: the asyncio loops that have waited for items.
        last: the one for which an item has waited last.
        ports: the trio runs and threads that wait for items.
        refusal: raises the error of a new item; None while new items are taken.
        thread: the thread that waits for the ends of executions.
        aborted: whether all items have ended, and no others begin.
    """

    def __init__(self, rules: Rules) -> None:
        self.core: Core[BatchItem] = Core(rules)
        self.hold = rules.hold
        self.max_rows = rules.max_rows
        self.loops: dict[object, AsyncioLoop] = {}
        self.ports = Ports()
        self.thread = BatchThread()
        self._served: dict[ModelState[BatchItem], Served] = {}
        self._known: tuple[AsyncioLoop, ...] = ()  # the values of `loops`, which the driver iterates over
        self._only: Loop | None = None  # the loop that waits for all items, if it is one
        self._waits: list[tuple[Callable[[], bool], JobFuture[None]]] = []
        self.aborted = False
        self._wake: float | None = None
        _all.add(sync.watched(self))

    def _is_owned(self) -> bool:
        """Whether this thread drives or handles ends. A handler or finalizer that blocks here would wait for itself."""
        return get_ident() in (self.driver, self.thread.number)

    # --- news, from any thread --------------------------------------------------------------------------------------

    def loop_here(self) -> AsyncioLoop | None:
        """Returns the record of the asyncio loop that runs on this thread, or None."""
        running = _get_running_loop()
        if running is None:
            return None
        loop = self.loops.get(running)
        if loop is None:
            loop = self.loops[running] = AsyncioLoop(self, running)
        loop.runs()
        self.last = loop
        return loop

    def gone(self, item: BatchItem, *, expired: bool = False) -> None:
        """The caller of an item has gone, or its time is over."""
        self.tell(self._gone, item, expired)

    def look(self) -> None:
        """A device may have changed, or the time for which a batch is held is over."""
        self.tell(self._look)

    def serve(self, served: Served) -> None:
        """Gives batches to one more model."""
        self.tell(self._serve, served)

    def replace(self, new: Sequence[Served]) -> JobFuture[None]:
        """Gives all new batches to these models. The future ends when the executions of all others have ended."""
        future = JobFuture[None]()
        self.tell(self._replace, new, future)
        return future

    def close(self) -> None:
        """Takes no more items, and lets those that wait leave at once."""
        self.refusal = self.refusal or refuse
        for loop in tuple(self.loops.values()):
            loop.flush()
        self.tell(self._close)

    def abort(self) -> None:
        """Fails all items that are left, drops the executions that run, and ends the thread."""
        self.tell(self._abort)

    def when(self, true: Callable[[], bool]) -> JobFuture[None]:
        """Returns a future that ends when the function returns True, or when all items have been aborted.

        The driver calls the function after each news.
        """
        future = JobFuture[None]()
        self.tell(self._waits.append, (true, future))
        return future

    # --- driving ----------------------------------------------------------------------------------------------------

    def _drive_later(self) -> None:
        """Lets the thread of the batcher drive. An exception of a signal handler has ended the drive early."""
        self.thread.soon(self.drive)

    def _decide(self) -> bool:
        """Begins the next execution, when no news is left. Returns False if there is none."""
        core = self.core
        may_begin = not core.healthy or core.waiting.queues
        if may_begin or len(self._known) > 1:
            self._drop_closed()
        if may_begin:
            execution = core.next(monotonic())
            if execution is not None:
                self._begin(execution)
                return True
        if self.hold:
            self._arm()
        if self._waits:
            self._end_waits()
        return False

    def _begin(self, execution: Execution[BatchItem]) -> None:
        served = self._served[execution.model]
        executor = served.executor
        ended = partial(self.tell, self._finish, execution)
        try:
            recording.leaves(execution, served.device.index)
            if execution.alone:
                execution.was_alone = executor.alone()
            executor.execute(list(map(_call_of, execution.items)) or [executor.zeros], ended)
        except BaseException as error:
            ended(error)  # the items get it
            if isinstance(error, KeyboardInterrupt | SystemExit):  # of a signal handler
                raise

    def _finish(self, execution: Execution[BatchItem], outcomes: Outcomes) -> None:
        """An execution has ended."""
        items, model = execution.items, execution.model
        if execution not in model.running:  # the executor has called `ended` twice
            return
        if not isinstance(outcomes, list):
            self._fail(execution, outcomes)
        elif len(outcomes) != (len(items) or 1):
            self._fail(execution, wrong_count(len(outcomes), len(items)))
        else:
            over = self.core.ended(execution, Ending.DONE, monotonic())
            recording.done(execution, self._served[model].device.index, over)
            if over is items and self._only is not None:  # the usual case
                self._only.send(items, outcomes)
            else:
                results = dict(zip(items, outcomes, strict=False))
                self._send(over, type(outcomes)(results[item] for item in over))
        if model.leaving:
            self._forget_drained(model)

    @staticmethod
    def _send(over: Sequence[BatchItem], outcomes: list[Any]) -> None:
        """Sends outcomes to several loops, at once to each."""
        of: dict[Loop, tuple[list[BatchItem], list[Any]]] = {}
        for item, outcome in zip(over, outcomes, strict=True):
            if item._turn.of not in of:
                of[item._turn.of] = [], type(outcomes)()
            items, theirs = of[item._turn.of]
            items.append(item)
            theirs.append(outcome)
        for loop, (items, theirs) in of.items():
            loop.send(items, theirs)

    def _send_error(self, over: Sequence[BatchItem], error: BaseException) -> None:
        self._send(over, Mixed(error_for_each(error, len(over))))

    def _fail(self, execution: Execution[BatchItem], error: BaseException) -> None:
        watched = self._served[execution.model].device
        ending = ending_of(error)
        if ending is Ending.DEVICE and execution.was_alone is not None and execution.was_alone():
            ending = Ending.DEVICE_ALONE
        if ending in (Ending.DEVICE, Ending.DEVICE_ALONE, Ending.RESET):
            watched.error = without_frames(error)
        over = self.core.ended(execution, ending, monotonic())
        again = sum(item._state == AGAIN for item in execution.items)
        recording.fails(execution, watched.index, again, error)
        recording.done(execution, watched.index, over, error)
        self._send_error(over, error)
        self._look()

    def _fail_all(self, error: BaseException, news: tuple[Any, ...] | None) -> None:
        """An error of the batcher itself becomes the error of all items, so that no caller hangs."""
        failed = AclError(
            "the batcher has failed", hint="Report this as a bug, with the traceback of the cause."
        )
        failed.__cause__ = error
        handle, *details = news or (None,)  # that which has failed
        if handle == self._arrive:
            self._send_error(self.core.refuse(details[0], monotonic()), failed)
        if handle == self._finish:
            execution = details[0]
            self.core.forget(execution)
            self._send_error(execution.items, failed)  # those that have got their outcome ignore this one
            self._forget_drained(execution.model)
        if handle == self._replace:
            details[1].fail(failed)
        self._send_error(self.core.abort(), failed)
        self._end_waits()
        if not isinstance(error, Exception):  # of a signal handler
            raise error
        sync.report(error)

    # --- the news, handled by the driver ----------------------------------------------------------------------------

    def _arrive(self, turn: Turn[BatchItem]) -> None:
        if turn.of is not self._only:
            self._only = turn.of if self._only is None and self.core.empty else None
            self._known = tuple(self.loops.values())
            self.thread.share(self._only.loop if isinstance(self._only, AsyncioLoop) else None)
        if self.aborted:
            self._send_error(self.core.refuse(turn, monotonic()), closed_error())
            return
        now, core = monotonic(), self.core
        execution = core.arrive_alone(turn, now)
        if execution is not None:
            self._begin(execution)
            return
        refused = core.arrive(turn, now)
        if refused:
            self._send(refused, Mixed(queue_full(core, item) for item in refused))
        if not core.may_run:
            self._look()  # the thread of the batcher may not have seen a reset that has ended

    def _gone(self, item: BatchItem, expired: bool) -> None:
        began = item._state in (AGAIN, RUNNING)
        if self.core.cancel(item, expired=expired):
            indexes = {served.device.index for served in self._served.values()}
            device = indexes.pop() if len(indexes) == 1 else EVERY_DEVICE
            recording.gone(item, device, began=began, expired=expired)
        item._call = None  # the caller may use its arrays again

    def _look(self) -> None:
        self._wake = None  # if the timer of a loop was early, it is set once more
        for watched in {served.device for served in self._served.values()}:
            look = watched.view.look()
            self.core.tell(
                watched.state,
                is_open=look.is_open,
                coming=look.returns,
                generation=look.generation,
                failed=look.failed,
            )
        if not self.core.may_run:
            self._give_up()

    def _give_up(self) -> None:
        errors = [served.device.error for served in self._served.values()]
        error = next((each for each in errors if each is not None), None)
        nothing = DeviceQuarantined("no device of the batcher is open, or is about to be reset")
        self._send_error(self.core.hopeless(), error or nothing)

    def _serve(self, served: Served) -> None:
        if self.aborted:
            served.executor.close()
            return
        self._served[served.state] = served
        if served.device.stop is None:
            served.device.stop = served.device.view.listen(self.look)
        self.core.add_model(served.state)
        self._look()

    def _replace(self, new: Sequence[Served], future: JobFuture[None]) -> None:
        old = tuple(self._served)
        for served in new:
            self._serve(served)
        for model in old:
            self.core.drain_model(model)
            self._forget_drained(model)
        self._waits.append((lambda: not any(model in self._served for model in old), future))

    def _forget_drained(self, model: ModelState[BatchItem]) -> None:
        """Drops a model that gets no more batches, if its executions have ended."""
        served = self._served.get(model)
        if served is not None and model not in self.core.models:
            self._forget(served)

    def _close(self) -> None:
        self.core.closing = True

    def _abort(self) -> None:
        self.aborted = True
        try:
            self._send_error(self.core.abort(), closed_error())
            for served in tuple(self._served.values()):
                served.state.running.clear()
                self.core.drain_model(served.state)
                self._forget(served)
        finally:
            # These refer to this object.
            self.loops.clear()
            self._known, self._only, self.last = (), None, None
            for wait in self._waits:
                _end(wait[1])
            self._waits.clear()
            self.thread.end()
            totals.end(self.core)

    def _forget(self, served: Served) -> None:
        served.executor.close()
        self._served.pop(served.state, None)
        device = served.device
        if device.stop is not None and all(each.device is not device for each in self._served.values()):
            device.stop()
            device.stop = None

    def _drop_closed(self) -> None:
        """Drops the loops that were closed, with their items."""
        closed = [loop for loop in self._known if loop.is_closed()]
        if not closed:
            return
        for loop in closed:
            self.loops.pop(loop.loop, None)
        if self.last in closed:
            self.last = None
        self._known = tuple(self.loops.values())
        for item in self.core.left():
            if item._turn.of in closed:
                self._gone(item, expired=False)

    def _arm(self) -> None:
        """Lets the loops call `look` when the oldest item has waited for `hold` seconds."""
        wake = self.core.wake
        if wake is not None and wake != self._wake:
            self._wake = wake
            for loop in self._known:
                loop.wake_at(wake)

    def _end_waits(self) -> None:
        for wait in tuple(self._waits):
            true, future = wait
            if self.aborted or true():
                self._waits.remove(wait)
                _end(future)


def _end(future: JobFuture[None]) -> None:
    if future.claim():
        future.finish(partial(future.set_result, None))


def _in_child() -> None:
    for runner in tuple(_all):
        runner.refusal = must_not_be_forked


os.register_at_fork(after_in_child=_in_child)
