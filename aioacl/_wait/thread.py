"""The port of a thread without an event loop. The thread blocks while it waits."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING

from aioacl._base import sync
from aioacl._base.ffi import failure
from aioacl._wait.job_scope import current_job_scope
from aioacl._wait.port import TIMED_OUT, Port

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData

LONGEST_POLL_SECONDS = 86400.0  # poll takes milliseconds as an int
# Only the main thread handles signals. A signal just before the main thread's poll, or on another thread, does not end
# that poll. So each poll of the main thread ends after this time.
SIGNAL_SECONDS = 0.5


class ThreadPort(Port):
    """A port that its own thread reads. The thread blocks while it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.deadline: float | None = None
        self.locks: list[object] = []  # the locks that the waits in progress take on this thread
        self._depth = 0
        main = threading.current_thread() is threading.main_thread()
        self._longest = SIGNAL_SECONDS if main else LONGEST_POLL_SECONDS

    async def wait(
        self,
        start: Callable[[CData, int], int],
        *,
        deadline: float | None = None,
        after: Callable[[], object] | None = None,
    ) -> int:
        results: list[int] = []
        code = self.begin(start, results.append, after)
        if code:
            return failure(code)
        scope = current_job_scope()
        with nullcontext() if scope is None else scope.outside():
            return self._block(results, earlier(deadline, self.deadline))

    def _block(self, results: list[int], deadline: float | None) -> int:
        self._depth += 1
        try:
            while not results:
                left = None if deadline is None else deadline - sync.monotonic()
                slice_ = self._longest if left is None else min(left, self._longest)
                if not sync.readable(self.fd, slice_) and slice_ == left:
                    return TIMED_OUT
                self.drain()
            return results[0]
        finally:
            self._depth -= 1
            if self._depth:  # a signal handler waited within a wait, and delivered the results of both
                self.kick()

    async def breathe(self) -> None:
        """Does nothing: a thread without a loop has no other task to yield to."""

    async def next_turn(self) -> None:
        """Does nothing, for the same reason."""


def earlier(one: float | None, other: float | None) -> float | None:
    """The earlier of two deadlines; None means no deadline."""
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
