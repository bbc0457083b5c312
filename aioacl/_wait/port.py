"""Port: delivers completions to an asyncio loop, a trio run or a plain thread.

The engine pushes completions to its own record of the port (port.c) and writes an eventfd. One port belongs to one
event loop, or to one thread without a loop. `Port.wait` starts an operation that will complete under a key, and waits:
it suspends the task on an event loop, and blocks on a thread. So the same coroutine serves `await` and `.result()`.

References: the loop refers to its reader, the reader to the port, and the port only weakly to the loop. If a loop is
closed, it drops its readers. This frees the port too, without the garbage collector. The engine keeps the descriptor
open until the last completion has reached the port.
"""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from aioacl._base.errors import OutOfMemoryError, ResourceExhausted
from aioacl._base.ffi import Awaits, failure, ffi, lib, pointer
from aioacl._library.runtime import must_not_be_forked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from aioacl._base.ffi import CData

TIMED_OUT = failure(lib.AIO_LIMIT)  # the deadline came first; the engine never refuses with this code


class Port:
    """The waits in progress. Each has a key, a function for the result, and a function that is called afterwards."""

    def __init__(self) -> None:
        must_not_be_forked()
        # Of the waits that Python code ends, by `post`. Made first, because `__del__` needs it.
        self._tokens: dict[int, CData] = {}
        self.handle = lib.aio_port_new()
        if not self.handle:
            raise ResourceExhausted(
                "expected a free file descriptor for the port of an event loop or thread, got none",
                hint="Raise the limit of open files (ulimit -n), or close loops that are done.",
            )
        self.fd = lib.aio_port_fd(self.handle)
        self._keys = itertools.count(1)
        self._waits: dict[int, tuple[Callable[[int], object], Callable[[], object] | None]] = {}
        # Ctrl-C may interrupt a drain, and a signal handler may drain within another drain. So completions that were
        # taken from the engine stay here until they are delivered.
        self._batch: Any = ffi.new("aio_batch *")
        self._came: dict[int, int] = {}
        # For each object: what to do for it if the loop has ended. It is called on any thread, takes no lock, and
        # removes the object from here.
        self.if_closed: dict[object, Callable[[], object]] = {}

    def __del__(self) -> None:
        # Finalizers of other objects in the same collection may post to this port. They must find that it is closed.
        handle, self.handle = getattr(self, "handle", ffi.NULL), ffi.NULL
        if handle:
            for key in tuple(self._tokens):
                self._drop_token(key)
            lib.aio_port_close(handle)

    @property
    def outstanding(self) -> int:
        """How many waits have no completion yet."""
        return len(self._waits)

    def expect(self, deliver: Callable[[int], object], after: Callable[[], object] | None) -> int:
        """Returns a new key. `deliver` gets the result; `after` is then called, even if no task waits any more."""
        key = next(self._keys)
        self._waits[key] = (deliver, after)
        return key

    def refuse(self, key: int) -> bool:
        """Forgets a key whose wait was not started or was withdrawn. A later completion under it is ignored.

        Returns False if the key was forgotten before.
        """
        self._drop_token(key)
        return self._waits.pop(key, None) is not None

    def take_token(self, key: int) -> None:
        """Lets `post` end the wait under this key. Takes the memory that `post` needs, so `post` cannot fail.

        Raises:
            OutOfMemoryError: the host is out of memory; the key is forgotten.
        """
        token = self._tokens[key] = ffi.new("aio_token **")
        code = lib.aio_token_take(self.handle, key, token)
        if code == lib.AIO_NO_MEMORY:  # pragma: no cover - tests/process/test_failing_memory.py is slow
            self.refuse(key)
            raise OutOfMemoryError("the host is out of memory")

    def post(self, key: int, result: int = 0) -> None:
        """Ends a wait for which `take_token` was called. Only the first call for a key has an effect.

        Any thread may call this.
        """
        token = self._tokens.get(key)
        if token is not None:
            lib.aio_token_post(token, result)

    def kick(self) -> None:
        """Lets the reader run once more. Takes no lock and no memory."""
        lib.aio_port_kick(self.handle)

    def _drop_token(self, key: int) -> None:
        token = self._tokens.get(key)
        if token is not None:
            lib.aio_token_drop(token)
            self._tokens.pop(key, None)  # removed last, because Ctrl-C may come between these steps

    def withdraw_all(self) -> Iterator[Callable[[int], object]]:
        """Forgets all waits, and yields the function of each. A later completion of such a wait is ignored.

        Another thread may be in `begin`. Each step is atomic, so a wait is either refused there or yielded here.
        """
        while True:
            try:
                key, (deliver, _) = self._waits.popitem()
            except KeyError:
                return
            self._drop_token(key)
            yield deliver

    def drain(self) -> None:
        """Delivers all completions that have arrived. Then raises the first error that a delivery raised, if any.

        If Ctrl-C interrupts the drain, the reader's next turn continues it.
        """
        try:
            self._take()
            self._deliver_came()
        except BaseException:
            self.kick()
            raise

    def _deliver_came(self) -> None:
        """Delivers the completions that were taken. After an exception, the caller makes the reader run once more."""
        errors: list[Exception] = []
        for key, result in tuple(self._came.items()):
            try:
                self._deliver(key, result)
            except Exception as error:  # noqa: BLE001 - the other results are delivered first: they arrive only once
                errors.append(error)
        if errors:
            try:
                raise errors[0]
            finally:
                errors.clear()  # the traceback refers to the frame, and the frame to the errors

    def _take(self) -> None:
        """Takes the completions from the engine. May be repeated: the first result under a key counts."""
        batch, came = self._batch, self._came
        count = lib.aio_port_fill(self.handle, batch)
        for key, result in zip(ffi.unpack(batch.keys, count), ffi.unpack(batch.results, count), strict=True):
            came.setdefault(key, result)
        batch.count = 0

    def _deliver(self, key: int, result: int) -> None:
        """Delivers one result. May be repeated. A delivery that raised an Exception counts as done.

        After a MemoryError, the result may not have been delivered, so the delivery is repeated.
        """
        try:
            self._call_back(key, result)
        except MemoryError:
            raise
        except Exception:
            self._forget(key)
            raise
        self._forget(key)

    def _call_back(self, key: int, result: int) -> None:
        wait = self._waits.get(key)
        if wait is None:  # the wait was withdrawn, or the result was delivered before
            return
        deliver, after = wait
        try:
            deliver(result)
        finally:
            if after is not None:
                # A signal handler that drains during `after` must not call `after` again, because `after` takes locks.
                self._waits[key] = (deliver, None)
                after()

    def _forget(self, key: int) -> None:
        self._drop_token(key)
        self._waits.pop(key, None)
        self._came.pop(key, None)

    def begin(
        self,
        start: Callable[[CData, int], int],
        deliver: Callable[[int], object],
        after: Callable[[], object] | None,
    ) -> int:
        """Starts a wait. Returns 0, or the code of a refusal. Raises in a forked child, where no wait would end.

        Also returns 0 if the start was refused but `withdraw_all` has already yielded the wait.
        """
        must_not_be_forked()
        key = self.expect(deliver, after)
        code = start(self.handle, key)
        return code if code and self.refuse(key) else 0

    async def wait(
        self,
        start: Callable[[CData, int], int],
        *,
        deadline: float | None = None,
        after: Callable[[], object] | None = None,
    ) -> int:
        """Starts a wait and returns its result, or TIMED_OUT if the deadline comes first."""
        raise NotImplementedError

    async def breathe(self) -> None:
        """Gives other tasks a chance to run. Called by an await that does not have to wait."""
        raise NotImplementedError

    async def next_turn(self) -> None:
        """Lets all other tasks of the loop run once. Without a loop, it does nothing."""
        raise NotImplementedError

    def shield(self) -> AbstractContextManager[object]:
        """Returns a context within which no cancel scope around the caller ends a wait."""
        return nullcontext()


class LoopPort(Awaits, Port):
    """A port of an event loop. Its awaits of tickets, events and streams run in C (`Awaits`)."""

    def __init__(self) -> None:
        super().__init__()
        self._attach(pointer(self.handle))

    def __del__(self) -> None:
        self._attach(0)
        super().__del__()

    def give_up(self) -> None:
        """Gives up the calls of models whose loop has ended. May be called twice: each note removes itself."""
        self._leave_runs()
        for note in tuple(self.if_closed.values()):
            note()

    @property
    def outstanding(self) -> int:
        return super().outstanding + self._outstanding
