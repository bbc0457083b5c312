"""Executions after a failure: which items run again, together or alone, and which have failed for good.

Pure, as `core`. Two kinds of failures are repeated. After a failed task, the batch is divided: its halves run again, so
that an item that fails alone is found. After a failure of the device, the items are suspects: each runs alone, so that
a second failure names the culprit.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic

from aioacl._batches.waiting import AGAIN, RUNNING, I

if TYPE_CHECKING:
    from collections.abc import Iterable

SPENT_IN_A_ROW: Final = 2
REPEATS: Final = 8


class Streak:
    """Whether batches of a model are divided: not after two in a row that have used up their budgets.

    Attributes:
        spent: how many batches in a row have used up their budgets.
    """

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0

    @property
    def divides(self) -> bool:
        """Whether the next failed batch is divided."""
        return self.spent < SPENT_IN_A_ROW

    def end(self) -> None:
        """A batch has succeeded, or its bad items were found."""
        self.spent = 0

    def grow(self) -> None:
        """A batch has used up its budget."""
        self.spent += 1


class Division:
    """One batch that is divided, and its budget of executions.

    Attributes:
        spent: whether the budget was not enough.
    """

    __slots__ = ("_left", "_open", "_streak", "spent")

    def __init__(self, items: int, streak: Streak) -> None:
        self._left = 4 * (items - 1).bit_length()  # and one, which has failed
        self._open = 1  # groups that have not ended
        self._streak = streak
        self.spent = False

    def reserve(self, count: int) -> bool:
        """Takes executions from the budget. Returns False if not enough are left."""
        if self._left < count:
            self.spent = True
            return False
        self._left -= count
        self._open += count
        return True

    def stay(self) -> None:
        """A group that has ended is put back, because of a reset."""
        self._open += 1

    def end_one(self) -> None:
        """One group has ended."""
        self._open -= 1
        if self._open:
            return
        if self.spent:
            self._streak.grow()
        else:
            self._streak.end()


class Tries:
    """How often an item has failed and was put back."""

    __slots__ = ("_faults", "_repeats")

    def __init__(self) -> None:
        self._faults = self._repeats = 0

    def after_fault(self) -> int:
        """Counts and returns its executions that ended with a failure of the device, or a reset after one."""
        self._faults += 1
        return self._faults

    def again(self) -> int:
        """Counts and returns how often it was put back."""
        self._repeats += 1
        return self._repeats


class Group(Generic[I]):
    """Items that run again together, and with no others."""

    __slots__ = ("division", "items")

    def __init__(self, items: list[I], division: Division | None) -> None:
        self.items = items
        self.division = division


def divide(group: Group[I], count: int, streak: Streak, until: float) -> tuple[list[I], list[Group[I]]]:
    """Returns the items that have failed, and the halves that run again.

    Args:
        group: the items of the execution that has failed, without those that have gone.
        count: the number of items of that execution, with those that have gone. One of them may have been the cause.
        streak: that of the model.
        until: when one more execution may have failed as well. Items whose time limit ends before do not run again.
    """
    items = group.items
    rest = [item for item in items if item._deadline is None or item._deadline >= until]
    if count == 1 or not rest or (group.division is None and not streak.divides):
        return items, []
    if group.division is None:
        group.division = Division(count, streak)
    middle = (len(rest) + 1) // 2
    halves = [Group(half, group.division) for half in (rest[:middle], rest[middle:]) if half]
    if not group.division.reserve(len(halves)):
        return items, []
    return [item for item in items if item._deadline is not None and item._deadline < until], halves


class Again(Generic[I]):
    """The groups that run again, before all new items. Each group leaves as a batch of its own."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: deque[Group[I]] = deque()

    def __bool__(self) -> bool:
        return bool(self._groups)

    def first(self, items: list[I], division: Division | None) -> None:
        """Puts items back to the front."""
        self._groups.appendleft(Group(items, division))

    def last(self, groups: Iterable[Group[I]]) -> None:
        """Adds the halves of a batch. They follow other halves, so that all parts of a batch get small evenly."""
        self._groups.extend(groups)

    def take(self) -> Group[I]:
        """Takes the next group, without the items that have gone meanwhile. It may be empty."""
        group = self._groups.popleft()
        group.items = [item for item in group.items if item._state == AGAIN]
        for item in group.items:
            item._state = RUNNING
        return group

    def items(self) -> list[I]:
        """Returns all items."""
        return [item for group in self._groups for item in group.items]
