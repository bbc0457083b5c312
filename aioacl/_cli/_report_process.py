"""Runs a step of `report` in a process group that ends within a time limit, whatever the step does.

A guard is the first process of each group. It waits until the report closes a pipe, which also happens if the report is
killed. Then the guard kills the group. So no process of a step outlives the report, even with SIGKILL. The
report waits until the kernel has ended each process of the group. If the kernel cannot end a process, because the
driver holds it, the report waits `LEAVE_SECONDS`, and continues.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final, cast

from aioacl._cli._screen import OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

LEAVE_SECONDS: Final = 10.0  # the time for a killed process to end
REFRESH_SECONDS: Final = 0.2
ENDING_SECONDS: Final = 0.02  # between two looks at the processes that were killed
MOST_BYTES: Final = 1 << 24  # of an output that are read at once
MOST_LINE: Final = 1 << 20  # bytes of a line
LOOK_BYTES: Final = 1 << 18  # of an output that are read between two waits
THREADS: Final = 14  # the place of num_threads after pgrp in /proc/PID/stat
GUARD: Final = "import os, signal; os.read(0, 1); os.killpg(0, signal.SIGKILL)"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step ended, and what it wrote.

    `status` is the exit status, or minus the number of a signal. It is None if the step was killed at its limit, or if
    it could not be run because of `error`. `left` is set if a process of the step has not ended although it was killed.
    """

    status: int | None
    seconds: float
    lines: list[dict[str, Any]]
    errors: str
    left: bool = False
    error: OSError | None = None


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a step. `left` is set if a process of it has not ended although it was killed."""

    def __init__(self, *, left: bool) -> None:
        super().__init__()
        self.left = left


@contextmanager
def _group() -> Generator[int]:
    """Makes a process group, and kills it at the end."""
    guard = subprocess.Popen(  # noqa: S603 - Python itself
        [sys.executable, "-I", "-S", "-c", GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        yield guard.pid
    finally:
        os.killpg(guard.pid, signal.SIGKILL)  # the guard is not reaped yet, so the group still exists
        guard.communicate()


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    limit_seconds: float,
    progress: Callable[[list[dict[str, Any]]], None],
) -> Ended:
    """Runs the command until it ends or the limit has passed. Calls `progress` with the JSON objects that it wrote."""
    begun = time.monotonic()
    try:
        return _run(command, environ, begun, limit_seconds, progress)
    except OutputError:
        raise
    except OSError as error:  # no memory for a process, no space for its output, or no interpreter any more
        return Ended(None, time.monotonic() - begun, [], "", error=error)


def _run(
    command: Sequence[str],
    environ: Mapping[str, str],
    begun: float,
    limit_seconds: float,
    progress: Callable[[list[dict[str, Any]]], None],
) -> Ended:
    with TemporaryFile() as output, TemporaryFile() as errors:
        group, objects = 0, Objects(output)
        try:
            with _group() as group:
                process = subprocess.Popen(  # noqa: S603 - aioacl's own commands
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    env=environ,
                    process_group=group,
                )
                status = _wait(process, begun + limit_seconds, lambda: progress(objects.look()))
        except KeyboardInterrupt:
            raise Interrupted(left=group != 0 and is_left(group, LEAVE_SECONDS)) from None
        left = is_left(group, LEAVE_SECONDS)
        if not left:
            process.wait()
        return Ended(status, time.monotonic() - begun, objects.all(), _text(errors), left=left)


def _wait(process: subprocess.Popen[bytes], end: float, look: Callable[[], None]) -> int | None:
    while (left := end - time.monotonic()) > 0:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(min(left, REFRESH_SECONDS))
        look()
    return process.poll()


def is_left(group: int, seconds: float) -> bool:
    """Waits until no process of the group runs. Returns True if a process still runs after this time.

    A step has children, and children of a child become children of another process when it ends. So `wait` cannot wait
    for all of them.
    """
    end = time.monotonic() + seconds
    while _runs(group):
        if time.monotonic() >= end:
            return True
        time.sleep(ENDING_SECONDS)
    return False


def _runs(group: int) -> bool:
    """Whether a thread of the group runs. The driver may hold one thread after the main thread has ended."""
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process ended during this call
            state, _, its_group, *rest = place.read_bytes().rpartition(b") ")[2].split()
            if int(its_group) == group and (state not in b"XZ" or int(rest[THREADS]) > 1):
                return True
    return False


def _text(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), MOST_BYTES, 0).decode("utf-8", "replace")


class Objects:
    """The JSON objects of the output of a step, each on a line.

    A library may write other lines, and text before an object. With some settings, the runtime writes its whole log.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._found: list[dict[str, Any]] = []
        self.offset = 0
        self.rest = b""  # of a line whose end was not read yet

    def look(self) -> list[dict[str, Any]]:
        """Reads a part of what was written since the last look. Returns all objects so far."""
        self._read(LOOK_BYTES)
        return self._found

    def all(self) -> list[dict[str, Any]]:
        """Reads the rest, and returns all objects. Of a very long rest, reads only the beginning and the end."""
        end = os.fstat(self._file.fileno()).st_size
        self._read(MOST_BYTES)
        if end - self.offset > MOST_BYTES:
            self.offset, self.rest = end - MOST_BYTES, b""
        self._read(MOST_BYTES)
        self._add(self.rest)
        self.rest = b""
        return self._found

    def _read(self, most: int) -> None:
        read = os.pread(self._file.fileno(), most, self.offset)
        self.offset += len(read)
        *lines, rest = (self.rest + read).split(b"\n")
        self.rest = rest[-MOST_LINE:]
        for line in lines:
            self._add(line)

    def _add(self, line: bytes) -> None:
        begin = line.find(b'{"')
        with suppress(ValueError, RecursionError):
            value: object = json.loads(line[begin:].decode("utf-8", "replace")) if begin >= 0 else None
            if isinstance(value, dict):
                self._found.append(cast("dict[str, Any]", value))
