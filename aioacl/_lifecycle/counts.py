"""How often ACL's device is set in this process, as far as aioacl has done it.

A foreign reset ends all sets. The state callback tells of it, in C; what is counted here is valid only for as many
foreign resets as had been told then.
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
    """ACL's count of one device. Written with the lock of the device's admission held; a single read needs no lock.

    Attributes:
        now: what ACL counts, unless a foreign reset has ended it.
        foreign_resets_seen: the foreign resets that had been told when `now` was counted.
        own_sets: how many of the sets are of an open, and not given back yet; the others are of `lowlevel`.
        ended_generation: the generation whose native streams a reset of aioacl has ended. Procedures only use it.
    """

    def __init__(self, index: int, changed: Condition) -> None:
        self._index = index
        self._changed = changed
        self.now = Counts()
        self.foreign_resets_seen = 0
        self.own_sets = 0
        self.ended_generation = 0

    def change(self, counts: Counts) -> None:
        """What is counted from now on; of less than were own sets, all are. With the lock held."""
        self.now, self.own_sets = counts, min(self.own_sets, counts.retained)

    def standing(self) -> Counts:
        """How often the device is set; a foreign reset has ended all. With the lock held."""
        if self.foreign_resets_seen != lib.aio_device_foreign(self._index):
            self.change(Counts())
        return self.now

    def note_set(self, seen: int) -> None:
        """One set more, made when so many foreign resets had been told: the first after the newest of them is alone."""
        with self._changed:
            if self.foreign_resets_seen != seen:
                self.change(Counts())
            self.now, self.own_sets = states.set_device(self.now).counts, self.own_sets + 1
            self.foreign_resets_seen = seen

    def note_reset(self, code: int, rule: Callable[[Counts], states.CountResult]) -> None:
        """What a reset of an own set has returned."""
        with self._changed:
            if code == 0:
                self.own_sets -= self.own_sets > 0
                self.change(rule(self.now).counts)
            elif code == RELEASED_ALREADY:
                self.change(Counts())
