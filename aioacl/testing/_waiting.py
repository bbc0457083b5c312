"""Waiting for a state that nobody signals, without a sleep whose length is a guess."""

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
SYNCHRONOUS: Final = "Pass a condition that is a plain function: it is asked again and again."


def _text(condition: Callable[[], object]) -> str:
    """The condition as its author wrote it, as far as that can be found."""
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return repr(condition)


def _late(condition: Callable[[], object], seconds: float) -> TimeoutError:
    return TimeoutError(f"it did not come true within {seconds:g} s: {_text(condition)}")


async def wait_until(condition: Callable[[], object], timeout: Seconds = PATIENCE_SECONDS) -> None:
    """Returns as soon as the condition holds; the event loop goes on meanwhile.

    `await wait_until(lambda: simulator.pending(stream) == 2)` waits for a state of the simulator or of another thread,
    which nobody signals, where `asyncio.sleep` would guess.

    Raises:
        TimeoutError: after `timeout` seconds, with the condition's text.
        ParameterError: `timeout` is no number of seconds, or the condition is async.
    """
    limit = bound_of("timeout", timeout)
    end = time.monotonic() + limit
    while not plain(condition, condition(), SYNCHRONOUS):
        if time.monotonic() > end:
            raise _late(condition, limit)
        await anyio.sleep(NAP_SECONDS)


def wait_until_blocking(condition: Callable[[], object], timeout: Seconds = PATIENCE_SECONDS) -> None:
    """As `wait_until`, blocking: for threads and for tests without a loop.

    Raises:
        TimeoutError: after `timeout` seconds, with the condition's text.
        ParameterError: `timeout` is no number of seconds, or the condition is async.
    """
    limit = bound_of("timeout", timeout)
    if not holds_within(condition, limit):
        raise _late(condition, limit)


def holds_within(condition: Callable[[], object], seconds: float) -> bool:
    """Blocks until the condition holds; False if it does not in time."""
    end = time.monotonic() + seconds
    while not plain(condition, condition(), SYNCHRONOUS):
        if time.monotonic() > end:
            return False
        time.sleep(NAP_SECONDS)
    return True
