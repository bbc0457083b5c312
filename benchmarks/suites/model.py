"""`await model(x)`, beside the same ACL calls in one job of `device.run`, with memory that is kept by hand.

The model classifies one handwritten digit. Calls and jobs alternate.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import aioacl
from aioacl import _digits
from aioacl.lowlevel import ffi, functions
from benchmarks.harness import Session, Suite, no_collections
from benchmarks.rows import Row, Spread, ratio_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NAME: Final = "model"
PAIRS: Final = 2000
QUICK_PAIRS: Final = 300
BATCH: Final = 100  # pairs between two collections of garbage
TO_DEVICE, TO_HOST = 1, 2
CALL: Final = "call of a digit"
BY_HAND: Final = "its ACL calls in a job"


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


def run(session: Session) -> list[Row]:
    """Measures the pairs."""
    aioacl.use_library("simulator")
    count = QUICK_PAIRS if session.quick else PAIRS
    session.plan(count // BATCH)
    with ExitStack() as stack:
        device = aioacl.open_device().result()
        stack.callback(lambda: device.close().result())
        model = device.load_model(_digits.MODEL).result()
        stack.callback(lambda: model.close().result())
        by_hand = ByHand(device, _digits.inputs(_digits.digits().images[0]))
        stack.callback(lambda: by_hand.close(device))
        calls, jobs = asyncio.run(_pairs(session, model, device, by_hand.job, count))
    return [
        Row(NAME, CALL, "", "us", Spread.of(wall * 1e6 for wall in calls)),
        Row(NAME, BY_HAND, "", "us", Spread.of(wall * 1e6 for wall in jobs)),
        ratio_row(NAME, CALL, BY_HAND, calls, jobs),
    ]


SUITE: Final = Suite(NAME, "await model(x), beside the same ACL calls in a job", run)
