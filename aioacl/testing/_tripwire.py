"""The lines that started threads and opened descriptors.

Python raises an audit event when code opens a file or socket. A hook for audit events cannot be removed. So there is
one hook in the process, which the first audit installs. While no audit is running, the hook only checks one variable.
Before Python 3.12 there is no audit event for threads, so `Thread.start` is wrapped. Files and threads of C code are
not covered.
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
    """The lines that started threads and opened files, sockets and temporary files or directories during audits."""

    def __init__(self) -> None:
        self._audits = 0
        self._threads: weakref.WeakKeyDictionary[threading.Thread, tuple[Frame, ...]] = (
            weakref.WeakKeyDictionary()
        )
        self._sockets: weakref.WeakKeyDictionary[socket, tuple[Frame, ...]] = weakref.WeakKeyDictionary()
        self._files: dict[str, tuple[Frame, ...]] = {}
        self._nameless = Nameless(lambda: descriptors().values())

    def open(self) -> None:
        """Begins an audit. Lines are recorded while at least one audit runs."""
        self._audits += 1

    def shut(self) -> None:
        """Ends an audit. The last audit removes the records of files; other records are dropped with their objects."""
        self._audits -= 1
        if not self._audits:
            self._files.clear()
            self._nameless.forget()
            remaining.forget()

    def handle(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook: handles an audit event."""
        if not self._audits:
            return
        if event == "open":
            self._opened(arguments[0], arguments[-1])
        elif event == "tempfile.mkdtemp":
            caller = sys._getframe(1)
            directories.note(caller.f_back, frames_of(caller))
            remaining.note(arguments[0], caller, frames_of(caller))
        elif event == "tempfile.mkstemp":
            caller = sys._getframe(1)
            remaining.note(arguments[0], caller, frames_of(caller))
        elif event == "socket.__new__":
            self._sockets[arguments[0]] = frames_of(sys._getframe(1))

    def starting(self, thread: threading.Thread) -> None:
        """Records the lines that start a thread. The wrapper of `Thread.start` calls it."""
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
        """Returns the lines that started a thread."""
        return self._threads.get(thread, ())

    def of_descriptor(self, number: int, target: str) -> tuple[Frame, ...]:
        """Returns the lines that opened a descriptor, found by the number of a socket or the path of a file."""
        for sock, frames in list(self._sockets.items()):
            if sock.fileno() == number:
                return frames
        return self._files.get(target.removesuffix(UNLINKED)) or self._nameless.lines(target)


_wires: list[Tripwire] = []


def tripwire() -> Tripwire:
    """Returns the Tripwire of this process. The first call makes it and installs its hook."""
    if not _wires:
        _wires.append(Tripwire())
        sys.addaudithook(_wires[0].handle)
        _wrap_start(_wires[0])
    return _wires[0]


def _wrap_start(wire: Tripwire) -> None:
    start = threading.Thread.start

    @wraps(start)
    def recorded_start(self: threading.Thread) -> None:
        wire.starting(self)
        start(self)

    threading.Thread.start = recorded_start  # type: ignore[method-assign]  # there is no event for it before 3.12
