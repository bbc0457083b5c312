"""Work that is left to the maintenance thread: by finalizers, and by calls that must not wait."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Work = Callable[[], object]


class Deferred:
    """What is left to do on the maintenance thread of one device. Takes no lock; `wake` wakes the thread.

    Attributes:
        notes: to be done soon.
        leftovers: to be done after the device was reset or closed, because they cannot be done before.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self.notes: deque[Work] = deque()
        self.leftovers: deque[Work] = deque()

    def leave_note(self, work: Work) -> None:
        """To be done soon. For finalizers: takes no lock and calls no ACL."""
        self.notes.append(work)
        self._wake()

    def do_notes(self) -> None:
        """Does what was left by now."""
        self._do(self.notes)

    def do_all(self) -> None:
        """After a reset or the close of the device."""
        self._do(self.leftovers)
        self._do(self.notes)

    def _do(self, queue: deque[Work]) -> None:
        """Does what is in a queue by now; one thing may leave another, for the next time."""
        for _ in range(len(queue)):
            try:
                work = queue.popleft()
            except IndexError:  # another thread does it at the same time
                return
            try:
                work()
            except BaseException:
                self._wake()  # for the others
                raise
