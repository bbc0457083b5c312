"""Completions come to whoever awaits them: an asyncio loop, a trio run, or a plain thread.

The engine pushes completions to a port of its own kind (port.c) and writes an eventfd. One port belongs to one
event loop, or to one thread that has none. `Port.wait` starts something that will complete under a key, and waits:
suspending where there is a loop, blocking where there is none, so the same coroutine serves `await` and
`.result()`.

Who keeps whom: the loop keeps its reader, the reader keeps the port, and the port knows the loop only weakly. A loop
that is closed drops its readers, and with them the port, without any help from the garbage collector. The engine
keeps the descriptor open for as long as completions are under way to it.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import weakref
from contextlib import nullcontext, suppress
from types import coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from aioacl._base import sync as _sync
from aioacl._base.errors import ResourceExhausted
from aioacl._base.ffi import failure, ffi, lib
from aioacl._base.options import deadline_of
from aioacl._library.runtime import must_not_be_forked
from aioacl._wait.job_scope import current_stay

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextlib import AbstractContextManager

    from aioacl._acl import CData
    from aioacl._base.options import Seconds

T = TypeVar("T")

LONGEST_POLL_SECONDS = 86400.0  # poll counts milliseconds in an int
KICK = 0  # the key of what wakes the port's owner and is nobody's completion
TIMED_OUT = failure(lib.AIO_LIMIT)  # no refusal of the engine's: the deadline came first
QUICK_IN_A_ROW = 64
QUICK_SECONDS = 0.001


class _Deliver(Protocol):
    def __call__(self, result: int, /) -> object: ...


class Port:
    """Waits in flight, each under a key, with what is to be called when it ends and what afterwards."""

    def __init__(self) -> None:
        must_not_be_forked()
        self.handle = lib.aio_port_new()
        if not self.handle:
            raise ResourceExhausted(
                "no descriptor could be had for an event loop's port",
                hint="Raise the limit of open files (ulimit -n), or close loops that are done.",
            )
        self.fd = lib.aio_port_fd(self.handle)
        self._keys = itertools.count(1)
        self._waits: dict[int, tuple[_Deliver, Callable[[], object] | None]] = {}
        # A drain may be broken off by Ctrl-C, and that of a signal's handler may be within another: what has been taken
        # is kept here until it is handed out.
        self._batch: Any = ffi.new("aio_batch *")
        self._came: dict[int, int] = {}

    def __del__(self) -> None:
        # Others of the same garbage may still post when their turn comes: they must find that it is gone.
        handle, self.handle = getattr(self, "handle", ffi.NULL), ffi.NULL
        if handle:
            lib.aio_port_close(handle)

    def expect(self, deliver: _Deliver, after: Callable[[], object] | None) -> int:
        """A new key; `deliver` gets the result, `after` is called then even if nobody waits any more."""
        key = next(self._keys)
        self._waits[key] = (deliver, after)
        return key

    def refuse(self, key: int) -> None:
        """Nothing will come under that key, or nothing new: it was not started, or was taken back."""
        self._waits.pop(key, None)

    def drain(self) -> None:
        """Hands out the completions that have come, all of them; what the first that fails has raised comes then.

        Where Ctrl-C breaks it off it goes on at the reader's next turn.
        """
        errors: list[Exception] = []
        try:
            self._take()
            for key, result in tuple(self._came.items()):
                try:
                    self._hand_out(key, result)
                except Exception as error:  # noqa: BLE001 - the others come first: they come once only
                    errors.append(error)
        except BaseException:
            lib.aio_port_post(self.handle, KICK, 0)
            raise
        if errors:
            try:
                raise errors[0]
            finally:
                errors.clear()  # the traceback keeps the frame, and the frame would keep the errors

    def _take(self) -> None:
        """Once more is the same: what came first under a key is told, and once."""
        batch, came = self._batch, self._came
        count = lib.aio_port_fill(self.handle, batch)
        for key, result in zip(ffi.unpack(batch.keys, count), ffi.unpack(batch.results, count), strict=True):
            came.setdefault(key, result)
        batch.count = 0

    def _hand_out(self, key: int, result: int) -> None:
        """Once more is the same here too. What raises an error has been told all the same."""
        try:
            self._tell(key, result)
        except Exception:
            self._forget(key)
            raise
        self._forget(key)

    def _tell(self, key: int, result: int) -> None:
        wait = self._waits.get(key)
        if wait is None:  # a kick, or it has been told already
            return
        deliver, after = wait
        try:
            deliver(result)
        finally:
            if after is not None:
                self._waits[key] = (
                    deliver,
                    None,
                )  # a signal's handler that drains in it must not take its locks
                after()

    def _forget(self, key: int) -> None:
        self._waits.pop(key, None)
        self._came.pop(key, None)

    def begin(
        self, start: Callable[[CData, int], int], deliver: _Deliver, after: Callable[[], object] | None
    ) -> int:
        """Starts a wait. 0, or the code with which it was refused. A forked child would wait for ever."""
        must_not_be_forked()
        key = self.expect(deliver, after)
        code = start(self.handle, key)
        if code:
            self.refuse(key)
        return code

    async def wait(
        self,
        start: Callable[[CData, int], int],
        *,
        deadline: float | None = None,
        after: Callable[[], object] | None = None,
    ) -> int:
        """Starts a wait and returns its result; TIMED_OUT when the deadline comes first."""
        raise NotImplementedError

    async def breathe(self) -> None:
        """What an await does that has nothing to wait for."""
        raise NotImplementedError

    def shield(self) -> AbstractContextManager[object]:
        """Within it, no cancel scope around the caller ends a wait."""
        return nullcontext()


# --- asyncio -------------------------------------------------------------------------------------------------


class AsyncioPort(Port):
    """A port whose descriptor an asyncio loop reads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = weakref.ref(loop)
        self._quick = 0
        self._since = 0.0
        loop.add_reader(self.fd, self.drain)

    def _running(self) -> asyncio.AbstractEventLoop:
        loop = self._loop()
        assert loop is not None, "the loop awaits, so it lives"
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
        timer = loop.call_later(max(0.0, deadline - _sync.monotonic()), deliver, TIMED_OUT)
        try:
            return await future
        finally:
            timer.cancel()

    async def breathe(self) -> None:
        """Yields after 64 awaits in a row that had nothing to wait for, or a millisecond of them in one turn."""
        if self._quick == 0:
            self._since = _sync.monotonic()
            self._running().call_soon(self._new_turn)
        self._quick += 1
        if self._quick >= QUICK_IN_A_ROW or _sync.monotonic() - self._since > QUICK_SECONDS:
            await asyncio.sleep(0)

    def shield(self) -> AbstractContextManager[object]:
        # A scope around the caller was entered before, so the backend is there. To import it here would take 100 ms.
        loaded = hasattr(sys.modules.get("anyio._backends._asyncio"), "backend_class")
        return sys.modules["anyio"].CancelScope(shield=True) if loaded else nullcontext()

    def _new_turn(self) -> None:
        self._quick = 0


