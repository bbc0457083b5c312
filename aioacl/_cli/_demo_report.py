"""What the demo says at the end: a table, or one JSON object."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioacl._cli._library import described
from aioacl._cli._screen import BOLD, DIM, GREEN, RED, Screen

if TYPE_CHECKING:
    from aioacl._cli._demo_job import Tally
    from aioacl._cli._demo_lag import Comparison
    from aioacl._library.load import LibraryInfo


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that the demo found out."""

    library: LibraryInfo
    source: str
    tasks: int
    streams: int
    generation: int
    tally: Tally
    lag: Comparison | None  # None where the job failed
    seconds: float

    @property
    def mismatches(self) -> int:
        """Files that came back changed, in the job or in the comparison after it."""
        return self.tally.mismatches + (self.lag.mismatches if self.lag else 0)

    @property
    def well(self) -> bool:
        """Whether every task finished and every byte came back."""
        tally = self.tally
        return self.mismatches == 0 and tally.finished == self.tasks and not tally.failures


def as_json(outcome: Outcome) -> str:
    """The outcome as one JSON object on one line."""
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
    """The outcome as a table for people."""
    dot = "·" if screen.drawing else "-"
    screen.heading(f"aioacl demo {dot} {outcome.source}")
    screen.rows(_rows(outcome, screen))
    screen.line()
    if outcome.lag:
        _show_lag(outcome.lag, screen)
        screen.line()
    for failure in outcome.tally.failures:
        screen.line(screen.paint(f"  failed: {failure}", RED))
    screen.line(_verdict(outcome, screen))


def _rows(outcome: Outcome, screen: Screen) -> list[tuple[str, str]]:
    tally = outcome.tally
    good = screen.paint(f"{outcome.mismatches:,}", RED if outcome.mismatches else GREEN)
    at_work = ", ".join(str(count) for count in tally.at_work)
    return [
        ("backend", described(outcome.library, "was")),
        ("files", f"{tally.files:,}"),
        ("bytes verified", f"{tally.bytes:,}"),
        ("mismatches", good),
        ("tasks", f"{outcome.tasks:,}, of which {tally.finished:,} finished"),
        ("streams", f"{outcome.streams:,}"),
        ("awaits", f"{tally.awaits:,}"),
        ("forced resets", f"{tally.resets}, with {at_work} tasks at work"),
        ("generation", f"{outcome.generation}"),
        ("refused as stale", f"{tally.stale_refused:,}"),
        ("refused as resetting", f"{tally.resetting_refused:,}"),
        ("interrupted by a reset", f"{tally.interrupted:,}"),
        ("seconds", f"{outcome.seconds:.1f}"),
    ]


def _show_lag(lag: Comparison, screen: Screen) -> None:
    screen.line(screen.paint(f"  {'event-loop lag':<22} {'awaited':>12} {'blocking':>12}", BOLD))
    for name, ours, theirs in (
        ("p50", lag.awaited.p50, lag.blocking.p50),
        ("p99", lag.awaited.p99, lag.blocking.p99),
    ):
        screen.line(f"  {name:<22} {ours:>9.2f} ms {theirs:>9.2f} ms")
    screen.line(screen.paint("  the same job with awaits, and with blocking calls on the loop", DIM))


def _verdict(outcome: Outcome, screen: Screen) -> str:
    if outcome.well:
        return screen.paint("Every task finished, and every byte came back as it went.", GREEN, BOLD)
    return screen.paint("Not everything came back: see the table.", RED, BOLD)
