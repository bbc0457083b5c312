"""The results of the truth part's rounds: the expected and the actual result of each await."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aioacl import AclError
from tests.reliability.truth_oracle import Failure, Queue, collect

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS: Final = ("ticket", "event", "own event", "stream", "device", "upload", "download", "result")
STRATEGIES: Final = ("watch", "thread")
COLUMNS: Final = ("rounds", "must fail", "wrong", "missed", "spurious", "doubtful")
SHOWN: Final = 20


@dataclass(frozen=True)
class Mode:
    """The way in which failures are found, and whether another library synchronizes."""

    name: str
    ways: int  # a value of lib.AIO_EXACT_*; 0 if failures are found by synchronizing
    other: bool  # whether another library synchronizes the devices

    @property
    def timeouts(self) -> bool:
        """Whether the script may make waits for events time out.

        No callback reports a time-out, and another library may take the code of the time-out.
        """
        return not self.other

    @property
    def exact(self) -> bool:
        """Whether failures are found by reports."""
        return self.ways != 0


@dataclass
class Tally:
    """The counts of one process, by kind and strategy, and its findings."""

    mode: Mode
    rounds: int  # the required number for each kind and strategy
    counts: dict[str, Counter[str]] = field(default_factory=dict[str, "Counter[str]"])
    injected: Counter[str] = field(default_factory=Counter[str])
    reported: Counter[str] = field(default_factory=Counter[str])
    work: Counter[str] = field(
        default_factory=Counter[str]
    )  # the entries, by the way in which they are enqueued
    findings: list[str] = field(default_factory=list[str])
    found: int = 0
    begun: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def next_kind(self, strategy: str) -> str | None:
        """Returns the kind of await with the most missing rounds; None if no round is missing."""
        kind = min(KINDS, key=lambda kind: self.begun[kind, strategy])
        return kind if self.begun[kind, strategy] < self.rounds else None

    def begin(self, kind: str, strategy: str) -> None:
        """Counts a round that has begun."""
        self.begun[kind, strategy] += 1

    def find(self, what: str) -> None:
        """Adds a finding."""
        self.found += 1
        if len(self.findings) < SHOWN:
            self.findings.append(what)

    def note(self, row: Row, column: str, what: str = "") -> None:
        """Counts the outcome, and adds a finding if there is a text."""
        self.counts.setdefault(row.key, Counter())[column] += 1
        if what:
            self.find(f"{column}: {row}: {what}")


@dataclass(frozen=True)
class Row:
    """The description of an await."""

    scenario: str
    kind: str
    strategy: str

    @property
    def key(self) -> str:
        """The key of the await's row in the table."""
        return f"{self.kind}/{self.strategy}"

    def __str__(self) -> str:
        return f"{self.kind}, waits={self.strategy!r}, scenario {self.scenario}"


class Checker:
    """Compares the results of awaits with the expected results."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def end(
        self, row: Row, spans: Sequence[tuple[Queue, int, int]], error: BaseException | None, data: str = ""
    ) -> None:
        """Checks an await that ended.

        `spans` has, for each queue, the place up to which the await must cover it, and the place up to which it may.
        """
        tally, now = self._tally, time.monotonic()
        if error is None:  # an await that raises may end before the work has ended
            for queue, place, _ in spans:
                queue.seen(place, now)
        expected = [first for queue, place, _ in spans if (first := queue.first(place))]
        tally.note(row, "rounds")
        if expected:
            tally.note(row, "must fail")
        if error is None:
            if expected:
                tally.note(row, "missed", f"expected {expected[0]}, got no error")
            elif data:
                tally.note(row, "wrong", data)
        else:
            self._raised(row, spans, expected, error, now)

    def _raised(
        self,
        row: Row,
        spans: Sequence[tuple[Queue, int, int]],
        expected: list[Failure],
        error: BaseException,
        now: float,
    ) -> None:
        tally = self._tally
        code = error.code if isinstance(error, AclError) else None
        known = [failure for queue, _, place in spans for failure in queue.all(place)]
        refused = row.kind in ("upload", "download")  # perhaps, because it enqueues several copies
        doubtful = [f for queue, _, place in spans for f in queue.doubtful(place, now, refused=refused)]
        # Several failures are possible if the await covers several streams or copies. They are also possible if work
        # was enqueued during the wait.
        several = row.kind in ("upload", "download", "device") or any(
            place != last for _, place, last in spans
        )
        allowed = expected if expected and not several and not doubtful else known
        if code is None or error.action != "new_stream":  # type: ignore[attr-defined]  # it is an AclError
            tally.note(row, "wrong", f"expected the error of a task, got {error!r}")
        elif code in {failure.code for failure in allowed}:
            collect(known, code)
        elif code in {failure.code for failure in doubtful}:
            tally.note(row, "doubtful")
            collect(doubtful, code)
        elif expected:
            tally.note(row, "wrong", f"expected {expected[0]}, got {error!r}")
        else:
            tally.note(
                row,
                "spurious",
                f"expected no error, because none of {spans_text(spans)} failed; got {error!r}",
            )

    def refused(self, row: Row, queue: Queue, source: tuple[Queue, int] | None, error: AclError) -> None:
        """Checks a refused enqueue: its stream must have failed, or the stream of the event that it waits for."""
        spans = [(queue, len(queue.entries), len(queue.entries))]
        spans += [(source[0], source[1], source[1])] if source else []
        now = time.monotonic()
        known = [failure for queue, _, place in spans for failure in queue.all(place)]
        known += [f for queue, _, place in spans for f in queue.doubtful(place, now, refused=True)]
        if error.code in {failure.code for failure in known}:
            collect(known, error.code)
        else:
            self._tally.note(
                row,
                "spurious",
                f"expected no refusal, because none of {spans_text(spans)} failed; got {error!r}",
            )


def spans_text(spans: Sequence[tuple[Queue, int, int]]) -> str:
    """Returns a text that names the work that an await covers."""
    return ", ".join(f"{queue} up to {place}" for queue, place, _ in spans)
