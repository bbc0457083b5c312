"""The files that the demo moves, and their pieces."""

from __future__ import annotations

import hashlib
import os
import platform
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from aioacl._cli import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PIECE_BYTES: Final = 2 << 20  # the part of a file that a task holds at a time, for files of any size
_SKIPPED: Final = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"})


@dataclass(frozen=True, slots=True)
class Source:
    """A regular file, and its size when it was found."""

    path: Path
    size: int

    def offsets(self) -> range:
        """Returns the offsets of the file's pieces; an empty file is one empty piece."""
        return range(0, max(self.size, 1), PIECE_BYTES)

    def read(self, offset: int, at_most: int = PIECE_BYTES) -> tuple[bytes, bytes]:
        """Returns the piece at an offset, and its SHA-256."""
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                data = file.read(min(at_most, self.size - offset))
        except OSError as error:
            _refuse(error)
        return data, hashlib.sha256(data).digest()


@dataclass(frozen=True, slots=True)
class Input:
    """The files, and the name of the set of files."""

    name: str
    files: tuple[Source, ...]


def find_input(path: str | None) -> Input:
    """Returns the files of a folder, or one file; by default the sources of the standard library."""
    if path is None:
        name = f"the standard library of Python {platform.python_version()}"
        files = _found(Path(sysconfig.get_path("stdlib")), _is_source, _SKIPPED)
    else:
        name, files = path, _found(Path(path), lambda _: True, frozenset())
    if not files:
        raise UserError(f"{name}: there is no file in it")
    return Input(name, files)


def _is_source(name: str) -> bool:
    return name.endswith(".py")


def _found(root: Path, wanted: Callable[[str], bool], skipped: frozenset[str]) -> tuple[Source, ...]:
    try:
        paths = [root] if not root.is_dir() else sorted(_walk(root, wanted, skipped))
        sources = tuple(Source(path, path.stat().st_size) for path in paths)
    except OSError as error:
        _refuse(error)
    for source in sources:
        if not source.path.is_file():
            raise UserError(f"{source.path}: it is not a regular file")
        if not os.access(source.path, os.R_OK):
            raise UserError(f"{source.path}: it cannot be read")
    return sources


def _walk(root: Path, wanted: Callable[[str], bool], skipped: frozenset[str]) -> Iterator[Path]:
    for folder, folders, names in os.walk(root, onerror=_refuse):
        folders[:] = [each for each in folders if each not in skipped]
        yield from (path for name in names if wanted(name) and (path := Path(folder, name)).is_file())


def _refuse(error: OSError) -> NoReturn:
    raise UserError(f"{error.filename or 'the input'}: {error.strerror or error}") from error
