"""That a thread runs a job of `device.executor`, and what its waits are made in."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager


class Stay(Protocol):
    """That of a job inside its device, on a thread of the device's executor."""

    index: int

    def outside(self) -> AbstractContextManager[None]:
        """What a wait is made in: it may be for something that the device's reset has to come before."""
        ...


class _Local(threading.local):
    stay: Stay | None = None


_local = _Local()


def current_stay() -> Stay | None:
    """That of the job which runs on this thread."""
    return _local.stay


@contextmanager
def staying(stay: Stay) -> Generator[None]:
    """This thread runs a job."""
    _local.stay = stay
    try:
        yield
    finally:
        _local.stay = None
