"""Operation and Opening: awaitables whose `result()` a plain thread can call.

An `Opening` is an Operation that makes an object, and it is also a context manager.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from aioacl._base import origin
from aioacl._base.errors import ParameterError
from aioacl._base.ffi import DONE, NOT_STARTED, OperationBase, lib, open_cached
from aioacl._base.options import deadline_of
from aioacl._base.public import publish
from aioacl._base.unique import Unique
from aioacl._library.runtime import must_not_be_forked
from aioacl._lifecycle.cache import DEVICE_MEMORY, PINNED_MEMORY, STREAMS
from aioacl._wait.current import begun, current_port, run_blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from aioacl._base.options import Seconds
    from aioacl._base.origin import Site

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
STARTED: Final = "started"
REFUSED: Final = "refused"
CACHED: Final = {STREAMS: "create_stream()", DEVICE_MEMORY: "allocate({})", PINNED_MEMORY: "pinned({})"}


class Operation(OperationBase, Unique, Generic[T_co]):
    """An awaitable. A thread without a running event loop calls `result()` instead of using `await`.

    An Operation starts nothing until it is awaited or its `result()` is called. Each await and each `result()` runs it
    once more. If it is dropped unused, it emits a RuntimeWarning.
    """

    __slots__ = ("__weakref__",)
    _noun = "operation"
    _lost = "so nothing was done: await it, or call its result()"
    _first = "await it first, or call its result()"

    def __init__(self, what: str, begin: Callable[[], Coroutine[Any, Any, T_co]], of: object = None) -> None:
        self._what = what
        self._begin = begin
        self._of = of  # for the repr
        self._state = NOT_STARTED

    @property
    def _name(self) -> str:
        """The call that made this object, for messages."""
        return str(self._what)

    def _use(self) -> Coroutine[Any, Any, T_co]:
        self._state = STARTED
        begun: Coroutine[Any, Any, T_co] = self._begin()
        return begun

    if TYPE_CHECKING:

        def __await__(self) -> Generator[Any, Any, T_co]: ...

    def _await_in_python(self) -> Generator[Any, Any, T_co]:
        try:
            result = yield from begun(self._use)
        except BaseException as error:
            self._failed(error)
            raise
        self._state = DONE
        return result

    def _block(self, timeout: Seconds | None, instead: str) -> T_co:
        """Blocks until the operation is done.

        On a thread with a running event loop it raises RuntimeError, and the operation can still be awaited.
        """
        try:
            result = run_blocking(self._use, timeout, instead)
        except BaseException as error:
            self._failed(error)
            raise
        self._state = DONE
        return result

    def _failed(self, error: BaseException) -> None:
        if self._state in (NOT_STARTED, STARTED):
            self._state = REFUSED if self._state == NOT_STARTED else f"raised {type(error).__name__}"

    def __repr__(self) -> str:
        of = "" if self._of is None else f" of {self._of!r}"
        return f"<{type(self).__name__} {self._name}{of}, {self._state}>"

    if not TYPE_CHECKING:  # type checkers report such an attribute by themselves

        def __getattr__(self, name: str) -> Any:
            """Explains that the attribute may belong to the result. Called for unknown attributes only."""
            kind = type(self).__name__
            if name.startswith("_"):
                raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=self)
            raise AttributeError(
                f"{self._name} returned an {kind}, which has no attribute {name!r}: {self._first}", name=name
            )

    def __del__(self) -> None:
        if getattr(self, "_state", "") == NOT_STARTED:
            warnings.warn(f"{self._name} was never awaited, {self._lost}", RuntimeWarning, stacklevel=2)

    def result(self, timeout: Seconds | None = None) -> T_co:
        """Runs the operation and blocks until it is done, on a thread without a running event loop.

        Args:
            timeout: the longest wait in seconds; None waits without a limit.

        Returns:
            The value that an await returns.

        Raises:
            RuntimeError: this thread runs an event loop.
            DeviceTimeout: the operation was not done within `timeout` seconds.
        """
        return self._block(timeout, "await the operation instead of calling result()")


class Closable(Protocol):
    """The object that an Opening makes."""

    _site: Site | None

    def close(self) -> Operation[None]:
        """Closes the object."""
        ...

    def _leave_open(self) -> None:
        """For finalizers: leaves the close to the maintenance thread. Takes no lock."""
        ...

    def _close_later(self) -> bool:
        """Closes the object without waiting and returns True.

        If the close must be awaited, does nothing and returns False.
        """
        ...

    def _close_now(self) -> bool:
        """Closes the object if this needs no wait. Otherwise returns False, and the close must be awaited."""
        ...

    async def _close_at_end(self) -> None:
        """Closes the object at the end of its `with` block."""
        ...


C = TypeVar("C", bound=Closable)


class Opening(Operation[C]):
    """An Operation that makes an object which must be closed later: `x = await opening`, or `async with opening as x`.

    The end of the `async with` block closes the object. A thread without a running loop calls `result()`, or enters the
    opening with `with`. Each Opening makes one object: a second use raises ParameterError.
    """

    __slots__ = ()
    _lost = "so nothing was made: await it, or enter it with `async with`"
    _first = "await it first, or enter it with `async with`"

    def __init__(self, what: str, begin: Callable[[], Coroutine[Any, Any, C]], of: object = None) -> None:
        super().__init__(what, begin if origin.keeper is None else origin.keeper.follow(begin), of)
        self._site = origin.site()

    def _use(self) -> Coroutine[Any, Any, C]:
        must_not_be_forked()
        if self._state not in (NOT_STARTED, REFUSED):
            raise ParameterError(
                f"{self._name} was already used",
                hint=f"Call {self._name} once more: each Opening makes one object.",
            )
        self._state = STARTED
        return self._make()

    @classmethod
    def _of_cache(cls, device: Any, kind: int, key: int, wait: bool, timeout: Seconds | None) -> Opening[Any]:
        """An Opening of memory or of a stream, which takes what the device's cache has kept; see opening.c.

        `key` is the size in bytes, or the priority.
        """
        opening: Opening[Any] = open_cached(cls, device, kind, key, wait, timeout)
        if origin.keeper is not None:
            opening._begin = origin.keeper.follow(opening._make_cached)
        return opening

    @property
    def _name(self) -> str:
        return CACHED[self._kind].format(self._key) if self._what is None else str(self._what)

    async def _make(self) -> C:
        made: C = await (self._make_cached() if self._begin is None else self._begin())
        made._site = self._site
        return made

    async def _make_cached(self) -> C:
        """Makes the object of what the cache has kept, or else a new one."""
        device = self._device
        device._check()
        deadline = deadline_of(self._timeout)
        # This comes before the object is made, because a cancellation would lose the object. It also comes before the
        # admission, because a lease may be revoked meanwhile.
        await current_port().breathe()
        if device._manager.admission.admits_now():
            cached: C | None = self._from_cache()
            if cached is not None:
                return cached
        made: C = await device._make_new(self._kind, self._key, self._site, self._wait, deadline)
        return made

    async def __aenter__(self) -> C:
        self._made = made = await self
        return made

    async def __aexit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        """Closes the object, and waits for the close."""
        made = self._left(kind)
        if made is not None and not made._close_now():
            await made._close_at_end()

    def __enter__(self) -> C:
        """Blocks until the object is made. For threads without a running loop."""
        self._made = made = self._block(None, "enter it with `async with`")
        return made

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        """Closes the object, and blocks until the close is done."""
        made = self._left(kind)
        if made is None:
            return
        try:
            run_blocking(made._close_at_end, None, "enter it with `async with`")
        except BaseException:  # Ctrl-C, or a loop now runs on this thread: close without waiting
            made._leave_open()
            raise

    def _left(self, kind: type[BaseException] | None) -> C | None:
        """Handles the end of the block. Returns the object that the caller has to close and wait for, or None."""
        made, self._made = self._made, None
        if made is None or lib.aio_forked():  # a forked child has nothing to close
            return None
        if kind is GeneratorExit:  # a finalizer runs, perhaps on a thread that holds a lock: do not wait
            made._leave_open()
            return None
        cancelled = kind is not None and not issubclass(kind, Exception)
        return None if cancelled and made._close_later() else made


publish("aioacl", ["Opening", "Operation"], of=__name__)
