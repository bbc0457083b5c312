"""The least code that joins items into batches and splits the results. No timer, no checks, no limit, no failures."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable


@asynccontextmanager
async def floor(
    function: Callable[[Any], Awaitable[Any]], *, max_rows: int
) -> AsyncGenerator[Callable[[Any], Awaitable[Any]]]:
    """Yields an async function of one item; `function` gets the rows of a batch."""
    loop = asyncio.get_running_loop()
    waiting: list[tuple[Any, asyncio.Future[Any]]] = []
    tasks: set[asyncio.Task[None]] = set()

    async def run(batch: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        out = await function(np.concatenate([x for x, _ in batch]))
        for i, (_, future) in enumerate(batch):
            if not future.done():
                future.set_result(out[i : i + 1])

    def flush() -> None:
        nonlocal waiting
        batch, waiting = waiting, []
        if batch:
            task = loop.create_task(run(batch))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def infer(x: Any) -> Any:
        future = loop.create_future()
        if not waiting:
            loop.call_soon(flush)
        waiting.append((x, future))
        if len(waiting) >= max_rows:
            flush()
        return await future

    yield infer
