"""For the tests of the core: items, and a clock and executions in virtual time."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioacl._batches.core import Core
from aioacl._batches.state import DeviceState, Ending, Execution, ModelState, Rules
from aioacl._batches.waiting import OVER, WAITING, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

GEARS = (1, 2, 4, 8, 16, 32)


class Job:
    """An item. `bad` decides how an execution of it ends."""

    def __init__(
        self,
        name: int = 0,
        *,
        rows: int = 1,
        key: Hashable = None,
        shape: Hashable = None,
        patient: bool = True,
        bad: Ending | None = None,
    ) -> None:
        self.name = name
        self.bad = bad
        self.outcome: Ending | str | None = None
        self._rows = rows
        self._key = key
        self._shape = shape
        self._patient = patient
        self._deadline: float | None = None
        self._state = WAITING
        self._turn: Any = None

    def __repr__(self) -> str:
        return f"Job({self.name}, rows={self._rows}, key={self._key!r}, shape={self._shape!r})"


@dataclass
class World:
    """A core with its models, each on a device of its own; executions run one after another, in no time.

    Attributes:
        ends: how an execution ends; by default, as the first bad item in it says.
        resets: how many resets of devices there were.
        log: the names of the items of each execution.
    """

    rules: Rules = field(default_factory=lambda: Rules(GEARS))
    devices: int = 1
    now: float = 0.0
    ends: Callable[[Execution[Job]], Ending] | None = None
    resets: int = 0
    comes_back: bool = True
    log: list[list[int]] = field(default_factory=list[list[int]])

    def __post_init__(self) -> None:
        self.core: Core[Job] = Core(self.rules)
        self.models = [ModelState[Job](DeviceState()) for _ in range(self.devices)]
        for model in self.models:
            self.core.add_model(model)
        self.begun: list[Execution[Job]] = []

    def arrive(self, *jobs: Job) -> list[Job]:
        """Adds the items of one turn. Returns those that are refused."""
        turn = Turn(jobs[0])
        for job in jobs[1:]:
            turn.add(job)
        for job in jobs:
            job._turn = turn
        return self.core.arrive(turn, self.now)

    def begin(self) -> list[Execution[Job]]:
        """Begins all executions that the core wants now."""
        new = list(iter(lambda: self.core.next(self.now), None))
        self.begun += new
        self.log += [[job.name for job in execution.items] for execution in new]
        return new

    def end(self, execution: Execution[Job], ending: Ending | None = None) -> list[Job]:
        """Ends an execution, and resets its device if it has failed."""
        self.begun.remove(execution)
        how = ending or (self.ends or _as_the_items_say)(execution)
        device = execution.model.device
        over = self.core.ended(execution, how, self.now)
        for job in over:
            assert job.outcome is None, f"expected one outcome of {job.name}, got {job.outcome} and {how}"
            assert job._state == OVER
            job.outcome = how
        if how in (Ending.DEVICE, Ending.DEVICE_ALONE) and self.comes_back:
            self.resets += 1
            self.core.tell(device, is_open=True, coming=False, generation=device.generation + 1)
        return over

    def run(self, most: int = 500) -> None:
        """Runs until nothing is left to do."""
        for _ in range(most):
            self.begin()
            if not self.begun:
                return
            self.end(self.begun[0])
        raise AssertionError(f"expected the core to come to an end, got {most} executions")


def _as_the_items_say(execution: Execution[Job]) -> Ending:
    return next((job.bad for job in execution.items if job.bad is not None), Ending.DONE)


def depart(
    arrivals: Sequence[float], base: float, per_row: float, upload: float
) -> tuple[list[float], float]:
    """Runs a core in virtual time, with one model that executes serially.

    The upload of an execution overlaps the execution before it.

    Returns:
        The time from the arrival of each item to its result, and the time of the last result.
    """
    core: Core[Job] = Core(Rules(GEARS, limit=1 << 30))
    model = ModelState[Job](DeviceState())
    core.add_model(model)
    tie, busy_until, found = itertools.count(), 0.0, list[float]()
    events: list[tuple[float, int, Any]] = [(at, next(tie), None) for at in arrivals]
    while events:
        now, _, execution = heapq.heappop(events)
        begun = list[Execution[Job]]()
        if execution is None:
            job = Job()
            job._turn = Turn(job)
            first = core.arrive_alone(job._turn, now)
            if first is None:
                core.arrive(job._turn, now)
            else:
                begun.append(first)
        else:
            found += [now - job._turn.born for job in core.ended(execution, Ending.DONE, now)]
        while (more := core.next(now)) is not None:
            begun.append(more)
        for each in begun:
            gear = next(size for size in GEARS if size >= each.rows)
            busy_until = max(now + upload, busy_until) + base + per_row * gear
            heapq.heappush(events, (busy_until, next(tie), each))
    return found, busy_until
