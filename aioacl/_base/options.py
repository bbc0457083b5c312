"""What numbers, times and the options of public calls may be."""

from __future__ import annotations

import operator
import sys
from typing import Any, Final, Literal, SupportsFloat, SupportsIndex, TypeAlias

from aioacl._base import sync
from aioacl._base.errors import ParameterError


def _unreadable(value: Any, error: Exception) -> ParameterError:
    """The error for a value whose own methods have raised one."""
    return ParameterError(
        f"expected a number, got an object of {type(value).__name__} whose value cannot be read: {error!r}",
        hint="Pass an int, or a float where one is allowed.",
    )


def _has_no_value(value: Any) -> bool:
    """Whether it is an array of several numbers, or a masked one, which numpy would read as nan or as its data."""
    return bool(getattr(value, "ndim", 0)) or (
        hasattr(value, "dtype") and bool(getattr(value, "mask", False))
    )


def whole_of(value: Any) -> int | None:
    """The int that a value is, or gives as its `__index__`, as numpy's integers do. None for others, and for a bool.

    ParameterError for one whose own methods raise an error.
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


REAL_KINDS: Final = "iuf"  # of numpy's types; its bools, complex numbers and durations have `__float__` too


def real_of(value: Any) -> float | None:
    """The float of a real number, numpy's too: what has `__float__` or `__index__`. None for others, and for a bool.

    ParameterError for one whose own methods raise an error.
    """
    if type(value) is float:
        return value
    try:
        return _real(value)
    except Exception as error:
        raise _unreadable(value, error) from error


def _real(value: Any) -> float | None:
    kind = getattr(getattr(value, "dtype", None), "kind", "f")
    number = isinstance(value, SupportsFloat | SupportsIndex)  # float() takes texts too
    if isinstance(value, bool) or kind not in REAL_KINDS or not number or _has_no_value(value):
        return None
    try:
        return float(value)
    except OverflowError:  # an int that no float can hold
        whole = _whole(value)
        if whole is None:
            raise
        return None if whole < 0 else sys.float_info.max


Seconds: TypeAlias = SupportsFloat | SupportsIndex
LONGEST_SECONDS = 1e7  # a wait of four months is a wait without end, and more would not fit into C


def seconds_of(timeout: Seconds, least: float = 0.0) -> float:
    """The seconds of a timeout. ParameterError for what is no time."""
    seconds = real_of(timeout)
    if seconds is None or not seconds >= least:
        raise ParameterError(
            f"timeout must be a number of seconds, at least 0, or None, got {timeout!r}",
            hint="Pass None, or leave it out, to wait without a limit.",
        )
    return seconds


def deadline_of(timeout: Seconds | None) -> float | None:
    """The time on the clock at which a timeout ends. ParameterError for what is no time."""
    if timeout is None:
        return None
    seconds = seconds_of(timeout)
    return None if seconds > LONGEST_SECONDS else sync.monotonic() + seconds


class DefaultSeconds(float):
    """A time that the caller has not chosen, so another argument may be below it."""

    __slots__ = ()


GRACE: Final = DefaultSeconds(5.0)
LEAST_RESET_SECONDS: Final = 0.05  # with less, a reset of an idle device ends in quarantine


def bound_of(name: str, value: Seconds, least: float = 0.0) -> float:
    """The seconds of a time that has to be given. ParameterError for what is none."""
    seconds = real_of(value)
    if seconds is None or not least <= seconds < float("inf"):
        raise ParameterError(
            f"{name} must be a finite number of seconds, at least {least:g}, got {value!r}",
            hint="Pass seconds, or leave it out for the default.",
        )
    return seconds


def limits_of_reset(grace: Seconds, timeout: Seconds) -> tuple[float, float]:
    """The grace time and the time of a reset. ParameterError for what is none."""
    drain, whole = bound_of("grace", grace), bound_of("timeout", timeout, LEAST_RESET_SECONDS)
    if drain > whole and not isinstance(grace, DefaultSeconds):
        raise ParameterError(
            f"grace must not be above timeout, got grace={grace!r} and timeout={timeout!r}",
            hint=f"Pass timeout={2 * drain:g}: the grace time is at most half of it, the reset needs the rest.",
        )
    return drain, whole


def must_be_reason(reason: object) -> None:
    """ParameterError for what is no reason of a reset."""
    if not isinstance(reason, str):
        raise ParameterError(f"reason must be a str, got {reason!r}", hint="Pass a text for the report.")


Strategy = Literal["watch", "thread"]
OnFailure = Literal["continue", "stop"]
