"""What all handles share: their generation, and closing."""

from __future__ import annotations

import copy
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from aioacl._base import sync
from aioacl._base.codes import DEVICE_ACTIONS
from aioacl._base.errors import (
    AclError,
    AclWarning,
    DeviceFault,
    DeviceQuarantined,
    ParameterError,
    of_device,
)
from aioacl._base.ffi import lib
from aioacl._base.options import whole_of
from aioacl._base.states import State
from aioacl._base.unique import Unique
from aioacl._library.runtime import of_parent
from aioacl._lifecycle.gate import error_of
from aioacl._wait.workers import CleanUp, clean_up_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.origin import Origin, Site
    from aioacl._handles.operation import Operation
    from aioacl._lifecycle.manager import Manager

T = TypeVar("T")


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
    if manager.admission.found_reset(generation, code):
        code, text = lib.AIO_WAS_RESET, None
    if code in (lib.AIO_DRAINING_NOW, lib.AIO_RESETTING_NOW) and not manager.admission.opens:
        code = lib.AIO_NOT_OPEN  # the last close refuses it, not a reset
    if code == lib.AIO_WAS_RESET and manager.admission.state is State.QUARANTINED:
        return manager.admission.quarantined()  # the reset that has ended the wait has failed
    if code == lib.AIO_WAS_RESET:
        return manager.admission.was_ended(generation, call)
    error = error_of(code, call, manager.index, generation, text)
    if isinstance(error, DeviceQuarantined):
        error.report = manager.admission.report
    if stops is None:
        stops = manager.admission.stop_generation == generation
    if error.action == "new_stream" and stops:
        error = of_device(error)
    if concerns_device(error):
        _note_fault(manager, error, told=told)
    return error


def concerns_device(error: AclError) -> bool:
    """Whether the error is a fault of the device, which only a reset ends, and not of one of its tasks."""
    return isinstance(error, DeviceFault) and error.action in DEVICE_ACTIONS


def _note_fault(manager: Manager, error: AclError, *, told: bool = False) -> None:
    """Remembers a fault, or leaves that to the maintenance thread if a signal has interrupted the lock's owner."""
    if sync.is_owned(manager.admission.changed):
        manager.deferred.leave_note(partial(manager.failures.note_fault, copy.copy(error), told=told))
    else:
        manager.failures.note_fault(error, told=told)


class Made(Unique, metaclass=Owned):
    """The base of what an owner makes. A name that it does not have cannot be assigned: every class has slots."""

    __slots__ = ("__weakref__",)
    _made_by = ""  # what makes it, if that is not the only way to come by one

    if not TYPE_CHECKING:  # type checkers report `with` on it, for they see none of these

        def __enter__(self, *_: object) -> NoReturn:
            self._refuse_block("with")

        def __aenter__(self, *_: object) -> NoReturn:
            self._refuse_block("async with")

        __exit__, __aexit__ = __enter__, __aenter__  # not called, but Python looks for them first

    def _refuse_block(self, keyword: str) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"expected what makes a {kind}, got the {kind} itself; "
            f"write `{keyword} {self._made_by or type(self).factory} as {kind.lower()}:`, or call its close()"
        )


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
        """For the repr: its device, its generation, and what is wrong with it, if anything."""
        wrong = f"{', stale' if self.stale else ''}{', closed' if self._closed else ''}"
        return f"device {self._manager.index}, generation {self._generation}{wrong}{of_parent()}"

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
        """From now on it is closed; returns what is left to do on the maintenance thread, if anything."""
        raise NotImplementedError

    def close(self) -> Operation[None]:
        """Closes it. Closing twice is no error."""
        raise NotImplementedError

    async def _close(self) -> None:
        work = self._closing()
        if work is not None:
            await clean_up_on(self._manager.maintenance, work)

    async def _close_at_end(self) -> None:
        await self._close()

    def _close_later(self) -> bool:
        """A cancellation does not wait for the native one to be given back."""
        work = self._closing()
        if work is not None:
            self._manager.maintenance.entrust(CleanUp(work))
        return True

    def _leave_open(self) -> None:
        work = self._closing()
        if work is not None:
            self._manager.deferred.leave_note(work)

    def _error(self, code: int, call: str, text: str | None = None) -> AclError:
        if code == lib.AIO_STALE and self._closed and not self.stale:  # by another thread, since `_check`
            return self._was_closed()
        return error_on(self._manager, self._generation, code, call, text)


def warn_of_failure(manager: Manager, call: str, code: int, what: str) -> None:
    """For clean-ups: no caller can be told of it; a fault of the device is remembered all the same."""
    error = error_of(code, call, manager.index, manager.generation)
    if concerns_device(error) and manager.maintenance.running:  # else it may be a finalizer, with the lock
        manager.failures.note_fault(error)
    sentence = f"{call} answered {code} on device {manager.index}: {what} stays until a reset"
    warnings.warn(sentence, AclWarning, stacklevel=3)


def size_of(value: object, what: str) -> int:
    """A size in bytes that C can take. ParameterError for anything else."""
    size = whole_of(value)
    if size is None or size <= 0:
        raise ParameterError(
            f"{what} must be an int, at least 1, got {value!r}", hint="Pass a number of bytes."
        )
    if size >= 1 << 63:
        raise ParameterError(f"{what}={size} is more than any device has", hint="Pass a number of bytes.")
    return size
