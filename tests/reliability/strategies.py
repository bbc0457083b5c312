"""Strategies that choose the thread that goes on at a point: random, by priorities, recorded, or exhaustive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.reliability.scheduler import Stuck

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

# In one of this many decisions, an option that is not a thread (for example the clock) is chosen.
EVENT_SHARE: Final = 16


class Uniform:
    """Chooses any thread, with equal probability."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def pick(self, options: Sequence[int], current: int) -> int:
        del current
        threads = [option for option in options if option >= 0]
        if len(threads) < len(options) and self._rng.randrange(EVENT_SHARE) == 0:
            return self._rng.choice([option for option in options if option < 0])
        return self._rng.choice(threads)


class Pct:
    """Probabilistic concurrency testing: runs the thread of highest priority; lowers a priority `depth - 1` times."""

    def __init__(self, rng: random.Random, depth: int, length: int) -> None:
        self._rng = rng
        self._changes = {rng.randrange(max(1, length)): float(-change) for change in range(1, depth)}
        self._priorities: dict[int, float] = {}
        self._decision = 0

    def pick(self, options: Sequence[int], current: int) -> int:
        for option in options:
            if option not in self._priorities:
                self._priorities[option] = self._rng.random()
        low = self._changes.get(self._decision)
        self._decision += 1
        first = max(options, key=self._priorities.__getitem__)
        if low is None:
            return first
        self._priorities[current if current in options else first] = low
        return max(options, key=self._priorities.__getitem__)


class Recorded:
    """Repeats recorded decisions, then chooses the running thread. Raises Stuck if the list does not fit the run."""

    def __init__(self, decisions: Sequence[int]) -> None:
        self._decisions = decisions
        self._next = 0

    def pick(self, options: Sequence[int], current: int) -> int:
        if self._next >= len(self._decisions):
            return current if current in options else options[0]
        chosen = self._decisions[self._next]
        self._next += 1
        if chosen not in options:
            raise Stuck(f"decision {self._next} was {chosen}, but the options are {options} now")
        return chosen


class _Branch:
    """One decision of a run: its options in order, and their costs."""

    __slots__ = ("free", "options", "spent", "taken")

    def __init__(self, options: Sequence[int], current: int, spent: int, *, strict: bool) -> None:
        mine = [current] if current in options else []
        self.options = [*mine, *(option for option in options if option != current)]
        threads = sum(option >= 0 for option in options)
        # This many options cost nothing; each of the others costs one deviation.
        self.free = 1 if mine or strict else threads
        self.spent = spent  # the cost of the earlier decisions
        self.taken = 0

    def cost(self, index: int) -> int:
        return self.spent + (index >= self.free)


class Bounded:
    """Makes all schedules with at most `bound` preemptions, one after another, depth first.

    A preemption stops a thread that could go on. When a thread begins to wait, the choice of the next thread costs
    nothing, so all choices are tried. Therefore the number of schedules grows with the factorial of the number of
    waits. With `strict`, only the oldest thread costs nothing in this case. Any other choice costs as much as a
    preemption (delay bounding), so longer scenarios can be tried too. An option that is not a thread always costs as
    much as a preemption.
    """

    def __init__(self, bound: int, *, strict: bool) -> None:
        self._bound = bound
        self._strict = strict
        self._path: list[_Branch] = []
        self._depth = 0

    def pick(self, options: Sequence[int], current: int) -> int:
        if self._depth == len(self._path):
            before = self._path[-1] if self._path else None
            spent = before.cost(before.taken) if before else 0
            self._path.append(_Branch(options, current, spent, strict=self._strict))
        branch = self._path[self._depth]
        if set(branch.options) != set(options):
            raise Stuck(
                f"decision {self._depth} had the options {branch.options}, but the options are {options} now"
            )
        self._depth += 1
        return branch.options[branch.taken]

    def schedules(self) -> Iterator[Bounded]:
        """Yields itself once for each schedule that was not made yet."""
        while True:
            self._depth = 0
            yield self
            del self._path[self._depth :]  # the last run was shorter, and did not reach these decisions
            while self._path and not self._advance(self._path[-1]):
                self._path.pop()
            if not self._path:
                return

    def _advance(self, branch: _Branch) -> bool:
        branch.taken += 1
        return branch.taken < len(branch.options) and branch.cost(branch.taken) <= self._bound
