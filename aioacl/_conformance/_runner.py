"""The parent: forks a process for each vector, several at the same time, and compares their results.

It loads no library and has no threads, so forking is safe and takes a few milliseconds. A vector that crashes or hangs
ends only its own process. A child reports each result at once, so the step of a crash is known.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aioacl._conformance._player import Player
from aioacl._conformance._specs import spec_of
from aioacl._conformance._vectors import Outcome, compare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioacl._conformance._vectors import Vector

LIMIT_SECONDS: Final = 60.0
STDERR: Final = 2
READ_BYTES: Final = 1 << 16
# The vectors contain outputs of the emulated driver under the runtime, so the simulator must behave like that driver.
SETTINGS: Final = {"AIOACL_SIM_DRIVER": "recorded"}


@dataclass
class _Child:
    """A process that runs a vector."""

    vector: Vector
    process: int
    descriptor: int
    end: float
    output: bytearray = field(default_factory=bytearray)


def trial(library: str) -> str:
    """Returns why a process cannot load the library, or an empty text if it can."""
    ours, theirs = os.pipe()
    process = os.fork()
    if process == 0:
        os.dup2(theirs, STDERR)  # the simulator prints its errors there
        _try(library, theirs)
    os.close(theirs)
    with os.fdopen(ours, "rb") as output:
        problem = output.read().decode("utf-8", "replace")
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    return (problem.strip().removeprefix(f"{library}: ") or _ending(code)) if code else ""


def _try(library: str, descriptor: int) -> None:
    """Runs in the child, and never returns."""
    status = 1
    try:
        Player(library).begin()
        status = 0
    except OSError as error:
        os.write(descriptor, str(error).encode())
    finally:
        os._exit(status)


def run(vectors: list[Vector], library: str, jobs: int) -> Iterator[Outcome]:
    """Runs all vectors, and yields the outcomes in the order in which they end."""
    for name in {step.call for vector in vectors for step in vector.steps}:
        spec_of(name)  # computed and cached once, before the forks
    gc.collect()
    gc.freeze()
    waiting, going = iter(vectors), selectors.DefaultSelector()
    with going:
        try:
            _start(going, waiting, library, jobs)
            while going.get_map():
                for child in _ended(going):
                    _start(going, waiting, library, 1)
                    yield _outcome(child)
        finally:
            for key in list(going.get_map().values()):
                os.kill(key.data.process, signal.SIGKILL)
                os.waitpid(key.data.process, 0)
                os.close(key.fd)


def _start(going: selectors.BaseSelector, waiting: Iterator[Vector], library: str, count: int) -> None:
    for _ in range(count):
        vector = next(waiting, None)
        if vector is None:
            return
        ours, theirs = os.pipe()
        process = os.fork()
        if process == 0:
            _play(vector, library, theirs)
        os.close(theirs)
        child = _Child(vector, process, ours, time.monotonic() + LIMIT_SECONDS)
        going.register(ours, selectors.EVENT_READ, child)


def _play(vector: Vector, library: str, descriptor: int) -> None:
    """Runs in the child, and never returns."""
    status = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        os.environ |= SETTINGS | {"AIOACL_SIM_DEVICES": str(vector.devices)}
        for answer in Player(library).play(vector):
            os.write(descriptor, json.dumps(answer).encode() + b"\n")
        status = 0
    finally:
        os._exit(status)


def _ended(going: selectors.BaseSelector) -> list[_Child]:
    """Reads what is available. Returns the children that have reported everything or have passed their time limit."""
    ready = {key.fd for key, _ in going.select(timeout=1.0)}
    ended: list[_Child] = []
    for key in list(going.get_map().values()):
        child: _Child = key.data
        chunk = os.read(key.fd, READ_BYTES) if key.fd in ready else None
        child.output += chunk or b""
        if chunk == b"" or time.monotonic() > child.end:
            going.unregister(key.fd)
            os.close(key.fd)
            ended.append(child)
    return ended


def _outcome(child: _Child) -> Outcome:
    late = time.monotonic() > child.end
    if late:
        os.kill(child.process, signal.SIGKILL)
    _, status = os.waitpid(child.process, 0)
    answers = [json.loads(line) for line in child.output.splitlines() if line.endswith(b"}")]
    ending = f"no result within {LIMIT_SECONDS:g} s" if late else _ending(os.waitstatus_to_exitcode(status))
    return compare(child.vector, answers, ending)


def _ending(status: int) -> str:
    if status == 0:
        return ""
    if status < 0:
        return f"the process ended with {signal.Signals(-status).name}"
    return f"the process ended with status {status}"
