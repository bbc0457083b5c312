"""Fair alternation of resets and work.

A constant flow of work cannot delay a reset forever: while a device drains, no new operation starts. Back-to-back
resets cannot block work forever: each operation that was waiting when the device opened has a turn. The next drain
starts when no turn is left. A turn ends when its operation has been tried or has been given up. Some turns may
belong to event loops that have stopped. So a reset waits for turns for at most a second, and not beyond half of its
`timeout`. If an operation was not tried by then, it waits for this reset too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from aioacl._base.sync import Condition

TURN_SECONDS: Final = 1.0


class Turns:
    """The operations that wait for a device to open, and those that have a turn. Guarded by the admission's lock."""

    def __init__(self, changed: Condition) -> None:
        self.changed = changed
        self._waiting: set[Waiter] = set()
        self._due: set[Waiter] = set()

    def place(self) -> Waiter:
        """Returns a place for one operation. Enter it with `with` around all attempts of the operation."""
        return Waiter(self)

    def wait(self, place: Waiter) -> None:
        """Adds the operation to those that wait for the device to open. Call it with the lock held."""
        place.taken = True
        self._end_turn(place)
        self._waiting.add(place)

    def give(self) -> None:
        """Gives a turn to each waiting operation, because the device has opened. Call it with the lock held."""
        self._due |= self._waiting
        self._waiting.clear()

    def leave(self, place: Waiter) -> None:
        """Called when the operation is done or was given up."""
        with self.changed:
            self._waiting.discard(place)
            self._end_turn(place)

    def abandon(self, place: Waiter) -> None:
        """For finalizers: ends a turn without the lock. It wakes no reset, so a reset may wait TURN_SECONDS."""
        self._waiting.discard(place)  # first: `give` moves waiting places to `_due`
        self._due.discard(place)

    def _end_turn(self, place: Waiter) -> None:
        """Ends a turn, and wakes a reset if it was the last one. Call it with the lock held."""
        due = bool(self._due)
        self._due.discard(place)
        if due and not self._due:
            self.changed.notify_all()

    @property
    def due(self) -> bool:
        """Whether a turn is left. Call it with the lock held."""
        return bool(self._due)

    def forget(self) -> None:
        """Ends all turns that are left. Call it with the lock held."""
        self._due.clear()


class Waiter:
    """The place of an operation that may wait for the device to open.

    If the operation did not wait, leaving the place does nothing.
    """

    __slots__ = ("_turns", "taken")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.taken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self.taken:
            return
        if kind is GeneratorExit:  # from a finalizer, perhaps on a thread that holds the lock
            self._turns.abandon(self)
        else:
            self._turns.leave(self)
