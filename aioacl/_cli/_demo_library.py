"""The library of the demo, and the errors of the demo that one line can report."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypeVar

from aioacl._base.errors import AclError
from aioacl._cli import UserError
from aioacl._cli._library import load_or_explain
from aioacl._cli._screen import OutputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._library.load import LibraryInfo

T = TypeVar("T")

LATENCY: Final = "AIOACL_SIM_COPY_LATENCY_US"
LATENCY_US: Final = 1000  # about the duration of a small copy on a busy card, from call to completion


def load(choice: str) -> LibraryInfo:
    """Loads the library. Sets the duration of a copy in the simulator, unless the environment has set it."""
    was_set = LATENCY in os.environ
    os.environ.setdefault(LATENCY, str(LATENCY_US))
    info = load_or_explain(choice)
    if info.backend != "simulator" and not was_set:
        del os.environ[LATENCY]
    return info


def unwrapped(work: Callable[[], T]) -> T:
    """Runs `work`. If one line can report an error of an exception group, raises that error without the group."""
    try:
        return work()
    except BaseExceptionGroup as group:
        raise _first_reportable(group) or group from None


def _first_reportable(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    found: BaseException | None = group.subgroup((UserError, AclError, OutputError))
    while isinstance(found, BaseExceptionGroup):
        inner: tuple[BaseException, ...] = found.exceptions
        found = inner[0]
    return found
