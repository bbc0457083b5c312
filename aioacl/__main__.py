"""`python -m aioacl`: runs a command, and selects the exit status."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from typing import TYPE_CHECKING

from aioacl import __version__
from aioacl._base.errors import AclError, LibraryConflict
from aioacl._cli import UserError, demo, devices, doctor, selftest, simulator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OK, FAILED, MISUSED, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 130, 141


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands. Each command sets `run`; without a command, `run` stays None."""
    parser = argparse.ArgumentParser(
        prog="aioacl",
        description="Await an Ascend NPU from Python: run a demo, and inspect the installation.",
    )
    parser.add_argument("--version", action="version", version=f"aioacl {__version__}")
    parser.set_defaults(run=None, parser=parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in (demo, doctor, devices, selftest, simulator):
        command.add(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status."""
    _let_any_name_be_printed()
    arguments = make_parser().parse_args(argv)
    if arguments.run is None:
        arguments.parser.print_help(sys.stderr)
        return MISUSED
    try:
        return _run(arguments.run, arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def _run(command: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    try:
        status = command(arguments)
        sys.stdout.flush()
    except (UserError, LibraryConflict) as error:
        if getattr(arguments, "json", False):
            print(json.dumps({"error": str(error)}))
        return _complain(error, MISUSED)
    except AclError as error:
        return _complain(error, FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    return status


def _complain(problem: object, status: int) -> int:
    print(f"aioacl: {problem}", file=sys.stderr)
    return status


def _let_any_name_be_printed() -> None:
    """Lets stdout print any file name, including bytes that are not text and characters that it cannot encode."""
    out: object = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        utf8 = out.encoding.lower() == "utf-8"
        out.reconfigure(errors="surrogateescape" if utf8 else "backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
