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
    """Returns the file of another module `acl` that can be imported, or None. A bare folder does not count."""
    searched = [
        each for each in (sys.path if path is None else path) if os.path.realpath(each) != str(FOLDER)
    ]
    found = PathFinder.find_spec("acl", searched)
    return found.origin if found is not None else None


def check_folder(*, strict: bool) -> tuple[str, ...]:
    """Checks the permissions of the folder's files, as those of an ACL library. Returns the findings.

    Raises:
        Unusable: another user may have written the files.
    """
    rules = Rules(frozenset({0, os.geteuid()}), strict)
    found = [inspect_way(str(each), rules) for each in sorted((FOLDER / "acl").glob("*.py"))]
    findings = tuple(dict.fromkeys(finding for each in found for finding in each))
    if findings and strict:
        raise Unusable(f"{'; '.join(findings)} (AIOACL_STRICT refuses this)")
    return findings


def python_path(before: str | None) -> str:
    """Returns PYTHONPATH with the folder first."""
    rest = [each for each in (before or "").split(os.pathsep) if each and each != str(FOLDER)]
    return os.pathsep.join([str(FOLDER), *rest])
