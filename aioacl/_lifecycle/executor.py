"""`device.executor`: threads with the device bound, for the user's own blocking jobs.

They are apart from the maintenance thread on purpose: jobs that wait for each other must not keep a stream from
being created. A job counts as inside the device for as long as it runs, so a drain waits for it. Only while it waits
through aioacl, by `result()`, it is outside: what it waits for may be the end of the very reset that waits for it. Its
thread does not count against the limit meanwhile: what it waits for may be a job that is queued behind it. The threads
are daemons: one that is stuck in C must not keep the process from ending.
"""

from __future__ import annotations

import inspect
import os
from collections import deque
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from aioacl._base import sync
from aioacl._base.errors import ForkedProcessError, ParameterError
from aioacl._base.ffi import generation_of, lib
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
    """As many as concurrent.futures would start."""
    return min(32, (os.cpu_count() or 1) + 4)


AWAIT_IT: Final = "Await it on an event loop. A job is a plain function, which may block."


def _close_unstarted(thing: object) -> None:
    """Closes a coroutine that has not begun, for nothing will await it. One that has begun belongs to other code."""
    if inspect.iscoroutine(thing) and inspect.getcoroutinestate(thing) == inspect.CORO_CREATED:
        thing.close()


def must_be_plain(fn: object) -> None:
    """ParameterError for what a thread cannot simply call: no function, or one that is async."""
    if not callable(fn):
        _close_unstarted(fn)
        hint = "Pass the function, and its arguments behind it: run(fn, *args)."
        raise ParameterError(
            f"expected a function, got {fn!r}", hint=AWAIT_IT if inspect.iscoroutine(fn) else hint
        )
    for called in (fn, type(fn).__call__):
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            raise ParameterError(f"expected a function that is not async, got {fn!r}", hint=AWAIT_IT)


def plain(fn: object, result: T, hint: str = AWAIT_IT) -> T:
    """What a function has returned. ParameterError if that is a coroutine or an async generator, which does nothing."""
    if inspect.iscoroutine(result) or inspect.isasyncgen(result):
        _close_unstarted(result)
        raise ParameterError(
            f"expected a function that is not async, got {fn!r}, which returned a {type(result).__name__}",
            hint=hint,
        )
    return result


class _Item:
    __slots__ = ("future", "holder", "work")

    def __init__(self, index: int, future: JobFuture[Any], work: Callable[[], Any]) -> None:
        self.future = future
        self.work = work
        scope = current_job_scope()  # what a reset waits for in whoever submits, it does in his job
        self.holder = scope if scope is not None and scope.index == index else current_holder()


class DeviceExecutor(Unique, Executor):
    """A `concurrent.futures.Executor` whose threads have the device's context bound.

    A job that is submitted while the device is reset begins when it is open again. `shutdown` ends the threads that
    are idle; those in a job end after it.
    """

    noun = "device executor"

    def __init__(
        self, index: int, enter: Callable[[object, Waits], JobScope], max_workers: int | None = None
    ) -> None:
        self._index = index
        self._enter = enter
        self._limit = max_workers or default_workers()
        self._items: deque[_Item] = deque()
        self._changed = sync.condition()
        self._threads: set[object] = set()
        self._waiting = 0  # of these, those whose job waits through aioacl
        self._idle = 0
        self._closed = False

    def __setattr__(self, name: str, value: object) -> None:
        # The base class has no slots, so Python would accept every name.
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
        """Queues `fn(*args, **kwargs)`; it sees the caller's context variables.

        Raises:
            ParameterError: it is no function, or an async one; the future has it if it returns a coroutine.
        """
        if lib.aio_forked():
            raise ForkedProcessError("device.executor belongs to the process that was forked")
        must_be_plain(fn)
        future: JobFuture[T] = JobFuture()
        context = copy_context()
        item = _Item(self._index, future, lambda: plain(fn, context.run(fn, *args, **kwargs)))
        with self._changed:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._items.append(item)
            self._changed.notify_all()
            self._serve(item)
        return future

    @property
    def ended(self) -> bool:
        """Whether it takes no more jobs."""
        return self._closed

    @property
    def _workers(self) -> int:
        return len(self._threads)

    def _serve(self, item: _Item | None = None) -> None:
        """Starts a thread if the queue needs one and the limit allows it. With the lock held.

        Without a thread, and without another that will do it, the item is not queued either.
        """
        if self._idle >= len(self._items) or self._workers - self._waiting >= self._limit:
            return
        try:
            self._spawn()
        except RuntimeError:
            if self._workers == self._waiting:
                if item is not None:
                    self._items.remove(item)
                raise

    def _spawn(self) -> None:
        """The thread adds itself as well: where Ctrl-C comes, it is counted if it was started, and only then."""
        thread = object()
        try:
            self._threads.add(thread)
            sync.spawn(f"aioacl-run-{self._index}", partial(self._run, thread))
        except BaseException:
            self._threads.discard(thread)
            raise

    @contextmanager
    def one_waits(self) -> Generator[None]:
        """On a worker: its job waits. ResourceExhausted if no thread is left for what is queued."""
        with self._changed:
            self._waiting += 1
            try:
                self._serve()
            except RuntimeError as error:
                self._waiting -= 1
                generation = generation_of(self._index)
                raise error_of(lib.AIO_NO_THREAD, "pthread_create", self._index, generation) from error
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1

    def _next(self, thread: object) -> _Item | None:
        """The next job; None if the thread is to end: there is none, or too many threads have come back from waits."""
        with self._changed:
            while not self._items and self._workers - self._waiting <= self._limit:
                self._idle += 1
                in_time = not self._closed and self._changed.wait(LINGER_SECONDS)
                self._idle -= 1
                if not in_time:
                    break
            if self._items and self._workers - self._waiting <= self._limit:
                return self._items.popleft()
            self._threads.discard(thread)
            self._changed.notify_all()
            return None

    def _run(self, thread: object) -> None:
        with self._changed:
            self._threads.add(thread)
        while (item := self._next(thread)) is not None:
            self._do(item)
            del item  # nothing of a job is kept while we wait for the next

    def _do(self, item: _Item) -> None:
        """Until it is inside the device a job has not begun, and can be cancelled."""
        try:
            scope = self._enter(item.holder, self.one_waits)
        except BaseException as error:  # noqa: BLE001 - it is the future's
            item.future.fail(error)
            return
        outcome: Callable[[], object] | None = None
        try:
            if item.future.claim():
                with job_scope(scope):
                    outcome = self._outcome(item)
        finally:
            scope.end()
        # The future's lock is taken from here on: inside the device, a caller that keeps it would keep the worker.
        if outcome is None:
            item.future.drop()
        else:
            item.future.finish(outcome)

    @staticmethod
    def _outcome(item: _Item) -> Callable[[], object]:
        """Does the job; what it comes to is told when the job is no longer inside the device."""
        try:
            result = item.work()
        except BaseException as error:  # noqa: BLE001 - it is the future's
            return partial(item.future.set_exception, error)
        return partial(item.future.set_result, result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more jobs; waits for those that run, if asked to. In a forked child there are none."""
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
