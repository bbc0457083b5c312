"""The event loop on which an async function of the user runs, started from another thread."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from aioacl._base.ffi import in_trio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Begin = Callable[[], Coroutine[Any, Any, object]]
    Ended = Callable[[BaseException | None], object]


class Home(Protocol):
    """An event loop, from the view of other threads."""

    def start(self, begin: Begin, ended: Ended) -> Callable[[], None]:
        """Runs a coroutine in a new task, and then calls `ended` with its error. Returns a function that cancels it.

        Raises:
            RuntimeError: the loop has ended.
        """
        ...


def current_home() -> Home | None:
    """The event loop that runs on this thread, or None."""
    if in_trio():
        return _TrioHome(sys.modules["trio"])
    try:
        return _AsyncioHome(asyncio.get_running_loop())
    except RuntimeError:
        return None


class _AsyncioHome:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self, begin: Begin, ended: Ended) -> Callable[[], None]:
        tasks: list[asyncio.Task[object]] = []

        def over(task: asyncio.Task[object]) -> None:
            ended(asyncio.CancelledError() if task.cancelled() else task.exception())

        def run() -> None:
            tasks.append(self._loop.create_task(begin()))
            tasks[0].add_done_callback(over)

        def cancel() -> None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])

        self._loop.call_soon_threadsafe(run)
        return cancel


class _TrioHome:
    def __init__(self, trio: Any) -> None:
        self._trio = trio
        self._token = trio.lowlevel.current_trio_token()

    def start(self, begin: Begin, ended: Ended) -> Callable[[], None]:
        trio = self._trio
        scope = trio.CancelScope()

        async def run() -> None:
            error: BaseException | None = None
            try:
                with scope:
                    await begin()
            except trio.Cancelled as cancelled:  # the run ends
                error = cancelled
                raise
            except BaseException as raised:  # noqa: BLE001 - the error of a system task would end the whole run
                error = raised
            finally:
                ended(error)
                del error

        def cancel() -> None:
            try:
                self._token.run_sync_soon(scope.cancel)
            except trio.RunFinishedError:
                return

        self._token.run_sync_soon(trio.lowlevel.spawn_system_task, run)
        return cancel
