"""The job of `device.executor` that a thread runs, and what the job's waits are made in."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager


class JobScope:
    """The time that a job is inside its device, from its begin to its end.

    Attributes:
        index: the device's.
        over: whether the job has ended.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.over = False

    def end(self) -> None:
        """The job has ended."""
        raise NotImplementedError

    def outside(self) -> AbstractContextManager[None]:
        """What a wait is made in: it may be for something that the device's reset has to come before."""
        raise NotImplementedError


class _Local(threading.local):
    scope: JobScope | None = None


_local = _Local()


def current_job_scope() -> JobScope | None:
    """That of the job which this thread runs."""
    return _local.scope


@contextmanager
def job_scope(scope: JobScope) -> Generator[None]:
    """This thread runs a job."""
    _local.scope = scope
    try:
        yield
    finally:
        _local.scope = None
