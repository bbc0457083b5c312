"""Ctrl-C at each step of an operation on this thread, for tests of what an interrupt leaves behind."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aioacl
from tests.support.steps import beginnings

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

PLACE: Final = (str(Path(aioacl.__file__).parent),)


# The methods, and the callback of a weak reference in aioacl/_base/ffi.py.
FINALIZERS: Final = ("__del__", "gone")


def within(names: tuple[str, ...], frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_name not in names:
        frame = frame.f_back
    return frame is not None


class Interrupt:
    """Ctrl-C at the nth step of aioacl's code on this thread. A step is the start of a function, a line, or a return.

    `where`: count only steps of that function and of its callees. `places`: count only steps in files at these paths.
    """

    def __init__(self, step: int, where: str = "", places: tuple[str, ...] = PLACE) -> None:
        self.left = step
        self._where = where
        self._places = places

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Interrupt | None:
        code = frame.f_code
        # Finalizers are excluded: no caller receives what they raise. A frame that is excluded has no other events.
        if event == "call" and (not code.co_filename.startswith(self._places) or within(FINALIZERS, frame)):
            return None
        if self._where and not within((self._where,), frame):
            return self
        if event != "exception" and (event != "line" or frame.f_lasti in beginnings(code)):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def interrupted(
    step: int, operation: Callable[[], object], where: str = "", places: tuple[str, ...] = PLACE
) -> bool:
    """Runs the operation and interrupts it at this step; returns whether it has that many steps."""
    interrupt, before = Interrupt(step, where, places), sys.gettrace()
    sys.settrace(interrupt)
    try:
        operation()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupt.left <= 0


def walk(
    operation: Callable[[], object], check: Callable[[], object], places: tuple[str, ...] = PLACE
) -> int:
    """Runs the operation once per step, interrupts it there, and calls `check`. Returns the number of steps."""
    step = 1
    with warnings.catch_warnings():
        # An operation that is interrupted before its await emits a warning; this is correct.
        warnings.simplefilter("ignore")
        while interrupted(step, operation, places=places):
            try:
                check()
            except BaseException as error:
                error.add_note(f"interrupted at step {step}")
                raise
            step += 1
    return step - 1
