"""Other ways to make batches, as peers of a batcher. The packages are optional."""

from __future__ import annotations

import asyncio
import importlib
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

MAX_ROWS: Final = 32


class _Queue:
    """A careful queue by hand: two batches in flight, and an error or a cancellation concerns no neighbour."""

    def __init__(self, function: Callable[[Any], Awaitable[Any]]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._planned = False
        self.running: set[asyncio.Task[None]] = set()

    async def infer(self, x: Any) -> Any:
        """Returns the result of an item."""
        future = self._loop.create_future()
        self._waiting.append((x, future))
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._leave)
        return await future

    def _leave(self) -> None:
        self._planned = False
        waiting = [each for each in self._waiting if not each[1].done()]
        while waiting and len(self.running) < (2 if len(waiting) >= MAX_ROWS else 1):
            task = self._loop.create_task(self._run(waiting[:MAX_ROWS]))
            del waiting[:MAX_ROWS]
            self.running.add(task)
            task.add_done_callback(self._ended)
        self._waiting = waiting

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        self._leave()

    async def _run(self, batch: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        at, error, out = 0, None, None
        try:
            out = await self._function(np.concatenate([x for x, _ in batch]))
        except Exception as raised:  # noqa: BLE001 - the callers get it
            error = raised
        for x, future in batch:
            if not future.done():
                if out is None or at + len(x) > len(out):
                    future.set_exception(RuntimeError(f"the batch has failed: {error}"))
                else:
                    future.set_result(out[at : at + len(x)])
            at += len(x)


@asynccontextmanager
async def by_hand(
    function: Callable[[Any], Awaitable[Any]],
) -> AsyncGenerator[Callable[[Any], Awaitable[Any]]]:
    """The queue by hand."""
    queue = _Queue(function)
    yield queue.infer
    while queue.running:
        await asyncio.wait(queue.running)


def _nothing(_: object) -> None:
    """In the place of a method that only warns."""


@asynccontextmanager
async def _ray(function: Callable[[Any], Awaitable[Any]]) -> AsyncGenerator[Callable[[Any], Awaitable[Any]]]:
    serve: Any = importlib.import_module("ray.serve")
    # Its first call compares a setting of its deployment, only for a warning. All else works without a deployment.
    queue: Any = importlib.import_module("ray.serve.batching")
    queue = queue._BatchQueue  # noqa: SLF001 - Ray has no public way to batch without a deployment
    queue._warn_if_max_batch_size_exceeds_max_ongoing_requests = _nothing  # noqa: SLF001 - as above

    async def rows(items: list[Any]) -> list[Any]:
        out = await function(np.concatenate(items))
        return [out[at : at + 1] for at in range(len(items))]

    yield serve.batch(rows, max_batch_size=MAX_ROWS, batch_wait_timeout_s=0.0)


@asynccontextmanager
async def _batched(
    function: Callable[[Any], Awaitable[Any]],
) -> AsyncGenerator[Callable[[Any], Awaitable[Any]]]:
    aio: Any = importlib.import_module("batched.aio")

    async def rows(items: list[Any]) -> list[Any]:
        out = await function(np.concatenate(items))
        return [out[at : at + 1] for at in range(len(items))]

    call = aio.dynamically(rows, batch_size=MAX_ROWS, timeout_ms=0.0)

    async def infer(x: Any) -> Any:
        return await call(x)

    yield infer


@asynccontextmanager
async def _async_batcher(
    function: Callable[[Any], Awaitable[Any]],
) -> AsyncGenerator[Callable[[Any], Awaitable[Any]]]:
    base: Any = importlib.import_module("async_batcher.batcher").AsyncBatcher

    class Rows(base):  # type: ignore[misc]  # the class is not known to type checkers
        """Runs the rows of a batch."""

        async def process_batch(self, batch: list[Any]) -> list[Any]:
            """Returns the result of each item."""
            out = await function(np.concatenate(batch))
            return [out[at : at + 1] for at in range(len(batch))]

    batcher: Any = Rows(max_batch_size=MAX_ROWS, max_queue_time=0.0)
    try:
        yield batcher.process
    finally:
        await batcher.stop()


def _late() -> None:
    """What BentoML calls in place of a result that is later than its limit."""
    raise TimeoutError


@asynccontextmanager
async def _bentoml(
    function: Callable[[Any], Awaitable[Any]],
) -> AsyncGenerator[Callable[[Any], Awaitable[Any]]]:
    # BentoML has no public way to batch without a server. Its own service uses this class for each batchable method.
    dispatcher: Any = importlib.import_module("bentoml._internal.marshal.dispatcher").CorkDispatcher

    async def rows(items: list[Any]) -> list[Any]:
        out = await function(np.concatenate(items))
        return [out[at : at + 1] for at in range(len(items))]

    batcher: Any = dispatcher(
        max_latency_in_ms=60_000, max_batch_size=MAX_ROWS, fallback=_late, get_batch_size=len
    )
    try:
        yield batcher(rows)
    finally:
        batcher.shutdown()


PEERS: Final = {  # the name of a peer, the package that it needs, and the peer
    "Ray's @serve.batch": ("ray", _ray),
    "batched": ("batched", _batched),
    "async-batcher": ("async_batcher", _async_batcher),
    "BentoML": ("bentoml", _bentoml),
}


def installed(package: str) -> bool:
    """Returns whether the package can be imported."""
    return find_spec(package) is not None
