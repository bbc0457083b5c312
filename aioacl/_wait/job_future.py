"""The future of a job on a device's executor.

A worker claims its job while the worker is inside the device. It takes no lock of the future there, because Ctrl-C, or
a caller that holds the future's condition, must not keep the worker inside. A thread that waits for the result waits on
its own port, as in all waits of aioacl. So a job that waits for another job is outside its device during the wait.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aioacl._base import sync
from aioacl._base.ffi import lib
from aioacl._base.options import seconds_of
from aioacl._wait.current import current_port, run_blocking
from aioacl._wait.port import TIMED_OUT, Port
from aioacl._wait.thread import ThreadPort

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData
    from aioacl._base.options import Seconds

T = TypeVar("T")


class JobFuture(Future[T]):
    """A `concurrent.futures.Future` that a job may wait for, and that Ctrl-C cannot leave locked."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = sync.Uninterrupted(threading.RLock())  # re-entrant: a signal handler may use it
        self._unclaimed = [True]  # one entry: the worker or a cancellation takes it
        self._begun = False
        self._listeners: dict[tuple[Port, int], None] = {}
        self.add_done_callback(_wake)

    # --- on the worker ---------------------------------------------------------------------------------------

    def claim(self) -> bool:
        """Claims the job for the worker.

        Returns False if the job was cancelled. Otherwise the job can no longer be cancelled. Takes no lock.
        """
        with suppress(IndexError):
            self._begun = self._unclaimed.pop()
        return self._begun

    def fail(self, error: BaseException) -> None:
        """Sets an error as the outcome of a job that could not begin, unless the job was cancelled."""
        if self.claim():
            self.finish(partial(self.set_exception, error))
        else:
            self.drop()

    def finish(self, outcome: Callable[[], object]) -> None:
        """Ends a job that was claimed. `outcome` sets the result or the exception."""
        self.set_running_or_notify_cancel()
        outcome()

    def drop(self) -> None:
        """Ends a job that will not begin. If Ctrl-C interrupted the job's cancellation, this call completes it."""
        self._unclaimed.clear()
        super().cancel()
        self.set_running_or_notify_cancel()
        _wake(self)

    def _invoke_callbacks(self) -> None:
        """Calls the callbacks, and drops them: they often refer to an object that refers to this future."""
        base: Any = super()  # typeshed does not declare the private names of Future
        base._invoke_callbacks()
        callbacks: list[Any] = vars(self)["_done_callbacks"]
        callbacks.clear()

    # --- for all callers -------------------------------------------------------------------------------------

    def cancel(self) -> bool:
        """Cancels the job unless it has begun. Returns True if it is cancelled."""
        try:
            self._unclaimed.pop()
        except IndexError:
            return self.cancelled()
        return super().cancel()

    def running(self) -> bool:
        """Whether the job has begun and has not ended."""
        return self._begun and not self.done()

    def result(self, timeout: Seconds | None = None) -> T:
        """Waits for the job and returns its result, or raises its exception.

        Args:
            timeout: the longest wait in seconds; None waits without a limit.

        Raises:
            TimeoutError: the job was not done within `timeout` seconds.
            CancelledError: the job was cancelled, or the device was closed before the job began.
            DeviceReset: the caller is a job, and its device was reset during the wait.
        """
        try:
            return super().result(self._wait(timeout))
        finally:
            del self  # the traceback of the exception refers to this frame

    def exception(self, timeout: Seconds | None = None) -> BaseException | None:
        """Waits for the job and returns its exception, or None. Arguments and errors are as for `result()`."""
        return super().exception(self._wait(timeout))

    def _wait(self, timeout: Seconds | None) -> float | None:
        """Waits on the thread's port, if the port can be used. Returns the timeout for the wait of the base class.

        The timeout is 0 after a wait on the port. Otherwise it is the timeout of the caller.
        """
        # Every Future treats a negative timeout as 0.
        limit = None if timeout is None else max(0.0, seconds_of(timeout, -math.inf))
        if self.done() or lib.aio_forked() or not isinstance(current_port(), ThreadPort):
            return limit
        run_blocking(self.ended, limit)
        return 0

    async def ended(self, deadline: float | None = None) -> bool:
        """Waits until the job has ended. Returns False if the deadline, or one of the caller, comes first."""
        port, keys = current_port(), list[int]()

        def start(_: CData, key: int) -> int:
            port.take_token(key)
            keys.append(key)
            self._listeners[port, key] = None
            if self.done():
                _wake(self)
            return 0

        try:
            return await port.wait(start, deadline=deadline) != TIMED_OUT
        finally:
            for key in keys:
                self._listeners.pop((port, key), None)
                port.refuse(key)


def _wake(future: Future[T]) -> None:
    """Wakes the waiting ports. Each port is removed only after it was woken. A second wake-up is harmless."""
    assert isinstance(future, JobFuture), "only a JobFuture registers this callback"
    for port, key in tuple(future._listeners):
        port.post(key)
        future._listeners.pop((port, key), None)
