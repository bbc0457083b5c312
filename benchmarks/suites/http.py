"""A request to examples/service over a socket, beside the echo of the same framework. Each server is a process.

64 connections send one request after another. The processor time is that of all threads of the server, so it contains
the simulator, which executes the model. The client is this process, and is not counted.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from array import array
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import uvloop

from benchmarks.harness import Sample, Suite, cpus, walls
from benchmarks.http_load import load, request_of
from benchmarks.rows import Row, Spread, ratio_row, skipped_row
from benchmarks.run import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence

    from benchmarks.harness import Session
    from benchmarks.http_load import Answers

NAME: Final = "http"
PACKAGES: Final = ("fastapi", "uvicorn", "httptools")
CONNECTIONS: Final = 64
REPEATS: Final = 11
SECONDS: Final = 1.0
QUICK_SECONDS: Final = 0.5
RESETS: Final = (0.2, 1.6)  # seconds from the begin of a load
RESETS_SECONDS: Final = 3.0
AFTER_RESET: Final = 0.5  # the seconds after a reset that do not count

ECHO: Final = "echo"
SHORT: Final = "echo with a short answer"
JSON: Final = "FastAPI, JSON"
BYTES: Final = "FastAPI, bytes"
WAYS: Final = {"raw ASGI": "/bare", BYTES: "/classify", JSON: "/classify"}
CPU: Final = "CPU of a request"
P99: Final = "p99"
BESIDE_RESETS: Final = f"{BYTES}: p99 from half a second after a reset on"
WITHOUT: Final = "the same without resets"


class Server:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._clock = ~process.pid << 3 | 2  # CPUCLOCK_SCHED: the processor time of all its threads
        self.port = port

    def cpu(self) -> float:
        """Returns the processor time of the process until now."""
        return time.clock_gettime(self._clock)


@contextmanager
def serving(name: str) -> Generator[Server]:
    """Runs a server until the end of the block."""
    command = [sys.executable, "-m", "benchmarks.http_server", name]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(process, int(process.stdout.readline()))
        finally:
            process.terminate()


def request_for(way: str, path: str) -> bytes:
    """Returns a request with one digit."""
    row = [round((i * 7 % 17) / 16, 4) for i in range(64)]
    if way == JSON:
        return request_of(path, json.dumps({"rows": [row]}).encode(), "application/json")
    return request_of(path, array("f", row).tobytes())


async def loaded(server: Server, request: bytes, seconds: float) -> Answers:
    """Loads a server. RuntimeError if it refuses a request."""
    answers = await load(server.port, request, connections=CONNECTIONS, seconds=seconds)
    if answers.failed:
        raise RuntimeError(
            f"expected the status 200 for each request, got {answers.failed} other answers of {len(answers.took)}; "
            "read the log of the server"
        )
    return answers


def on_uvloop(main: Callable[[], Coroutine[object, object, Sample]]) -> Sample:
    """Returns the result of a coroutine."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def measure(server: Server, request: bytes, seconds: float) -> Sample:
    """Measures requests: the 99th percentile of their times, and the mean of their processor times."""

    async def main() -> Sample:
        before = server.cpu()
        answers = await loaded(server, request, seconds)
        return Sample(answers.p99(), (server.cpu() - before) / len(answers.took))

    return on_uvloop(main)


def measure_beside_resets(server: Server, request: bytes, resets: Sequence[float]) -> Sample:
    """Measures the requests that run neither during a reset nor in the half second after one."""
    pauses: list[tuple[float, float]] = []

    async def reset(after: float) -> None:
        await asyncio.sleep(after)
        begin = time.perf_counter()
        await load(server.port, request_of("/reset", b""), connections=1, seconds=0)
        pauses.append((begin, time.perf_counter() + AFTER_RESET))

    async def main() -> Sample:
        async with asyncio.TaskGroup() as group:
            loading = group.create_task(loaded(server, request, RESETS_SECONDS))
            for after in resets:
                group.create_task(reset(after))
        return Sample(loading.result().p99(pauses))

    return on_uvloop(main)


def compared(session: Session, echo: Server, service: Server) -> list[Row]:
    """Measures each way of the service beside the echo."""
    seconds = QUICK_SECONDS if session.quick else SECONDS
    rows: list[Row] = []
    for way, path in WAYS.items():
        measured = {
            NAME: partial(measure, service, request_for(way, path), seconds),
            ECHO: partial(measure, echo, request_for(way, path), seconds),
        }
        if way == JSON:
            measured[SHORT] = partial(measure, echo, request_for(way, "/short"), seconds)
        found = session.interleave(measured, session.repeats(REPEATS), way)
        ours = found.pop(NAME)
        rows.append(Row(NAME, f"{way}: {CPU}", "", "us", Spread.of(cpu * 1e6 for cpu in cpus(ours))))
        for peer, theirs in found.items():
            rows.append(ratio_row(NAME, f"{way}: {CPU}", peer, cpus(ours), cpus(theirs)))
            rows.append(ratio_row(NAME, f"{way}: {P99}", peer, walls(ours), walls(theirs)))
    return rows


def beside_resets(session: Session, service: Server) -> Row:
    """Measures the service with resets beside the service without."""
    request = request_for(BYTES, WAYS[BYTES])
    measured = {
        NAME: partial(measure_beside_resets, service, request, RESETS),
        WITHOUT: partial(measure_beside_resets, service, request, ()),
    }
    found = session.interleave(measured, session.repeats(REPEATS), BESIDE_RESETS)
    return ratio_row(NAME, BESIDE_RESETS, WITHOUT, walls(found[NAME]), walls(found[WITHOUT]))


def run(session: Session) -> list[Row]:
    """Measures the requests in turn. All rows are skipped without the packages of the service."""
    for package in PACKAGES:
        if find_spec(package) is None:
            names = [f"{way}: {what}" for way in WAYS for what in (CPU, P99)]
            rows = [skipped_row(NAME, name, ECHO, package) for name in names]
            return [*rows, skipped_row(NAME, BESIDE_RESETS, WITHOUT, package)]
    session.plan((len(WAYS) + 1) * session.repeats(REPEATS))
    with serving("echo") as echo, serving("service") as service:
        return [*compared(session, echo, service), beside_resets(session, service)]


SUITE: Final = Suite(
    NAME,
    "a request to examples/service at 64 connections, beside the echo of the same framework",
    run,
    cores=2,
    environment={"AIOACL_LIBRARY": "simulator", "SERVICE_STOP_SECONDS": "0"},
)
