"""The guard against tests that hang. It ends the test, and ends the process only if the test cannot be ended."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, Final

import pytest

from aioacl import testing

if TYPE_CHECKING:
    from typing import Self

INTERRUPT: Final = signal.SIGRTMIN + 7  # no test and no library uses it
STEP_SECONDS = 20.0


def _tracebacks() -> str:
    """Returns the tracebacks of all threads. In Python 3.14, faulthandler crashes if a thread ends meanwhile."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"Thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )


class Guard:
    """Limits the time of the block, which runs on the main thread.

    After `seconds`, the guard prints the tracebacks of all threads, and releases what is held in the simulator. After
    STEP_SECONDS more, it interrupts the main thread, which raises `pytest.fail.Exception`. After another STEP_SECONDS,
    the main thread is inside C for good, so the process ends.
    """

    def __init__(self, seconds: float, stderr: int) -> None:
        self.seconds = seconds
        self.expired = False
        self._stderr = stderr
        self._ended = threading.Event()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.name, self._timer.daemon = "tests-guard", True

    def __enter__(self) -> Self:
        limit = self.seconds + 2 * STEP_SECONDS
        faulthandler.dump_traceback_later(limit, exit=True, file=self._stderr)  # needs no GIL
        self._before = signal.signal(INTERRUPT, self._interrupt)
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._ended.set()
        self._timer.join()  # a signal that it sends arrives before the join ends
        signal.signal(INTERRUPT, self._before)
        faulthandler.cancel_dump_traceback_later()

    def _expire(self) -> None:
        self.expired = True
        os.write(self._stderr, _tracebacks().encode())
        testing.release_everything()
        if not self._ended.wait(STEP_SECONDS):
            signal.pthread_kill(threading.main_thread().ident or 0, INTERRUPT)

    def _interrupt(self, *_: Any) -> None:
        if not self._ended.is_set():
            pytest.fail(self.text)

    @property
    def text(self) -> str:
        """The failure of a test that hung."""
        return f"the test was still running after {self.seconds:g} s; its tracebacks are on stderr"
