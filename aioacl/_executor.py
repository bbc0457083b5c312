"""`device.executor`: threads with the device bound, for the user's own blocking jobs.

They are apart from the maintenance thread on purpose: jobs that wait for each other must not keep a stream from
being created. A job counts as inside the device for as long as it runs, so a drain waits for it. Only while it waits
through aioacl, by `result()`, it is outside: what it waits for may be the end of the very reset that waits for it. The
threads are daemons: one that is stuck in C must not keep the process from ending.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from aioacl import _sync
from aioacl._errors import ForkedProcessError
from aioacl._ffi import lib
from aioacl._port import current_holder, current_stay, staying

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._jobs import JobStay

P = ParamSpec("P")
T = TypeVar("T")

LINGER_SECONDS = 10.0


def default_workers() -> int:
    """As many as concurrent.futures would start."""
    return min(32, (os.cpu_count() or 1) + 4)


class _Item:
    __slots__ = ("future", "holder", "work")

    def __init__(self, index: int, future: Future[Any], work: Callable[[], Any]) -> None:
        self.future = future
        self.work = work
        stay = current_stay()  # what a reset waits for in whoever submits, it does in his job
        self.holder = stay if stay is not None and stay.index == index else current_holder()


class DeviceExecutor(Executor):
    """A `concurrent.futures.Executor` whose threads have the device's context bound.

    A job that is submitted while the device is reset begins when it is open again. `shutdown` ends the threads that
    are idle; those in a job end after it.
    """

    def __init__(
        self, index: int, enter: Callable[[object], JobStay], max_workers: int | None = None
    ) -> None:
        self._index = index
        self._enter = enter
        self._limit = max_workers or default_workers()
        self._items: deque[_Item] = deque()
        self._changed = _sync.condition()
        self._workers = 0
        self._idle = 0
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queues `fn(*args, **kwargs)`; it sees the caller's context variables."""
        if lib.aio_forked():
            raise ForkedProcessError("device.executor belongs to the process that was forked")
        future: Future[T] = Future()
        context = copy_context()
        item = _Item(self._index, future, lambda: context.run(fn, *args, **kwargs))
        with self._changed:
            if self._closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._items.append(item)
            self._changed.notify_all()
            if self._idle < len(self._items) and self._workers < self._limit:
                self._spawn(item)
        return future

    @property
    def ended(self) -> bool:
        """Whether it takes no more jobs."""
        return self._closed

    def _spawn(self, item: _Item) -> None:
        """Without a thread, and without another that will do it, the job is not queued either. With the lock held."""
        self._workers += 1
        try:
            _sync.spawn(f"aioacl-run-{self._index}", self._run)
        except RuntimeError:
            self._workers -= 1
            if not self._workers:
                self._items.remove(item)
                raise

    def _next(self) -> _Item | None:
        with self._changed:
            self._idle += 1
            while not self._items:
                if self._closed or not self._changed.wait(LINGER_SECONDS):
                    break
            self._idle -= 1
            if self._items:
                return self._items.popleft()
            self._workers -= 1
            self._changed.notify_all()
            return None

    def _run(self) -> None:
        while (item := self._next()) is not None:
            self._do(item)
            del item  # nothing of a job is kept while we wait for the next

    def _do(self, item: _Item) -> None:
        """Until it is inside the device a job has not begun, and can be cancelled."""
        try:
            stay = self._enter(item.holder)
        except BaseException as error:  # noqa: BLE001 - it is the future's
            self._settle(item.future, error)
            return
        outcome: Callable[[], object] | None = None
        try:
            if item.future.set_running_or_notify_cancel():
                with staying(stay):
                    outcome = self._outcome(item)
        finally:
            stay.end()
        if outcome is not None:
            outcome()

    @staticmethod
    def _settle(future: Future[Any], error: BaseException) -> None:
        if future.set_running_or_notify_cancel():
            future.set_exception(error)

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
            item.future.cancel()
            item.future.set_running_or_notify_cancel()
        with self._changed:
            while wait and self._workers:
                self._changed.wait()
