"""The parent: it forks a process for each vector, several at a time, and compares what they answer.

It loads no library and has no threads, so forking is safe and costs a few milliseconds; a vector that crashes or hangs
ends its own process only. A child reports each answer as it gets it, so the step of a crash is known.
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
from aioacl._conformance._vectors import Outcome, judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioacl._conformance._vectors import Vector

LIMIT_SECONDS: Final = 60.0
STDERR: Final = 2
READ_BYTES: Final = 1 << 16
# The outputs of the vectors are those of the emulated driver beneath the runtime, so the simulator is to be that one.
SETTINGS: Final = {"AIOACL_SIM_DRIVER": "recorded"}


@dataclass
class _Child:
    """A process that plays a vector."""

    vector: Vector
    process: int
    descriptor: int
    end: float
    output: bytearray = field(default_factory=bytearray)


def trial(library: str) -> str:
    """Why a process cannot load the library; empty if it can."""
    ours, theirs = os.pipe()
    process = os.fork()
    if process == 0:
        os.dup2(theirs, STDERR)  # the simulator writes its error there
        _try(library, theirs)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        problem = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    return (problem.strip().removeprefix(f"{library}: ") or _fate(code)) if code else ""


def _try(library: str, descriptor: int) -> None:
    """The child, which never returns."""
    status = 1
    try:
        Player(library).begin()
        status = 0
    except OSError as error:
        os.write(descriptor, str(error).encode())
    finally:
        os._exit(status)


def run(vectors: list[Vector], library: str, jobs: int) -> Iterator[Outcome]:
    """Plays them all; the outcomes come in the order in which they end."""
    for name in {step.call for vector in vectors for step in vector.steps}:
        spec_of(name)  # found out once, before the children are copies of us
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
    """The child, which never returns."""
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
    """Reads what there is to read; those that have said everything, or have had their time."""
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
    fate = (
        f"nothing came back within {LIMIT_SECONDS:g} s" if late else _fate(os.waitstatus_to_exitcode(status))
    )
    return judge(child.vector, answers, fate)


def _fate(status: int) -> str:
    if status == 0:
        return ""
    if status < 0:
        return f"the process ended with {signal.Signals(-status).name}"
    return f"the process ended with status {status}"
