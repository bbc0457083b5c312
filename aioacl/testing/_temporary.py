"""What the module tempfile has made: directories and files that are not removed yet, and files without a name.

Of what the module makes with a name, only that in its own folder is looked for: what is made in another folder usually
goes with that folder, as in pytest's `tmp_path`.

A file of `TemporaryFile` has no name by which the line that opened it could be found again. It is known by its
descriptor, which exists when the call has returned. So it is looked for at the thread's next such call, or in the end.
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
UNLINKED: Final = " (deleted)"  # how the kernel ends the name of an open file that has none any more
_MAKER: Final = TemporaryDirectory.__init__.__code__


class Directories:
    """The objects of TemporaryDirectory that were made while an audit was under way, each with its lines."""

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[TemporaryDirectory[Any], Lines] = weakref.WeakKeyDictionary()

    def note(self, frame: FrameType | None, lines: Lines) -> None:
        """Notes the object that asks for a directory in this frame; `mkdtemp` by itself keeps what it makes."""
        if frame is not None and frame.f_code is _MAKER:
            self._made[frame.f_locals["self"]] = lines

    def left(self) -> dict[str, Lines]:
        """The directories that are neither cleaned up nor meant to stay, each with its lines."""
        return {str(made.name): lines for made, lines in list(self._made.items()) if _is_left(made)}


def _is_left(made: TemporaryDirectory[Any]) -> bool:
    finalizer = getattr(made, "_finalizer", None)  # none while it is being made
    wanted = getattr(made, "_delete", True)
    return finalizer is not None and finalizer.alive and wanted and Path(os.fsdecode(made.name)).is_dir()


class Nameless:
    """The lines that have opened files without a name, by what the descriptor is then."""

    def __init__(self, descriptors: Callable[[], Iterable[str]]) -> None:
        self._descriptors = descriptors
        self._pending: dict[int, tuple[frozenset[str], Lines]] = {}
        self._found: dict[str, Lines] = {}

    def _open(self) -> frozenset[str]:
        return frozenset(target for target in self._descriptors() if target.endswith(UNLINKED))

    def opening(self, lines: Lines) -> None:
        """This thread is about to open one."""
        thread = threading.get_ident()
        self._find(thread)
        self._pending[thread] = self._open(), lines

    def _find(self, thread: int) -> None:
        """What a thread opened is the one that is new; of several, opened beside each other, it is not known which."""
        before, lines = self._pending.pop(thread, (None, ()))
        if before is None:
            return
        new = self._open() - before
        if len(new) == 1:
            self._found[next(iter(new))] = lines

    def lines(self, target: str) -> Lines:
        """Who opened it."""
        for thread in list(self._pending):
            self._find(thread)
        return self._found.get(target, ())

    def forget(self) -> None:
        """Forgets them all."""
        self._pending.clear()
        self._found.clear()


class Remaining:
    """The paths that `mkdtemp` and `mkstemp` were about to make while an audit was under way, each with its lines."""

    def __init__(self) -> None:
        self._made: dict[str, Lines] = {}

    def note(self, path: object, frame: FrameType | None, lines: Lines) -> None:
        """Notes the path, unless its maker removes it: TemporaryDirectory, or multiprocessing at the process's end."""
        while frame is not None and frame.f_globals.get("__name__") == "tempfile":
            if frame.f_code is _MAKER:
                return
            frame = frame.f_back
        asks = "" if frame is None else str(frame.f_globals.get("__name__", ""))
        if not isinstance(path, str | bytes) or len(self._made) >= REMEMBERED:
            return
        if lines and asks.partition(".")[0] != "multiprocessing":
            self._made[os.path.realpath(os.fsdecode(path))] = lines

    def left(self, descriptors: Iterable[str]) -> dict[str, Lines]:
        """Those in tempfile's own folder that are there, less the files that are open: they are descriptors."""
        own, open_files = os.path.realpath(tempfile.gettempdir()), frozenset(descriptors)
        return {
            path: lines
            for path, lines in list(self._made.items())
            if path not in open_files and str(Path(path).parent) == own and os.path.lexists(path)
        }

    def forget(self) -> None:
        """Forgets them all."""
        self._made.clear()


directories: Final = Directories()
remaining: Final = Remaining()


def left(descriptors: Iterable[str]) -> dict[str, Lines]:
    """The paths of all that is left, each with its lines. The descriptors' targets are open files."""
    return {**remaining.left(descriptors), **directories.left()}
