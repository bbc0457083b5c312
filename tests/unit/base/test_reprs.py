"""Arguments in messages: a repr that fails does not hide the error of the argument."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl._base.options import repr_of

if TYPE_CHECKING:
    from collections.abc import Callable

HUGE = 10**5000


class Unshowable:
    def __repr__(self) -> str:
        raise ZeroDivisionError


class NoText:
    def __repr__(self) -> Any:
        return 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "'a'"),
        (HUGE, "an int of 16610 bits"),
        (-HUGE, "an int of 16610 bits"),
        ((HUGE,), "an object of tuple whose repr raises ValueError"),
        (Unshowable(), "an object of Unshowable whose repr raises ZeroDivisionError"),
        (NoText(), "an object of NoText whose repr raises TypeError"),
    ],
    ids=["text", "huge", "huge negative", "tuple", "unshowable", "no text"],
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
