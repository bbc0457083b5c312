"""The records of the core: devices, models, executions, counts, and the arguments of a batcher. Pure, as `core`."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic

from aioacl._base.totals import QUICK_BOUNDS
from aioacl._batches.repeats import Streak
from aioacl._batches.waiting import AGAIN, I

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioacl._batches.repeats import Division
    from aioacl._batches.waiting import Item

WAITS_KEPT: Final = 1024  # the waits of which `stats` gives the percentiles
_turn: Final = attrgetter("_turn")
NEWEST: Final = 0.2  # the share of the newest execution in the measured rate


class Ending(Enum):
    """How an execution has ended.

    DONE: with a result for each item. FAILED: with an error that no repeat can change. TASK: its task has failed; the
    device works. TASK_TIMEOUT: its task ran too long, which takes as long again in each repeat. DEVICE: the device has
    failed. DEVICE_ALONE: likewise, and nothing else of the process ran on it. RESET: a reset has ended it.
    """

    DONE = "done"
    FAILED = "failed"
    TASK = "task"
    TASK_TIMEOUT = "task timeout"
    DEVICE = "device"
    DEVICE_ALONE = "device alone"
    RESET = "reset"


class DeviceState(Generic[I]):
    """A device, and the items that run alone on it.

    Attributes:
        open: whether it admits work.
        coming: whether it will probably be open after a reset: it drains, is reset, or is supervised.
        generation: its generation; a reset raises it.
        faulty: the newest generation in which it has failed.
        check: whether an execution with zeros must succeed before others begin.
        suspects: the items that run alone.
        taken: whether an item runs alone now, so that nothing may run beside it.
        models: its models.
    """

    __slots__ = ("check", "coming", "faulty", "generation", "models", "open", "suspects", "taken")

    def __init__(self) -> None:
        self.open = True
        self.coming = False
        self.generation = 0
        self.faulty = -1
        self.check = self.taken = False
        self.suspects: deque[I] = deque()
        self.models: list[ModelState[I]] = []

    @property
    def usable(self) -> bool:
        """Whether it is open, and was reset after its newest failure."""
        return self.open and self.faulty < self.generation

    @property
    def free(self) -> bool:
        """Whether batches may begin."""
        return self.usable and not self.check and not self.taken

    @property
    def idle(self) -> bool:
        """Whether no execution is in flight on it."""
        return not any(model.running for model in self.models)

    def next_suspect(self) -> I | None:
        """Takes the next item that runs alone; None if there is none."""
        while self.suspects:
            item = self.suspects.popleft()
            if item._state == AGAIN:
                return item
        return None

    def has_suspects(self) -> bool:
        """Whether an item waits to run alone."""
        while self.suspects and self.suspects[0]._state != AGAIN:
            self.suspects.popleft()
        return bool(self.suspects)


class ModelState(Generic[I]):
    """A model that executes batches.

    Attributes:
        device: its device.
        running: the executions in flight.
        rows: their rows.
        rate: its measured rows a second; 0.0 before the first execution has ended.
        leaving: whether it gets no new batch, because another model has replaced it.
        streak: whether its batches are divided.
    """

    __slots__ = ("device", "last_end", "leaving", "rate", "rows", "running", "streak")

    def __init__(self, device: DeviceState[I]) -> None:
        self.device = device
        self.running: set[Execution[I]] = set()
        self.rows = 0
        self.rate = 0.0
        self.last_end = 0.0
        self.leaving = False
        self.streak = Streak()

    @property
    def load(self) -> tuple[float, float]:
        """How long the rows in flight probably take; of two equal loads, that of the faster model is smaller."""
        return (self.rows / self.rate if self.rate else float(self.rows)), -self.rate

    def measure(self, execution: Execution[I], now: float) -> None:
        """Updates the rate. An execution begins when the one before it has ended."""
        spent = now - max(execution.began, self.last_end)
        self.last_end = now
        if spent > 0:
            rate = execution.rows / spent
            self.rate = rate if not self.rate else self.rate + NEWEST * (rate - self.rate)


class Execution(Generic[I]):
    """One execution that `next` has decided on.

    Attributes:
        model: the model.
        items: its items; empty for an execution with zeros.
        rows: the number of rows.
        began: when it was decided on.
        alone: whether its item is a suspect, which runs alone.
        division: the divided batch to which it belongs, if any.
        generation: the generation of the device when it began.
        number: its number in the flight recorder; 0 before it has begun.
        range: its range of mstx; 0 for none.
        was_alone: of a suspect, the function of its executor that returns whether it was alone on the device.
    """

    __slots__ = (
        "alone",
        "began",
        "division",
        "generation",
        "items",
        "model",
        "number",
        "range",
        "rows",
        "was_alone",
    )

    def __init__(self, model: ModelState[I], items: list[I], rows: int, began: float) -> None:
        self.model = model
        self.items = items
        self.rows = rows
        self.began = began
        self.alone = False
        self.division: Division | None = None
        self.generation = model.device.generation
        self.number = 0
        self.range = 0
        self.was_alone: Callable[[], bool] | None = None


@dataclass(slots=True)
class Counts:
    """What `stats` reports.

    Attributes:
        gears: the numbers of rows that an execution can have, in order.
        repeats: executions of items that had been in an execution before.
        done, failed, cancelled, expired, refused: items by outcome.
        waits: the newest waits in seconds, each with the number of items that waited so long.
        divided, suspects: those of the repeats that follow the division of a batch, and those of items that run alone.
        by_rows: executions by their rows.
        waited, waited_seconds: all waits: their numbers between the QUICK_BOUNDS, and their sum.
    """

    gears: tuple[int, ...]
    repeats: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    refused: int = 0
    waits: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=WAITS_KEPT))
    divided: int = 0
    suspects: int = 0
    by_rows: dict[int, int] = field(default_factory=dict[int, int])
    waited: list[int] = field(default_factory=lambda: [0] * (len(QUICK_BOUNDS) + 1))
    waited_seconds: float = 0.0

    @property
    def executions(self) -> int:
        """The executions that were begun."""
        return sum(tuple(self.by_rows.values()))

    @property
    def rows(self) -> int:
        """Their rows."""
        return sum(rows * executions for rows, executions in tuple(self.by_rows.items()))

    @property
    def padded(self) -> int:
        """Their rows of padding."""
        return sum(
            (self.gear_of(rows) - rows) * executions for rows, executions in tuple(self.by_rows.items())
        )

    def gear_of(self, rows: int) -> int:
        """Returns the smallest gear with room for so many rows."""
        return self.gears[bisect_left(self.gears, rows)]

    def add_wait(self, seconds: float, items: int) -> None:
        """Notes that so many items have waited so long."""
        self.waits.append((seconds, items))
        self.waited[bisect_left(QUICK_BOUNDS, seconds)] += items
        self.waited_seconds += seconds * items

    def wait(self, items: Sequence[Item], now: float) -> None:
        """Notes how long the items of a batch have waited. Those that arrived together are usually neighbours."""
        for turn, together in groupby(items, _turn):
            self.add_wait(now - turn.born, len(tuple(together)))

    def percentiles(self, *parts: float) -> list[float]:
        """Returns percentiles of the newest waits."""
        waits, kept = list[tuple[float, int]](), 0
        for wait in reversed(tuple(self.waits)):
            if kept >= WAITS_KEPT:
                break
            waits.append(wait)
            kept += wait[1]
        waits.sort()
        found = list[float]()
        for part in parts:
            left = part * kept
            for seconds, count in waits:
                left -= count
                if left <= 0:
                    found.append(seconds)
                    break
            else:
                found.append(0.0)
        return found


@dataclass(frozen=True, slots=True)
class Rules:
    """The arguments of `open_batcher`.

    Attributes:
        gears: the numbers of rows that an execution can have, in order.
        most: the most rows of a batch; 0 is the largest gear.
    """

    gears: tuple[int, ...]
    most: int = 0
    limit: int = 1024
    limit_per_key: int | None = None
    in_flight: int = 2
    hold: float = 0.0
    attempts: int = 2

    @property
    def max_rows(self) -> int:
        """The most rows of a batch."""
        return self.most or self.gears[-1]
