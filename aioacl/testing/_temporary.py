"""Directories and files that `tempfile` made and that were not removed yet, and files of `tempfile` without a name.

A TemporaryDirectory is checked in each folder. The other paths with a name are checked only in tempfile's own folder. A
path in another folder is usually removed with that folder, as in pytest's `tmp_path`.

A file of `TemporaryFile` has no name, so the line that opened the file is recorded for the file's descriptor. The
descriptor exists only after the call has returned. Therefore it is looked up when the thread opens its next file
without a name, or when a report needs the line.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from aioacl._base.origin import Frame

    Lines = tuple[Frame, ...]

REMEMBERED: Final = 4096
UNLINKED: Final = " (deleted)"  # the kernel's suffix for an open file whose name was removed
_MAKER: Final = TemporaryDirectory.__init__.__code__


class Directories:
    """The TemporaryDirectory objects that were made during an audit, each with its lines."""

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[TemporaryDirectory[Any], Lines] = weakref.WeakKeyDictionary()

    def note(self, frame: FrameType | None, lines: Lines) -> None:
        """Records the TemporaryDirectory that this frame initialises; a directory of plain `mkdtemp` has no object."""
        if frame is not None and frame.f_code is _MAKER:
            self._made[frame.f_locals["self"]] = lines

    def left(self) -> dict[str, Lines]:
        """Returns the directories that should have been cleaned up and were not, each with its lines."""
        return {str(made.name): lines for made, lines in list(self._made.items()) if _is_left(made)}


def _is_left(made: TemporaryDirectory[Any]) -> bool:
    finalizer = getattr(made, "_finalizer", None)  # None until the directory is made
    wanted = getattr(made, "_delete", True)
    return finalizer is not None and finalizer.alive and wanted and Path(os.fsdecode(made.name)).is_dir()


class Nameless:
    """The lines that opened files without a name, by the target of the descriptor."""

    def __init__(self, descriptors: Callable[[], Iterable[str]]) -> None:
        self._descriptors = descriptors
        self._pending: dict[int, tuple[frozenset[str], Lines]] = {}
        self._found: dict[str, Lines] = {}

    def _open(self) -> frozenset[str]:
        return frozenset(target for target in self._descriptors() if target.endswith(UNLINKED))

    def opening(self, lines: Lines) -> None:
        """Records that this thread is about to open a file without a name."""
        thread = threading.get_ident()
        self._find(thread)
        self._pending[thread] = self._open(), lines

    def _find(self, thread: int) -> None:
        """Attributes the new file to the thread that opened it. If several files are new, none is attributed."""
        before, lines = self._pending.pop(thread, (None, ()))
        if before is None:
            return
        new = self._open() - before
        if len(new) == 1:
            self._found[next(iter(new))] = lines

    def lines(self, target: str) -> Lines:
        """Returns the lines that opened a file."""
        for thread in list(self._pending):
            self._find(thread)
        return self._found.get(target, ())

    def forget(self) -> None:
        """Removes all records."""
        self._pending.clear()
        self._found.clear()


class Remaining:
    """The paths that `mkdtemp` and `mkstemp` were about to make during an audit, each with its lines."""

    def __init__(self) -> None:
        self._made: dict[str, Lines] = {}

    def note(self, path: object, frame: FrameType | None, lines: Lines) -> None:
        """Records the path, unless the code that made it also removes it: TemporaryDirectory, or multiprocessing at
        process end.
        """
        while frame is not None and frame.f_globals.get("__name__") == "tempfile":
            if frame.f_code is _MAKER:
                return
            frame = frame.f_back
        requester = "" if frame is None else str(frame.f_globals.get("__name__", ""))
        if not isinstance(path, str | bytes) or len(self._made) >= REMEMBERED:
            return
        if lines and requester.partition(".")[0] != "multiprocessing":
            self._made[os.path.realpath(os.fsdecode(path))] = lines

    def left(self, descriptors: Iterable[str]) -> dict[str, Lines]:
        """Returns the paths in tempfile's own folder that exist, without open files, which count as descriptors."""
        own, open_files = os.path.realpath(tempfile.gettempdir()), frozenset(descriptors)
        return {
            path: lines
            for path, lines in list(self._made.items())
            if path not in open_files and str(Path(path).parent) == own and os.path.lexists(path)
        }

    def forget(self) -> None:
        """Removes all records."""
        self._made.clear()


directories: Final = Directories()
remaining: Final = Remaining()


def left(descriptors: Iterable[str]) -> dict[str, Lines]:
    """Returns the paths that are left, each with its lines; `descriptors` are the targets of open descriptors."""
    return {**remaining.left(descriptors), **directories.left()}
