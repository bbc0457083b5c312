"""The expected result of each await: a model of the streams, updated by the script that enqueues, not by the engine.

The script makes a task fail by a rule of the simulator, so the failing task and its code are known. An await covers the
tasks of its stream up to its place. Through each wait for an event among them, it depends on the tasks that the event
covers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A wait for an event that takes longer may have timed out. The runtime does not report which wait has.
SHORTEST_LIMIT_SECONDS: Final = 1.0
NO, MAYBE, YES = 0, 1, 2


@dataclass(eq=False, slots=True)
class Failure:
    """A task that was made to fail."""

    queue: Queue
    place: int
    code: int
    what: str
    reported: bool  # the runtime has a callback for its kind
    position: int = 0  # in the engine's count; 0: not counted
    collected: int = NO

    def __str__(self) -> str:
        return f"{self.what} at {self.place} (position {self.position}) of {self.queue}, code {self.code}"


@dataclass(eq=False, slots=True)
class Entry:
    """One piece of work, in its order on its stream."""

    place: int
    failure: Failure | None = None
    source: Queue | None = None  # the stream whose event it waits for
    at: int = 0  # the place on that stream
    since: float = 0.0
    done: float = 0.0  # when an await that covers it has returned
    counted: bool = True  # whether the engine counts it: not if it is enqueued by hand


@dataclass(eq=False)
class Queue:
    """A native stream: what was enqueued on it."""

    name: str
    device: int
    id: int
    peers: list[Queue]  # the other streams of the scenario
    entries: list[Entry] = field(default_factory=list[Entry])
    placed: int = 0  # the place of the newest entry that was enqueued
    counted: int = 0  # the newest position, which counts only what the engine counts
    depth: int = 0  # the longest chain of waits for events up to here

    def __str__(self) -> str:
        return f"{self.name} (stream {self.id} of device {self.device})"

    def add(self, **facts: object) -> Entry:
        """An entry that is about to be enqueued."""
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
        """The stream's own first failing task up to the place."""
        return next((e.failure for e in self.entries[:place] if e.failure is not None), None)

    def links(self, place: int) -> Iterator[Entry]:
        """The waits for events up to the place."""
        return (entry for entry in self.entries[:place] if entry.source is not None)

    def first(self, place: int) -> Failure | None:
        """What an await up to the place must raise: the stream's own first failure, else the first it depends on."""
        found = self.own(place)
        if found is not None:
            return found
        for link in self.links(place):
            found = link.source.first(link.at) if link.source is not None else None
            if found is not None:
                return found
        return None

    def all(self, place: int) -> list[Failure]:
        """Every failure up to the place, and every failure that it depends on."""
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
        """Whether a wait for an event up to the place may have taken so long that it may have timed out."""
        return any(
            (link.done or now) - link.since >= SHORTEST_LIMIT_SECONDS
            or (link.source is not None and link.source.slow(link.at, now))
            for link in self.links(place)
        )

    def doubtful(self, place: int, now: float) -> list[Failure]:
        """The failures that may be attributed to work up to the place, although that work has not failed.

        The code of a stream does not identify the task, and the code of a device does not identify the stream. So if a
        wait for an event is slow, the failure of any task of the scenario may be attributed to that wait.
        """
        if not self.slow(place, now):
            return []
        found = [e.failure for peer in self.peers for e in peer.entries if e.failure is not None]
        for link in self.links(place):
            if link.source is not None:
                found += link.source.doubtful(link.at, now)
        return found


def collect(failures: Iterable[Failure], code: int | None) -> None:
    """Notes that an await raised that code: of a known failure, or of one of several."""
    candidates = [failure for failure in failures if failure.code == code]
    for failure in candidates:
        failure.collected = max(failure.collected, YES if len(candidates) == 1 else MAYBE)
