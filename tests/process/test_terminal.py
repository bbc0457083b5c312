"""The output on a terminal fits in the width of the terminal. A signal removes the live view and the bar."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import pytest

from aioacl._cli._demo_digits import Progress
from aioacl._cli._demo_lag import Comparison, Lag
from aioacl._cli._demo_view import ENTER, LEAVE, Live
from aioacl._cli._screen import Bar, Screen

RESULT = Comparison(Lag(0.1, 1.25), Lag(2.0, 30.5), 0)
SEQUENCE = re.compile(r"\033\[[?\d;]*[A-Za-z]")


class Terminal:
    """A pseudo-terminal: tests write to `output`, and read what was written."""

    def __init__(self, columns: int) -> None:
        self._screen, self.end = pty.openpty()
        self.resize(columns)
        self.output: TextIO = io.open(self.end, "w", encoding="utf-8", closefd=False)  # noqa: SIM115, UP020 - see close

    def resize(self, columns: int) -> None:
        termios.tcsetwinsize(self.end, (24, columns))

    def close(self) -> None:
        self.output.close()
        os.close(self.end)
        os.close(self._screen)

    def written(self) -> str:
        """Returns what was written since the last call."""
        self.output.flush()
        os.write(self.end, b"\0")
        return self.until("\0").removesuffix("\0")

    def until(self, text: str) -> str:
        """Reads until the text appears. Returns the whole characters that were read."""
        read = b""
        while text.encode() not in read:
            read += os.read(self._screen, 1 << 16)
        return read.decode(errors="ignore")

    def rest(self) -> str:
        """Reads until no process has the terminal open."""
        self.output.close()
        os.close(self.end)
        read = b""
        with suppress(OSError):  # on Linux, read raises OSError when the other end is closed
            while piece := os.read(self._screen, 1 << 16):
                read += piece
        self.end = os.open(os.devnull, os.O_RDONLY)  # for close
        return read.decode()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal of 100 columns; the variables of the environment name another width."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("LINES", raising=False)
    made = Terminal(100)
    yield made
    made.close()


def widest(text: str) -> int:
    """The length of the longest line, without sequences that move the cursor or set a style."""
    return max(map(len, re.split(r"[\r\n]+", SEQUENCE.sub("", text))))


def test_live_view_fits_in_the_width_that_the_terminal_has_at_each_redraw(terminal: Terminal) -> None:
    with Live(Screen(terminal.output)) as view:
        for columns in (100, 60, 40, 12, 80):
            terminal.resize(columns)
            view.measuring(3, 6, RESULT)
            frame = terminal.written()
            assert widest(frame) < columns
            assert ("3 of 6" in frame) == (columns > 12)
            assert ("30.50 ms late" in frame) == (columns > 40)


def test_bar_of_digits_fits_in_the_width_and_shows_the_newest_events(terminal: Terminal) -> None:
    events = [f"reset: event {number}" for number in range(3)]
    with Live(Screen(terminal.output)) as view:
        for columns in (100, 40, 12):
            terminal.resize(columns)
            view.classifying(Progress("classifying all digits at the same time", 900, 1797, events))
            frame = terminal.written()
            assert widest(frame) < columns
            assert ("900 of 1,797" in frame) == (columns > 12)
            assert ("event 0" in frame, "event 2" in frame) == (False, columns > 12)


def test_redraw_replaces_the_whole_screen_because_a_resize_may_have_moved_the_lines(
    terminal: Terminal,
) -> None:
    with Live(Screen(terminal.output)) as view:
        view.measuring(0, 6, RESULT)
        assert terminal.written().startswith(ENTER)
        terminal.resize(50)
        view.measuring(1, 6, None)
        assert re.fullmatch(r"\033\[H[^\n]*\n[^\n]*\n\033\[J", terminal.written())
    assert terminal.written() == LEAVE


def test_bar_fits_in_the_width_and_clears_lines_that_a_resize_has_wrapped(terminal: Terminal) -> None:
    with Bar(terminal.output) as bar:
        for columns in (100, 40, 8):
            terminal.resize(columns)
            bar.draw("running", 1, 2, "a note")
            drawn = terminal.written()
            assert widest(drawn) < columns
            # The cursor is at the beginning of the line, and stays there if the terminal wraps the line again.
            assert drawn.startswith("\033[J")
            assert drawn.endswith("\r")


@pytest.mark.parametrize("columns", [1, 10, 30, 45, 80, 200])
@pytest.mark.parametrize("before", ["", "note: ", "  a long name of a row   "])
def test_wrapped_text_fits_in_the_width_of_the_terminal(
    terminal: Terminal, columns: int, before: str
) -> None:
    terminal.resize(columns)
    screen = Screen(terminal.output)
    text = "/a/path/that/is/longer/than/a/line " + "word " * 30
    screen.heading("aioacl demo - a title of some length")
    screen.wrapped(before, text)
    written = terminal.written()
    assert widest(written) <= columns
    kept = re.sub(r"[\s─]+", "", SEQUENCE.sub("", written))
    assert kept == re.sub(r"\s+", "", f"aioacl demo - a title of some length{before}{text}")


def test_wrapped_text_fits_if_its_characters_are_two_columns_wide(terminal: Terminal) -> None:
    terminal.resize(30)
    Screen(terminal.output).wrapped("verified  ", "文" * 25)
    counts = [line.count("文") for line in terminal.written().splitlines()]
    assert max(counts) <= 10
    assert sum(counts) == 25


def test_row_in_a_style_is_wrapped_without_counting_the_style(terminal: Terminal) -> None:
    terminal.resize(40)
    Screen(terminal.output).rows([("result", "word " * 10, "32", "1")])
    first, second = terminal.written().splitlines()
    assert first == f"  result   \033[32;1m{('word ' * 6).rstrip()}\033[0m"
    assert second == f"           \033[32;1m{('word ' * 4).rstrip()}\033[0m"


FEW_DIGITS = """
import sys
from aioacl._cli import _demo_digits
from aioacl.__main__ import main
_demo_digits.DIGITS = _demo_digits.MEASURED = 3
_demo_digits.LEAST_ACCURACY = 0  # none of these digits is held out
sys.exit(main())
"""


@contextmanager
def demo(terminal: Terminal, folder: Path, latency_us: int) -> "Generator[subprocess.Popen[bytes]]":
    """Starts the demo on the terminal, with one small file and few digits."""
    (folder / "file").write_bytes(b"x" * 5000)
    process = subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            FEW_DIGITS,
            "demo",
            "--tasks",
            "2",
            "--input",
            str(folder / "file"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=terminal.end,
        stderr=terminal.end,
        env={**os.environ, "AIOACL_SIM_COPY_LATENCY_US": str(latency_us), "PYTHONUTF8": "1"},
        process_group=0,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()  # if the test failed, the demo is still running or stopped


@pytest.mark.parametrize("columns", [44, 80])
def test_view_and_summary_of_the_demo_fit_in_the_width(
    terminal: Terminal, tmp_path: Path, columns: int
) -> None:
    terminal.resize(columns)
    with demo(terminal, tmp_path, 50) as process:
        shown = terminal.rest()
    assert process.returncode == 0
    assert widest(shown) <= columns
    assert re.search(r"stream +1 [█░]+ +\d+", shown)
    assert "reset 2 of 2: done after" in shown
    assert "came back" in shown
    assert re.search(r"digits +[█░]+ 3 of 3", shown)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_the_demo_and_removes_the_live_view(
    terminal: Terminal, tmp_path: Path, number: signal.Signals
) -> None:
    with demo(terminal, tmp_path, 200_000) as process:
        terminal.until("moving files")
        process.send_signal(number)
        shown = terminal.rest()
    assert process.returncode == -number
    assert shown.endswith(LEAVE)


def test_stop_of_the_demo_removes_the_live_view_until_the_demo_continues(
    terminal: Terminal, tmp_path: Path
) -> None:
    with demo(terminal, tmp_path, 200_000) as process:
        terminal.until("moving files")
        process.send_signal(signal.SIGTSTP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert terminal.written().endswith(LEAVE)
        process.send_signal(signal.SIGCONT)
        assert ENTER in terminal.until("moving files")
        process.terminate()
        assert terminal.rest().endswith(LEAVE)


BAR = """
import signal
from aioacl._cli._screen import Bar
with Bar() as bar:
    bar.draw("running", 1, 2)
    signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_removes_the_bar(terminal: Terminal, number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", BAR], stderr=terminal.end) as process:
        terminal.until("1/2")
        process.send_signal(number)
        shown = terminal.rest()
    assert process.returncode == -number
    assert shown.endswith("\r\033[J")


BACKGROUND = """
import fcntl, os, sys, termios
from aioacl._cli._demo_view import Live
from aioacl._cli._screen import Screen
fcntl.ioctl(2, termios.TIOCSCTTY, 0)
child = os.fork()
if not child:
    os.setpgid(0, 0)
    with Live(Screen(sys.stderr)) as view:
        view.measuring(1, 6, None)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_live_view_is_not_drawn_while_another_job_has_the_terminal(terminal: Terminal) -> None:
    subprocess.run(
        [sys.executable, "-c", BACKGROUND], stderr=terminal.end, check=True, start_new_session=True
    )
    assert terminal.written() == ""
