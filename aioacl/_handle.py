"""What all handles share: operations that are both awaited and called from plain threads, and closing.

An `Operation` starts nothing until it is awaited, entered, or asked for its `result()`. One that makes something is
an `Opening`: it is an async context manager too, and one that was forgotten warns.
"""

from __future__ import annotations

import copy
import warnings
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from aioacl import _origin, _sync
from aioacl._codes import DEVICE_ACTIONS
from aioacl._errors import (
    AclError,
    AclWarning,
    DeviceFault,
    DeviceQuarantined,
    DeviceReset,
    ParameterError,
    of_device,
)
from aioacl._ffi import lib
from aioacl._gate import error_of
from aioacl._lanes import CleanUp, clean_up_on
from aioacl._law import State
from aioacl._options import is_whole
from aioacl._port import current_port, run_blocking
from aioacl._unique import Unique

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from aioacl._lifecycle import Manager
    from aioacl._origin import Origin, Site

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


if TYPE_CHECKING:

    def begun(begin: Callable[[], Coroutine[Any, Any, T]]) -> Generator[Any, Any, T]: ...
else:  # for type checkers, what `coroutine` makes can be awaited only

    @coroutine
    def begun(begin: Callable[[], Coroutine[Any, Any, T]]) -> Generator[Any, Any, T]:
        """Awaits a coroutine from the moment that there is it: for an `__await__` to yield from.

        Between a coroutine's making and its beginning Python calls nothing here, so no Ctrl-C can come in between,
        which would have it complain that it was never awaited.
        """
        return (yield from begin())


class Operation(Unique, Generic[T_co]):
    """Something to `await`, or to take the `result()` of on a thread without a running loop."""

    __slots__ = ("__weakref__", "_begin", "_used", "_what")
    noun = "operation"
    _lost = "so nothing was done: await it, or take its result()"

    def __init__(self, what: str, begin: Callable[[], Coroutine[Any, Any, T_co]]) -> None:
        self._what = what
        self._begin = begin
        self._used = False

    def _use(self) -> Coroutine[Any, Any, T_co]:
        self._used = True
        return self._begin()

    def __await__(self) -> Generator[Any, Any, T_co]:
        return (yield from begun(self._use))

    def __del__(self) -> None:
        if not getattr(self, "_used", True):
            warnings.warn(f"{self._what} was never awaited, {self._lost}", RuntimeWarning, stacklevel=2)

    def result(self, timeout: float | None = None) -> T_co:
        """Blocks until it is done, at most `timeout` seconds.

        Raises:
            RuntimeError: on a thread whose event loop runs.
            DeviceTimeout: after the time.
        """
        return run_blocking(self._use, timeout)


class Closable(Protocol):
    """What an opening makes."""

    _site: Site | None

    def close(self) -> Operation[None]:
        """Gives it back."""
        ...

    def _leave_open(self) -> None:
        """For finalizers: leaves it to the maintenance lane to give it back. Takes no lock."""
        ...


class Droppable(Protocol):
    """What a finalizer may have to close."""

    _born: Origin | None
    _site: Site | None


C = TypeVar("C", bound=Closable)


