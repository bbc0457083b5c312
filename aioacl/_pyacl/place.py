"""The folder with the module `acl`, and the other modules of that name that Python would import without the folder."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Final

from aioacl._base.paths import PACKAGE
from aioacl._library.locate import Rules, Unusable, inspect_way

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FOLDER: Final[Path] = PACKAGE / "_pyacl" / "path"
"""Holds `acl` only."""


def other_acl(path: Sequence[str] | None = None) -> str | None:
    """Returns the file of another module `acl` that can be imported, or None. A bare folder does not count.

    Args:
        path: the folders to search. None: those of sys.path that all programs have, so without the folder of this one.
    """
    if path is None:
        path = sys.path if sys.flags.safe_path else sys.path[1:]
    found = PathFinder.find_spec("acl", [each for each in path if os.path.realpath(each) != str(FOLDER)])
    return found.origin if found is not None else None


def check_folder(*, strict: bool, folder: Path = FOLDER) -> tuple[str, ...]:
    """Checks the permissions of the folder's files, as those of an ACL library. Returns the findings.

    Raises:
        Unusable: another user may have written the files.
    """
    rules = Rules(frozenset({0, os.geteuid()}), strict)
    files = [each for each in sorted((folder / "acl").rglob("*")) if each.suffix != ".pyi"]
    findings = tuple(dict.fromkeys(finding for each in files for finding in inspect_way(str(each), rules)))
    if findings and strict:
        raise Unusable(f"{'; '.join(findings)} (AIOACL_STRICT refuses this)")
    return findings


def python_path(before: str | None) -> str:
    """Returns PYTHONPATH with the folder first. An empty part stays: it means the current folder."""
    rest = [each for each in before.split(os.pathsep) if each != str(FOLDER)] if before else []
    return os.pathsep.join([str(FOLDER), *rest])
