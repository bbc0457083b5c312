"""Ctrl-C while `python -m aioacl` or the script `aioacl` imports the package: one line, and no traceback.

Most of the time of these imports is spent in the package itself. So the package imports this module first, and this
module imports little. In any other program this module does nothing.
"""

from __future__ import annotations

import os
import signal
import sys

INTERRUPTED = 130


def _end(_number: int, _frame: object) -> None:
    try:
        os.write(2, b"aioacl: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


def _is_imported_by_command() -> bool:
    """Whether the package is imported for a command. While Python looks up the module of `-m`, argv[0] is "-m"."""
    program = sys.argv[0] if sys.argv else ""
    return program.rpartition("/")[2] == "aioacl" or (program == "-m" and "aioacl" in sys.orig_argv)


def end_imports() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if _is_imported_by_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)
