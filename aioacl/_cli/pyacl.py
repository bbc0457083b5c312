"""`pyacl`: runs a program that imports CANN's module `acl`, with the module `acl` of aioacl."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from aioacl._cli import UserError
from aioacl._cli._library import add_option, load_or_explain
from aioacl._cli._screen import put
from aioacl._library.locate import Unusable
from aioacl._pyacl.place import FOLDER, check_folder, other_acl, python_path

if TYPE_CHECKING:
    from argparse import Namespace

    from aioacl._library.load import LibraryInfo

EXISTS = 1  # the status of --path if there is another `acl`


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "pyacl",
        help="run a program that imports CANN's module acl",
        description="Run a Python program with aioacl's module `acl` first on the path, for it and its children.",
        usage="aioacl pyacl [-h] [-q] [--library simulator|PATH] SCRIPT [ARGUMENTS]\n"
        "       aioacl pyacl --path [--shadow]",
    )
    add_option(parser, default=None, otherwise="the usual search")
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="do not print which library and acl are used"
    )
    parser.add_argument("--path", action="store_true", help="print the folder that holds acl, for PYTHONPATH")
    parser.add_argument(
        "--shadow", action="store_true", help="print the folder although there is another acl"
    )
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help="the program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="its arguments")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: Namespace) -> int:
    """Prints the folder, or replaces this process by the program."""
    if arguments.path:
        if arguments.script:
            raise UserError(f"expected --path without a program, got {arguments.script}; omit one of the two")
        return _print_path(shadow=arguments.shadow)
    if not arguments.script:
        raise UserError("expected a program, got none; run `python -m aioacl pyacl SCRIPT`")
    if not Path(arguments.script).exists():
        raise UserError(f"{arguments.script}: no such file; pass the path of a Python program")
    return _replaced(arguments)


def _replaced(arguments: Namespace) -> NoReturn:
    """Replaces this process by the program."""
    info = load_or_explain(arguments.library)
    _check()
    if not arguments.quiet:
        _report(info)
    environ = {**os.environ, "PYTHONPATH": python_path(os.environ.get("PYTHONPATH"))}
    if arguments.library is not None:
        environ["AIOACL_LIBRARY"] = "simulator" if arguments.library == "simulator" else info.path
    put("", flush=True)
    command = [sys.executable, arguments.script, *arguments.arguments]
    os.execve(sys.executable, command, environ)  # noqa: S606 - the program replaces this process


def _check() -> None:
    try:
        check_folder(strict=os.environ.get("AIOACL_STRICT", "") not in ("", "0"))
    except Unusable as error:
        raise UserError(f"{FOLDER}: {error}; correct the permissions of the installed package") from None


def _print_path(*, shadow: bool) -> int:
    _check()
    other = other_acl()
    if other is not None and not shadow:
        print(
            f"aioacl: {other} is another module acl, which PYTHONPATH would hide from all child processes; "
            "pass --shadow to print the folder all the same",
            file=sys.stderr,
        )
        return EXISTS
    put(f"{FOLDER}\n")
    return 0


def _report(info: LibraryInfo) -> None:
    other = other_acl()
    instead = f", in place of {other}, because this command was used" if other else ", the only one"
    card = "the simulator, so no card is used" if info.backend == "simulator" else info.path
    print(
        f"aioacl: acl is the module of aioacl{instead}; the ACL library is {card} (from {info.origin})",
        file=sys.stderr,
    )
