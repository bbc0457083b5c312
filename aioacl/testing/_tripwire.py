"""Where threads were started and descriptors opened.

Python tells who opens something by audit events. A hook for them cannot be taken away again, so there is one for the
process, put in place by the first audit; while none is under way it looks at one variable. Audit events tell of threads
since Python 3.12 only, so `Thread.start` is wrapped. Neither sees what C opens and starts.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from functools import wraps
from typing import TYPE_CHECKING, Any

from aioacl.testing._origins import frames_of
from aioacl.testing._snapshot import descriptors
from aioacl.testing._temporary import REMEMBERED, UNLINKED, Nameless, directories, remaining

if TYPE_CHECKING:
    from socket import socket

    from aioacl._base.origin import Frame


class Tripwire:
    """Lines that started threads, opened files and sockets, and made temporary files and directories, during audits."""

    def __init__(self) -> None:
        self._audits = 0
        self._threads: weakref.WeakKeyDictionary[threading.Thread, tuple[Frame, ...]] = (
            weakref.WeakKeyDictionary()
        )
        self._sockets: weakref.WeakKeyDictionary[socket, tuple[Frame, ...]] = weakref.WeakKeyDictionary()
        self._files: dict[str, tuple[Frame, ...]] = {}
        self._nameless = Nameless(lambda: descriptors().values())

    def open(self) -> None:
        """One more audit is under way: somebody listens."""
        self._audits += 1

    def shut(self) -> None:
        """One less; after the last, files are forgotten. Threads and sockets are when they end."""
        self._audits -= 1
        if not self._audits:
            self._files.clear()
            self._nameless.forget()
            remaining.forget()

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook."""
        if not self._audits:
            return
        if event == "open":
            self._opened(arguments[0], arguments[-1])
        elif event == "tempfile.mkdtemp":
            asking = sys._getframe(1)
            directories.note(asking.f_back, frames_of(asking))
            remaining.note(arguments[0], asking, frames_of(asking))
        elif event == "tempfile.mkstemp":
            asking = sys._getframe(1)
            remaining.note(arguments[0], asking, frames_of(asking))
        elif event == "socket.__new__":
            self._sockets[arguments[0]] = frames_of(sys._getframe(1))

    def starting(self, thread: threading.Thread) -> None:
        """Called by what is in the place of `Thread.start`."""
        if self._audits:
            self._threads[thread] = frames_of(sys._getframe(2))

    def _opened(self, path: object, flags: object) -> None:
        if not isinstance(path, str | bytes) or len(self._files) >= REMEMBERED:
            return
        frames = frames_of(sys._getframe(2))
        if not frames:
            return
        if isinstance(flags, int) and flags & os.O_TMPFILE == os.O_TMPFILE:
            self._nameless.opening(frames)
        else:
            self._files[os.path.realpath(os.fsdecode(path))] = frames

    def of_thread(self, thread: threading.Thread) -> tuple[Frame, ...]:
        """Who started it."""
        return self._threads.get(thread, ())

    def of_descriptor(self, number: int, target: str) -> tuple[Frame, ...]:
        """Who opened it: the file's path or the socket's number tells."""
        for sock, frames in list(self._sockets.items()):
            if sock.fileno() == number:
                return frames
        return self._files.get(target.removesuffix(UNLINKED)) or self._nameless.lines(target)


_wires: list[Tripwire] = []


def tripwire() -> Tripwire:
    """The one of this process."""
    if not _wires:
        _wires.append(Tripwire())
        sys.addaudithook(_wires[0].hear)
        _wrap_start(_wires[0])
    return _wires[0]


def _wrap_start(wire: Tripwire) -> None:
    start = threading.Thread.start

    @wraps(start)
    def told_start(self: threading.Thread) -> None:
        wire.starting(self)
        start(self)

    threading.Thread.start = told_start  # type: ignore[method-assign]  # there is no event for it before 3.12
