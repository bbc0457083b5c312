"""Arguments in messages: a repr that fails does not hide the error of the argument."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aioacl
from aioacl._base.options import repr_of

if TYPE_CHECKING:
    from collections.abc import Callable

HUGE = 10**5000


class Unshowable:
    def __repr__(self) -> str:
        raise ZeroDivisionError


class UnshowableNumber(int):
    def __repr__(self) -> str:
        raise ZeroDivisionError


class NoText(int):
    def __repr__(self) -> Any:
        return 3


class Secret:
    """An object whose repr shows its contents, as that of a tensor or a data class does."""

    def __repr__(self) -> str:
        return "secret"


class Color(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "'a'"),
        (HUGE, "an int of 16610 bits"),
        (-HUGE, "an int of 16610 bits"),
        ((HUGE,), "(an int of 16610 bits,)"),
        ((1.0, "a", None), "(1.0, 'a', None)"),
        (Unshowable(), "an object of Unshowable"),
        (UnshowableNumber(1), "an object of UnshowableNumber whose repr raises ZeroDivisionError"),
        (NoText(1), "an object of NoText whose repr raises TypeError"),
        (Secret(), "an object of Secret"),
        ("a" * 161, "an object of str with 161 characters"),
        (b"a", "an object of bytes with 1 bytes"),
        ([1, 2], "an object of list with 2 items"),
        ({1: 2}.values(), "an object of dict_values with 1 items"),
        (slice(1, 2), "an object of slice"),
        (np.zeros((2, 3)), "an object of ndarray with the shape (2, 3)"),
        (memoryview(b"ab"), "an object of memoryview with the shape (2,)"),
        (np.float64(1.5), repr(np.float64(1.5))),
        (Color.RED, "<Color.RED: 1>"),
        (len, "<built-in function len>"),
        (None, "None"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_repr_of_an_argument_never_raises(value: object, text: str) -> None:
    assert repr_of(value) == text


REFUSED: dict[str, tuple[Callable[[aioacl.Device, Any], object], Any]] = {
    "device index": (lambda _, bad: aioacl.open_device(bad).result(), HUGE),
    "timeout": (lambda device, bad: device.create_event(timeout=bad).result(), -HUGE),
    "grace": (lambda device, bad: device.force_reset(grace=bad).result(), -HUGE),
    "reason": (lambda device, bad: device.force_reset(reason=bad).result(), HUGE),
    "abortable": (lambda device, bad: device.abortable(bad), HUGE),
}


@pytest.mark.parametrize("case", REFUSED)
def test_huge_int_as_an_argument_raises_parameter_error(device: aioacl.Device, case: str) -> None:
    use, bad = REFUSED[case]
    with pytest.raises(aioacl.ParameterError, match="an int of 16610 bits"):
        use(device, bad)
