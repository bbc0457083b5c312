"""The output of the commands: aligned rows, colours if the terminal supports them, and a progress bar."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import textwrap
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Self, TextIO
from unicodedata import east_asian_width

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

WIDTH = 100  # of an output that is not a terminal
LEAST_ROOM = 20  # columns for a text beside its name
BAR_WIDTH = 30
REMOVE_LINE = "\r\033[J"
ENDING = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP)
GREEN, YELLOW, RED, BOLD, DIM = "32", "33", "31", "1", "2"


class Screen:
    """An output stream that people read, and what it can display."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.terminal = self.stream.isatty() and os.environ.get("TERM", "") != "dumb"
        self.coloured = self.terminal and not os.environ.get("NO_COLOR")
        self.drawing = _can_show(self.stream, "─█░·")

    def paint(self, text: str, *styles: str) -> str:
        """Returns the text in a style, if colours are on."""
        return f"\033[{';'.join(styles)}m{text}\033[0m" if self.coloured and styles else text

    def size(self) -> tuple[int, int]:
        """Returns the columns and lines of the terminal now. If they are not known, returns COLUMNS and LINES."""
        columns, lines = shutil.get_terminal_size()
        with suppress(OSError):
            known = os.get_terminal_size(self.stream.fileno())
            columns, lines = known.columns or columns, known.lines or lines
        return columns, lines

    def line(self, text: str = "") -> None:
        """Writes one line."""
        put(f"{text.rstrip()}\n", self.stream)

    def write_now(self, text: str) -> None:
        """Writes without the buffer of the stream, so a signal handler that interrupts a write may call it."""
        with suppress(OSError):  # the terminal may be closed
            os.write(self.stream.fileno(), text.encode())

    def heading(self, text: str) -> None:
        """Writes a title, and a line of dashes below the title."""
        self.wrapped("", text, body=[BOLD])
        length = min(self._width(), max(len(text), 60))
        self.line(self.paint(("─" if self.drawing else "-") * length, DIM))

    def rows(self, rows: Iterable[tuple[str, str, *tuple[str, ...]]], *, indent: int = 2) -> None:
        """Writes names and values in two columns. Each row is a name, a value, and the styles of the value."""
        made = list(rows)
        width = max((len(name) for name, *_ in made), default=0)
        for name, value, *styles in made:
            self.wrapped(f"{' ' * indent}{name:<{width}}   ", value, body=styles)

    def wrapped(self, before: str, text: str, *styles: str, body: Sequence[str] = ()) -> None:
        """Writes `before` in a style and then the text in the style `body`; a long text continues on indented lines.

        If the terminal has no room for the text beside `before`, the text begins on the next line.
        """
        width, margin = self._width(), len(before)
        if before and width - margin < min(LEAST_ROOM, len(text)):
            margin = min(4, width - 1)
            for line in self._folded(before.rstrip(), width) if before.strip() else ():
                self.line(self.paint(line, *styles))
            before = " " * margin
        for line in self._folded(text, width - margin):
            self.line(self.paint(before, *styles) + self.paint(line, *body))
            before, styles = " " * margin, ()

    def _width(self) -> int:
        return self.size()[0] if self.stream.isatty() else WIDTH

    def _folded(self, text: str, room: int) -> list[str]:
        """Breaks a text into lines of at most `room` columns. Only a terminal breaks long words, such as paths."""
        # A wide character, such as a Chinese one, takes two columns. A line may end between it and its null.
        counted = "".join(f"{each}\0" if east_asian_width(each) in "WF" else each for each in text)
        if len(counted) <= room:
            return [text]
        lines = textwrap.wrap(
            counted, max(1, room - (counted != text)), break_long_words=self.stream.isatty()
        )
        return [line.replace("\0", "") for line in lines]


class OutputError(OSError):
    """A write to stdout or stderr failed; any other OSError comes from the work of the command."""


def put(text: str, stream: TextIO | None = None, *, flush: bool = False) -> None:
    """Writes a text, by default to stdout. Raises OutputError if that fails."""
    output: TextIO = sys.stdout if stream is None else stream
    try:
        output.write(text)
        if flush:
            output.flush()
    except OSError as error:
        raise OutputError(error.errno, f"{output.name.strip('<>')}: {error.strerror}") from error


@contextmanager
def removed_by_signals(remove: Callable[[], None]) -> Generator[None]:
    """Before a signal ends or stops the process, calls `remove`, which removes what is drawn on a terminal."""

    def remove_first(number: int, _frame: object) -> None:
        remove()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        signal.signal(number, remove_first)  # SIGTSTP stopped the process, which was continued

    replaced = [number for number in ENDING if signal.getsignal(number) == signal.SIG_DFL]
    for number in replaced:
        signal.signal(number, remove_first)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


def put_json(found: object) -> None:
    """Writes an object to stdout as JSON on one line."""
    put(f"{json.dumps(found)}\n")


def _can_show(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


class Bar:
    """A progress bar on a terminal; on other streams it writes nothing."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._screen = Screen(sys.stderr if stream is None else stream)
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        if self._screen.terminal:
            self._exit.enter_context(removed_by_signals(lambda: self._screen.write_now(REMOVE_LINE)))
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear()
        self._exit.close()

    def draw(self, what: str, done: int, total: int, note: str = "") -> None:
        """Shows the progress of a task."""
        if not self._screen.terminal:
            return
        full, empty = "█░" if self._screen.drawing else "#."
        filled = BAR_WIDTH * done // max(total, 1)
        line = f"{what:<18} {full * filled}{empty * (BAR_WIDTH - filled)} {done}/{total}  {note}"
        # The cursor stays at the beginning. If the terminal gets narrower and wraps the line, all of it is below.
        self._write(f"\033[J{line[: self._screen.size()[0] - 1]}\r")

    def clear(self) -> None:
        """Removes the bar."""
        if self._screen.terminal:
            self._write(REMOVE_LINE)

    def _write(self, text: str) -> None:
        put(text, self._screen.stream, flush=True)
