"""Arguments that allocations and views refuse before ACL is called, with the whole message of each."""

from __future__ import annotations

import operator
from typing import Any, Final

import numpy as np
import pytest

import aioacl
from tests.support.refused import (
    CLOSED,
    HUGE,
    SHOWN,
    Refusal,
    Scene,
    Unreadable,
    Unshowable,
    cases,
)

P: Final = aioacl.ParameterError
UNREADABLE: Final = (
    "expected a number, got an object of Unreadable whose value cannot be read: ZeroDivisionError('broken'). "
    "Pass an int, or a float where one is allowed."
)
UNSHOWABLE: Final = "an object of Unshowable"


# --- allocations ----------------------------------------------------------------------------------------------------

ALLOCATIONS: Final = (
    Refusal(
        P,
        "nbytes must be an int, at least 0, got {}. Pass a number of bytes.",
        {
            "allocate text": ("'64'", lambda s: s.device.allocate("64")),
            "allocate a float": ("64.0", lambda s: s.device.allocate(64.0)),
            "allocate None": ("None", lambda s: s.device.allocate(None)),
            "allocate a bool": ("True", lambda s: s.device.allocate(True)),
            "allocate -1": ("-1", lambda s: s.device.allocate(-1)),
            "allocate a huge negative int": (SHOWN, lambda s: s.device.allocate(-HUGE)),
            "allocate an array": (
                "an object of ndarray with the shape (1,)",
                lambda s: s.device.allocate(np.array([64])),
            ),
            "allocate a masked value": (
                "an object of MaskedConstant with the shape ()",
                lambda s: s.device.allocate(np.ma.masked),
            ),
            "allocate an unshowable object": (UNSHOWABLE, lambda s: s.device.allocate(Unshowable())),
            "pinned text": ("'64'", lambda s: s.device.pinned("64")),
            "pinned -1": ("-1", lambda s: s.device.pinned(-1)),
            "copy -1 bytes": ("-1", lambda s: s.stream.copy(s.memory, s.pinned, nbytes=-1)),
            "copy 8.0 bytes": ("8.0", lambda s: s.stream.copy(s.memory, s.pinned, nbytes=8.0)),
            "copy '8' bytes": ("'8'", lambda s: s.stream.copy(s.memory, s.pinned, nbytes="8")),
            "copy True bytes": ("True", lambda s: s.stream.copy(s.memory, s.pinned, nbytes=True)),
            "copy a huge negative number": (
                SHOWN,
                lambda s: s.stream.copy(s.memory, s.pinned, nbytes=-HUGE),
            ),
            "fill -1 bytes": ("-1", lambda s: s.stream.fill(s.memory, 0, nbytes=-1)),
            "fill '8' bytes": ("'8'", lambda s: s.stream.fill(s.memory, 0, nbytes="8")),
            "upload 1.5 bytes": ("1.5", lambda s: s.stream.upload(s.memory, b"ab", nbytes=1.5).result()),
            "download -1 bytes": (
                "-1",
                lambda s: s.stream.download(bytearray(8), s.memory, nbytes=-1).result(),
            ),
        },
    ),
    Refusal(
        P,
        "nbytes must be less than 2**63, got {}. Pass the number of bytes that you need.",
        {
            "allocate 2**63": (str(1 << 63), lambda s: s.device.allocate(1 << 63)),
            "allocate a huge int": (SHOWN, lambda s: s.device.allocate(HUGE)),
            "pinned 2**63": (str(1 << 63), lambda s: s.device.pinned(1 << 63)),
            "pinned a huge int": (SHOWN, lambda s: s.device.pinned(HUGE)),
        },
    ),
    Refusal(
        P,
        "timeout must be a number of seconds, at least 0, or None, got {}. Pass None, or omit timeout, to wait without "
        "a limit.",
        {
            "allocate in -1 s": ("-1", lambda s: s.device.allocate(8, timeout=-1).result()),
            "allocate in nan s": ("nan", lambda s: s.device.allocate(8, timeout=float("nan")).result()),
            "allocate in huge negative time": (
                SHOWN,
                lambda s: s.device.allocate(8, timeout=-HUGE).result(),
            ),
            "pinned in '1' s": ("'1'", lambda s: s.device.pinned(8, timeout="1").result()),
        },
    ),
    Refusal(
        P,
        UNREADABLE,
        {
            "allocate an unreadable number": ("", lambda s: s.device.allocate(Unreadable())),
            "view from an unreadable bound": ("", lambda s: s.memory[Unreadable() :]),
            "copy an unreadable number": (
                "",
                lambda s: s.stream.copy(s.memory, s.pinned, nbytes=Unreadable()),
            ),
            "fill an unreadable byte": ("", lambda s: s.stream.fill(s.memory, Unreadable())),
        },
    ),
)

