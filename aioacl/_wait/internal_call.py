"""Internal calls: functions that aioacl runs on the control thread or the maintenance thread of a device.

An internal call belongs to the task that awaits it. If the await ends first, a call that has not begun is withdrawn.
The result of a call that has begun is passed to `discard` on the thread, so no object that the call made is lost. A
clean-up always runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from aioacl._base import sync

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._wait.port import Port
    from aioacl._wait.workers import WorkerThread

T = TypeVar("T")


class InternalCall(Generic[T]):
    """An internal call: the function `work`, its outcome, and the port to wake when the call has ended."""

    def __init__(self, work: Callable[[], T], discard: Callable[[T], object] | None = None) -> None:
        self._work = [work]
        self._discard = discard
        self._changed = sync.condition(lasting=False)
        self._tell: tuple[Port, int] | None = None
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._started = self._finished = self._abandoned = False

    def run(self) -> None:
        """Calls `work`, unless the internal call was withdrawn. Runs on the worker thread."""
        with self._changed:
            if self._abandoned or self._finished:
                return
            self._started = True
        try:
            result = [self._take_work()()]
        except BaseException as error:  # noqa: BLE001 - the await of the call raises it
            self._end([], error)
        else:
            self._end(result, None)

    def _take_work(self) -> Callable[[], T]:
        """Returns `work` and drops it, because the traceback of its error keeps this object."""
        return self._work.pop()

    def _end(self, result: list[T], error: BaseException | None) -> None:
        with self._changed:
            late = self._abandoned or self._finished
            if not late:
                self._result, self._error = result, error
            self._finished = True
            self._changed.notify_all()
            tell, self._tell = self._tell, None
        if tell is not None:
            tell[0].post(tell[1])
        if late and result and self._discard is not None:
            self._discard(result[0])

    def tell(self, port: Port, key: int) -> None:
        """Posts to the port under the key when the call has ended. If the call has ended already, posts at once."""
        with self._changed:
            if not self._finished:
                self._tell = (port, key)
                return
        port.post(key)

    def fail(self, error: BaseException) -> None:
        """Ends the await of the call with an error, whether the call runs or not."""
        self._end([], error)

    def abandon(self, worker: WorkerThread) -> None:
        """Called when no task awaits the call any more. A call that has not begun never runs and posts nothing."""
        withdrawn: tuple[Port, int] | None = None
        with self._changed:
            late = self._finished and bool(self._result)
            self._abandoned, self._error = True, None
            if not self._started:
                withdrawn, self._tell = self._tell, None
        if withdrawn is not None:
            withdrawn[0].refuse(withdrawn[1])
        if late and self._discard is not None:
            discard, result = self._discard, self._result[0]
            worker.entrust(CleanUp(lambda: discard(result)))

    def outcome(self) -> T:
        """Returns the result or raises the error, and drops this object's reference to the result or error.

        To be called once, after the internal call has ended.
        """
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # the traceback refers to the frame, and the frame to the error
        return self._result.pop()  # removed from the list, which the thread's frame may still refer to

    def wait(self, timeout: float | None) -> bool:
        """Blocks until the call has ended. Returns False after `timeout` seconds."""
        end = None if timeout is None else sync.monotonic() + timeout
        with self._changed:
            while not self._finished:
                left = None if end is None else end - sync.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
        return True


class CleanUp(InternalCall[object]):
    """An internal call that always runs, whether a task awaits it or not."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(work)

    def run(self) -> None:
        with self._changed:
            self._started, unawaited = True, self._abandoned or self._finished
        try:
            self._take_work()()
        except BaseException as error:
            if unawaited:
                raise
            self._end([], error)
        else:
            self._end([None], None)

    def fail(self, error: BaseException) -> None:  # noqa: ARG002 - the base class uses it
        """Ends the await without an error: for the caller, the object is closed."""
        self._end([None], None)

    def abandon(self, worker: WorkerThread) -> None:  # noqa: ARG002 - it is queued on its thread already
        """Called when no task awaits the clean-up any more; it runs nevertheless."""
        with self._changed:
            self._abandoned, self._error = True, None
