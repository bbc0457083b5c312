"""The rows of `doctor --timing`: the steps, their figures, and what blocking waits do."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Final, NamedTuple

STEP_SECONDS: Final = 0.6
SPINS_PERCENT: Final = 50.0

QUERY_EVENT: Final = "query of an event"
QUERY_STREAM: Final = "query of a stream"
RECORD: Final = "record"
EMPTY: Final = "empty task"
WAIT_STREAM: Final = "wait for a stream"
WAIT_EVENT: Final = "wait for an event"
WAKE_WATCH: Final = "wake-up, watch"
WAKE_THREAD: Final = "wake-up, thread"


@dataclass(slots=True)
class Row:
    """The result of one step: the median of its samples, or an error."""

    step: str
    what: str
    unit: str
    median: float | None = None
    samples: int = 0
    behaviour: str | None = None  # of a blocking wait: "spins" or "sleeps"
    error: str | None = None

    def fill(self, found: list[float] | list[Wait]) -> None:
        """Fills the row with the samples of the step."""
        waits = [each for each in found if isinstance(each, Wait)]
        shares = [each for each in found if not isinstance(each, Wait)] or [each.share for each in waits]
        self.samples = len(shares)
        if not shares:
            self.error = f"no sample within {STEP_SECONDS:g} s"
            return
        self.median = statistics.median(shares)
        if waits:
            self.behaviour = behaviour_of(waits)


class Wait(NamedTuple):
    """One blocking wait: processor time as a share of its duration, in percent, and how often the thread slept."""

    share: float
    sleeps: int


def behaviour_of(waits: list[Wait]) -> str:
    """What blocking waits do: "spins" or "sleeps".

    On a machine whose processors are all busy, a thread that spins and yields uses little processor time. The
    kernel counts how often a thread sleeps. So a wait that never sleeps counts as one that spins.
    """
    slept = statistics.median(each.sleeps for each in waits) >= 1
    return "sleeps" if slept and statistics.median(each.share for each in waits) < SPINS_PERCENT else "spins"


def make_rows() -> list[Row]:
    """The rows of all steps, in the order of the report, without results."""
    wait = "{}: processor time, as a share of the duration"
    wake = 'completion to resumption of the task, waits="{}"'
    return [
        Row(QUERY_EVENT, "aclrtQueryEventStatus, work is pending", "us"),
        Row(QUERY_STREAM, "aclrtStreamQuery, work is pending", "us"),
        Row(RECORD, "aclrtRecordEvent", "us"),
        Row(EMPTY, "enqueue of a fill of 64 bytes to the end of its await", "us"),
        Row(WAIT_STREAM, wait.format("aclrtSynchronizeStreamWithTimeout"), "%"),
        Row(WAIT_EVENT, wait.format("aclrtSynchronizeEventWithTimeout"), "%"),
        Row(WAKE_WATCH, wake.format("watch"), "us"),
        Row(WAKE_THREAD, wake.format("thread"), "us"),
    ]
