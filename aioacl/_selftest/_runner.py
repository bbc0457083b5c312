"""The parent of the checks. It loads no library itself, so a crash of a library does not end the parent.

The assumptions of a family share a child; an assumption that must be tested alone has its own child. A child reports
which check it starts, and the result. A child that reports nothing for too long is killed; a child that crashes is
found by its exit status. In both cases the assumption under test counts as broken, and a new child continues with the
rest. A crash that is a known trait of the runtime does not count as broken.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import IO, TYPE_CHECKING, Any, Final

from aioacl._base.child import command
from aioacl._base.errors import LibraryNotFound
from aioacl._selftest._records import Needs, Verdict

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from aioacl._selftest._records import Assumption

READ_BYTES: Final = 1 << 16
CRASHED: Final = "crashed with"
LEAVE_SECONDS: Final = 10.0  # the time for a child to end after its last report


@dataclass(frozen=True, slots=True)
class Library:
    """The library that the children have loaded."""

    backend: str
    path: str
    version: str
    devices: int
    problem: str = ""  # why nothing can be tested


@dataclass(frozen=True, slots=True)
class Request:
    """The library and the device to test, and the limits of the test."""

    library: str | None
    device: int
    reset: bool
    limit_seconds: float
    model: str | None = None  # the path of an .om file; None: the model of the package, on the simulator only


class _Child:
    """A child process, and its reports."""

    def __init__(self, request: Request, ids: Iterable[str], complaints: IO[bytes]) -> None:
        ours, theirs = os.pipe()
        order = json.dumps(
            {
                "library": request.library,
                "device": request.device,
                "ids": [*ids],
                "limit_seconds": request.limit_seconds,
                "model": request.model,
            }
        )
        self._descriptor = ours
        self._rest = b""
        self._complaints = complaints
        self.hung = False
        try:
            self._process = subprocess.Popen(  # noqa: S603 - aioacl's own module
                command("aioacl._selftest", str(theirs), order),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                pass_fds=(theirs,),
            )
        finally:
            os.close(theirs)

    def facts(self, limit_seconds: float) -> Iterator[dict[str, Any]]:
        """Yields the reports of the child, until it closes the pipe or reports nothing within the limit."""
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

    def ending(self, limit_seconds: float) -> str:
        """Returns how the process ended, or an empty text if it ended normally."""
        if self.hung:
            return f"no report within {limit_seconds:g} s"
        try:
            status = self._process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            return f"the process did not end within {LEAVE_SECONDS:g} s"
        if status == 0:
            return ""
        how = f"{CRASHED} {_signal(-status)}" if status < 0 else f"ended the process with status {status}"
        return f"{how}{self._last_line()}"

    def _last_line(self) -> str:
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").split("\n")
        last = [line.strip() for line in lines if line.strip()]
        return f" ({last[-1]})" if last else ""

    def end(self) -> None:
        """Kills the process if it still runs, and closes the pipe."""
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
    """Returns the library that a child found. Raises LibraryNotFound if the child found none."""
    with _child(request, ()) as child:
        for facts in child.facts(request.limit_seconds):
            if "message" in facts:
                tried = tuple((path, reason) for path, reason in facts["candidates"])
                raise LibraryNotFound(facts["message"], candidates=tried)
            return Library(**facts)
        return Library("", request.library or "", "", 0, child.ending(request.limit_seconds))


def run(request: Request, assumptions: Iterable[Assumption]) -> Iterator[Verdict]:
    """Tests all assumptions, in order."""
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
    """Tests assumptions in one child until the child ends. Yields the result of at least the first assumption."""
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
        yield from _last(last, at, child.ending(request.limit_seconds))


def _last(last: Verdict | None, at: Assumption | None, ending: str) -> Iterator[Verdict]:
    """Yields the last result after the child has ended, because the last check may be about that end.

    If the child ended during a check, the assumption of that check is broken, except if the runtime is known to crash
    there.
    """
    if last is not None and ending and last.outcome == "held" and last.assumption.leaves:
        yield Verdict(last.assumption, "broken", f"after the check: {ending}")
    elif last is not None:
        yield last
    if at is not None:
        yield _ended(at, ending or "the process ended during the check")


def _ended(at: Assumption, ending: str) -> Verdict:
    if at.crash and ending.startswith(CRASHED):
        return Verdict(at, "known_trait", f"{ending}: {at.crash}")
    return Verdict(at, "broken", ending)
