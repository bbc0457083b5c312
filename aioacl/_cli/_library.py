"""Adds the option `--library`, and loads the library that it names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from aioacl._base.errors import LibraryNotFound
from aioacl._cli import UserError
from aioacl._library.load import LibraryInfo, library_info, use_library

if TYPE_CHECKING:
    from argparse import ArgumentParser


def add_option(parser: ArgumentParser, *, default: str | None, otherwise: str) -> None:
    """Adds `--library` to a command."""
    parser.add_argument(
        "--library",
        default=default,
        metavar="simulator|PATH",
        help=f"the ACL library to use (default: {otherwise})",
    )


def load(choice: str | None) -> LibraryInfo:
    """Loads the chosen library, or the library that the usual search finds."""
    if choice is None:
        return library_info()
    return use_library(choice if choice == "simulator" else Path(choice).absolute())


def load_or_explain(choice: str | None) -> LibraryInfo:
    """Loads the library as `load` does. Raises a UserError of one line if there is no library."""
    try:
        return load(choice)
    except LibraryNotFound as error:
        raise in_one_line(error) from None


def in_one_line(error: LibraryNotFound) -> UserError:
    """Returns an error that states in one line why there is no library."""
    path, reason = error.candidates[0] if error.candidates else ("", error.message)
    if len(error.candidates) == 1:
        return UserError(f"{path}: {reason}")
    return UserError(
        f"none of {len(error.candidates)} places has an ACL library: `python -m aioacl doctor` lists these places; "
        "`--library simulator` works without CANN"
    )


def described(info: LibraryInfo, tense: str = "is") -> str:
    """Returns the backend in words that make clear whether a card is used."""
    return f"simulator: no card {tense} used" if info.backend == "simulator" else f"ascend: {info.path}"
