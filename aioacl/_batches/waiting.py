"""The items that wait for their first execution: whose turn it is, what fits together, and the limits.

Pure: no clock, no thread, no await. Items of the same shape are in one queue, with one line for each key. Keys take
turns, one item each. Inside a line, the order of arrival is kept. An item for which there is no room waits outside, and
room goes to the keys outside in turn.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from aioacl._base.ffi import TurnBase, move_items

if TYPE_CHECKING:
    from collections.abc import Hashable

# The states of an item. `bind_items` gives the first two to C.
NEW: Final = 0  # its caller does not wait for it yet
WAITING: Final = 1  # it waits in its turn, and then in its line
OUTSIDE: Final = 2  # it waits for room
AGAIN: Final = 3  # an execution of it has failed, and it waits for another one
RUNNING: Final = 4  # its copy into a slot may have begun
OVER: Final = 5  # it has its outcome
FEWEST_DROPPED: Final = 32
NOT_YET: Final = float("inf")  # when a turn arrives that has not ended


class Item(Protocol):
    """What the core reads and writes of an item. The names are private, because users get the items.

    Attributes:
        _rows: the number of its rows.
        _key: whose item it is; keys take turns.
        _shape: its dimensions without the rows; only items of the same shape join.
        _deadline: when its time limit ends; None if it has none.
        _patient: whether it waits for room.
        _state: one of the states above.
        _turn: the items with which it arrived.
    """

    _rows: int
    _key: Hashable
    _shape: Hashable
    _state: int
    _turn: Any

    @property
    def _deadline(self) -> float | None: ...

    @property
    def _patient(self) -> bool: ...


I = TypeVar("I", bound=Item)  # noqa: E741 - the type of the items


class Turn(TurnBase, Generic[I]):
    """The items that arrive together: those of one turn of a loop.

    Attributes:
        items: the items.
        rows: their rows.
        born: when they arrived; NOT_YET while the turn goes on.
        apart: whether their keys or shapes differ, or one was cancelled before the end of the turn.
        of: the loop, for the runner.
    """

    __slots__ = ()

    items: list[I]

    def __init__(self, first: I, of: Any = None) -> None:
        self.items = [first]
        self.rows = first._rows
        self.of = of
        self.born = NOT_YET
        self.apart = False

    def add(self, item: I) -> None:
        """Adds an item."""
        items = self.items
        items.append(item)
        self.rows += item._rows
        if item._key is not items[0]._key or item._shape is not items[0]._shape:
            self.apart = True


class Line(Generic[I]):
    """The items of one key in one queue."""

    __slots__ = ("dropped", "items", "key", "queue")

    def __init__(self, key: Hashable, queue: Queue[I]) -> None:
        self.key = key
        self.queue = queue
        self.items: deque[I] = deque()
        self.dropped = 0  # items that were cancelled, and are still in `items`

    def first(self) -> I:
        """Returns the first item that was not dropped. The line must have one."""
        items = self.items
        while self.dropped and items[0]._state != WAITING:
            items.popleft()
            self.dropped -= 1
        return items[0]

    def forget_dropped(self) -> None:
        """Removes the dropped items if they are many, so that a drop costs the same in a long line."""
        if self.dropped > FEWEST_DROPPED and self.dropped * 2 > len(self.items):
            self.items = deque(item for item in self.items if item._state == WAITING)
            self.dropped = 0


class Queue(Generic[I]):
    """The items of one shape. `turns` has the lines that are not empty, that of the next turn first."""

    __slots__ = ("lines", "rows", "shape", "turns")

    def __init__(self, shape: Hashable) -> None:
        self.shape = shape
        self.lines: dict[Hashable, Line[I]] = {}
        self.turns: deque[Line[I]] = deque()
        self.rows = 0

    def new_line(self, key: Hashable) -> Line[I]:
        """Makes a line for a key. It gets the last turn."""
        line = self.lines[key] = Line(key, self)
        self.turns.append(line)
        return line

    def oldest(self) -> float:
        """Returns when the oldest item arrived."""
        oldest: float = min(line.first()._turn.born for line in self.turns)
        return oldest


class Waiting(Generic[I]):
    """All items that wait for their first execution.

    Attributes:
        rows: the rows that count against the limit: of the items in the queues, and of those that were put back.
        queues: the queues that are not empty, by shape.
        outside: the items that wait for room, by key; the key of the next turn first.
    """

    __slots__ = ("_limit", "_limit_per_key", "_most", "_of_key", "_spare", "outside", "queues", "rows")

    def __init__(self, most: int, limit: int, limit_per_key: int | None) -> None:
        self._most = most
        self._limit = limit
        self._limit_per_key = limit_per_key
        self._of_key: dict[Hashable, int] = {}  # counted only with `limit_per_key`
        self._spare: Queue[I] | None = None  # the newest queue that got empty, which is used again
        self.rows = 0
        self.queues: dict[Hashable, Queue[I]] = {}
        self.outside: OrderedDict[Hashable, OrderedDict[I, None]] = OrderedDict()

    # --- arrivals ---------------------------------------------------------------------------------------------------

    def add(self, turn: Turn[I], now: float) -> list[I]:
        """Adds new items. Returns those for which there is no room, and which do not wait for it."""
        items = turn.end(now)
        apart = turn.apart or self.outside or self._limit_per_key is not None
        if apart or self.rows + turn.rows > self._limit:
            return self._add_each(items)
        first = items[0]
        line = self._line_of(first._shape, first._key)
        line.items.extend(items)
        line.queue.rows += turn.rows
        self.rows += turn.rows
        return []

    def _add_each(self, items: list[I]) -> list[I]:
        refused = list[I]()
        for item in items:
            if item._state != WAITING:
                continue
            if self._has_room(item, beside=True):
                self._add_one(item)
            elif item._patient:
                self.outside.setdefault(item._key, OrderedDict())[item] = None
                item._state = OUTSIDE
            else:
                item._state = OVER
                refused.append(item)
        return refused

    def _line_of(self, shape: Hashable, key: Hashable) -> Line[I]:
        queue = self.queues.get(shape)
        if queue is None:
            spare, self._spare = self._spare, None
            fits = spare is not None and spare.shape == shape and spare.turns[0].key == key
            queue = spare if fits and spare is not None else Queue[I](shape)
            self.queues[shape] = queue
        line = queue.lines.get(key)
        return queue.new_line(key) if line is None else line

    def _has_room(self, item: I, *, beside: bool) -> bool:
        """Whether an item fits. `beside`: whether it must not overtake the items that wait for room."""
        if beside and (item._key in self.outside or any(map(self._waits_for_all, self.outside))):
            return False
        return not self.key_is_full(item) and self.rows + item._rows <= self._limit

    def key_is_full(self, item: I) -> bool:
        """Whether an item that was refused lacks room in the limit of its key, and not only in that of all."""
        rows = self._of_key.get(item._key, 0) + item._rows
        return self._limit_per_key is not None and rows > self._limit_per_key

    def _waits_for_all(self, key: Hashable) -> bool:
        """Whether the first item of a key outside waits for the limit of all keys, and not for that of its own."""
        return not self.key_is_full(next(iter(self.outside[key])))

    def _count(self, key: Hashable, rows: int) -> None:
        """Counts rows of a key that came, or, if negative, that went."""
        if self._limit_per_key is None:
            return
        left = self._of_key.get(key, 0) + rows
        if left:
            self._of_key[key] = left
        else:
            self._of_key.pop(key, None)

    def admit(self) -> None:
        """Gives the room that there is to the items outside, one for each key in turn."""
        admitted = True
        while admitted and self.outside:
            admitted = False
            for key in tuple(self.outside):
                item = next(iter(self.outside[key]))
                if self._has_room(item, beside=False):
                    self._leave_outside(item)
                    if key in self.outside:
                        self.outside.move_to_end(key)
                    self._add_one(item)
                    admitted = True
                elif self._waits_for_all(key):
                    return  # nothing overtakes an item whose turn it is

    def _add_one(self, item: I) -> None:
        line = self._line_of(item._shape, item._key)
        line.items.append(item)
        line.queue.rows += item._rows
        item._state = WAITING
        self.take_room(item)

    def _leave_outside(self, item: I) -> None:
        items = self.outside[item._key]
        del items[item]
        if not items:
            del self.outside[item._key]

    def take_room(self, item: I) -> None:
        """Counts the rows of an item against the limits. An item that was put back is never refused."""
        self.rows += item._rows
        self._count(item._key, item._rows)

    def give_room(self, item: I) -> None:
        """Gives back the rows of an item that no longer waits."""
        self.rows -= item._rows
        self._count(item._key, -item._rows)

    # --- departures -------------------------------------------------------------------------------------------------

    def remove(self, item: I) -> None:
        """Ends an item that waits in its turn, in a queue, or outside."""
        state, item._state = item._state, OVER
        if state == OUTSIDE:
            self._leave_outside(item)
            return
        if item._turn.born == NOT_YET:
            item._turn.rows -= item._rows
            item._turn.apart = True
            return
        line = self.queues[item._shape].lines[item._key]
        line.dropped += 1
        line.queue.rows -= item._rows
        self.give_room(item)
        if line.dropped == len(line.items):
            self._drop_line(line)
        else:
            line.forget_dropped()

    def _drop_line(self, line: Line[I]) -> None:
        queue = line.queue
        del queue.lines[line.key]
        queue.turns.remove(line)
        if not queue.turns:
            del self.queues[queue.shape]

    def next_queue(self, *, full: bool) -> Queue[I] | None:
        """Returns the queue whose oldest item is the oldest of all; with `full`, among those with a full batch."""
        if len(self.queues) == 1:
            (queue,) = self.queues.values()
            return None if full and queue.rows < self._most else queue
        ready = [queue for queue in self.queues.values() if not full or queue.rows >= self._most]
        return min(ready, key=lambda queue: queue.oldest(), default=None)

    def take(self, queue: Queue[I]) -> list[I]:
        """Takes the next batch of a queue: one item of each key in turn, until the next item does not fit."""
        line = queue.turns[0]
        if len(queue.turns) > 1 or line.dropped:
            batch = self._in_turn(queue)
        elif queue.rows <= self._most:  # the usual case: all items that wait
            batch = list(line.items)
            line.items.clear()
            self.rows -= queue.rows
            queue.rows = 0
            self._spare = queue
            del self.queues[queue.shape]
        else:
            batch = self._of_line(line)
        move_items(batch, WAITING, RUNNING)
        if self._limit_per_key is not None:
            for item in batch:
                self._count(item._key, -item._rows)
        return batch

    def _of_line(self, line: Line[I]) -> list[I]:
        """Takes a batch from the only line of a queue, which has more rows than a batch."""
        items, batch, room = line.items, list[I](), self._most
        if line.queue.rows == len(items):  # items of one row
            batch, room = [items.popleft() for _ in range(room)], 0
        while items and items[0]._rows <= room:
            room -= items[0]._rows
            batch.append(items.popleft())
        self.rows -= self._most - room
        line.queue.rows -= self._most - room
        return batch

    def _in_turn(self, queue: Queue[I]) -> list[I]:
        turns, batch, room = queue.turns, list[I](), self._most
        while turns:
            line = turns[0]
            item = line.first()
            if item._rows > room:
                break
            room -= item._rows
            batch.append(item)
            line.items.popleft()
            if len(line.items) == line.dropped:
                turns.popleft()
                del queue.lines[line.key]
            else:
                turns.rotate(-1)
        self.rows -= self._most - room
        queue.rows -= self._most - room
        if not turns:
            del self.queues[queue.shape]
        return batch

    def items(self) -> list[I]:
        """Returns all items, those that wait for room last."""
        lines = [line for queue in self.queues.values() for line in queue.turns]
        inside = [item for line in lines for item in line.items if item._state == WAITING]
        return inside + [item for items in self.outside.values() for item in items]