# --- a plain thread ------------------------------------------------------------------------------------------


class ThreadPort(Port):
    """A port that its thread reads itself, by blocking."""

    def __init__(self) -> None:
        super().__init__()
        self.deadline: float | None = None
        self.locks: list[object] = []  # those that the waits in progress take on this thread
        self._depth = 0

    async def wait(
        self,
        start: Callable[[CData, int], int],
        *,
        deadline: float | None = None,
        after: Callable[[], object] | None = None,
    ) -> int:
        results: list[int] = []
        code = self.begin(start, results.append, after)
        if code:
            return failure(code)
        stay = current_stay()
        with nullcontext() if stay is None else stay.outside():
            return self._block(results, _earlier(deadline, self.deadline))

    def _block(self, results: list[int], deadline: float | None) -> int:
        self._depth += 1
        try:
            while not results:
                left = None if deadline is None else deadline - _sync.monotonic()
                slice_ = left if left is None else min(left, LONGEST_POLL_SECONDS)
                if not _sync.readable(self.fd, slice_) and slice_ == left:
                    return TIMED_OUT
                self.drain()
            return results[0]
        finally:
            self._depth -= 1
            if self._depth:  # a signal's handler has waited within a wait, and handed out what came for both
                lib.aio_port_post(self.handle, KICK, 0)

    async def breathe(self) -> None:
        """Nothing: a thread has nobody to yield to."""


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


if TYPE_CHECKING:

    def begun(begin: Callable[[], Coroutine[Any, Any, T]]) -> Generator[Any, Any, T]: ...
else:  # for type checkers, what `coroutine` makes can be awaited only

    @coroutine
    def begun(begin: Callable[[], Coroutine[Any, Any, T]]) -> Generator[Any, Any, T]:
        """Makes a coroutine and begins it; a Ctrl-C in between would leave one that was never awaited."""
        return (yield from begin())


def run_blocking(
    begin: Callable[[], Coroutine[Any, Any, T]],
    timeout: Seconds | None,
    instead: str = "await it instead of calling result()",
) -> T:
    """Runs a coroutine that waits on nothing but ports, on a thread without a running loop.

    In a forked child no wait would end: what waits raises there, and what has nothing to do does nothing.
    """
    if lib.aio_forked():
        return _run(begun(begin))
    port = current_port()
    if not isinstance(port, ThreadPort):
        raise RuntimeError(f"this thread runs an event loop: {instead}")  # noqa: TRY004 - not of an argument
    _sync.must_not_own(port.locks)
    outer, locks, deadline = port.deadline, len(port.locks), deadline_of(timeout)
    port.deadline = _earlier(outer, deadline)
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


# --- which port ----------------------------------------------------------------------------------------------


class _Local(threading.local):
    loop: weakref.ref[asyncio.AbstractEventLoop] | None = None
    port: weakref.ref[Port] | None = None
    own: ThreadPort | None = None


_local = _Local()
_of_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[Port]] = (
    weakref.WeakKeyDictionary()
)
_ports_lock = threading.RLock()  # a signal handler may ask for a port too
_of_threads: weakref.WeakSet[ThreadPort] = weakref.WeakSet()


def _in_trio() -> bool:
    # While another thread imports trio the module is there without its names; and then it runs nothing.
    lowlevel = getattr(sys.modules.get("trio"), "lowlevel", None)
    in_run = getattr(lowlevel, "in_trio_run", None)
    return in_run is not None and bool(in_run())


def current_port() -> Port:
    """The port of the loop that runs here, or of this thread."""
    if _in_trio():
        from aioacl._wait.trio import port_of_run

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


def current_holder() -> object:
    """Who holds a lease: the task that runs here, or the thread when there is none."""
    if _in_trio():
        return sys.modules["trio"].lowlevel.current_task()
    try:
        return asyncio.current_task() or threading.current_thread()
    except RuntimeError:
        return threading.current_thread()
