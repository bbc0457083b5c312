"""Checks that the files, tests and modules that the parts name exist, so that no rename silently drops a check."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).resolve().parents[2]


def missing(names: Iterable[str]) -> list[str]:
    """Returns a line for each name that is not in the checkout: `FOLDER`, `FILE` or `FILE::[CLASS::]TEST`."""
    return [
        f"{name}: expected {what}, found none; correct the name"
        for name in names
        for path, _, test in [name.partition("::")]
        for what in [_lacking(ROOT / path, test.rpartition("::")[2])]
        if what
    ]


def _lacking(path: Path, test: str) -> str:
    if not path.exists():
        return "a file or folder of that name"
    if test and not re.search(rf"def {re.escape(test)}\(", path.read_text()):
        return f"a test {test} in that file"
    return ""


def unmatched(expression: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Returns a line for each word of a `-k` expression that no test or file has in its name and `known` lacks."""
    words = set(re.findall(r"\w+", expression)) - {"not", "and", "or", *known}
    files = [file for name in names for file in _files(ROOT / name.partition("::")[0])]
    texts = [f"{file.name} {' '.join(re.findall(r'def (test_[^(]+)', file.read_text()))}" for file in files]
    return [
        f"-k {word}: expected a test with this word in its name, found none; correct the expression"
        for word in sorted(words)
        if not any(word in text for text in texts)
    ]


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
