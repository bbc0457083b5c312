"""Ranges of mstx, which CANN's profiler (msprof) shows: for batches and resets. Those of executions are in C.

The functions are in an optional library of CANN. Without it, and without a profiler, a range does nothing.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import lib

if TYPE_CHECKING:
    from collections.abc import Generator

LIBRARY: Final = "libms_tools_ext.so"
opened: Final[list[str]] = []  # the path of the library, if there is one


def offer(path: str) -> None:
    """Uses the library at this path for ranges, unless one is used already or it has no ranges."""
    if not opened and lib.aio_ranges_open(os.fsencode(path)):
        opened.append(path)


def begin(text: str) -> int:
    """Begins a range, and returns its number; 0 if there is no library or no profiler. `text` must be ASCII."""
    return int(lib.aio_range_start(text.encode())) if opened else 0


def end(number: int) -> None:
    """Ends the range with that number; 0 has no effect."""
    if number:
        lib.aio_range_end(number)


@contextmanager
def around(text: str) -> Generator[None]:
    """A range around a block."""
    number = begin(text)
    try:
        yield
    finally:
        end(number)
