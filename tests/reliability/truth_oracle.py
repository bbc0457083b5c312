"""The expected result of each await, from a model of the streams. The script that enqueues work updates the model.

The script makes a task fail by a rule of the simulator, so the failing task and its code are known. An await covers the
tasks of its stream up to its place. If one of these is a wait for an event, the await depends on the tasks that the
event covers.

An entry is *in doubt* if only a synchronize shows whether it has succeeded. These are the entries of a launch block
with `reported=False`, waits for events that took a second or more, and all entries if no failure is reported. The code
of a synchronize does not identify the task. So until an await that covers the entry has succeeded, the failure of other
work of its stream may be attributed to it. `device.synchronize()` synchronizes the device after all work that it covers
has succeeded. So the failure of another stream may be attributed to the entry only if the failed task may have been
enqueued during a wait for the device, or if that wait does not cover the task.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A wait for an event that takes this long may have timed out. The runtime does not report which wait has timed out.
SHORTEST_LIMIT_SECONDS: Final = 1.0
NO, MAYBE, YES = 0, 1, 2


@dataclass(eq=False, slots=True)
class DeviceWait:
    """An await of `device.synchronize()`."""

    begin: float
    end: float = math.inf

    def may_take(self, failure: Failure) -> bool:
        """Whether the code of the synchronize may be that of the failure."""
        covered = failure.counted and not failure.queue.renewed and failure.until < self.begin
        return failure.since <= self.end and not covered


@dataclass(eq=False, slots=True)
class Failure:
    """A task that was made to fail."""

    queue: Queue
    place: int
    code: int
    what: str
    reported: bool  # whether the runtime calls a callback for this kind of failure
    # The first and the last position to which the engine may attribute the failure; 0 if it does not count the task.
    first: int = 0
    position: int = 0
    collected: int = NO
    counted: bool = True  # whether the engine counts the task
    # The task is enqueued between these times.
    since: float = 0.0
    until: float = math.inf

    def __str__(self) -> str:
        return f"{self.what} at {self.place} (position {self.position}) of {self.queue}, code {self.code}"

    def is_at(self, position: int) -> bool:
        """Whether the engine may attribute the failure to this position."""
        return not self.position or self.first <= position <= self.position


@dataclass(eq=False, slots=True)
class Entry:
    """One piece of work, at its place on its stream."""

    place: int
    failure: Failure | None = None
    source: Queue | None = None  # if the entry is a wait for an event: the stream of the event
    at: int = 0  # the place of the event on that stream
    since: float = 0.0
    done: float = 0.0  # the time when an await that covers the entry returned
    counted: bool = True  # whether the engine counts the entry; it does not if the entry is enqueued by hand
    unsure: bool = False  # whether the runtime may not report a failure of the entry

    def in_doubt(self, now: float) -> bool:
        """Whether only a synchronize shows that the entry has succeeded."""
        slow = self.source is not None and (self.done or now) - self.since >= SHORTEST_LIMIT_SECONDS
        return self.unsure or slow


@dataclass(eq=False)
class Queue:
    """A native stream, and the entries that were enqueued on it."""

    name: str
    device: int
    id: int
    peers: list[Queue]  # all streams of the scenario
    exact: bool  # whether the runtime reports failures
    waits: list[DeviceWait]  # for the device
    entries: list[Entry] = field(default_factory=list[Entry])
    placed: int = 0  # the place of the newest entry that was enqueued
    counted: int = 0  # the place of the newest entry that the engine counts
    renewed: bool = False
    depth: int = 0  # the longest chain of waits for events that ends on this stream

    def __str__(self) -> str:
        return f"{self.name} (stream {self.id} of device {self.device})"

    def add(self, **facts: object) -> Entry:
        """Adds an entry that is about to be enqueued."""
        entry = Entry(len(self.entries) + 1, since=time.monotonic(), **facts)  # type: ignore[arg-type]
        entry.unsure = entry.unsure or not self.exact
        if entry.failure is not None:
            entry.failure.since, entry.failure.counted = entry.since, entry.counted
        self.entries.append(entry)
        return entry

    def enqueued(self, entry: Entry, position: int = 0, first: int = 0) -> None:
        """Notes that the entry was enqueued, and between which positions its failure may be."""
        self.placed = entry.place
        if entry.counted:
            self.counted = entry.place
        if entry.failure is not None:
            entry.failure.first, entry.failure.position = first or position, position
            entry.failure.until = time.monotonic()
        if entry.source is not None:
            self.depth = max(self.depth, entry.source.depth + 1)

    def own(self, place: int) -> Failure | None:
        """Returns the first failing task of this stream up to the place."""
        return next((e.failure for e in self.entries[:place] if e.failure is not None), None)

    def links(self, place: int) -> Iterator[Entry]:
        """Returns the waits for events up to the place."""
        return (entry for entry in self.entries[:place] if entry.source is not None)

    def first(self, place: int) -> Failure | None:
        """Returns the failure that an await up to the place must raise: of this stream, or else of a source."""
        found = self.own(place)
        if found is not None:
            return found
        for link in self.links(place):
            found = link.source.first(link.at) if link.source is not None else None
            if found is not None:
                return found
        return None

    def all(self, place: int) -> list[Failure]:
        """Returns every failure up to the place, and every failure on which an entry up to the place depends."""
        found = {id(e.failure): e.failure for e in self.entries[:place] if e.failure is not None}
        for link in self.links(place):
            if link.source is not None:
                found |= {id(failure): failure for failure in link.source.all(link.at)}
        return list(found.values())

    def seen(self, place: int, now: float) -> None:
        """Notes that everything up to the place is done."""
        for entry in self.entries[:place]:
            if not entry.done:
                entry.done = now
                if entry.source is not None:
                    entry.source.seen(entry.at, now)

    def doubtful(self, place: int, now: float, *, refused: bool = False) -> list[Failure]:
        """Returns the failures that may be attributed to work up to the place, although that work has not failed.

        `refused`: work after the place was perhaps refused. If no failure is reported, this work is in doubt too.
        """
        open_ = [entry for entry in self.entries[:place] if not entry.done]
        found: list[Failure] = []
        if any(entry.in_doubt(now) for entry in open_) or (refused and not self.exact):
            peers = [peer for peer in self.peers if peer.device == self.device]
            found += [f for peer in peers for f in peer.failures() if peer is self or self._was_taken(f)]
        for entry in open_:
            if entry.source is not None:
                found += entry.source.doubtful(entry.at, now)
        return found

    def _was_taken(self, failure: Failure) -> bool:
        return any(wait.may_take(failure) for wait in self.waits)

    def failures(self) -> list[Failure]:
        """Returns every failure of this stream."""
        return [entry.failure for entry in self.entries if entry.failure is not None]

    def may_hide(self, failure: Failure) -> bool:
        """Whether another failure may be attributed to the failed entry or an earlier one, and so hide the failure."""
        return any(
            entry.in_doubt(math.inf) and not 0 < entry.done < failure.since
            for entry in self.entries[: failure.place]
        )


def collect(failures: Iterable[Failure], code: int | None) -> None:
    """Notes that an await raised this code. If several of the failures have the code, any of them may be collected."""
    candidates = [failure for failure in failures if failure.code == code]
    for failure in candidates:
        failure.collected = max(failure.collected, YES if len(candidates) == 1 else MAYBE)
