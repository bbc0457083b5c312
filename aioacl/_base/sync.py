"""Lock, condition, clock, threads, the waits for a descriptor and in C: the seam through which tests drive schedules.

Everything in the lifecycle that can wait, wait its turn or start a thread comes from `backend`; a test puts its own
in place and decides who runs next.

A signal handler, or a finalizer, may interrupt a function that has one of these locks, on the same thread. The locks
are re-entrant, so code there may read what they guard. It must not block: other threads may need the lock before what
it waits for can happen. So `run_blocking` asks `must_not_own` first.
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
    """A condition with its own lock."""

    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Gives the lock up until notified; False after the time."""
        ...

    def notify_all(self) -> None:
        """Wakes everybody who waits."""
        ...


class Backend(Protocol):
    """What the lifecycle needs of the world."""

    def lock(self) -> Lock:
        """A lock that is not re-entrant."""
        ...

    def condition(self) -> Condition:
        """A condition."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def spawn(self, name: str, body: Callable[[], object]) -> None:
        """Starts a thread that does not keep the process alive."""
        ...

    def readable(self, fd: int, timeout: float | None) -> bool:
        """Waits until the descriptor can be read; False after the time."""
        ...

    def settled(self, ask: Callable[[float], bool], timeout: float) -> bool:
        """Waits in C for others of our threads: `ask` waits there for the seconds it is given, and tells."""
        ...


class Uninterrupted(threading.Condition):
    """A condition that Ctrl-C cannot leave locked: `with` calls its lock's own methods, which are C.

    `threading.Condition` has them in Python, and an interrupt between two lines there leaves it locked for ever.
    """

    __slots__ = ("__enter__", "__exit__")  # descriptors in C: what is found there is called without a frame

    def __init__(self, lock: Any = None) -> None:
        lock = lock or threading.RLock()
        super().__init__(lock)
        self.__enter__ = lock.__enter__  # type: ignore[method-assign]
        self.__exit__ = lock.__exit__  # type: ignore[method-assign]


def _begin(thread: threading.Thread, body: Callable[[], object]) -> None:
    """Where no signal's handler runs: starts the thread. If there is none for it, this one will do."""
    try:
        thread.start()
    except RuntimeError:
        body()


class Threads:
    """The real world."""

    def lock(self) -> Lock:
        return threading.RLock()

    def condition(self) -> Condition:
        return Uninterrupted()

    def monotonic(self) -> float:
        return time.monotonic()

    def spawn(self, name: str, body: Callable[[], object]) -> None:
        # One call of C, for Ctrl-C may come between two lines of `start` and leave a thread that hangs for ever; and
        # an empty context: a thread that lives long must not keep what its first customer had in his.
        _thread.start_new_thread(_begin, (threading.Thread(target=body, name=name, daemon=True), body))

    def readable(self, fd: int, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(None if timeout is None else max(0.0, timeout) * 1000))

    def settled(self, ask: Callable[[float], bool], timeout: float) -> bool:
        return ask(timeout)


backend: Backend = Threads()


_lasting: list[weakref.ref[Any]] = []  # locks that live long; those of jobs are known to the port that waits


def _watched(made: T) -> T:
    if hasattr(made, "_is_owned"):  # a backend for tests has others
        _lasting.append(weakref.ref(made, _lasting.remove))
    return made


def lock() -> Lock:
    """A lock of the backend in place."""
    return _watched(backend.lock())


def condition(*, lasting: bool = True) -> Condition:
    """A condition of the backend in place. One of many, which live short, is asked about by its user."""
    made = backend.condition()
    return _watched(made) if lasting else made


def is_owned(held: object) -> bool:
    """Whether this thread has the lock; a backend for tests does not tell."""
    owned = getattr(held, "_is_owned", None)
    return owned is not None and bool(owned())


def must_not_own(others: Iterable[object]) -> None:
    """Raises if this thread has one of the locks that live long, or of those given: what follows blocks."""
    for lasting in tuple(_lasting):  # no function of ours for each: every `result()` comes here
        held = lasting()
        if held is not None and held._is_owned():
            raise _interrupted()
    for other in others:
        if is_owned(other):
            raise _interrupted()


def _interrupted() -> RuntimeError:
    return RuntimeError(
        "expected a thread that has no lock of aioacl, got a signal handler that has interrupted the owner of one; "
        "do not block in the handler: set a flag there, or use loop.add_signal_handler()"
    )


def monotonic() -> float:
    """The backend's clock."""
    return backend.monotonic()


def spawn(name: str, body: Callable[[], object]) -> None:
    """A thread of the backend in place."""
    backend.spawn(name, body)


def readable(fd: int, timeout: float | None) -> bool:
    """The backend's wait for a descriptor."""
    return backend.readable(fd, timeout)


def settled(ask: Callable[[float], bool], timeout: float) -> bool:
    """The backend's wait in C for others of our threads."""
    return backend.settled(ask, timeout)


class WeakSet(Generic[T]):
    """A weakref.WeakSet that several threads use."""

    def __init__(self) -> None:
        self._members: weakref.WeakSet[T] = weakref.WeakSet()
        self._lock = lock()

    def add(self, member: T) -> None:
        """One more, until it is garbage."""
        with self._lock:
            self._members.add(member)

    def discard(self, member: T) -> None:
        """Takes it out if it is there."""
        with self._lock:
            self._members.discard(member)

    def members(self) -> list[T]:
        """Those that are still referred to."""
        with self._lock:
            return list(self._members)


class _Unraisable:
    """An error on its way to sys.unraisablehook, whose argument only a finalizer that raises can make."""

    __slots__ = ("_error",)

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __del__(self) -> None:
        try:
            raise self._error
        finally:
            del self._error  # the traceback keeps the frame, and the frame would keep the error


def report(error: BaseException) -> None:
    """Gives an error that no call can raise to sys.unraisablehook."""
    _Unraisable(error)
