"""The output of the commands: aligned rows, colours if the terminal supports them, and a progress bar."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDTH = 100
BAR_WIDTH = 30
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

    def line(self, text: str = "") -> None:
        """Writes one line."""
        put(f"{text.rstrip()}\n", self.stream)

    def heading(self, text: str) -> None:
        """Writes a title, and a line of dashes below the title."""
        self.line(self.paint(text, BOLD))
        self.line(self.paint(("─" if self.drawing else "-") * min(WIDTH, max(len(text), 60)), DIM))

    def rows(self, rows: Iterable[tuple[str, str]], *, indent: int = 2) -> None:
        """Writes names and values in two columns."""
        made = list(rows)
        width = max((len(name) for name, _ in made), default=0)
        for name, value in made:
            self.wrapped(f"{' ' * indent}{name:<{width}}   ", value)

    def wrapped(self, before: str, text: str, *styles: str) -> None:
        """Writes `before` in a style and then the text; a long text continues on indented lines."""
        room = WIDTH - len(before)
        lines = textwrap.wrap(text, room, break_long_words=False) if len(text) > room else [text]
        self.line(self.paint(before, *styles) + lines[0])
        for line in lines[1:]:
            self.line(" " * len(before) + line)


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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.clear()

    def draw(self, what: str, done: int, total: int, note: str = "") -> None:
        """Shows the progress of a task."""
        if not self._screen.terminal:
            return
        full, empty = "█░" if self._screen.drawing else "#."
        filled = BAR_WIDTH * done // max(total, 1)
        line = f"{what:<18} {full * filled}{empty * (BAR_WIDTH - filled)} {done}/{total}  {note}"
        self._write("\r" + line[: shutil.get_terminal_size().columns - 1] + "\033[K")

    def clear(self) -> None:
        """Removes the bar."""
        if self._screen.terminal:
            self._write("\r\033[K")

    def _write(self, text: str) -> None:
        put(text, self._screen.stream, flush=True)
