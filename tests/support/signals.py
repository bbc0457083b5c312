"""Signals whose handlers raise, before any instruction of aioacl's code on this thread."""

from __future__ import annotations

import _thread
import gc
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

import aioacl

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

PLACE: Final = str(Path(aioacl.__file__).parent)
SIGNAL: Final = signal.SIGUSR1


class Pending(int):
    """A signal number. Reading `now` sends the signal. Python handles signals after a call, but not after a read."""

    now = property(_thread.interrupt_main)


class Interrupted(Exception):
    """What the handler raises, as a handler of SIGALRM may raise TimeoutError."""


def _clear_frames(error: BaseException | None) -> None:
    """Clears the frames of an exception, which may be in a cycle.

    If such a cycle has a memoryview, the garbage collector of Python 3.11 crashes (gh-77894).
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


class RaisingHandler:
    """Sends one signal before the nth instruction of aioacl's code on this thread. The handler raises an exception.

    The handler runs where Python next handles signals, as after a signal of the system. A finalizer is interrupted too.

    Attributes:
        raised: how often the handler has raised an exception.
    """

    def __init__(self) -> None:
        self.raised = 0
        self._left = 0
        self._kind: type[BaseException] = Interrupted
        self._before = signal.signal(SIGNAL, self._handle)
        self._signal = Pending(SIGNAL)
        # One object, because Python 3.11 crashes if the end of the tracing frees the method that traces.
        self._tracer = self._trace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(SIGNAL, self._before)

    def _handle(self, *_: object) -> NoReturn:
        self.raised += 1
        raise self._kind

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "call":
            if not frame.f_code.co_filename.startswith(PLACE):
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        elif event == "opcode":
            self._left -= 1
            if self._left == 0:
                sys.settrace(None)  # otherwise the next call of this method would handle the signal
                self._signal.now  # noqa: B018 - the read sends the signal
        return self._tracer

    def interrupt(self, operation: Callable[[], object], step: int, *, ctrl_c: bool) -> bool:
        """Runs the operation and interrupts it at that step. Returns whether it has that many steps.

        If `ctrl_c` is True, the handler raises KeyboardInterrupt.
        """
        self._left, self._kind = step, KeyboardInterrupt if ctrl_c else Interrupted
        before = sys.gettrace()
        sys.settrace(self._tracer)
        try:
            try:
                operation()
            finally:
                sys.settrace(before)  # a signal that came at the very end is handled after this call
        # An AclError: aioacl reports a call that the interrupt has ended early.
        except (Interrupted, KeyboardInterrupt, aioacl.AclError) as error:
            _clear_frames(error)
        else:
            if self._left <= 0:  # a finalizer was interrupted, so only the collector may end what it left
                gc.collect()
        return self._left <= 0
