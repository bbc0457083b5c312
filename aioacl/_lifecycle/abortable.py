"""Streams of other libraries that a reset may abort: `with device.abortable(stream):` in a job."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, lib, pointer, text_of
from aioacl._base.options import repr_of, whole_of
from aioacl._library.runtime import must_not_be_forked
from aioacl._lifecycle.gate import absent
from aioacl._wait.current import current_holder, current_port
from aioacl._wait.thread import ThreadPort

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from aioacl._base.ffi import CData
    from aioacl._lifecycle.admission import Admission

ABORT: Final = "aclrtStreamAbort"
_C_VALUE: Final = type(ffi.NULL)
_NO_INTEGERS: Final = ("_Bool", "char", "wchar_t", "float", "double", "long double")


def _address_in(value: CData) -> int | None:
    """The address in a C value; None if the value is no handle.

    A pointer to a pointer is the place where a function of ACL has written a handle: `made` instead of `made[0]`.
    """
    kind = ffi.typeof(value)
    if kind.kind == "pointer":
        return pointer(value) if kind.item.kind not in ("pointer", "array") else None
    return int(value) if kind.kind == "primitive" and kind.cname not in _NO_INTEGERS else None


def address_of(handle: Any, kind: str = "aclrtStream") -> int:
    """The address of a native stream, from an int or a C value. Raises ParameterError for anything else."""
    in_c = isinstance(handle, _C_VALUE)
    address = _address_in(handle) if in_c else whole_of(handle)
    if address is not None and 0 < address < 1 << 64:
        return address
    if in_c and address is None:
        found = f"a C value of the type {ffi.typeof(handle).cname}"
    else:
        found = repr_of(address if in_c else handle)
    raise ParameterError(
        f"expected the address of an {kind}, got {found}",
        hint="Pass a nonzero raw handle: an int, a C value of cffi, or the `value` of a pointer of ctypes. "
        "Objects of aioacl need not be passed.",
    )


def _can_abort() -> bool:
    index = next(i for i in range(lib.aio_table_size()) if text_of(lib.aio_table_name(i)) == ABORT)
    return bool(lib.aio_table_present(index))


class _InAJob:
    """A context manager for `with` in a job. A job is not a coroutine, so `async with` is an error."""

    __slots__ = ("_block",)

    def __init__(self, block: AbstractContextManager[None]) -> None:
        self._block = block

    def __enter__(self) -> None:
        self._block.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)

    if not TYPE_CHECKING:  # type checkers do not see these methods, so they report `async with`

        def __aenter__(self, *_: object) -> NoReturn:
            raise TypeError(
                "expected `with`, got `async with`; write `with device.abortable(stream):` in the function that "
                "device.run() calls"
            )

        __aexit__ = __aenter__  # not called, but Python looks for it first


class Named:
    """The native streams that were passed to `abortable()` of one device. Guarded by the lock of the admission."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._all: dict[object, tuple[int, tuple[int, ...]]] = {}
        self._in_use = False  # whether a reset is aborting streams that it found here

    def within(self, streams: tuple[int, ...]) -> AbstractContextManager[None]:
        """A context manager: inside its block a reset may abort the streams."""
        return _InAJob(self._within(streams))

    @contextmanager
    def _within(self, streams: tuple[int, ...]) -> Generator[None]:
        must_not_be_forked()
        if not isinstance(current_port(), ThreadPort):
            # Not a TypeError: the thread is wrong, not the arguments.
            where = "expected a job's thread, got one that runs an event loop: enter device.abortable() inside the job"
            raise RuntimeError(where)  # noqa: TRY004
        token = object()
        try:
            self._add(token, streams)
            yield
        finally:
            try:
                self._remove(token)
            finally:
                self._remove(token)  # Ctrl-C may have interrupted the first call

    def _add(self, token: object, streams: tuple[int, ...]) -> None:
        admission = self._admission
        if not _can_abort():
            raise absent(ABORT, admission.index, admission.generation)
        with admission.changed:
            if not admission.may_pass(current_holder()):
                raise admission.resetting()
            self._all[token] = (admission.generation, streams)

    def _remove(self, token: object) -> None:
        """Removes the streams. Waits for a running abort to end, because the caller may destroy the streams next."""
        if lib.aio_forked():
            return
        with self._admission.changed:
            self._all.pop(token, None)
            while self._in_use:
                self._admission.changed.wait()

    @contextmanager
    def in_use(self) -> Generator[list[int]]:
        """For a reset: yields the streams that the reset may abort. No stream is removed inside the block."""
        admission = self._admission
        with admission.changed:
            self._in_use = True
            now = admission.generation
            found = [
                one for generation, streams in self._all.values() if generation == now for one in streams
            ]
        try:
            yield found
        finally:
            with admission.changed:
                self._in_use = False
                admission.changed.notify_all()
