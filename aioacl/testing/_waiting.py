"""Waiting for a state that no event signals, without a sleep of guessed length."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Final

import anyio

from aioacl._base.options import bound_of
from aioacl._lifecycle.executor import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.options import Seconds

PATIENCE_SECONDS: Final = 5.0
NAP_SECONDS: Final = 0.0005
SYNCHRONOUS: Final = "Pass a condition that is a plain function: it is called repeatedly."


def _text(condition: Callable[[], object]) -> str:
    """Returns the source of the condition, or its repr if the source is not available."""
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)


def _late(condition: Callable[[], object], seconds: float) -> TimeoutError:
    return TimeoutError(f"the condition did not become true within {seconds:g} s: {_text(condition)}")


async def wait_until(condition: Callable[[], object], timeout: Seconds = PATIENCE_SECONDS) -> None:
    """Waits until a condition is true; other tasks of the event loop run meanwhile.

    Use it for a state of the simulator or of another thread that no event signals, instead of `asyncio.sleep` with a
    guessed time: `await wait_until(lambda: simulator.pending(stream) == 2)`.

    Args:
        condition: a plain function, which is called about every 0.5 ms until its result is true.
        timeout: the seconds to wait at most.

    Raises:
        TimeoutError: the condition was not true within `timeout` seconds. The error shows the source
            code of the condition.
        ParameterError: `timeout` is negative or not a finite number, or the condition is async.
    """
    limit = bound_of("timeout", timeout)
    end = time.monotonic() + limit
    while not plain(condition, condition(), SYNCHRONOUS):
        if time.monotonic() > end:
            raise _late(condition, limit)
        await anyio.sleep(NAP_SECONDS)


def wait_until_blocking(condition: Callable[[], object], timeout: Seconds = PATIENCE_SECONDS) -> None:
    """Blocks until a condition is true, for threads and for tests without an event loop.

    Args:
        condition: a plain function, which is called about every 0.5 ms until its result is true.
        timeout: the seconds to wait at most.

    Raises:
        TimeoutError: the condition was not true within `timeout` seconds. The error shows the source
            code of the condition.
        ParameterError: `timeout` is negative or not a finite number, or the condition is async.
    """
    limit = bound_of("timeout", timeout)
    if not holds_within(condition, limit):
        raise _late(condition, limit)


def holds_within(condition: Callable[[], object], seconds: float) -> bool:
    """Blocks until the condition is true; returns False if it is not true within `seconds`."""
    end = time.monotonic() + seconds
    while not plain(condition, condition(), SYNCHRONOUS):
        if time.monotonic() > end:
            return False
        time.sleep(NAP_SECONDS)
    return True
