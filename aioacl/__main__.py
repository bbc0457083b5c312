"""`python -m aioacl`: runs a command, and selects the exit status."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aioacl import __version__
from aioacl._base.command import INTERRUPTED, end_imports
from aioacl._base.errors import AclError, LibraryConflict
from aioacl._cli import UserError, demo, devices, doctor, pyacl, report, selftest, simulator, trace
from aioacl._cli._screen import OutputError, put, put_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OK, FAILED, MISUSED, PIPE_CLOSED = 0, 1, 2, 141


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands. Each command sets `run`; without a command, `run` stays None."""
    parser = argparse.ArgumentParser(
        prog="aioacl",
        description="Await an Ascend NPU from Python: run a demo, and inspect the installation.",
    )
    parser.add_argument("--version", action="version", version=f"aioacl {__version__}")
    parser.set_defaults(run=None, parser=parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in (demo, doctor, devices, selftest, report, trace, simulator, pyacl):
        command.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status."""
    try:
        end_imports()
        return _run_with_streams(argv)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)


def _run_with_streams(argv: Sequence[str] | None) -> int:
    _replace_closed_stderr()
    if _is_closed(sys.stdout):
        return _complain(
            "expected an open stdout, got a closed one; redirect it to a file or to /dev/null", FAILED
        )
    _let_any_name_be_printed()
    try:
        try:
            return _parse_and_run(argv)
        finally:
            put("", flush=True)
    except OutputError as error:
        # At exit, Python writes the output that is still buffered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED if error.errno == errno.EPIPE else _complain(error.strerror, FAILED)


def _parse_and_run(argv: Sequence[str] | None) -> int:
    arguments = make_parser().parse_args(argv)
    if arguments.run is None:
        arguments.parser.print_help(sys.stderr)
        return MISUSED
    return _run(arguments.run, arguments)


def _run(command: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    try:
        return command(arguments)
    except (UserError, LibraryConflict) as error:
        if getattr(arguments, "json", False):
            put_json({"error": str(error), **getattr(error, "results", {})})
        return _complain(error, MISUSED)
    except AclError as error:
        return _complain(error, FAILED)


def _complain(problem: object, status: int) -> int:
    with suppress(OSError):  # without a usable stderr, only the exit status reports the problem
        print(f"aioacl: {problem}", file=sys.stderr)
    return status


def _is_closed(stream: object) -> bool:
    """Whether the stream's descriptor was closed when Python started; Python then sets the stream to None."""
    return stream is None


def _replace_closed_stderr() -> None:
    """Discards the output to a closed stderr. Without this, `print` would write that output to stdout."""
    if _is_closed(sys.stderr):
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - it is open until the process ends


def _let_any_name_be_printed() -> None:
    """Makes stdout accept every file name, even bytes that are not text and characters that stdout cannot encode."""
    out: object = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        utf8 = out.encoding.lower() == "utf-8"
        out.reconfigure(errors="surrogateescape" if utf8 else "backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
