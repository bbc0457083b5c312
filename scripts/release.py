"""Checks that a tag fits the sources, and prints the notes of the release: its section of CHANGELOG.md.

    python scripts/release.py v0.1.0

The tag must be `v` and the version in aioacl/__init__.py. The newest section of CHANGELOG.md must have this version and
a date. The script needs no package besides Python.
"""

from __future__ import annotations

import ast
import datetime as dt
import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
HEADING: Final = re.compile(r"^## \[(?P<version>[^\]]+)\] - (?P<date>.+)$", flags=re.MULTILINE)


class Problem(Exception):
    """The tag does not fit the sources. The message is one line."""


def version() -> str:
    """The version in aioacl/__init__.py, which pyproject.toml and the documentation take from there."""
    for statement in ast.parse((ROOT / "aioacl" / "__init__.py").read_text()).body:
        match statement:
            case ast.Assign(targets=[ast.Name("__version__")], value=ast.Constant(str(found))):
                return found
            case _:
                pass
    raise Problem("expected `__version__` in aioacl/__init__.py, found none; add it")


def notes(tag: str, current: str, changelog: str) -> str:
    """The newest section of the changelog, if the tag and the section belong to the current version."""
    if tag != f"v{current}":
        raise Problem(
            f"expected the tag v{current}, got {tag}; correct the tag, or the version in aioacl/__init__.py"
        )
    newest = HEADING.search(changelog)
    if newest is None or newest["version"] != current:
        got = newest["version"] if newest else "none"
        raise Problem(f"expected a first section [{current}] in CHANGELOG.md, got {got}; add the section")
    try:
        dt.date.fromisoformat(newest["date"])
    except ValueError:
        raise Problem(
            f"expected a date after [{current}] in CHANGELOG.md, got `{newest['date']}`; write YYYY-MM-DD"
        ) from None
    following = HEADING.search(changelog, newest.end())
    text = changelog[newest.end() : following.start() if following else None].strip()
    if not text:
        raise Problem(f"expected changes in the section [{current}] of CHANGELOG.md, got none; list them")
    return text


def main(arguments: list[str]) -> int:
    """Prints the notes; returns the exit status."""
    match arguments:
        case [tag]:
            try:
                print(notes(tag, version(), (ROOT / "CHANGELOG.md").read_text()))
            except Problem as problem:
                print(f"scripts/release.py: {problem}", file=sys.stderr)
                return 1
            return 0
        case _:
            print("usage: scripts/release.py TAG", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
