"""ACL's count of how often a device is set in this process, as far as aioacl knows it.

While no call sets or resets the device:

    sets in ACL = now.retained + added + sets of other code - owed

- `now.retained` are the sets of opens and of `lowlevel`, `added` those that a reset has made for itself.
- `owed` are the sets that a counted reset has undone and that were not made again yet, also those of aioacl.
- The number of sets of other code is not known until a counted reset has undone all sets. The left side is then 0, so
  the sets of other code are `owed - now.retained - added`. From then on they are `owed`, and aioacl has none.

The numbers survive the procedure that changed them: if a reset fails, the next one counts on, and the next set or close
first makes the owed sets again. The close then undoes the sets of opens and those of `added`.

A foreign reset ends all sets, so all numbers are 0 then. The state callback reports that reset, in C. So the numbers
are valid only until another foreign reset is reported. A reset by other code that does not end aioacl's own context is
reported as an unseen reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioacl._base import states
from aioacl._base.ffi import lib
from aioacl._base.states import RELEASED_ALREADY, Counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.sync import Condition


class SetCounts:
    """ACL's count of one device. The lock of the device's admission is held to write. A single read needs no lock.

    Attributes:
        now: the count in ACL, unless a foreign reset has ended it.
        foreign_resets_seen: the number of foreign resets that were reported when `now` was counted.
        own_sets: the sets that an open made and no close has undone yet; the others are from `lowlevel`.
        ended_generation: the generation whose native streams a reset by aioacl ended. Only procedures use it.
        was_set: whether other code had set the device before the first open, or before the newest reset by aioacl,
            which has made these sets again.
        added: how many sets a reset has made for itself. Only the control thread changes this attribute and the next.
        owed: how many sets a reset has undone and not made again.
        left: whether one of these was left by a close (`keep`).
        are_known: whether the runtime reports the sets of other code: those before the first open, and later ones.
    """

    def __init__(self, index: int, changed: Condition) -> None:
        self._index = index
        self._changed = changed
        self.now = Counts()
        self.foreign_resets_seen = 0
        self.own_sets = 0
        self.ended_generation = 0
        self.was_set = False
        self.added = self.owed = 0
        self.left = False
        self.are_known = False
        self._unseen_resets = 0

    @property
    def are_shared(self) -> bool:
        """Whether other code of the process has perhaps set the device too, and still uses it."""
        earlier = (self.was_set or self.owed > 0) and not self._were_ended_unseen()
        return earlier or lib.aio_device_foreign_sets(self._index) > 0

    @property
    def are_alone(self) -> bool:
        """Whether no other code of the process has set the device."""
        return self.are_known and not self.are_shared

    @property
    def reported(self) -> int:
        """How many sets of other code are known. Other code may have undone some, or made more before the open."""
        return max(int(self.was_set), lib.aio_device_foreign_sets(self._index))

    def change(self, counts: Counts) -> None:
        """Replaces the counts, and limits `own_sets` to them. Call it with the lock held."""
        self.now, self.own_sets = counts, min(self.own_sets, counts.retained)

    def _were_ended_unseen(self) -> bool:
        return self._unseen_resets != int(lib.aio_device_unseen_resets(self._index))

    def _forget(self) -> None:
        self.change(Counts())
        self.was_set = self.left = False
        self.added = self.owed = 0
        self._unseen_resets = lib.aio_device_unseen_resets(self._index)

    def standing(self) -> Counts:
        """How often the device is set: 0 after a foreign reset. Call it with the lock held."""
        if self._were_ended_unseen():
            self._forget()
        if self.foreign_resets_seen != lib.aio_device_foreign(self._index):
            self.change(Counts())
        return self.now

    def note_set(self, seen: int) -> None:
        """Counts a set. `seen` is the number of foreign resets that had been reported when the set was made.

        If `seen` has changed since the last set, a foreign reset has ended all earlier sets.
        """
        with self._changed:
            self._see(seen)
            self.now, self.own_sets = states.set_device(self.now).counts, self.own_sets + 1

    def catch_up(self) -> None:
        """Notes the foreign resets, and the unseen ones, that were reported until now. Called before a set."""
        with self._changed:
            self._see(lib.aio_device_foreign(self._index))
            self.standing()

    def _see(self, foreign_resets: int) -> None:
        if self.foreign_resets_seen != foreign_resets:
            self._forget()
        self.foreign_resets_seen = foreign_resets

    @property
    def of_aioacl(self) -> int:
        """How many sets aioacl has made, except those that a foreign reset has ended."""
        with self._changed:
            return self.standing().retained + self.added

    def note_all_undone(self, at_least: int = 0) -> None:
        """Called when a reset has undone all sets. Other code is known to have made `at_least` so many."""
        with self._changed:
            self.owed = max(self.owed - self.standing().retained - self.added, at_least, 0)
            self.was_set = self.owed > 0
            self.added = 0
            self.change(Counts())
            self.left = self.left and self.was_set

    @property
    def has_left_set(self) -> bool:
        """Whether a set that a close has left still stands."""
        return bool(lib.aio_device_has_left_set(self._index))

    def leave_set(self) -> None:
        """From now on, the last set of aioacl counts as a set of other code, if there is one."""
        with self._changed:
            if self.added:
                self.added -= 1
            elif self.own_sets:
                self.own_sets -= 1
                self.change(states.reset_device(self.now).counts)
            else:
                return
            lib.aio_device_leave_set(self._index)

    def note_left_set(self) -> None:
        """Called before a reset, which ends the set that a close has left. Without the callback it does not end it."""
        self.left = self.left or (self.has_left_set and bool(lib.aio_tells_of_resets()))

    def note_left_set_again(self) -> None:
        """Called when the last set of other code was made again, which is the one that a close has left."""
        self.owed, self.left = 0, False
        lib.aio_device_leave_set(self._index)

    def note_reset(self, code: int, rule: Callable[[Counts], states.CountResult]) -> None:
        """Counts a reset by aioacl that returned `code`. If it succeeded, `rule` gives the new count."""
        with self._changed:
            if code == 0 and self.added:
                self.added -= 1
            elif code == 0:
                self.own_sets -= self.own_sets > 0
                self.change(rule(self.now).counts)
            elif code == RELEASED_ALREADY:
                self.added = 0
                self.change(Counts())
