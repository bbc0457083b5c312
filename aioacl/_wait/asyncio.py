"""The port of an asyncio loop."""

from __future__ import annotations

import asyncio
import sys
import weakref
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from aioacl._base import sync
from aioacl._base.ffi import failure
from aioacl._wait.port import TIMED_OUT, LoopPort

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from aioacl._base.ffi import CData


def _closed(port: weakref.ref[AsyncioPort], _: object) -> None:
    """Called twice when a loop has been closed. The second call finds what the first one has left."""
    left = port()
    if left is not None:
        left.give_up()


class AsyncioPort(LoopPort):
    """A port whose descriptor an asyncio loop reads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = weakref.ref(loop)
        reader = self.read
        loop.add_reader(self.fd, reader)
        # A loop that is closed drops its readers. Its tasks may keep this port much longer. There are two references,
        # because an exception of a signal handler may end one of the calls of `_closed` early.
        self._readers = [weakref.ref(reader, partial(_closed, weakref.ref(self))) for _ in range(2)]

    def _running(self) -> asyncio.AbstractEventLoop:
        loop = self._loop()
        assert loop is not None, "the loop that runs this await exists"
        return loop

    async def wait(
        self,
        start: Callable[[CData, int], int],
        *,
        deadline: float | None = None,
        after: Callable[[], object] | None = None,
    ) -> int:
        loop = self._running()
        future: asyncio.Future[int] = loop.create_future()

        def deliver(result: int) -> None:
            with suppress(asyncio.InvalidStateError):  # a signal may have cancelled the task
                future.set_result(result)

        code = self.begin(start, deliver, after)
        if code:
            return failure(code)
        if deadline is None:
            return await future
        timer = loop.call_later(max(0.0, deadline - sync.monotonic()), deliver, TIMED_OUT)
        try:
            return await future
        finally:
            timer.cancel()

    async def breathe(self) -> None:
        """Yields to the loop if 64 awaits in one turn did not wait, or if such awaits took a millisecond."""
        if self._gives_way(self._running()):
            await asyncio.sleep(0)

    async def next_turn(self) -> None:
        await asyncio.sleep(0)

    def shield(self) -> AbstractContextManager[object]:
        # If the caller is in a cancel scope of anyio, anyio's backend is loaded. Importing it here would take 100 ms.
        loaded = hasattr(sys.modules.get("anyio._backends._asyncio"), "backend_class")
        return sys.modules["anyio"].CancelScope(shield=True) if loaded else nullcontext()