class Opening(Operation[C]):
    """Makes something that is to be closed: `x = await opening`, or `async with opening as x`.

    A thread without a running loop calls `result()`, or enters it with `with`.
    """

    __slots__ = ("_made", "_site")
    _lost = "so nothing was made: await it, or enter it with `async with`"

    def __init__(self, what: str, begin: Callable[[], Coroutine[Any, Any, C]]) -> None:
        super().__init__(what, begin if _origin.keeper is None else _origin.keeper.follow(begin))
        self._made: C | None = None
        self._site = _origin.site()

    def _use(self) -> Coroutine[Any, Any, C]:
        if self._used:
            raise ParameterError(
                f"expected an Opening that was not used before, got {self._what} a second time",
                hint=f"Call {self._what} once more: each Opening makes one thing.",
            )
        self._used = True
        return self._make()

    async def _make(self) -> C:
        made = await self._begin()
        made._site = self._site
        return made

    async def __aenter__(self) -> C:
        self._made = made = await self
        return made

    async def __aexit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        """Closes what was made, and waits for that."""
        made = self._left(kind)
        if isinstance(made, Handle):
            await made.close()
        elif made is not None:
            await _shielded(made.close())

    def __enter__(self) -> C:
        """For a thread without a running loop; blocks until it is made."""
        self._made = made = run_blocking(self._use, None, "enter it with `async with`")
        return made

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        """Closes what was made, and blocks until that is done."""
        made = self._left(kind)
        if made is None:
            return
        try:
            run_blocking(lambda: _shielded(made.close()), None, "enter it with `async with`")
        except (
            BaseException
        ):  # Ctrl-C, or a loop has begun to run on this thread: it is closed without a wait
            made._leave_open()
            raise

    def _left(self, kind: type[BaseException] | None) -> C | None:
        """Its block is left; returns what is to be closed, if the caller has to wait for that."""
        made, self._made = self._made, None
        if made is None or lib.aio_forked():  # a child has nothing to close, and leaves as it was going to
            return None
        if kind is GeneratorExit:  # by a finalizer, perhaps on a thread that has a lock: it must not wait
            made._leave_open()
            return None
        if isinstance(made, Handle) and not (kind is None or issubclass(kind, Exception)):
            made._close_later()  # a cancellation does not wait for the device
            return None
        return made


async def _shielded(operation: Operation[T]) -> T:
    """Awaits the close of a device to its end, which has a bound, even if a scope is cancelled meanwhile.

    A `task.cancel()` of asyncio's own reaches the await all the same, and ends it; the close goes on.
    """
    with current_port().shield():
        return await operation
    raise AssertionError("a shield ends no wait")


