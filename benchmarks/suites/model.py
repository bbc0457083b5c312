"""`await model(x)`, beside the same ACL calls in one job of `device.run`, with memory that is kept by hand.

The model classifies one handwritten digit. The ways alternate. The processor time is that of all threads of the
process, so it contains that of the simulator and of onnxruntime. In the last row, copies take 2 ms and executions 5 ms:
it is the share of the time in which an execution runs.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import aioacl
from aioacl import _digits, simulator
from aioacl.lowlevel import ffi, functions
from benchmarks.harness import Session, Suite, no_collections, timed
from benchmarks.rows import Row, Spread, ratio_row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from numpy.typing import NDArray

NAME: Final = "model"
PAIRS: Final = 2000
QUICK_PAIRS: Final = 300
BATCH: Final = 100  # pairs between two collections of garbage
TO_DEVICE, TO_HOST = 1, 2
CALL: Final = "call of a digit"
BY_HAND: Final = "its ACL calls in a job"
ENQUEUE: Final = "model.enqueue with an awaited ticket"
AT_ONCE: Final = (1, 16)
MANY: Final = 1024
ROUNDS: Final = 15
QUICK_ROUNDS: Final = 3
CALLS: Final = 4 * MANY  # of one way in one round
CALLERS: Final = 6
STAGE_SECONDS: Final = 0.005


class ByHand:
    """The model, loaded by ACL's functions. Its memory, datasets and stream are kept."""

    def __init__(self, device: aioacl.Device, example: NDArray[np.float32]) -> None:
        self._nbytes = example.nbytes
        self._answer = _digits.CLASSES * example.itemsize
        self._source = ffi.new("char[]", self._nbytes)
        self._pinned = device.pinned(self._nbytes + self._answer).result()
        self._memory = device.allocate(self._nbytes + self._answer).result()
        self._stream: Any = ffi.new("aclrtStream *")
        self._model: Any = ffi.new("uint32_t *")
        at, host = self._memory.address, self._pinned.address
        self._addresses = [
            ffi.cast("void *", place) for place in (at, at + self._nbytes, host, host + self._nbytes)
        ]
        device.run(self._load).result()

    def _load(self) -> None:
        functions.aclrtCreateStream(self._stream)
        functions.aclmdlLoadFromFile(os.fsencode(_digits.MODEL), self._model)
        self._input = self._dataset(self._addresses[0], self._nbytes)
        self._output = self._dataset(self._addresses[1], self._answer)

    @staticmethod
    def _dataset(address: Any, size: int) -> Any:
        made = functions.aclmdlCreateDataset()
        functions.aclmdlAddDatasetBuffer(made, functions.aclCreateDataBuffer(address, size))
        return made

    def job(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Uploads, executes, downloads and waits. Runs on a thread of the device's executor."""
        here, there, up, down = self._addresses
        stream = self._stream[0]
        self._pinned.view[: self._nbytes] = x.data.cast("B")
        functions.aclrtMemcpyAsync(here, self._nbytes, up, self._nbytes, TO_DEVICE, stream)
        functions.aclmdlExecuteAsync(self._model[0], self._input, self._output, stream)
        functions.aclrtMemcpyAsync(down, self._answer, there, self._answer, TO_HOST, stream)
        functions.aclrtSynchronizeStream(stream)
        return np.frombuffer(bytes(self._pinned.view[self._nbytes :]), np.float32).reshape(1, -1)

    def close(self, device: aioacl.Device) -> None:
        """Unloads the model and frees its memory."""

        def unload() -> None:
            functions.aclmdlUnload(self._model[0])
            functions.aclrtDestroyStream(self._stream[0])

        device.run(unload).result()
        self._memory.close().result()
        self._pinned.close().result()


async def _pairs(
    session: Session, model: aioacl.Model, device: aioacl.Device, job: Callable[[Any], Any], count: int
) -> tuple[list[float], list[float]]:
    """Measures calls and jobs in turn. Returns the seconds of each."""
    x = _digits.inputs(_digits.digits().images[0])
    if not np.array_equal(await model(x), await device.run(job, x)):
        raise RuntimeError("expected the same results from both ways, got different ones")
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


class Ways:
    """The ways to run the model whose processor time is compared."""

    def __init__(self, model: aioacl.Model, x: NDArray[np.float32], here: Any, there: Any) -> None:
        self._model = model
        self._x = x
        self._memory = here, there

    async def _call(self, count: int) -> None:
        for _ in range(count):
            await self._model(self._x)

    async def _enqueue(self, count: int) -> None:
        for _ in range(count):
            await self._model.enqueue(*self._memory)

    async def calls(self, at_once: int) -> None:
        """Awaits CALLS calls, in tasks of their own."""
        await asyncio.gather(*(self._call(CALLS // at_once) for _ in range(at_once)))

    async def tickets(self, at_once: int) -> None:
        """Awaits CALLS tickets of `model.enqueue`."""
        await asyncio.gather(*(self._enqueue(CALLS // at_once) for _ in range(at_once)))

    async def mapped(self, at_once: int) -> None:
        """Takes CALLS results of `model.map`."""
        async with self._model.map((self._x for _ in range(CALLS)), limit=at_once) as results:
            async for _ in results:
                pass


async def _cpu(way: Callable[[int], Awaitable[None]], at_once: int) -> float:
    """Returns the processor time of one operation, in seconds."""
    with no_collections(), timed() as timer:
        await way(at_once)
    return timer.sample(CALLS).cpu


async def _rounds(session: Session, ways: Ways, rounds: int) -> list[Row]:
    names: list[tuple[str, Callable[[int], Awaitable[None]], int]] = [
        (f"{CALL}, {count} at once", ways.calls, count) for count in (*AT_ONCE, MANY)
    ]
    names += [(f"{ENQUEUE}, {count} at once", ways.tickets, count) for count in AT_ONCE]
    names.append((f"map, {AT_ONCE[-1]} at once", ways.mapped, AT_ONCE[-1]))
    found: dict[str, list[float]] = {name: [] for name, _, _ in names}
    for _ in range(rounds):
        for name, way, count in names:
            found[name].append(await _cpu(way, count))
        session.step("processor time")
    rows = [
        Row(NAME, f"{name}: CPU", "", "us", Spread.of(cpu * 1e6 for cpu in cpus))
        for name, cpus in found.items()
    ]
    pairs = [(f"{CALL}, {count} at once", f"{ENQUEUE}, {count} at once") for count in AT_ONCE]
    sixteen = f"{CALL}, {AT_ONCE[-1]} at once"
    pairs += [(f"map, {AT_ONCE[-1]} at once", sixteen), (f"{CALL}, {MANY} at once", sixteen)]
    return rows + [ratio_row(NAME, f"{one}: CPU", other, found[one], found[other]) for one, other in pairs]


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


async def _compare(session: Session, model: aioacl.Model, device: aioacl.Device) -> list[Row]:
    x = _digits.inputs(_digits.digits().images[0])
    rounds = QUICK_ROUNDS if session.quick else ROUNDS
    async with device.allocate(x.nbytes) as here, device.allocate(_digits.CLASSES * x.itemsize) as there:
        rows = await _rounds(session, Ways(model, x, here, there), rounds)
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
        calls, jobs = asyncio.run(_pairs(session, model, device, by_hand.job, count))
        more = asyncio.run(_compare(session, model, device))
    return [
        Row(NAME, CALL, "", "us", Spread.of(wall * 1e6 for wall in calls)),
        Row(NAME, BY_HAND, "", "us", Spread.of(wall * 1e6 for wall in jobs)),
        ratio_row(NAME, CALL, BY_HAND, calls, jobs),
        *more,
    ]


SUITE: Final = Suite(NAME, "await model(x), beside the same ACL calls in a job", run)
