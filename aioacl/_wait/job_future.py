"""The future of a job on a device's executor.

A worker claims its job inside the device, and takes no lock of the future there: Ctrl-C, or a caller that holds the
future's condition, must not keep the worker inside. A thread that waits for the result waits on its own port, as for
everything else of aioacl. So a job that waits for another job is outside its device meanwhile.
"""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

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
    """A `concurrent.futures.Future` that may be waited for inside a job, and that Ctrl-C cannot leave locked."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = sync.Uninterrupted(threading.RLock())  # re-entrant: a signal handler may ask
        self._unclaimed = [True]  # the worker, or a cancellation, takes the one entry
        self._begun = False
        self._listeners: dict[tuple[Port, int], None] = {}
        self.add_done_callback(_tell)

    # --- on the worker ---------------------------------------------------------------------------------------

    def claim(self) -> bool:
        """Whether the job is to be done; from then on it cannot be cancelled. Takes no lock."""
        with suppress(IndexError):
            self._begun = self._unclaimed.pop()
        return self._begun

    def fail(self, error: BaseException) -> None:
        """Ends a job that could not begin, unless it was cancelled."""
        if self.claim():
            self.finish(partial(self.set_exception, error))
        else:
            self.drop()

    def finish(self, outcome: Callable[[], object]) -> None:
        """Ends a job that was claimed."""
        self.set_running_or_notify_cancel()
        outcome()

    def drop(self) -> None:
        """Ends a job that will not begin. Ctrl-C may have interrupted its cancellation: this completes it."""
        self._unclaimed.clear()
        super().cancel()
        self.set_running_or_notify_cancel()
        _tell(self)

    # --- for everybody ---------------------------------------------------------------------------------------

    def cancel(self) -> bool:
        """Cancels the job unless it has begun."""
        try:
            self._unclaimed.pop()
        except IndexError:
            return self.cancelled()
        return super().cancel()

    def running(self) -> bool:
        """Whether the job has begun and has not ended."""
        return self._begun and not self.done()

    def result(self, timeout: Seconds | None = None) -> T:
        """What the job has returned; raises what it raised.

        Raises:
            TimeoutError: after `timeout` seconds.
            CancelledError: the job was cancelled, or the device was closed before the job began.
            DeviceReset: the caller is a job, and its device was reset while it waited.
        """
        return super().result(self._wait(timeout))

    def exception(self, timeout: Seconds | None = None) -> BaseException | None:
        """What the job has raised, or None; otherwise like `result()`."""
        return super().exception(self._wait(timeout))

    def _wait(self, timeout: Seconds | None) -> float | None:
        """Waits on the thread's port. What the base class may wait still: nothing, or on a loop's thread all of it."""
        limit = None if timeout is None else max(0.0, seconds_of(timeout, -math.inf))  # as of every Future
        if self.done() or lib.aio_forked() or not isinstance(current_port(), ThreadPort):
            return limit
        run_blocking(self.ended, limit)
        return 0

    async def ended(self) -> bool:
        """Returns once the job has ended; False if a deadline of the caller's comes first."""
        port, keys = current_port(), list[int]()

        def start(_: CData, key: int) -> int:
            keys.append(key)
            self._listeners[port, key] = None
            if self.done():
                _tell(self)
            return 0

        try:
            return await port.wait(start) != TIMED_OUT
        finally:
            for key in keys:
                self._listeners.pop((port, key), None)
                port.refuse(key)


def _tell(future: Future[T]) -> None:
    """Wakes those who wait. None leaves the list before it is woken; to be woken twice does no harm."""
    assert isinstance(future, JobFuture), "it is its own callback"
    for port, key in tuple(future._listeners):
        lib.aio_port_post(port.handle, key, 0)
        future._listeners.pop((port, key), None)
