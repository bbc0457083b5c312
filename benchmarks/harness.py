"""Repeats of measurements: the ways alternate, so that a disturbance affects all of them."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from benchmarks.rows import Row


UNPINNED_REPEATS: Final = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """The seconds of one operation: on the clock, and of processor time of all threads of the process."""

    wall: float
    cpu: float = 0.0


class Timer:
    """Measures a block; `sample(count)` divides by the number of operations."""

    wall = 0.0
    cpu = 0.0

    def sample(self, count: int) -> Sample:
        """Returns the time of one operation."""
        return Sample(self.wall / count, self.cpu / count)


@contextmanager
def timed() -> Generator[Timer]:
    """Measures the block."""
    timer = Timer()
    cpu, wall = time.process_time(), time.perf_counter()
    yield timer
    timer.wall = time.perf_counter() - wall
    timer.cpu = time.process_time() - cpu


@contextmanager
def no_collections() -> Generator[None]:
    """Collects garbage now, and not inside the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Progress(Protocol):
    """Called with the number of finished steps, the number of all steps, and what runs now."""

    def __call__(self, done: int, total: int, what: str) -> None:
        """Reports a finished step."""


@dataclass(slots=True)
class Session:
    """How a suite runs: its number of repeats, and where it reports its progress.

    Attributes:
        quick: whether the suite may take only a few seconds.
        pinned: whether the process runs on the number of cores that the suite wants.
    """

    quick: bool
    progress: Progress
    pinned: bool = True
    steps: int = 0
    total: int = 0

    def repeats(self, full: int, quick: int = 3) -> int:
        """Returns the number of repeats of this session. Rows that only report take fewer than rows with limits."""
        return quick if self.quick else full if self.pinned else min(full, UNPINNED_REPEATS)

    def plan(self, steps: int) -> None:
        """Sets the number of steps of the suite."""
        self.total = steps

    def step(self, what: str) -> None:
        """Reports a finished step."""
        self.steps += 1
        self.progress(self.steps, max(self.total, self.steps), what)

    def interleave(
        self, ways: Mapping[str, Callable[[], Sample]], repeats: int, what: str
    ) -> dict[str, list[Sample]]:
        """Calls each way once to warm up, and then once in each repeat. The first way of a repeat rotates."""
        names = list(ways)
        found: dict[str, list[Sample]] = {name: [] for name in names}
        for name in names:
            ways[name]()
        for repeat in range(repeats):
            first = repeat % len(names)
            for name in names[first:] + names[:first]:
                with no_collections():
                    found[name].append(ways[name]())
            self.step(what)
        return found


def walls(samples: Sequence[Sample]) -> list[float]:
    """Returns the times on the clock."""
    return [sample.wall for sample in samples]


def cpus(samples: Sequence[Sample]) -> list[float]:
    """Returns the processor times."""
    return [sample.cpu for sample in samples]


@dataclass(frozen=True, slots=True)
class Suite:
    """A named set of measurements that runs in a process of its own.

    Attributes:
        cores: the number of cores that its process is pinned to.
        unpinned: whether it runs a second time on all cores. The rows of that run are reported only.
        environment: variables of its process.
    """

    name: str
    summary: str
    run: Callable[[Session], list[Row]]
    cores: int = 1
    unpinned: bool = False
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
