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

import itertools
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from aioacl._base.errors import ResourceExhausted
from aioacl._base.ffi import failure, ffi, lib
from aioacl._library.runtime import must_not_be_forked

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from aioacl._base.ffi import CData

KICK = 0  # the key of what wakes the port's owner and is nobody's completion
TIMED_OUT = failure(lib.AIO_LIMIT)  # no refusal of the engine's: the deadline came first


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
