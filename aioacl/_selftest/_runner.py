"""The parent of the checks: it loads no library itself, so nothing that one does can end it.

The assumptions of a family share a child; those that must be alone have one each. The child says what it begins and how
it ended. If it says nothing for too long it is killed, and if it has crashed that is known by its status: either way
the assumption it was at is broken, and a fresh child goes on with the rest.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import IO, TYPE_CHECKING, Any, Final

from aioacl._base.errors import LibraryNotFound
from aioacl._selftest._records import Needs, Verdict

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from aioacl._selftest._records import Assumption

READ_BYTES: Final = 1 << 16
LEAVE_SECONDS: Final = 10.0  # what a child gets to end when it has said everything


@dataclass(frozen=True, slots=True)
class Library:
    """What the children have loaded."""

    backend: str
    path: str
    version: str
    devices: int
    problem: str = ""  # why nothing can be tried


@dataclass(frozen=True, slots=True)
class Request:
    """What to try, and what is allowed."""

    library: str | None
    device: int
    reset: bool
    limit_seconds: float


class _Child:
    """One process, and what it reports."""

    def __init__(self, request: Request, ids: Iterable[str], complaints: IO[bytes]) -> None:
        ours, theirs = os.pipe()
        order = json.dumps(
            {
                "library": request.library,
                "device": request.device,
                "ids": [*ids],
                "limit_seconds": request.limit_seconds,
            }
        )
        command = [sys.executable, "-m", "aioacl._selftest", str(theirs), order]
        self._descriptor = ours
        self._rest = b""
        self._complaints = complaints
        self.hung = False
        try:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                pass_fds=(theirs,),
            )
        finally:
            os.close(theirs)

    def facts(self, limit_seconds: float) -> Iterator[dict[str, Any]]:
        """What it says, line by line, until it says no more or nothing in time."""
        end = time.monotonic() + limit_seconds
        while chunk := self._read(end):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)
            end = time.monotonic() + limit_seconds

    def _read(self, end: float) -> bytes:
        readable, _, _ = select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))
        self.hung = not readable
        return os.read(self._descriptor, READ_BYTES) if readable else b""

    def fate(self, limit_seconds: float) -> str:
        """How it ended, if not well."""
        if self.hung:
            return f"nothing came back within {limit_seconds:g} s"
        try:
            status = self._process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            return f"the process did not end within {LEAVE_SECONDS:g} s"
        if status == 0:
            return ""
        how = f"crashed with {_signal(-status)}" if status < 0 else f"ended the process with status {status}"
        return f"{how}{self._last_words()}"

    def _last_words(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").split("\n")
        last = [line.strip() for line in lines if line.strip()]
        return f" ({last[-1]})" if last else ""

    def end(self) -> None:
        """Ends it, however it is."""
        self._process.kill()
        self._process.wait()
        os.close(self._descriptor)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def _child(request: Request, ids: Iterable[str]) -> Generator[_Child]:
    with tempfile.TemporaryFile() as complaints:
        child = _Child(request, ids, complaints)
        try:
            yield child
        finally:
            child.end()


def identify(request: Request) -> Library:
    """The library, as a child has found it. Raises LibraryNotFound as the child did."""
    with _child(request, ()) as child:
        for facts in child.facts(request.limit_seconds):
            if "message" in facts:
                tried = tuple((path, reason) for path, reason in facts["candidates"])
                raise LibraryNotFound(facts["message"], candidates=tried)
            return Library(**facts)
        return Library("", request.library or "", "", 0, child.fate(request.limit_seconds))


def run(request: Request, assumptions: Iterable[Assumption]) -> Iterator[Verdict]:
    """Tries them all, in order."""
    for _, group in groupby(assumptions, lambda each: each.id if each.alone else each.family):
        left: list[Assumption] = []
        for each in group:
            if Needs.RESET in each.needs and not request.reset:
                yield Verdict(each, "not_testable", Needs.RESET.value)
            else:
                left.append(each)
        while left:
            for verdict in _try(request, left):
                left.remove(verdict.assumption)
                yield verdict


def _try(request: Request, assumptions: list[Assumption]) -> Iterator[Verdict]:
    """What one child gets done of them; at least the first."""
    known = {each.id: each for each in assumptions}
    at: Assumption | None = assumptions[0]
    with _child(request, known) as child:
        last: Verdict | None = None
        for facts in child.facts(request.limit_seconds):
            if last is not None:
                yield last
                last = None
            if "begin" in facts:
                at = known[facts["begin"]]
            elif "id" in facts:
                last, at = Verdict(known[facts["id"]], facts["outcome"], facts["detail"]), None
        yield from _last(last, at, child.fate(request.limit_seconds))


def _last(last: Verdict | None, at: Assumption | None, fate: str) -> Iterator[Verdict]:
    """The last verdict waits for the child's end, which may be what the check is about."""
    if last is not None and fate and last.outcome == "held" and last.assumption.leaves:
        yield Verdict(last.assumption, "broken", f"at its end, the process {fate}")
    elif last is not None:
        yield last
    if at is not None:
        yield Verdict(at, "broken", fate or "the process ended in the midst of it")
