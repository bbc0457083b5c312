"""The expected result of each await, from a model of the streams. The script that enqueues work updates the model.

The script makes a task fail by a rule of the simulator, so the failing task and its code are known. An await covers the
tasks of its stream up to its place. If one of these is a wait for an event, the await depends on the tasks that the
event covers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A wait for an event that takes this long may have timed out. The runtime does not report which wait has timed out.
SHORTEST_LIMIT_SECONDS: Final = 1.0
NO, MAYBE, YES = 0, 1, 2


@dataclass(eq=False, slots=True)
class Failure:
    """A task that was made to fail."""

    queue: Queue
    place: int
    code: int
    what: str
    reported: bool  # whether the runtime calls a callback for this kind of failure
    position: int = 0  # the task's position; 0 if the engine does not count the task
    collected: int = NO

    def __str__(self) -> str:
        return f"{self.what} at {self.place} (position {self.position}) of {self.queue}, code {self.code}"


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


@dataclass(eq=False)
class Queue:
    """A native stream, and the entries that were enqueued on it."""

    name: str
    device: int
    id: int
    peers: list[Queue]  # all streams of the scenario
    entries: list[Entry] = field(default_factory=list[Entry])
    placed: int = 0  # the place of the newest entry that was enqueued
    counted: int = 0  # the place of the newest entry that the engine counts
    depth: int = 0  # the longest chain of waits for events that ends on this stream

    def __str__(self) -> str:
        return f"{self.name} (stream {self.id} of device {self.device})"

    def add(self, **facts: object) -> Entry:
        """Adds an entry that is about to be enqueued."""
        entry = Entry(len(self.entries) + 1, since=time.monotonic(), **facts)  # type: ignore[arg-type]
        self.entries.append(entry)
        return entry

    def enqueued(self, entry: Entry, position: int = 0) -> None:
        """Notes that the entry was enqueued."""
        self.placed = entry.place
        if entry.counted:
            self.counted = entry.place
        if entry.failure is not None:
            entry.failure.position = position
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
        for link in self.links(place):
            if not link.done and link.source is not None:
                link.done = now
                link.source.seen(link.at, now)

    def slow(self, place: int, now: float) -> bool:
        """Whether a wait for an event up to the place took so long that it may have timed out."""
        return any(
            (link.done or now) - link.since >= SHORTEST_LIMIT_SECONDS
            or (link.source is not None and link.source.slow(link.at, now))
            for link in self.links(place)
        )

    def doubtful(self, place: int, now: float) -> list[Failure]:
        """Returns the failures that may be attributed to work up to the place, although that work has not failed.

        A code that a stream returns does not identify the task, and a code that a device returns does not identify the
        stream. So if a wait for an event is slow, the failure of any task of the scenario may be attributed to it.
        """
        if not self.slow(place, now):
            return []
        found = [e.failure for peer in self.peers for e in peer.entries if e.failure is not None]
        for link in self.links(place):
            if link.source is not None:
                found += link.source.doubtful(link.at, now)
        return found


def collect(failures: Iterable[Failure], code: int | None) -> None:
    """Notes that an await raised this code. If several of the failures have the code, any of them may be collected."""
    candidates = [failure for failure in failures if failure.code == code]
    for failure in candidates:
        failure.collected = max(failure.collected, YES if len(candidates) == 1 else MAYBE)