class Owned(type):
    """The metaclass of what an owner makes: calling the class says who makes it."""

    factory = "its owner"

    def __call__(cls, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{cls.__name__} has no public constructor: use {cls.factory}")

    def _make(cls: type[T], *args: Any, **kwargs: Any) -> T:
        made: T = type.__call__(cls, *args, **kwargs)
        return made


def error_on(
    manager: Manager,
    generation: int,
    code: int,
    call: str,
    text: str | None = None,
    *,
    told: bool = False,
    stops: bool | None = None,
) -> AclError:
    """The error for a code met on a device; `told`: the engine has reported it to the listeners.

    A reset's comes with its report, and a fault of the device is remembered. With a stream that stops on failure,
    the failure of a task stops the whole context for ever, so it is one of the device.
    """
    if manager.found_reset(generation, code):
        code, text = lib.AIO_WAS_RESET, None
    if code in (lib.AIO_DRAINING_NOW, lib.AIO_RESETTING_NOW) and not manager.opens:
        code = lib.AIO_NOT_OPEN  # the last close refuses it, not a reset
    error = error_of(code, call, manager.index, generation, text)
    if isinstance(error, DeviceReset) and manager.state is State.QUARANTINED:
        return manager.quarantined()  # the reset that has ended the wait has failed
    if isinstance(error, DeviceReset | DeviceQuarantined):
        error.report = manager.report
    if stops is None:
        stops = manager.stop_generation == generation
    if error.action == "new_stream" and stops:
        error = of_device(error)
    if concerns_device(error):
        _note_fault(manager, error, told=told)
    return error


def concerns_device(error: AclError) -> bool:
    """Whether the error is a fault of the device, which only a reset ends, and not of one of its tasks."""
    return isinstance(error, DeviceFault) and error.action in DEVICE_ACTIONS


def _note_fault(manager: Manager, error: AclError, *, told: bool = False) -> None:
    """Remembers a fault, or leaves that to the maintenance lane if a signal has interrupted the lock's owner."""
    if _sync.is_owned(manager.changed):
        manager.leave_note(partial(manager.note_fault, copy.copy(error), told=told))
    else:
        manager.note_fault(error, told=told)


class Made(Unique, metaclass=Owned):
    """The base of what an owner makes. A name that it does not have cannot be assigned: every class has slots."""

    __slots__ = ("__weakref__",)


class Handle(Made):
    """Something on a device, stamped with the generation in which it was made."""

    __slots__ = ("_born", "_closed", "_generation", "_manager", "_owed", "_site")
    noun = "handle"

    def __init__(self, manager: Manager, generation: int) -> None:
        self._born: Origin | None = None
        self._site: Site | None = None
        self._manager = manager
        self._generation = generation
        self._closed = False
        self._owed = [
            True
        ]  # one item until the native one is given back; the function that takes it does that

    def _claim(self) -> bool:
        """Whether it is the caller who gives the native one back. Atomic, for all threads and finalizers."""
        try:
            self._owed.pop()
        except IndexError:
            return False
        return True

    @property
    def generation(self) -> int:
        """The generation of its device in which it was made."""
        return self._generation

    @property
    def stale(self) -> bool:
        """Whether its device was reset since."""
        return self._generation != self._manager.generation

    def _state(self) -> str:
        """For the repr: what is wrong with it, if anything."""
        return ", stale" if self.stale else ", closed" if self._closed else ""

    def _check(self) -> None:
        """Raises for a handle that is closed or stale."""
        if lib.aio_forked():
            raise self._error(lib.AIO_FORKED, self.noun)
        if self.stale:
            raise self._error(lib.AIO_STALE, self.noun)
        if self._closed:
            raise self._was_closed()

    def _was_closed(self) -> ParameterError:
        return ParameterError(
            f"the {self.noun} is closed", device=self._manager.index, hint=f"Make a new {self.noun}."
        )

    def _closing(self) -> Callable[[], object] | None:
        """From now on it is closed; returns what is left to do on the maintenance lane, if anything."""
        raise NotImplementedError

    def close(self) -> Operation[None]:
        """Closes it. Closing twice is no error."""
        raise NotImplementedError

    async def _close(self) -> None:
        work = self._closing()
        if work is not None:
            await clean_up_on(self._manager.maintenance, work)

    def _close_later(self) -> None:
        """Closes it without waiting for the native one to be given back."""
        work = self._closing()
        if work is not None:
            self._manager.maintenance.entrust(CleanUp(work))

    def _leave_open(self) -> None:
        work = self._closing()
        if work is not None:
            self._manager.leave_note(work)

    def _error(self, code: int, call: str, text: str | None = None) -> AclError:
        if code == lib.AIO_STALE and self._closed and not self.stale:  # by another thread, since `_check`
            return self._was_closed()
        return error_on(self._manager, self._generation, code, call, text)


def warn_of_drop(thing: Droppable, sentence: str, depth: int = 3) -> None:
    """For finalizers: nothing has closed the thing, and nothing can any more."""
    if thing._born is not None:
        thing._born.dropped = True
    _origin.warn(sentence + _origin.told(thing._born), thing._site, depth)


def warn_of_failure(manager: Manager, call: str, code: int, what: str) -> None:
    """For clean-ups: no caller can be told of it; a fault of the device is remembered all the same."""
    error = error_of(code, call, manager.index, manager.generation)
    if concerns_device(error) and manager.maintenance.running:  # else it may be a finalizer, with the lock
        manager.note_fault(error)
    sentence = f"{call} answered {code} on device {manager.index}: {what} stays until a reset"
    warnings.warn(sentence, AclWarning, stacklevel=3)


def size_of(value: object, what: str) -> int:
    """A size in bytes that C can take. ParameterError for anything else."""
    if not (is_whole(value) and isinstance(value, int) and value > 0):
        raise ParameterError(f"{what}={value!r} is not a size", hint="Pass a number of bytes, at least 1.")
    if value >= 1 << 63:
        raise ParameterError(f"{what}={value} is more than any device has", hint="Pass a number of bytes.")
    return value
