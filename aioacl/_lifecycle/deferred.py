"""Work for the maintenance thread. It comes from finalizers, and from calls that must not wait."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[], object]


class Deferred:
    """The work left to the maintenance thread of one device. Takes no lock; `wake` wakes the thread.

    Attributes:
        notes: work to do soon.
        leftovers: work that must wait until the device is reset or closed.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self.notes: deque[Work] = deque()
        self.leftovers: deque[Work] = deque()

    def leave_note(self, work: Work) -> None:
        """Leaves work to do soon. For finalizers: takes no lock and calls no ACL function."""
        self.notes.append(work)
        self._wake()

    def do_notes(self) -> None:
        """Does the work of the notes that are in the queue now."""
        self._do(self.notes)

    def do_all(self) -> None:
        """Does all work. Called after a reset or the close of the device."""
        try:
            self._do(self.leftovers)
        finally:
            self._do(self.notes)

    @classmethod
    def _do(cls, queue: deque[Work]) -> None:
        """Does the work that is in the queue now, all of it even if some of it raises.

        Raises the last exception; the earlier ones are its context. Work that is added during this call waits for the
        next call.
        """
        with ExitStack() as stack:
            for _ in range(len(queue)):
                stack.callback(cls._do_one, queue)

    @staticmethod
    def _do_one(queue: deque[Work]) -> None:
        try:
            work = queue.popleft()
        except IndexError:  # another thread empties the queue at the same time
            return
        work()
