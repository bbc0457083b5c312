"""The progress of the demo: on a terminal, a block of lines that is redrawn in place; on other outputs, plain lines."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias

from aioacl._cli._screen import BOLD, DIM, YELLOW, Screen, put

if TYPE_CHECKING:
    from types import TracebackType

    from aioacl._cli._demo_job import Job
    from aioacl._cli._demo_lag import Comparison

REFRESH_SECONDS: Final = 0.1
STREAM_ROWS: Final = 8
STREAM_COLUMNS: Final = 2
STREAM_BAR: Final = 16
TOTAL_BAR: Final = 40
EVENTS: Final = 2  # the number of newest events that are shown
QUARTERS: Final = 4


Row: TypeAlias = tuple[str, str]  # the text, and its style or ""


class View(Protocol):
    """How the demo shows its progress."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def moving(self, job: Job, lag_ms: float) -> None:
        """Shows the progress of the job; called about ten times a second."""

    def measuring(self, done: int, total: int, so_far: Comparison | None) -> None:
        """Shows the progress of the comparison of the loop's lag, and the result of the runs so far."""


class Live:
    """A block of lines on a terminal, redrawn in place and removed at the end."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._drawn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._draw([])

    def moving(self, job: Job, lag_ms: float) -> None:
        """See View."""
        tally = job.tally
        done = f"{tally.files:,} of {job.files:,} files, {tally.bytes / 1e6:,.1f} MB"
        self._draw(
            [
                (f"moving files through {len(tally.by_stream)} streams", BOLD),
                (f"  all         {self._bar(tally.pieces, job.pieces, TOTAL_BAR)} {done}", ""),
                *self._streams(tally.by_stream, job.pieces),
                (
                    f"  event loop: its last {REFRESH_SECONDS * 1000:g} ms timer fired {lag_ms:.1f} ms late",
                    "",
                ),
                *((f"  {event}", YELLOW) for event in tally.events[-EVENTS:]),
            ]
        )

    def measuring(self, done: int, total: int, so_far: Comparison | None) -> None:
        """See View."""
        rows = [
            ("measuring how late timers of the event loop fire (lower is better)", BOLD),
            (f"  runs     {self._bar(done, total, TOTAL_BAR)} {done} of {total}", ""),
        ]
        if so_far is not None:
            longest = max(so_far.awaited.p99, so_far.blocking.p99)
            for name, lag in (("awaits", so_far.awaited), ("blocking", so_far.blocking)):
                share = self._bar(round(1000 * lag.p99), round(1000 * longest), TOTAL_BAR)
                rows.append((f"  {name:<9}{share} 99% at most {lag.p99:.2f} ms late", ""))
        self._draw(rows)

    def _streams(self, counts: list[int], pieces: int) -> list[Row]:
        """A bar for each stream. Each piece goes through two streams."""
        expected = max(1, 2 * pieces // len(counts))
        cells = [
            f"{number:>4} {self._bar(count, expected, STREAM_BAR)} {count:>6,}"
            for number, count in enumerate(counts[: STREAM_ROWS * STREAM_COLUMNS], start=1)
        ]
        height = min(STREAM_ROWS, len(cells))
        rows = [("   ".join(["  stream", *cells[row::height]]), "") for row in range(height)]
        hidden = len(counts) - len(cells)
        return [*rows, (f"  and {hidden} more streams", DIM)] if hidden else rows

    def _bar(self, done: int, total: int, width: int) -> str:
        full, empty = "█░" if self._screen.drawing else "#."
        filled = min(width, width * done // max(total, 1))
        return full * filled + empty * (width - filled)

    def _draw(self, rows: list[Row]) -> None:
        columns, lines = shutil.get_terminal_size()
        up = f"\033[{self._drawn}A" if self._drawn else ""
        shown = [
            self._screen.paint(text[: columns - 1], *filter(None, [style]))
            for text, style in rows[: lines - 1]
        ]
        text = "".join(f"\033[K{row}\n" for row in shown)
        put(f"{up}\r{text}\033[J", self._screen.stream, flush=True)
        self._drawn = len(shown)


class Lines:
    """Progress for a log: a line at the start, at each quarter of the job, and for each reset."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._quarter = -1
        self._events = 0
        self._measuring = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def moving(self, job: Job, lag_ms: float) -> None:  # noqa: ARG002 - the summary shows the lag
        """See View."""
        tally = job.tally
        for event in tally.events[self._events :]:
            self._line(event)
        self._events = len(tally.events)
        quarter = QUARTERS * tally.pieces // max(job.pieces, 1)
        if quarter > self._quarter:
            self._quarter = quarter
            self._line(f"moved {tally.files:,} of {job.files:,} files, {tally.bytes / 1e6:,.1f} MB")

    def measuring(self, done: int, total: int, so_far: Comparison | None) -> None:  # noqa: ARG002 - see the summary
        """See View."""
        if not self._measuring:
            self._measuring = True
            each = total // 2
            self._line(
                f"measuring how late timers of the event loop fire: {each} runs with awaits, {each} with blocking calls"
            )

    def _line(self, text: str) -> None:
        put(f"{text}\n", self._screen.stream, flush=True)


class Silent:
    """Shows nothing: with --json and without a terminal, the JSON object is all of the output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def moving(self, job: Job, lag_ms: float) -> None:
        """See View."""

    def measuring(self, done: int, total: int, so_far: Comparison | None) -> None:
        """See View."""


def view_for(progress: Screen, output: Screen, *, json: bool) -> View:
    """Returns the view for the streams: `progress` is stderr, `output` is stdout."""
    if progress.terminal:
        return Live(progress)
    return Silent() if json else Lines(output)
