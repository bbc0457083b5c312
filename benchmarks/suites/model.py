"""`await model(x)`, beside the same ACL calls in one job of `device.run`, with memory that is kept by hand.

The model classifies one handwritten digit. The ways alternate. The processor time is that of all threads of the
process, so it contains that of the simulator and of onnxruntime. The time outside the library is without that of the
simulator's threads. In the last row, copies take 2 ms and executions 5 ms: it is the share of the time in which an
execution runs.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

import aioacl
from aioacl import _digits, simulator
from benchmarks.harness import Session, Suite, no_collections, timed
from benchmarks.model_peers import ByHand, library_cpu, wake_ups
from benchmarks.openvino_peer import PACKAGE, OpenVino, installed
from benchmarks.rows import Row, Spread, ratio_row, skipped_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from numpy.typing import NDArray

NAME: Final = "model"
PAIRS: Final = 2000
QUICK_PAIRS: Final = 300
BATCH: Final = 100  # pairs between two collections of garbage
CALL: Final = "call of a digit"
BY_HAND: Final = "its ACL calls in a job"
RAW_C: Final = "the raw C way"
WAKE_UP: Final = "wake-up of an asyncio task"
HANDED: Final = "a bare thread and asyncio"
ENQUEUE: Final = "model.enqueue with an awaited ticket"
OPENVINO: Final = ((CALL, "OpenVINO, 1 row", 1), ("call of 32 digits", "OpenVINO, 32 rows", 32))
AT_ONCE: Final = (1, 16)
MANY: Final = 1024
ROUNDS: Final = 15
QUICK_ROUNDS: Final = 3
CALLS: Final = 4 * MANY  # of one way in one round
CALLERS: Final = 6
STAGE_SECONDS: Final = 0.005


async def _pairs(
    session: Session, model: aioacl.Model, device: aioacl.Device, by_hand: ByHand, count: int
) -> tuple[list[float], list[float]]:
    """Measures calls and jobs in turn. Returns the seconds of each."""
    x = _digits.inputs(_digits.digits().images[0])
    expected, job = await model(x), by_hand.job
    others = await device.run(job, x), await device.run(by_hand.calls_in_c, x, 1)
    if not all(np.array_equal(expected, other) for other in others):
        raise RuntimeError("expected the same results from all ways, got different ones")
    calls, jobs = list[float](), list[float]()
    for _ in range(count // BATCH):
        with no_collections():
            for _ in range(BATCH):
                began = time.perf_counter()
                await model(x)
                middle = time.perf_counter()
                await device.run(job, x)
                calls.append(middle - began)
                jobs.append(time.perf_counter() - middle)
        session.step("pairs")
    return calls, jobs


Way = tuple[str, "Callable[[int], Awaitable[None]]", int]  # its name, and how many operations run at once


class Ways:
    """The ways to run the model whose processor time is compared."""

    def __init__(
        self,
        model: aioacl.Model,
        x: NDArray[np.float32],
        memory: tuple[Any, Any],
        device: aioacl.Device,
        by_hand: ByHand,
    ) -> None:
        self._model = model
        self._device = device
        self._by_hand = by_hand
        self._x = x
        self._memory = memory

    async def _enqueue(self, count: int) -> None:
        for _ in range(count):
            await self._model.enqueue(*self._memory)

    async def tickets(self, at_once: int) -> None:
        """Awaits CALLS tickets of `model.enqueue`."""
        await asyncio.gather(*(self._enqueue(CALLS // at_once) for _ in range(at_once)))

    async def mapped(self, at_once: int) -> None:
        """Takes CALLS results of `model.map`."""
        async with self._model.map((self._x for _ in range(CALLS)), limit=at_once) as results:
            async for _ in results:
                pass

    async def in_c(self, _at_once: int) -> None:
        """Runs CALLS calls one after another, in one job whose thread does not leave C."""
        await self._device.run(self._by_hand.calls_in_c, self._x, CALLS)

    async def handed(self, _at_once: int) -> None:
        """Awaits CALLS calls, one after another, that a bare thread makes."""
        await self._by_hand.handed(self._device, self._x, CALLS)

    async def wake_ups(self, _at_once: int) -> None:
        """Suspends and wakes a task CALLS times."""
        await wake_ups(CALLS)


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Awaits CALLS calls with the same argument, in as many tasks as calls run at once."""

    call: Callable[[Any], Awaitable[Any]]
    x: NDArray[np.float32]

    async def _some(self, count: int) -> None:
        for _ in range(count):
            await self.call(self.x)

    async def __call__(self, at_once: int) -> None:
        """Makes the calls."""
        await asyncio.gather(*(self._some(CALLS // at_once) for _ in range(at_once)))


async def _openvino_ways(batches: aioacl.Model) -> list[Way]:
    """Returns the calls of 32 digits, and the peers of these and of one digit if OpenVINO is installed."""
    found: list[Way] = []
    for ours, theirs, rows in OPENVINO:
        x = _digits.inputs(_digits.digits().images[:rows])
        if rows > 1:
            found += [(f"{ours}, {count} at once", AtOnce(batches, x), count) for count in AT_ONCE]
        if installed():
            peer = OpenVino(x, requests=AT_ONCE[-1])
            if not np.allclose(await batches(x), await peer(x)):
                raise RuntimeError("expected the same results from OpenVINO, got different ones")
            found += [(f"{theirs}, {count} at once", AtOnce(peer, x), count) for count in AT_ONCE]
    return found


class Cpu(NamedTuple):
    """The processor time of one operation, in seconds: of all threads, and without the simulator's threads."""

    all: float
    outside: float


async def _cpu(way: Callable[[int], Awaitable[None]], at_once: int) -> Cpu:
    """Measures CALLS operations."""
    inside = library_cpu()
    with no_collections(), timed() as timer:
        await way(at_once)
    inside = library_cpu() - inside
    cpu = timer.sample(CALLS).cpu
    return Cpu(cpu, cpu - inside / CALLS)


def _outside_rows(found: dict[str, list[Cpu]]) -> list[Row]:
    """Returns the rows of the time outside the library, and their ratios to the raw C way and the bare thread."""
    names = f"{CALL}, 1 at once", RAW_C, HANDED, WAKE_UP
    outside = {name: [cpu.outside for cpu in found[name]] for name in names}
    what = "CPU outside the library"
    rows = [
        Row(NAME, f"{name}: {what}", "", "us", Spread.of(cpu * 1e6 for cpu in outside[name]))
        for name in names
    ]
    ours = (name for name in names if name != RAW_C)
    pairs = [*((name, RAW_C) for name in ours), (f"{CALL}, 1 at once", HANDED)]
    return rows + [
        ratio_row(NAME, f"{one}: {what}", other, outside[one], outside[other]) for one, other in pairs
    ]


def _openvino_row(ours: str, theirs: str, cpus: dict[str, list[float]]) -> Row:
    name = f"{ours}: CPU"
    if theirs not in cpus:
        return skipped_row(NAME, name, theirs, PACKAGE)
    return ratio_row(NAME, name, theirs, cpus[ours], cpus[theirs])


async def _rounds(session: Session, ways: Ways, calls: AtOnce, more: list[Way], rounds: int) -> list[Row]:
    names: list[Way] = [(f"{CALL}, {count} at once", calls, count) for count in (*AT_ONCE, MANY)]
    names += [(f"{ENQUEUE}, {count} at once", ways.tickets, count) for count in AT_ONCE]
    names.append((f"map, {AT_ONCE[-1]} at once", ways.mapped, AT_ONCE[-1]))
    names += [(RAW_C, ways.in_c, 1), (HANDED, ways.handed, 1), (WAKE_UP, ways.wake_ups, 1), *more]
    found: dict[str, list[Cpu]] = {name: [] for name, _, _ in names}
    for _ in range(rounds):
        for name, way, count in names:
            found[name].append(await _cpu(way, count))
        session.step("processor time")
    rows = [
        Row(NAME, f"{name}: CPU", "", "us", Spread.of(cpu.all * 1e6 for cpu in cpus))
        for name, cpus in found.items()
    ]
    every = {name: [cpu.all for cpu in cpus] for name, cpus in found.items()}
    pairs = [(f"{CALL}, {count} at once", f"{ENQUEUE}, {count} at once") for count in AT_ONCE]
    sixteen = f"{CALL}, {AT_ONCE[-1]} at once"
    pairs += [(f"map, {AT_ONCE[-1]} at once", sixteen), (f"{CALL}, {MANY} at once", sixteen)]
    rows += [ratio_row(NAME, f"{one}: CPU", other, every[one], every[other]) for one, other in pairs]
    rows += [
        _openvino_row(f"{ours}, {count} at once", f"{theirs}, {count} at once", every)
        for ours, theirs, _ in OPENVINO
        for count in AT_ONCE
    ]
    return rows + _outside_rows(found)


async def _share(model: aioacl.Model, x: NDArray[np.float32], count: int) -> float:
    """Returns the share of the time in which an execution runs, if copies take 2 ms and executions 5 ms."""
    with (
        simulator.fault("copy:at=during:latency=2"),
        simulator.fault("model:at=during:latency=5"),
        timed() as timer,
    ):

        async def calls() -> None:
            for _ in range(count // CALLERS):
                await model(x)

        await asyncio.gather(*(calls() for _ in range(CALLERS)))
    return count * STAGE_SECONDS / timer.wall


async def _compare(
    session: Session, model: aioacl.Model, device: aioacl.Device, by_hand: ByHand
) -> list[Row]:
    x = _digits.inputs(_digits.digits().images[0])
    rounds = QUICK_ROUNDS if session.quick else ROUNDS
    async with (
        device.allocate(x.nbytes) as here,
        device.allocate(_digits.CLASSES * x.itemsize) as there,
        device.load_model(_digits.BATCH_MODEL, slots=3) as batches,
    ):
        more = await _openvino_ways(batches)
        ways = Ways(model, x, (here, there), device, by_hand)
        rows = await _rounds(session, ways, AtOnce(model, x), more, rounds)
    shares = [await _share(model, x, 60) for _ in range(rounds)]
    return [*rows, Row(NAME, "share of the slowest stage", "", "", Spread.of(shares))]


def run(session: Session) -> list[Row]:
    """Measures the pairs, the processor times and the share."""
    aioacl.use_library("simulator")
    count = QUICK_PAIRS if session.quick else PAIRS
    session.plan(count // BATCH + (QUICK_ROUNDS if session.quick else ROUNDS))
    with ExitStack() as stack:
        device = aioacl.open_device().result()
        stack.callback(lambda: device.close().result())
        model = device.load_model(_digits.MODEL, slots=3).result()
        stack.callback(lambda: model.close().result())
        by_hand = ByHand(device, _digits.inputs(_digits.digits().images[0]))
        stack.callback(lambda: by_hand.close(device))
        calls, jobs = asyncio.run(_pairs(session, model, device, by_hand, count))
        more = asyncio.run(_compare(session, model, device, by_hand))
    return [
        Row(NAME, CALL, "", "us", Spread.of(wall * 1e6 for wall in calls)),
        Row(NAME, BY_HAND, "", "us", Spread.of(wall * 1e6 for wall in jobs)),
        ratio_row(NAME, CALL, BY_HAND, calls, jobs),
        *more,
    ]


SUITE: Final = Suite(NAME, "await model(x), beside the same ACL calls in a job", run)
