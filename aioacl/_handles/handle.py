"""The base class of all handles: generation, close, and the errors of calls."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard, TypeVar

from aioacl._base import sync
from aioacl._base.errors import (
    AclError,
    DeviceQuarantined,
    ParameterError,
    of_device,
)
from aioacl._base.ffi import HandleBase, lib
from aioacl._base.options import repr_of, whole_of
from aioacl._base.states import State
from aioacl._base.unique import Unique
from aioacl._library.runtime import of_parent
from aioacl._lifecycle.failures import concerns_device
from aioacl._lifecycle.gate import error_of
from aioacl._wait.internal_call import CleanUp
from aioacl._wait.workers import clean_up_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.origin import Origin, Site
    from aioacl._handles.operation import Operation
    from aioacl._lifecycle.manager import Manager

T = TypeVar("T")


class Owned(type):
    """The metaclass of classes without a public constructor.

    Calling such a class raises a TypeError that names the factory.
    """

    _factory = "its owner"

    def __call__(cls, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{cls.__name__} has no public constructor: use {cls._factory}")

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
    reported: bool = False,
    stops: bool | None = None,
) -> AclError:
    """Returns the error for a code that a call on a device returned.

    The error of a reset has the report of the reset. A fault of the device is stored. If a stream of the device stops
    on failure, a failed task stops the whole context until a reset. The failure then counts as a device fault.
    `reported=True` means that the engine has already reported the failure to the listeners.
    """
    if code != lib.AIO_WAS_RESET and manager.admission.found_reset(generation, code):
        code, text = lib.AIO_WAS_RESET, None
    if code in (lib.AIO_DRAINING_NOW, lib.AIO_RESETTING_NOW) and not manager.admission.opens:
        code = lib.AIO_NOT_OPEN  # the last close, not a reset, refused the call
    if code == lib.AIO_WAS_RESET and manager.admission.state is State.QUARANTINED:
        return manager.admission.quarantined()  # the reset that ended the wait has failed
    if code == lib.AIO_WAS_RESET:
        return manager.admission.was_ended(generation, call)
    error = error_of(code, call, manager.index, generation, text)
    if isinstance(error, DeviceQuarantined):
        error.report = manager.admission.report
    why_stopped = manager.failures.why_stopped(generation)
    if stops is None:
        stops = bool(why_stopped) or manager.admission.stop_generation == generation
    if error.action == "new_stream" and stops:
        error = of_device(error, why_stopped)
    if concerns_device(error):
        _note_fault(manager, error, reported=reported)
    return error


def _note_fault(manager: Manager, error: AclError, *, reported: bool = False) -> None:
    """Stores a fault. If a signal handler has interrupted the lock's owner, the maintenance thread stores it later."""
    if sync.is_owned(manager.admission.changed):
        manager.deferred.leave_note(partial(manager.failures.note_fault, copy.copy(error), reported=reported))
    else:
        manager.failures.note_fault(error, reported=reported)


class Made(Unique, metaclass=Owned):
    """The base of objects that a factory makes. Its subclasses have slots, so unknown attributes cannot be assigned."""

    __slots__ = ("__weakref__",)
    _made_by = ""  # the call that makes the object, if `_factory` names several calls

    if not TYPE_CHECKING:  # type checkers do not see these methods, so they report `with` on a handle

        def __enter__(self, *_: object) -> NoReturn:
            self._refuse_block("with")

        def __aenter__(self, *_: object) -> NoReturn:
            self._refuse_block("async with")

        __exit__, __aexit__ = __enter__, __aenter__  # never called, but Python looks them up first

    def _refuse_block(self, keyword: str) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"expected the call that makes a {kind}, got the {kind} itself; "
            f"write `{keyword} {self._made_by or type(self)._factory} as {kind.lower()}:`, or call its close()"
        )


class Handle(Made, HandleBase):
    """An object on a device. It belongs to the generation in which it was made."""

    if TYPE_CHECKING:
        _born: Origin | None
        _site: Site | None
        _manager: Manager
    else:  # the attributes are fields of HandleBase, which type checkers do not count as slots
        __slots__ = ()
    _noun = "handle"

    def __init__(self, manager: Manager, generation: int) -> None:
        self._manager = manager
        self._device = manager.index
        self._generation = generation

    @property
    def generation(self) -> int:
        """The generation of the device in which the object was made, an int."""
        return self._generation

    @property
    def stale(self) -> bool:
        """Whether the device was reset or closed after the object was made. Calls no ACL function."""
        return self._generation != self._manager.generation

    def _state(self) -> str:
        """The part of the repr that shows the device, the generation, and whether the handle is stale or closed."""
        wrong = f"{', stale' if self.stale else ''}{', closed' if self._closed else ''}"
        return f"device {self._manager.index}, generation {self._generation}{wrong}{of_parent()}"

    def _check(self) -> None:
        """Raises an error if the handle is closed or stale."""
        if lib.aio_forked():
            raise self._error(lib.AIO_FORKED, self._noun)
        if self.stale:
            raise self._error(lib.AIO_STALE, self._noun)
        if self._closed:
            raise self._was_closed()

    def _was_closed(self) -> ParameterError:
        return ParameterError(
            f"the {self._noun} is closed", device=self._manager.index, hint=f"Make a new {self._noun}."
        )

    def _closing(self) -> Callable[[], object] | None:
        """Marks the handle as closed. Returns the remaining work for the maintenance thread, or None."""
        raise NotImplementedError

    def close(self) -> Operation[None]:
        """Closes the handle. A second close is not an error.

        Returns:
            An Operation; await it, or call its `result()`.
        """
        raise NotImplementedError

    async def _close(self) -> None:
        work = self._closing()
        if work is not None:
            await clean_up_on(self._manager.maintenance, work)

    def _close_now(self) -> bool:
        """Closes the handle if this needs no wait. Otherwise returns False, and `_close` has to be awaited."""
        return False

    async def _close_at_end(self) -> None:
        await self._close()

    def _close_later(self) -> bool:
        """Closes the handle without waiting: a cancelled block does not wait until the native object is freed."""
        work = self._closing()
        if work is not None:
            self._manager.maintenance.entrust(CleanUp(work))
        return True

    def _leave_open(self) -> None:
        work = self._closing()
        if work is not None:
            self._manager.deferred.leave_note(work)

    def _error(self, code: int, call: str, text: str | None = None) -> AclError:
        if code == lib.AIO_STALE and self._closed and not self.stale:  # another thread has closed the handle
            return self._was_closed()
        return error_on(self._manager, self._generation, code, call, text)


def is_a(thing: object, kind: type[T]) -> TypeGuard[T]:
    """Returns whether the object itself is of a class. C checks an operand in the same way.

    A weak proxy or a mock has the `__class__` of another object, so `isinstance` accepts it.
    """
    return issubclass(type(thing), kind)


def size_of(value: object, what: str) -> int:
    """Returns a size in bytes that C can take. Raises ParameterError for anything else."""
    if type(value) is int and 0 <= value < 1 << 63:  # the usual case
        return value
    size = whole_of(value)
    if size is None or size < 0:
        raise ParameterError(
            f"{what} must be an int, at least 0, got {repr_of(value)}", hint="Pass a number of bytes."
        )
    if size >= 1 << 63:
        raise ParameterError(
            f"{what} must be less than 2**63, got {repr_of(size)}",
            hint="Pass the number of bytes that you need.",
        )
    return size
