"""Locks, conditions, threads, the clock, the wait for a descriptor, and the wait of a call in C. Tests replace them.

All code of the lifecycle that waits, takes a lock or starts a thread uses `backend`. A test may install another
backend, which decides which thread runs next.

On the same thread, a signal handler or finalizer may interrupt a function that holds one of these locks. The locks are
re-entrant, so the handler may read the data that they guard. The handler must not block, because another thread may
need the lock before it can end the handler's wait. So `run_blocking` calls `must_not_own` first.
"""

from __future__ import annotations

import _thread
import select
import threading
import time
import weakref
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

T = TypeVar("T")
Lock = AbstractContextManager[bool]


class Condition(Protocol):
    """A condition variable with its own lock."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Releases the lock until notified; returns False after `timeout` seconds."""
        ...

    def notify_all(self) -> None:
        """Wakes all waiting threads."""
        ...


class Backend(Protocol):
    """The functions of the operating system that the lifecycle uses."""

    def lock(self) -> Lock:
        """Returns a new lock."""
        ...

    def condition(self) -> Condition:
        """Returns a new condition variable."""
        ...

    def monotonic(self) -> float:
        """Returns the seconds of a clock that never goes back."""
        ...

    def spawn(self, name: str, body: Callable[[], object]) -> None:
        """Starts a thread that does not keep the process alive."""
        ...

    def readable(self, fd: int, timeout: float | None) -> bool:
        """Waits until the descriptor is readable; returns False after `timeout` seconds."""
        ...

    def settled(self, ask: Callable[[float], bool], timeout: float) -> bool:
        """Returns `ask(timeout)`. The function `ask` waits in C for other threads, for at most `timeout` seconds."""
        ...


class Uninterrupted(threading.Condition):
    """A condition variable that Ctrl-C cannot leave locked: `with` calls the methods of its lock, which are in C.

    `threading.Condition` implements these methods in Python. An interrupt between two of their lines leaves the lock
    held for ever.
    """

    # These are slot descriptors, so `with` calls the methods without a Python frame.
    __slots__ = ("__enter__", "__exit__")

    def __init__(self, lock: Any = None) -> None:
        lock = lock or threading.RLock()
        super().__init__(lock)
        self.__enter__ = lock.__enter__  # type: ignore[method-assign]
        self.__exit__ = lock.__exit__  # type: ignore[method-assign]


def _begin(thread: threading.Thread, body: Callable[[], object]) -> None:
    """Starts `thread`. If this fails, calls `body`. Called on a new thread, where no signal handler runs."""
    try:
        thread.start()
    except RuntimeError:
        body()


class Threads:
    """The backend with real threads."""

    def lock(self) -> Lock:
        return threading.RLock()

    def condition(self) -> Condition:
        return Uninterrupted()

    def monotonic(self) -> float:
        return time.monotonic()

    def spawn(self, name: str, body: Callable[[], object]) -> None:
        # This is one call to C, because a Ctrl-C between two lines of `start` could leave a thread that hangs for ever.
        # The thread gets an empty context: a long-lived thread must not keep the values of its creator's context.
        _thread.start_new_thread(_begin, (threading.Thread(target=body, name=name, daemon=True), body))

    def readable(self, fd: int, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))

    def settled(self, ask: Callable[[float], bool], timeout: float) -> bool:
        return ask(timeout)


backend: Backend = Threads()


# Weak references to long-lived locks. run_blocking passes the locks of jobs to must_not_own.
_lasting: list[weakref.ref[Any]] = []


def watched(made: T) -> T:
    """Adds an object with `_is_owned` to the locks of `must_not_own`, and returns it."""
    if hasattr(made, "_is_owned"):  # the locks of a test's backend may lack this method
        _lasting.append(weakref.ref(made, _lasting.remove))
    return made


def lock() -> Lock:
    """Returns a new lock of the current backend."""
    return watched(backend.lock())


def condition(*, lasting: bool = True) -> Condition:
    """Returns a new condition of the current backend.

    If `lasting` is False, the user of the condition has to pass the condition to `must_not_own`.
    """
    made = backend.condition()
    return watched(made) if lasting else made


def is_owned(held: object) -> bool:
    """Returns whether this thread holds the lock; False for a lock of a test's backend that cannot report its owner."""
    owned = getattr(held, "_is_owned", None)
    return owned is not None and bool(owned())


def must_not_own(others: Iterable[object]) -> None:
    """Raises RuntimeError if this thread holds a long-lived lock or one of `others`. Called before a thread blocks."""
    for lasting in tuple(_lasting):  # is_owned is inlined here, because every `result()` calls this function
        held = lasting()
        if held is not None and held._is_owned():
            raise _interrupted()
    for other in others:
        if is_owned(other):
            raise _interrupted()


def _interrupted() -> RuntimeError:
    return RuntimeError(
        "expected a thread that holds no lock of aioacl, got a signal handler that interrupted the owner of a lock; "
        "do not block in the handler: set a flag there, or use loop.add_signal_handler()"
    )


def monotonic() -> float:
    """Returns the seconds of the backend's clock."""
    return backend.monotonic()


def spawn(name: str, body: Callable[[], object]) -> None:
    """Starts a thread of the current backend."""
    backend.spawn(name, body)


def readable(fd: int, timeout: float | None) -> bool:
    """Waits for a descriptor, with the current backend."""
    return backend.readable(fd, timeout)


def settled(ask: Callable[[float], bool], timeout: float) -> bool:
    """Returns `ask(timeout)`, with the current backend. The function `ask` waits in C for other threads."""
    return backend.settled(ask, timeout)


class WeakSet(Generic[T]):
    """A weakref.WeakSet that several threads may use.

    Attributes:
        added: how many members were added, also those that are gone.
    """

    def __init__(self) -> None:
        self.added = 0
        self._members: weakref.WeakSet[T] = weakref.WeakSet()
        self._lock = lock()

    def add(self, member: T) -> None:
        """Adds a member, which stays until it is discarded or garbage-collected."""
        with self._lock:
            self.added += 1
            self._members.add(member)

    def discard(self, member: T) -> None:
        """Removes a member if it is present."""
        with self._lock:
            self._members.discard(member)

    def members(self) -> list[T]:
        """Returns the members that are still referred to."""
        with self._lock:
            return list(self._members)


class _Unraisable:
    """Passes an error to sys.unraisablehook.

    Only the interpreter can make the argument of the hook, so the finalizer of this object raises the error.
    """

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __del__(self) -> None:
        try:
            raise self._error
        finally:
            del self._error  # the traceback keeps this frame, and the frame would keep the error


def report(error: BaseException) -> None:
    """Calls sys.unraisablehook with an error that no call can raise."""
    _Unraisable(error)
