"""The job of `device.executor` that a thread runs, and the context in which the job's waits run."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager


class JobScope:
    """A job from its beginning to its end. The job is inside its device, except while it waits.

    Attributes:
        index: the index of the device.
        over: whether the job has ended.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.over = False

    def end(self) -> None:
        """Called when the job has ended."""
        raise NotImplementedError

    def outside(self) -> AbstractContextManager[None]:
        """Returns the context for each wait of the job.

        In this context the job is outside its device, because the wait may end only after a reset.
        """
        raise NotImplementedError


class _Local(threading.local):
    scope: JobScope | None = None


_local = _Local()


def current_job_scope() -> JobScope | None:
    """The scope of the job that this thread runs, or None."""
    return _local.scope


@contextmanager
def job_scope(scope: JobScope) -> Generator[None]:
    """Inside this context manager, this thread runs a job."""
    _local.scope = scope
    try:
        yield
    finally:
        _local.scope = None
