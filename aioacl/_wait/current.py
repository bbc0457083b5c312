"""Finds the port that a wait uses: that of the running event loop, or of this thread. Also finds the current task."""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from aioacl._base import sync
from aioacl._base.ffi import bind_awaits, in_trio, lib
from aioacl._base.options import deadline_of
from aioacl._library.runtime import must_not_be_forked
from aioacl._wait.asyncio import AsyncioPort
from aioacl._wait.thread import ThreadPort, earlier
from aioacl._wait.trio import port_of_run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from aioacl._base.options import Seconds
    from aioacl._wait.port import Port

T = TypeVar("T")


class _Local(threading.local):
    loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
    port: weakref.ref[Port] | None = None
    own: ThreadPort | None = None


_local = _Local()
_of_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Port]] = (
    weakref.WeakKeyDictionary()
)
_ports_lock = threading.RLock()  # re-entrant: a signal handler may need a port too
_of_threads: weakref.WeakSet[ThreadPort] = weakref.WeakSet()


def current_port() -> Port:
    """The port of the event loop that runs on this thread; without a loop, the port of the thread."""
    if in_trio():
        return port_of_run()
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return _thread_port()
    if _local.loop is not None and _local.loop() is loop:
        port = _local.port() if _local.port is not None else None
        if port is not None:
            return port
    return _asyncio_port(loop)


bind_awaits(current_port, must_not_be_forked)


def _asyncio_port(loop: asyncio.AbstractEventLoop) -> Port:
    with _ports_lock:
        known = _of_loop.get(loop)
        port = known() if known is not None else None
        if port is None:
            port = AsyncioPort(loop)
            _of_loop[loop] = weakref.ref(port)
    _local.loop, _local.port = weakref.ref(loop), weakref.ref(port)
    return port


def _thread_port() -> ThreadPort:
    if _local.own is None:
        _local.own = ThreadPort()
        with _ports_lock:
            _of_threads.add(_local.own)
    return _local.own


def thread_ports() -> list[ThreadPort]:
    """The ports of all threads without an event loop."""
    with _ports_lock:
        return list(_of_threads)


def current_holder() -> object:
    """The caller, as the holder of leases: the current task, or the thread if no task runs."""
    if in_trio():
        return sys.modules["trio"].lowlevel.current_task()
    try:
        return asyncio.current_task() or threading.current_thread()
    except RuntimeError:
        return threading.current_thread()


# --- waiting on a thread without an event loop ---


if TYPE_CHECKING:

    def begun(begin: Callable[[], Coroutine[Any, Any, T]]) -> Generator[Any, Any, T]: ...
else:  # type checkers accept the result of `coroutine` only in an await

    @coroutine
    def begun(begin: Callable[[], Coroutine[Any, Any, T]]) -> Generator[Any, Any, T]:
        """Makes and begins a coroutine in one step. A Ctrl-C between two steps would leave a coroutine unawaited."""
        return (yield from begin())


def run_blocking(
    begin: Callable[[], Coroutine[Any, Any, T]],
    timeout: Seconds | None,
    instead: str = "await the operation instead of calling result()",
) -> T:
    """Runs a coroutine that waits only on ports, on a thread without a running loop.

    In a forked child no wait would end. So a coroutine that has to wait raises ForkedProcessError there; any other
    coroutine returns.
    """
    if lib.aio_forked():
        return _run(begun(begin))
    port = current_port()
    if not isinstance(port, ThreadPort):
        raise RuntimeError(f"this thread runs an event loop: {instead}")  # noqa: TRY004 - no argument has a wrong type
    sync.must_not_own(port.locks)
    outer, locks, deadline = port.deadline, len(port.locks), deadline_of(timeout)
    port.deadline = earlier(outer, deadline)
    try:
        return _run(begun(begin))
    finally:
        port.deadline = outer
        del port.locks[locks:]


def _run(steps: Generator[Any, Any, T]) -> T:
    try:
        steps.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        steps.close()
    raise RuntimeError("a wait suspended on a thread without an event loop")
