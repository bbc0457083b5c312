"""Fair alternation of resets and work.

Steady work cannot starve a reset: while a device drains, nothing new begins. Back-to-back resets cannot starve work:
whoever waited at the gate when the device opened has a turn, and the next drain begins when all turns were taken. A
turn ends when what it was for has been tried, or given up; a drain waits for turns no longer than a second, for some of
them may belong to loops that have stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from aioacl._base.sync import Condition

TURN_SECONDS: Final = 1.0


class Turns:
    """Who waits at the gate of a device, and whose turn it is. Guarded by the lock of the device's manager."""

    def __init__(self, changed: Condition) -> None:
        self.changed = changed
        self._waiting: set[Waiter] = set()
        self._due: set[Waiter] = set()

    def place(self) -> Waiter:
        """A place in the queue, to be entered with `with` around everything that is tried."""
        return Waiter(self)

    def wait(self, place: Waiter) -> None:
        """Somebody waits at the gate; with the lock held."""
        place.taken = True
        self._end_turn(place)
        self._waiting.add(place)

    def give(self) -> None:
        """The device has opened: those who wait have a turn; with the lock held."""
        self._due |= self._waiting
        self._waiting.clear()

    def leave(self, place: Waiter) -> None:
        """Somebody is done, or has given up."""
        with self.changed:
            self._waiting.discard(place)
            self._end_turn(place)

    def forsake(self, place: Waiter) -> None:
        """For finalizers, without the lock: a drain that waits for this turn waits for its time."""
        self._waiting.discard(place)  # first, for from there it would come to the others
        self._due.discard(place)

    def _end_turn(self, place: Waiter) -> None:
        """Wakes whoever waits for the last turn; with the lock held."""
        due = bool(self._due)
        self._due.discard(place)
        if due and not self._due:
            self.changed.notify_all()

    @property
    def due(self) -> bool:
        """Whether somebody has not had his turn; with the lock held."""
        return bool(self._due)

    def forget(self) -> None:
        """Whoever has not taken his turn by now has lost it; with the lock held."""
        self._due.clear()


class Waiter:
    """One that may come to wait at the gate. Costs nothing while the gate is open."""

    __slots__ = ("_turns", "taken")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.taken = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self.taken:
            return
        if kind is GeneratorExit:  # by a finalizer, perhaps on a thread that has the lock
            self._turns.forsake(self)
        else:
            self._turns.leave(self)
