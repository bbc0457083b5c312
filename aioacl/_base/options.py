"""Checks of the numbers, times and options that public calls take."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Sized
from enum import Enum
from numbers import Number
from types import NoneType
from typing import Any, Final, Literal, SupportsFloat, SupportsIndex, TypeAlias, cast

from aioacl._base import sync
from aioacl._base.errors import ParameterError

SHOWN_CHARACTERS: Final = 160
SHOWN_ITEMS: Final = 8
_SHORT: Final = (int, float, str, NoneType)  # a tuple of a few of these is shown
_OWN: Final = (
    "aioacl",
    "builtins",
    "_cffi_backend",
)  # modules whose classes without a size have such a repr too


def repr_of(value: object) -> str:
    """Returns a short text for an argument, for the message of an error. Never raises, and shows no contents.

    Of an array, a buffer, a container or a long string, the text has the type and the size. Of an object of another
    class of the user, it has the type only, because the repr of that class may show contents.
    """
    try:
        return _short(value) or f"an object of {_name(value)}{_size(value)}"
    except Exception as error:  # noqa: BLE001 - the error of the argument is raised, not that of its repr
        return f"an object of {_name(value)} whose repr raises {_name(error)}"


def _short(value: object) -> str:
    """Returns the repr of a value that has no contents, or a short text; "" for any other value."""
    if isinstance(value, str):
        return str.__repr__(value) if str.__len__(value) <= SHOWN_CHARACTERS else ""
    if isinstance(value, int) and value.bit_length() > SHOWN_CHARACTERS:
        return f"an int of {value.bit_length()} bits"
    kind: type[object] = type(value)
    if kind is tuple:
        items = cast("tuple[object, ...]", value)
        if 0 < len(items) <= 3 and all(type(item) in _SHORT for item in items):
            return _cut(f"({', '.join(map(_short, items))}{',' if len(items) == 1 else ''})")
    if _has_plain_repr(value):
        return _cut(repr(value))
    return ""


def _has_plain_repr(value: object) -> bool:
    """Returns whether the repr of a value shows no contents."""
    kind = type(value)
    path: Any = getattr(
        sys.modules.get("pathlib"), "PurePath", ()
    )  # without an import, which may need a lock
    if isinstance(value, (Number, Enum, path)) or kind.__repr__ is object.__repr__:
        return True
    holds_values = hasattr(kind, "__len__") or isinstance(value, slice)
    return not holds_values and kind.__module__.partition(".")[0] in _OWN


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _name(value: object) -> str:
    name: str = type.__dict__["__name__"].__get__(type(value))  # a metaclass may have a `__name__` of its own
    return _cut(name)


def _size(value: object) -> str:
    """Returns the shape or the length of a value; "" if it has none."""
    shape: Any = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        sizes = cast("tuple[object, ...]", shape)
        if len(sizes) <= SHOWN_ITEMS and all(type(size) is int for size in sizes):
            return f" with the shape {(*sizes,)}"
    if isinstance(value, bytes | bytearray):
        return f" with {len(value)} bytes"
    if isinstance(value, Sized):
        return f" with {len(value)} {'characters' if isinstance(value, str) else 'items'}"
    return ""


def is_one_of(value: object, *choices: str) -> bool:
    """Returns whether a value is one of these texts. An array, for instance, cannot be compared with a text."""
    return isinstance(value, str) and value in choices


def _unreadable(value: Any, error: Exception) -> ParameterError:
    """Returns the error for a value whose own methods raised an exception."""
    return ParameterError(
        f"expected a number, got an object of {type(value).__name__} whose value cannot be read: {repr_of(error)}",
        hint="Pass an int, or a float where one is allowed.",
    )


def _has_no_value(value: Any) -> bool:
    """Returns whether a value is an array with dimensions, or a masked value, which numpy reads as nan or as data."""
    return bool(getattr(value, "ndim", 0)) or (
        hasattr(value, "dtype") and bool(getattr(value, "mask", False))
    )


def whole_of(value: Any) -> int | None:
    """Returns an int, or the `__index__` of a value such as a numpy integer.

    Returns None for a bool and for any other value.

    Raises:
        ParameterError: the value's own methods raise an exception.
    """
    if type(value) is int:
        return value
    try:
        return _whole(value)
    except Exception as error:
        raise _unreadable(value, error) from error


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or _has_no_value(value):
        return None
    try:
        return int(operator.index(value))
    except TypeError:
        return None


# numpy's integers and floats. numpy's bools, complex numbers and durations have `__float__` too, but are refused.
REAL_KINDS: Final = "iuf"


def real_of(value: Any) -> float | None:
    """Returns a value with `__float__` or `__index__`, such as a numpy number, as a float.

    Returns None for a bool and for any other value.

    Raises:
        ParameterError: the value's own methods raise an exception.
    """
    if type(value) is float:
        return value
    try:
        return _real(value)
    except Exception as error:
        raise _unreadable(value, error) from error


def _real(value: Any) -> float | None:
    kind = getattr(getattr(value, "dtype", None), "kind", "f")
    number = isinstance(value, SupportsFloat | SupportsIndex)  # float() accepts str too
    if isinstance(value, bool) or kind not in REAL_KINDS or not number or _has_no_value(value):
        return None
    try:
        return float(value)
    except OverflowError:  # the int is too large for a float
        whole = _whole(value)
        if whole is None:
            raise
        return None if whole < 0 else sys.float_info.max


Seconds: TypeAlias = SupportsFloat | SupportsIndex
LONGEST_SECONDS = 1e7  # four months; a longer timeout counts as None, so no conversion for C overflows


def seconds_of(timeout: Seconds, least: float = 0.0) -> float:
    """Returns the seconds of a timeout.

    Raises:
        ParameterError: the timeout is not a number, or is less than `least`.
    """
    seconds = real_of(timeout)
    if seconds is None or not seconds >= least:
        raise ParameterError(
            f"timeout must be a number of seconds, at least 0, or None, got {repr_of(timeout)}",
            hint="Pass None, or omit timeout, to wait without a limit.",
        )
    return seconds


def deadline_of(timeout: Seconds | None) -> float | None:
    """Returns the time on the monotonic clock at which a timeout ends, or None if the wait has no limit.

    Raises:
        ParameterError: the timeout is neither None nor a number of at least 0.
    """
    if timeout is None:
        return None
    # The first is quicker, for the usual time limit of a call.
    seconds = timeout if type(timeout) is float and 0.0 <= timeout < LONGEST_SECONDS else seconds_of(timeout)
    return None if seconds > LONGEST_SECONDS else sync.monotonic() + seconds


class DefaultSeconds(float):
    """The default of a time argument. The default of `grace` may exceed `timeout`; a value from the caller may not."""

    __slots__ = ()


GRACE: Final = DefaultSeconds(5.0)
LEAST_RESET_SECONDS: Final = 0.05  # with less time, even the reset of an idle device ends in quarantine


def bound_of(name: str, value: Seconds, least: float = 0.0) -> float:
    """Returns the seconds of a time that must be finite.

    Raises:
        ParameterError: the time is not a finite number, or is less than `least`.
    """
    seconds = real_of(value)
    if seconds is None or not least <= seconds < float("inf"):
        raise ParameterError(
            f"{name} must be a finite number of seconds, at least {least:g}, got {repr_of(value)}",
            hint=f"Pass seconds, or omit {name} for the default.",
        )
    return seconds


def pauses_of(pauses: Iterable[Seconds]) -> tuple[float, ...]:
    """Returns the pauses of a supervisor in seconds, or raises ParameterError."""
    try:
        given = tuple(pauses)
    except TypeError:
        raise ParameterError(
            f"pauses must be some seconds, got {repr_of(pauses)}",
            hint="Pass a tuple of numbers, such as (0.5, 5.0).",
        ) from None
    return tuple(bound_of("each of pauses", pause) for pause in given)


def count_of(name: str, value: SupportsIndex) -> int:
    """Returns an int of at least 1.

    Raises:
        ParameterError: the value is not such an int.
    """
    count = whole_of(value)
    if count is None or count < 1:
        raise ParameterError(
            f"{name} must be an int of at least 1, got {repr_of(value)}", hint=f"Pass an int, or omit {name}."
        )
    return count


def limits_of_reset(grace: Seconds, timeout: Seconds) -> tuple[float, float]:
    """Returns the grace time and the timeout of a reset, in seconds.

    Raises:
        ParameterError: `grace` or `timeout` is not a finite number or is too small, or the caller's `grace` is above
            `timeout`.
    """
    drain, whole = bound_of("grace", grace), bound_of("timeout", timeout, LEAST_RESET_SECONDS)
    if drain > whole and not isinstance(grace, DefaultSeconds):
        raise ParameterError(
            f"grace must not be above timeout, got grace={repr_of(grace)} and timeout={repr_of(timeout)}",
            hint=f"Pass timeout={2 * drain:g}: the grace time is at most half of timeout; the reset needs the rest.",
        )
    return drain, whole


def must_be_reason(reason: object) -> None:
    """Raises ParameterError unless the reason of a reset is a str."""
    if not isinstance(reason, str):
        raise ParameterError(
            f"reason must be a str, got {repr_of(reason)}", hint="Pass a text for the report."
        )


def must_be_bool(name: str, value: object) -> None:
    """Raises ParameterError unless the value of the argument is a bool."""
    if not isinstance(value, bool):
        raise ParameterError(f"{name} must be a bool, got {repr_of(value)}", hint="Pass True or False.")


Strategy = Literal["watch", "thread"]
ContextKind = Literal["primary", "own"]
OnFailure = Literal["continue", "stop"]
