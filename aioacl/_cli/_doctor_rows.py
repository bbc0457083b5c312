"""The rows of `doctor --timing`: the steps, their figures, and what blocking waits do."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Final, NamedTuple

STEP_SECONDS: Final = 0.6
SPINS_PERCENT: Final = 50.0  # a wait that uses at least this share of a processor spins
SLEEPS_PERCENT: Final = 5.0  # a wait that sleeps uses at most this share of a processor

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
    """The result of one step: the median and the range of its samples, or an error."""

    step: str
    what: str
    unit: str
    median: float | None = None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    behaviour: str | None = None  # of a blocking wait: "spins", "sleeps", or None if this is not clear
    error: str | None = None

    def fill(self, found: list[float] | list[Wait]) -> None:
        """Fills the row with the samples of the step."""
        waits = [each for each in found if isinstance(each, Wait)]
        shares = [each for each in found if not isinstance(each, Wait)] or [each.share for each in waits]
        self.samples = len(shares)
        if not shares:
            self.error = f"no sample within {STEP_SECONDS:g} s"
            return
        self.median, self.low, self.high = statistics.median(shares), min(shares), max(shares)
        if waits:
            self.behaviour = behaviour_of(waits)


class Wait(NamedTuple):
    """One blocking wait: processor time as a share of its duration, in percent, and how often the thread slept."""

    share: float
    sleeps: int


def behaviour_of(waits: list[Wait]) -> str | None:
    """What blocking waits do: "spins", "sleeps", or None if this is not clear.

    On a machine whose processors are all busy, a thread that spins and yields uses little processor time. The
    kernel counts how often a thread sleeps. So a wait that never sleeps spins. Of waits that sleep sometimes, a share
    in the middle shows nothing: it may be a short spin in an idle machine, or a long one in a busy machine.
    """
    shares = [each.share for each in waits]
    if not any(each.sleeps for each in waits) or min(shares) >= SPINS_PERCENT:
        return "spins"
    if all(each.sleeps for each in waits) and statistics.median(shares) <= SLEEPS_PERCENT:
        return "sleeps"
    return None


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
