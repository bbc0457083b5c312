"""What one enqueue costs, and one await of finished work, beside the raw calls."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from aioacl import simulator
from benchmarks import raw
from benchmarks.bench import Bench, held
from benchmarks.harness import Sample, Session, Suite, timed, walls
from benchmarks.rows import Row, Spread, ratio_row
from benchmarks.ways import AIOACL, Ours

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAME: Final = "enqueue"
REPEATS: Final = 21
BATCH: Final = 64
BATCHES: Final = 16
STREAMS: Final = 32
ROUNDS: Final = 20
RAW: Final = "raw call"
RECORD: Final = "record"


def batches(bench: Bench, stream: Any, enqueue: Callable[[], object]) -> Sample:
    """Measures the enqueue on a stream that is held, so no thread of the device runs during the measurement."""
    wall = 0.0
    for _ in range(BATCHES):
        with held([stream]), timed() as timer:
            for _ in range(BATCH):
                enqueue()
        wall += timer.wall
        bench.drain()
    return Sample(wall / (BATCH * BATCHES))


def raw_calls(bench: Bench) -> dict[str, Callable[[], object]]:
    """Returns the raw calls, by what they enqueue."""
    lib, stream, event = bench.lib, bench.raw_streams[0], bench.event()
    raw.check(lib.aclrtRecordEvent(event, bench.raw_streams[1]), "aclrtRecordEvent")
    arguments = (bench.to, bench.nbytes, bench.of, bench.nbytes, bench.kind, stream)
    return {
        "copy": partial(lib.aclrtMemcpyAsync, *arguments),
        "record": partial(lib.aclrtRecordEvent, bench.event(), stream),
        "wait_event": partial(lib.aclrtStreamWaitEvent, stream, event),
    }


def launch_block(stream: Any) -> None:
    """Enters and leaves a launch block in which nothing is enqueued."""
    with stream.launch(tasks=16):
        pass


def our_calls(bench: Bench) -> dict[str, Callable[[], object]]:
    """Returns the calls of aioacl, by what they enqueue."""
    stream, event = bench.streams[0], bench.streams[1].record()
    return {
        "copy": partial(stream.copy, bench.target, bench.source),
        "record": partial(stream.record, bench.device.create_event().result()),
        "wait_event": partial(stream.wait_event, event),
    }


async def _done(streams: Sequence[Any]) -> None:
    """Waits until the device has done all work, without a call of ACL."""
    while any(simulator.pending(stream) for stream in streams):
        time.sleep(0)  # noqa: ASYNC251 - gives the core to the device's thread, on purpose not to the loop


async def await_finished(bench: Bench, rounds: int) -> Sample:
    """Measures the await of a copy that is done, on streams that nothing has queried since."""
    wall = 0.0
    for _ in range(rounds):
        tickets = [stream.copy(bench.target, bench.source) for stream in bench.streams]
        await _done(bench.streams)
        await asyncio.sleep(0)
        with timed() as timer:
            for ticket in tickets:
                await ticket
        wall += timer.wall
    return Sample(wall / (rounds * len(bench.streams)))


async def synchronize_finished(bench: Bench, rounds: int) -> Sample:
    """Measures aclrtSynchronizeStream in the same situation."""
    wall, synchronize = 0.0, bench.lib.aclrtSynchronizeStream
    for _ in range(rounds):
        for stream in bench.raw_streams:
            bench.enqueue(stream)
        await _done(bench.raw_streams)
        await asyncio.sleep(0)
        with timed() as timer:
            for stream in bench.raw_streams:
                synchronize(stream)
        wall += timer.wall
    return Sample(wall / (rounds * len(bench.raw_streams)))


def run(session: Session) -> list[Row]:
    """Measures each kind of enqueue, and the await of finished work."""
    repeats = session.repeats(REPEATS, 5)
    rounds = ROUNDS // 4 if session.quick else ROUNDS
    rows: list[Row] = []
    with ExitStack() as stack:
        bench = stack.enter_context(Bench(STREAMS))
        runner = stack.enter_context(closing(Ours(bench)))
        theirs = raw_calls(bench)
        pairs: dict[str, dict[str, Callable[[], Sample]]] = {
            what: {
                AIOACL: partial(batches, bench, bench.streams[0], call),
                RAW: partial(batches, bench, bench.raw_streams[0], theirs[what]),
            }
            for what, call in our_calls(bench).items()
        }
        ours = our_calls(bench)
        pairs["empty launch block"] = {
            AIOACL: partial(batches, bench, bench.streams[0], partial(launch_block, bench.streams[0])),
            RECORD: partial(batches, bench, bench.streams[0], ours["record"]),
        }
        pairs["await of finished work"] = {
            AIOACL: lambda: runner.run(partial(await_finished, bench, rounds)),
            RAW: lambda: runner.run(partial(synchronize_finished, bench, rounds)),
        }
        session.plan(repeats * len(pairs))
        for what, pair in pairs.items():
            found = session.interleave(pair, repeats, what)
            rows += [
                Row(NAME, f"{what}: {name}", "", "us", Spread.of(wall * 1e6 for wall in walls(samples)))
                for name, samples in found.items()
            ]
            peer = RECORD if RECORD in pair else RAW
            rows.append(ratio_row(NAME, what, peer, walls(found[AIOACL]), walls(found[peer])))
    return rows


SUITE: Final = Suite(
    NAME, "copy, record and wait_event, and the await of finished work, beside the raw call", run
)
