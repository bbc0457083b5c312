"""`pyacl`: runs a program that imports CANN's module `acl`, with the module `acl` of aioacl.

Python itself runs the program in place of this process, so that the program sees the same sys.argv, sys.path and
signals as without aioacl. It gets the options of this Python too, such as -u and -W.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioacl._cli import UserError
from aioacl._cli._library import add_option, load_or_explain
from aioacl._cli._screen import put
from aioacl._library.locate import Unusable
from aioacl._pyacl.place import FOLDER, check_folder, other_acl, python_path

if TYPE_CHECKING:
    from argparse import Namespace

    from aioacl._library.load import LibraryInfo

EXISTS: Final = 1  # the status of --path if there is another `acl`
INTERPRETER: Final = re.compile(r"-[^WXmc-]*")
"""The options of Python that have no value, in one word."""


def add(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "pyacl",
        help="run a program that imports CANN's module acl",
        description="Run a Python program with aioacl's module `acl` first on the path, for it and its children. "
        "The program gets the options of Python too: python -u -m aioacl pyacl SCRIPT",
        usage="aioacl pyacl [-h] [-q] [--library simulator|PATH] SCRIPT [ARGUMENTS]\n"
        "       aioacl pyacl [-q] [--library simulator|PATH] -m MODULE [ARGUMENTS]\n"
        "       aioacl pyacl [-q] [--library simulator|PATH] -c TEXT [ARGUMENTS]\n"
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
    rest = argparse.REMAINDER
    parser.add_argument(
        "-m", nargs=rest, dest="module", metavar="MODULE", help="run a module, as python -m does"
    )
    parser.add_argument("-c", nargs=rest, dest="text", metavar="TEXT", help="run a text, as python -c does")
    # Not two arguments, SCRIPT and ARGUMENTS: argparse would drop `--` between them.
    script = parser.add_argument(
        "script",
        nargs=argparse.PARSER,
        metavar="SCRIPT",
        help="the program, or - for standard input, and its arguments",
    )
    script.required = False
    parser.set_defaults(run=run, parser=parser)


def run(arguments: Namespace) -> int:
    """Prints the folder, or replaces this process by the program."""
    program = _program(arguments)
    if arguments.path:
        if program:
            raise UserError(f"expected --path without a program, got {program[0]}; omit one of the two")
        if arguments.library is not None:
            raise UserError("expected --path without --library; set AIOACL_LIBRARY for the processes instead")
        return _print_path(shadow=arguments.shadow)
    if arguments.shadow:
        raise UserError("expected --shadow with --path only; omit it to run a program")
    if not program:
        raise UserError("expected a program, got none; run `python -m aioacl pyacl SCRIPT`")
    return _replaced(arguments, program)


def _program(arguments: Namespace) -> list[str]:
    """What follows the options of Python on the program's command line."""
    script: list[str] = arguments.script or []
    for option, words, what in (
        ("-m", arguments.module, "the name of a module"),
        ("-c", arguments.text, "a program text"),
    ):
        if words is None:
            continue
        if not words:
            raise UserError(f"expected {what} after {option}, got nothing")
        return [option, *words, *script]  # argparse ends the words at `--`, and after -mMODULE
    return script[1:] if script[:1] == ["--"] else script


def _replaced(arguments: Namespace, program: list[str]) -> NoReturn:
    """Replaces this process by the program."""
    script = program[0]
    if script not in ("-m", "-c", "-") and not Path(script).exists():
        raise UserError(f"{script}: no such file; pass the path of a Python program")
    options = _options()
    _refuse_own_acl(script)
    info = load_or_explain(arguments.library)
    findings = _check()
    if not arguments.quiet:
        _report(info, findings)
    environ = {**os.environ, "PYTHONPATH": python_path(os.environ.get("PYTHONPATH"))}
    if arguments.library is not None:
        environ["AIOACL_LIBRARY"] = "simulator" if arguments.library == "simulator" else info.path
    put("", flush=True)
    command = [sys.executable, *options, *program]
    os.execve(sys.executable, command, environ)  # noqa: S606 - the program replaces this process


def _options() -> list[str]:
    """The options of this Python before `-m aioacl`. Those of the command `aioacl` are not the user's."""
    found: list[str] = []
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word.startswith("--"):
            found += [word, next(words)] if word == "--check-hash-based-pycs" else [word]
            continue
        match = INTERPRETER.match(word)
        if match is None or word[match.end() :][:1] == "c":
            return []
        plain, rest = match[0], word[match.end() :]
        if rest[:1] == "m":
            found += [plain] if plain != "-" else []
            if sys.flags.ignore_environment:
                raise UserError(
                    "expected Python without -E and -I, which ignore PYTHONPATH; omit these options"
                )
            return found
        found += [word] if len(rest) != 1 else [word, next(words)]
    return []


def _refuse_own_acl(script: str) -> None:
    """Raises a UserError if Python imports `acl` from the folder of the program, which comes before PYTHONPATH."""
    if sys.flags.safe_path:
        return
    path = Path(script).resolve()
    folder = Path.cwd() if script in ("-m", "-c", "-") else path.parent if path.is_file() else path
    own = other_acl([str(folder)])
    if own is not None:
        raise UserError(
            f"expected no module acl in the folder of the program, got {own}, which Python imports first; rename it"
        )


def _check() -> tuple[str, ...]:
    try:
        return check_folder(strict=os.environ.get("AIOACL_STRICT", "") not in ("", "0"))
    except Unusable as error:
        raise UserError(f"{FOLDER}: {error}; correct the permissions of the installed package") from None


def _print_path(*, shadow: bool) -> int:
    findings = _check()
    other = other_acl()
    if other is not None and not shadow:
        print(
            f"aioacl: {other} is another module acl, which PYTHONPATH would hide from all child processes; "
            "pass --shadow to print the folder all the same",
            file=sys.stderr,
        )
        return EXISTS
    _print_findings(findings)
    put(f"{FOLDER}\n")
    return 0


def _report(info: LibraryInfo, findings: tuple[str, ...]) -> None:
    other = other_acl()
    instead = f", in place of {other}, because this command was used" if other else ", the only one"
    card = "the simulator, so no card is used" if info.backend == "simulator" else info.path
    print(
        f"aioacl: acl is the module of aioacl{instead}; the ACL library is {card} (from {info.origin})",
        file=sys.stderr,
    )
    _print_findings(findings)


def _print_findings(findings: tuple[str, ...]) -> None:
    if findings:
        print(f"aioacl: {FOLDER}: {'; '.join(findings)}", file=sys.stderr)
