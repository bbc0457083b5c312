"""The report at the end of the demo: a summary of five rows, or one JSON object."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioacl._cli._demo_lag import RUNS, TICK_SECONDS
from aioacl._cli._library import described
from aioacl._cli._screen import BOLD, GREEN, RED, Screen

if TYPE_CHECKING:
    from aioacl._cli._demo_job import Tally
    from aioacl._cli._demo_lag import Comparison
    from aioacl._library.load import LibraryInfo


@dataclass(frozen=True, slots=True)
class Outcome:
    """All results of the demo."""

    library: LibraryInfo
    source: str
    tasks: int
    streams: int
    generation: int
    tally: Tally
    lag: Comparison | None  # None if the job failed
    seconds: float  # from opening the device to closing it, including the measurement of the lag

    @property
    def mismatches(self) -> int:
        """The number of files that came back changed, in the job and in the comparison after the job."""
        return self.tally.mismatches + (self.lag.mismatches if self.lag else 0)

    @property
    def well(self) -> bool:
        """Whether every task finished, every reset succeeded, and every file came back unchanged."""
        tally = self.tally
        return self.mismatches == 0 and tally.finished == self.tasks and not tally.failures


def as_json(outcome: Outcome) -> str:
    """Returns the outcome as one JSON object on one line."""
    tally = outcome.tally
    found: dict[str, Any] = {
        "backend": outcome.library.backend,
        "files": tally.files,
        "bytes": tally.bytes,
        "mismatches": outcome.mismatches,
        "tasks": outcome.tasks,
        "streams": outcome.streams,
        "awaits": tally.awaits,
        "resets": tally.resets,
        "tasks_at_work": tally.at_work,
        "generation": outcome.generation,
        "stale_refused": tally.stale_refused,
        "resetting_refused": tally.resetting_refused,
        "interrupted": tally.interrupted,
        **_lag_fields(outcome.lag),
        "seconds": round(outcome.seconds, 3),
        "finished": tally.finished,
        "failures": tally.failures,
    }
    return json.dumps(found)


def _lag_fields(lag: Comparison | None) -> dict[str, float | None]:
    return {
        "loop_lag_p50_ms": round(lag.awaited.p50, 3) if lag else None,
        "loop_lag_p99_ms": round(lag.awaited.p99, 3) if lag else None,
        "blocking_loop_lag_p50_ms": round(lag.blocking.p50, 3) if lag else None,
        "blocking_loop_lag_p99_ms": round(lag.blocking.p99, 3) if lag else None,
    }


def show(outcome: Outcome, screen: Screen) -> None:
    """Prints the outcome in five rows, and a line for each failure."""
    dot = "·" if screen.drawing else "-"
    screen.heading(f"aioacl demo {dot} {described(outcome.library, 'was')}")
    screen.rows(_rows(outcome))
    for failure in outcome.tally.failures:
        screen.wrapped("  failed: ", failure, RED, body=[RED])


def _rows(outcome: Outcome) -> list[tuple[str, str, *tuple[str, ...]]]:
    tally = outcome.tally
    verified = (
        f"{tally.files:,} files ({tally.bytes:,} bytes) from {outcome.source}: "
        f"{outcome.mismatches:,} came back changed"
    )
    work = (
        f"{tally.finished:,} of {outcome.tasks:,} tasks finished, after {tally.awaits:,} awaits on "
        f"{outcome.streams:,} streams; the whole demo took {outcome.seconds:.1f} s"
    )
    repeated = tally.stale_refused + tally.resetting_refused + tally.interrupted
    resets = (
        f"{tally.resets} of {len(tally.at_work)} succeeded, while {' and '.join(map(str, tally.at_work))} tasks "
        f"were running. As expected, the resets interrupted or refused work {repeated:,} times; each time, the task "
        f"started its copies again. The device's generation is now {outcome.generation}: 1, plus 1 for each reset."
    )
    return [
        ("verified", verified),
        ("work", work),
        ("resets", resets),
        ("loop lag", _lag(outcome.lag)),
        ("result", *_result(outcome)),
    ]


def _lag(lag: Comparison | None) -> str:
    if lag is None:
        return "not measured, because the job failed"
    return (
        f"lower is better. While tasks used await, 99% of the event loop's {TICK_SECONDS * 1000:g} ms timers fired at "
        f"most {lag.awaited.p99:.2f} ms late, and 50% at most {lag.awaited.p50:.2f} ms late. While tasks used blocking "
        f"calls, 99% fired at most {lag.blocking.p99:.2f} ms late, and 50% at most {lag.blocking.p50:.2f} ms late. "
        f"Each number is the median of {RUNS} runs."
    )


def _result(outcome: Outcome) -> tuple[str, str, str]:
    """The text, and its styles."""
    if outcome.well:
        return "every task finished, and every file came back unchanged", GREEN, BOLD
    return "FAILED: a task or a reset failed, or a file came back changed", RED, BOLD
