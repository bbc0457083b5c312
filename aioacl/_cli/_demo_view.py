"""The progress of the demo: on a terminal, lines that are redrawn in place; on other outputs, plain lines."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeAlias

from aioacl._cli._screen import BOLD, DIM, YELLOW, Screen, put, removed_by_signals

if TYPE_CHECKING:
    from types import TracebackType

    from aioacl._cli._demo_digits import Progress
    from aioacl._cli._demo_job import Job
    from aioacl._cli._demo_lag import Comparison

REFRESH_SECONDS: Final = 0.1
STREAM_ROWS: Final = 8
STREAM_COLUMNS: Final = 2
STREAM_BAR: Final = 16
TOTAL_BAR: Final = 40
LEAST_BAR: Final = 4
STREAMS_WIDTH: Final = 46  # a narrower terminal shows one column of streams
EVENTS: Final = 2  # the number of newest events that are shown
QUARTERS: Final = 4
# The view uses the terminal's alternate screen. On the normal screen, a terminal that gets narrower wraps the lines. It
# also moves some of them into its history, where the view could not remove them.
ENTER: Final = "\033[?1049h"
LEAVE: Final = "\033[H\033[J\033[?1049l"

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

    def classifying(self, progress: Progress) -> None:
        """Shows how many digits are classified; called about ten times a second."""


class Live:
    """Lines on the alternate screen of a terminal, redrawn in place and removed at the end."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._columns, self._lines = screen.size()
        self._entered = False
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        self._exit.enter_context(removed_by_signals(self._leave))
        return self

    def __exit__(self, *exc: object) -> None:
        self._leave()
        self._exit.close()

    def _leave(self) -> None:
        if self._entered:
            self._entered = False
            self._screen.write_now(LEAVE)

    def moving(self, job: Job, lag_ms: float) -> None:
        """See View."""
        self._columns, self._lines = self._screen.size()
        tally = job.tally
        done = f" {tally.files:,} of {job.files:,} files, {tally.bytes / 1e6:,.1f} MB"
        self._draw(
            [
                (f"moving files through {len(tally.by_stream)} streams", BOLD),
                self._row("  all         ", tally.pieces, job.pieces, done),
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
        self._columns, self._lines = self._screen.size()
        rows = [
            ("measuring how late timers of the event loop fire (lower is better)", BOLD),
            self._row("  runs     ", done, total, f" {done} of {total}"),
        ]
        if so_far is not None:
            longest = max(so_far.awaited.p99, so_far.blocking.p99)
            for name, lag in (("awaits", so_far.awaited), ("blocking", so_far.blocking)):
                late = f" 99% at most {lag.p99:.2f} ms late"
                rows.append(self._row(f"  {name:<9}", round(1000 * lag.p99), round(1000 * longest), late))
        self._draw(rows)

    def classifying(self, progress: Progress) -> None:
        """See View."""
        self._columns, self._lines = self._screen.size()
        done = f" {progress.done:,} of {progress.total:,}"
        self._draw(
            [
                (progress.stage, BOLD),
                self._row("  digits   ", progress.done, progress.total, done),
                *((f"  {event}", YELLOW) for event in progress.events[-EVENTS:]),
            ]
        )

    def _streams(self, counts: list[int], pieces: int) -> list[Row]:
        """A bar for each stream. Each piece goes through two streams."""
        expected = max(1, 2 * pieces // len(counts))
        across = STREAM_COLUMNS if self._columns > STREAMS_WIDTH else 1
        room = (self._columns - len("  stream")) // across - len("   ")
        cells = [
            self._bar(f"{number:>4} ", count, expected, f" {count:>6,}", room, STREAM_BAR)
            for number, count in enumerate(counts[: STREAM_ROWS * across], start=1)
        ]
        height = min(STREAM_ROWS, len(cells))
        rows = [("   ".join(["  stream", *cells[row::height]]), "") for row in range(height)]
        hidden = len(counts) - len(cells)
        return [*rows, (f"  and {hidden} more streams", DIM)] if hidden else rows

    def _row(self, before: str, done: int, total: int, after: str) -> Row:
        return self._bar(before, done, total, after, self._columns, TOTAL_BAR), ""

    def _bar(self, before: str, done: int, total: int, after: str, room: int, longest: int) -> str:
        """A bar between two texts. It is as long as the room allows, within limits."""
        width = max(LEAST_BAR, min(longest, room - 1 - len(before) - len(after)))
        full, empty = "█░" if self._screen.drawing else "#."
        filled = min(width, width * done // max(total, 1))
        return f"{before}{full * filled}{empty * (width - filled)}{after}"

    def _is_in_background(self) -> bool:
        """Whether the shell has given the terminal to another job, whose screen a redraw would replace."""
        try:
            return os.tcgetpgrp(self._screen.stream.fileno()) != os.getpgrp()
        except OSError:  # it is not the controlling terminal
            return False

    def _draw(self, rows: list[Row]) -> None:
        if self._is_in_background():
            return
        # The empty lines keep the lines of a terminal that has no alternate screen: they go into its history.
        enter = "" if self._entered else ENTER + "\n" * self._lines
        self._entered = True
        shown = [
            self._screen.paint(text[: self._columns - 1], *filter(None, [style]))
            for text, style in rows[: self._lines - 1]
        ]
        text = "".join(f"\033[K{row}\n" for row in shown)
        put(f"{enter}\033[H{text}\033[J", self._screen.stream, flush=True)


class Lines:
    """Progress for a log: a line for each stage, each quarter of the files, and each reset."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._quarter = -1
        self._events = 0
        self._measuring = False
        self._stage = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def moving(self, job: Job, lag_ms: float) -> None:  # noqa: ARG002 - the summary shows the lag
        """See View."""
        tally = job.tally
        self._show_events(tally.events)
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

    def classifying(self, progress: Progress) -> None:
        """See View."""
        if progress.stage != self._stage:
            self._stage, self._events = progress.stage, 0
            self._line(f"{progress.stage}: {progress.total:,} digits")
        self._show_events(progress.events)

    def _show_events(self, events: list[str]) -> None:
        for event in events[self._events :]:
            self._line(event)
        self._events = len(events)

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

    def classifying(self, progress: Progress) -> None:
        """See View."""


def view_for(progress: Screen, output: Screen, *, json: bool) -> View:
    """Returns the view for the streams: `progress` is stderr, `output` is stdout."""
    if progress.terminal:
        return Live(progress)
    return Silent() if json else Lines(output)