# --- views ----------------------------------------------------------------------------------------------------------


def delete(target: Any) -> None:
    """Deletes a part of the target."""
    del target[0:4]


def assign(target: Any) -> None:
    """Assigns to a part of the target."""
    operator.setitem(target, slice(0, 4), b"abcd")


VIEWS: Final = (
    Refusal(
        P,
        "expected a slice of a buffer, got an index of the type {}. Write buffer[start:stop], in bytes. To read bytes, "
        "use stream.download or `view` of a PinnedBuffer.",
        {
            "view of an int": ("int", lambda s: s.memory[3]),
            "view of a huge int": ("int", lambda s: s.memory[HUGE]),
            "view of a float": ("float", lambda s: s.pinned[1.0]),
            "view of None": ("NoneType", lambda s: s.memory[None]),
            "view of an ellipsis": ("ellipsis", lambda s: s.memory[...]),
            "view of two slices": ("tuple", lambda s: s.memory[1:2, 3:4]),
            "view of a name": ("str", lambda s: s.pinned["name"]),
            "view of a list": ("list", lambda s: s.memory[[1, 2]]),
        },
    ),
    Refusal(
        P,
        "expected a slice with the step 1, got another step. A view is contiguous. Copy parts that are not contiguous "
        "one by one.",
        {
            "view with the step 2": ("", lambda s: s.memory[::2]),
            "view with the step -1": ("", lambda s: s.pinned[::-1]),
            "view with the step 0": ("", lambda s: s.memory[::0]),
            "view with the step 1.0": ("", lambda s: s.memory[::1.0]),
            "view with a huge step": ("", lambda s: s.memory[::HUGE]),
        },
    ),
    Refusal(
        P,
        "expected a slice of ints, got a bound of the type {}. Write buffer[start:stop], in bytes.",
        {
            "view from text": ("str", lambda s: s.memory["1":]),
            "view to a float": ("float", lambda s: s.pinned[:8.0]),
            "view to a bool": ("bool", lambda s: s.memory[:True]),
            "view from an array": ("ndarray", lambda s: s.memory[np.array([1, 2]) :]),
        },
    ),
    Refusal(
        TypeError,
        "expected a copy to the {}, got an assignment; use stream.copy(buffer[start:stop], data), or the `view` of a "
        "PinnedBuffer",
        {
            "assign to device memory": ("device buffer", lambda s: assign(s.memory)),
            "assign to pinned memory": ("pinned buffer", lambda s: assign(s.pinned)),
        },
    ),
    Refusal(
        TypeError,
        "expected a {} of a fixed size, got a deletion of a part; call close() to free the whole buffer",
        {
            "delete device memory": ("device buffer", lambda s: delete(s.memory)),
            "delete pinned memory": ("pinned buffer", lambda s: delete(s.pinned[8:])),
        },
    ),
    Refusal(
        P,
        "device 0: expected a {}, got a view of one. Close the buffer that it is a view of.",
        {
            "close a view of device memory": ("device buffer", lambda s: s.memory[:8].close()),
            "close a view of pinned memory": ("pinned buffer", lambda s: s.pinned[:8].close()),
        },
    ),
    Refusal(
        TypeError,
        "expected a {}",
        {
            "enter a view": (
                "device buffer to close, got a view of one; use the view without `with`",
                lambda s: s.memory[:8].__enter__(),
            ),
            "enter a pinned view": (
                "pinned buffer to close, got a view of one; use the view without `async with`",
                lambda s: s.pinned[:8].__aenter__(),
            ),
        },
    ),
    Refusal(
        P,
        CLOSED,
        {
            "view of a closed buffer": ("device buffer", lambda s: s.closed[:8]),
            "view of a closed pinned buffer": ("pinned buffer", lambda s: s.closed_pinned[:8]),
            "copy to a closed buffer": ("device buffer", lambda s: s.stream.copy(s.closed, bytes(8))),
            "copy from a closed buffer": ("device buffer", lambda s: s.stream.copy(s.memory, s.closed)),
            "copy from a closed pinned buffer": (
                "pinned buffer",
                lambda s: s.stream.copy(s.memory, s.closed_pinned),
            ),
            "fill a closed buffer": ("device buffer", lambda s: s.stream.fill(s.closed, 0)),
            "upload to a closed buffer": (
                "device buffer",
                lambda s: s.stream.upload(s.closed, bytes(8)).result(),
            ),
        },
    ),
)

ROWS: Final = cases((*ALLOCATIONS, *VIEWS))


@pytest.mark.parametrize("name", ROWS)
def test_allocation_or_view_with_a_bad_argument_is_refused_with_the_remedy(scene: Scene, name: str) -> None:
    ROWS[name].check(scene)
