"""`device.executor`: threads on which the device's context is current, for the user's blocking jobs.

The jobs do not use the maintenance thread, because jobs that wait for each other must not block the creation of a
stream.

A job is inside the device while it runs, so a drain waits for it. While the job waits through aioacl, with `result()`,
it is outside the device. Otherwise the wait and a reset could wait for each other. The job may wait for a job that is
still in the queue. So during the wait, the thread of the waiting job does not count against the limit.

The threads are daemons, so a thread that is stuck in C does not keep the process from ending.
"""

from __future__ import annotations

import inspect
import os
from collections import deque
from concurrent.futures import Executor
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from aioacl._base import sync
from aioacl._base.errors import ForkedProcessError, ParameterError
from aioacl._base.ffi import generation_of, lib
from aioacl._base.options import repr_of
from aioacl._base.public import publish
from aioacl._base.unique import Unique
from aioacl._library.runtime import of_parent
from aioacl._lifecycle.gate import error_of
from aioacl._wait.current import current_holder
from aioacl._wait.job_future import JobFuture
from aioacl._wait.job_scope import current_job_scope, job_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from aioacl._wait.job_scope import JobScope

    Waits = Callable[[], AbstractContextManager[None]]

P = ParamSpec("P")
T = TypeVar("T")

LINGER_SECONDS = 10.0


def default_workers() -> int:
    """The default limit of threads, as in concurrent.futures."""
    return min(32, (os.cpu_count() or 1) + 4)


AWAIT_IT: Final = "Await it on an event loop instead. A job is a plain function, which may block."


def _close_unstarted(thing: object) -> None:
    """Closes a coroutine that has not begun, because nothing will await it.

    A coroutine that has begun belongs to other code.
    """
    if inspect.iscoroutine(thing) and inspect.getcoroutinestate(thing) == inspect.CORO_CREATED:
        thing.close()


def must_be_plain(fn: object) -> None:
    """Raises ParameterError if `fn` is not a function, or is an async one."""
    if not callable(fn):
        _close_unstarted(fn)
        hint = "Pass the function and then its arguments: run(fn, *args)."
        raise ParameterError(
            f"expected a function, got {repr_of(fn)}", hint=AWAIT_IT if inspect.iscoroutine(fn) else hint
        )
    for called in (fn, type(fn).__call__):
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            raise ParameterError(f"expected a function that is not async, got {repr_of(fn)}", hint=AWAIT_IT)


def plain(fn: object, result: T, hint: str = AWAIT_IT) -> T:
    """Returns the result of `fn`. Raises ParameterError if the result is a coroutine or an async generator."""
    if inspect.iscoroutine(result) or inspect.isasyncgen(result):
        _close_unstarted(result)
        raise ParameterError(
            f"expected a function that is not async, got {repr_of(fn)}, which returned a {type(result).__name__}",
            hint=hint,
        )
    return result


class _Item:
    __slots__ = ("future", "holder", "work")

    def __init__(self, index: int, future: JobFuture[Any], work: Callable[[], Any]) -> None:
        self.future = future
        self.work = work
        scope = current_job_scope()  # a reset that waits for the caller waits for the new job, too
        self.holder = scope if scope is not None and scope.index == index else current_holder()


class _Threads:
    """The threads of an executor. The class has slots, because each job changes the counts."""

    __slots__ = ("all", "idle", "waiting")

    def __init__(self) -> None:
        self.all: set[object] = set()
        self.waiting = 0  # threads whose job waits through aioacl
        self.idle = 0

    @property
    def running(self) -> int:
        """The number of threads that count towards the limit."""
        return len(self.all) - self.waiting


class DeviceExecutor(Unique, Executor):
    """A `concurrent.futures.Executor` whose threads have the device's context as current context.

    A job that is submitted during a reset begins when the device is open again. After `shutdown`, idle threads end at
    once. A busy thread ends when its job has ended and no job is queued.

    A reset of the device waits for running jobs. A job that waits in `.result()` delays the reset by at most the grace
    time. The call of `.result()` raises DeviceReset when the reset has ended, even if the `timeout` of the call has
    passed earlier. A job may wait for other jobs by `.result()`. A waiting job does not count towards the limit of
    threads.
    """

    _noun = "device executor"

    def __init__(
        self,
        index: int,
        enter: Callable[[object, Waits], JobScope],
        max_workers: int | None = None,
        kind: str = "run",
        in_order: bool = False,
    ) -> None:
        self._index = index
        self._kind = kind  # a part of the names of the threads
        self._in_order = in_order  # a waiting job does not let another job begin
        self._enter = enter
        self._limit = max_workers or default_workers()
        self._items: deque[_Item] = deque()
        self._changed = sync.condition()
        self._threads = _Threads()
        self._closed = False

    def __setattr__(self, name: str, value: object) -> None:
        # The base class has no slots, so Python would accept any name.
        if not name.startswith("_"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r} that can be assigned"
            )
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        queued, ended = len(self._items), ", shut down" if self._closed else ""
        threads = f"{self._workers} of {self._limit} threads, {queued} jobs queued"
        return f"<DeviceExecutor of device {self._index}, {threads}{ended}{of_parent()}>"

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> JobFuture[T]:
        """Queues `fn(*args, **kwargs)`, to run in a copy of the caller's context. Returns the job's future.

        Raises:
            ParameterError: `fn` is not a function, or is an async one. If `fn` returns a coroutine, the future raises
                this error.
            RuntimeError: the executor was shut down.
            ForkedProcessError: the executor was made in the parent process, before the fork.
        """
        if lib.aio_forked():
            raise ForkedProcessError(
                "expected an executor of this process, got an executor of the parent process, from before the fork"
            )
        must_be_plain(fn)
        context = copy_context()
        return self._queue(lambda: plain(fn, context.run(fn, *args, **kwargs)))

    def _queue(self, work: Callable[[], T]) -> JobFuture[T]:
        """Queues a function of aioacl, which runs without a copy of the caller's context. Raises RuntimeError."""
        future: JobFuture[T] = JobFuture()
        item = _Item(self._index, future, work)
        with self._changed:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._items.append(item)
            self._changed.notify_all()
            self._serve(item)
        return future

    @property
    def ended(self) -> bool:
        """Whether the executor was shut down, so that `submit` is refused."""
        return self._closed

    @property
    def _workers(self) -> int:
        return len(self._threads.all)

    def _serve(self, item: _Item | None = None) -> None:
        """Starts a thread if the queue needs one and the limit allows it. Call it with the lock held.

        If no thread can be started and no other thread will run the item, the item is removed from the queue.
        """
        if self._threads.idle >= len(self._items) or self._threads.running >= self._limit:
            return
        try:
            self._spawn()
        except RuntimeError:
            if not self._threads.running:
                if item is not None:
                    self._items.remove(item)
                raise

    def _spawn(self) -> None:
        """Starts a thread and counts it.

        The thread also counts itself. So after Ctrl-C it is counted if, and only if, it has started.
        """
        thread = object()
        try:
            self._threads.all.add(thread)
            sync.spawn(f"aioacl-{self._kind}-{self._index}", partial(self._run, thread))
        except BaseException:
            self._threads.all.discard(thread)
            raise

    @contextmanager
    def one_waits(self) -> Generator[None]:
        """Called on a worker when its job waits. Raises ResourceExhausted if no thread is left for the queued jobs."""
        with self._changed:
            self._threads.waiting += 1
            try:
                self._serve()
            except RuntimeError as error:
                self._threads.waiting -= 1
                generation = generation_of(self._index)
                raise error_of(lib.AIO_NO_THREAD, "pthread_create", self._index, generation) from error
        try:
            yield
        finally:
            with self._changed:
                self._threads.waiting -= 1

    def _next(self, thread: object) -> _Item | None:
        """The next job. None if the thread must end: there is no job, or too many threads have returned from waits."""
        with self._changed:
            while not self._items and self._threads.running <= self._limit:
                self._threads.idle += 1
                in_time = not self._closed and self._changed.wait(LINGER_SECONDS)
                self._threads.idle -= 1
                if not in_time:
                    break
            if self._items and self._threads.running <= self._limit:
                return self._items.popleft()
            self._threads.all.discard(thread)
            self._changed.notify_all()
            return None

    def _run(self, thread: object) -> None:
        with self._changed:
            self._threads.all.add(thread)
        while (item := self._next(thread)) is not None:
            self._do(item)
            del item  # keep no reference to a job during the wait for the next one

    def _do(self, item: _Item) -> None:
        """Runs a job. The job begins when it is inside the device. Until then it can be cancelled."""
        try:
            outcome = self._inside(item)
        except BaseException as error:  # noqa: BLE001 - the future gets the exception
            item.future.fail(error)
        else:
            # The future's lock is used only here: its holder must not block a worker that is inside the device.
            if outcome is None:
                item.future.drop()
            else:
                item.future.finish(outcome)
            del outcome
        finally:
            del item  # the traceback of the job's exception keeps the variables of this frame

    def _inside(self, item: _Item) -> Callable[[], object] | None:
        """Runs the job inside the device. Returns a function that sets the result; None if the job was cancelled."""
        scope = self._enter(item.holder, nullcontext if self._in_order else self.one_waits)
        try:
            if not item.future.claim():
                return None
            with job_scope(scope):
                return self._outcome(item)
        finally:
            scope.end()
            del item

    @staticmethod
    def _outcome(item: _Item) -> Callable[[], object]:
        """Runs the job. Returns a function that sets the result, to be called outside the device."""
        try:
            return partial(item.future.set_result, item.work())
        except BaseException as error:  # noqa: BLE001 - the future gets the exception
            return partial(item.future.set_exception, error)
        finally:
            del item

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shuts the executor down: later calls of `submit` are refused. Does nothing in a forked child.

        Args:
            wait: if True, waits until the running and the queued jobs have ended.
            cancel_futures: if True, cancels the jobs that have not begun.
        """
        if lib.aio_forked():
            return
        with self._changed:
            self._closed = True
            dropped = list(self._items) if cancel_futures else []
            if cancel_futures:
                self._items.clear()
            self._changed.notify_all()
        for item in dropped:
            item.future.drop()
        with self._changed:
            while wait and self._workers:
                self._changed.wait()


publish("aioacl", ["DeviceExecutor"], of=__name__)
