"""A signal handler interrupts a call and makes the same call. Both calls return the same object."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

import aioacl
from aioacl._lifecycle import manager

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    import pytest

T = TypeVar("T")
UNUSED_DEVICE = 63


def again_at(step: int, code: CodeType, call: Callable[[], T]) -> tuple[T, T] | None:
    """The results of the call and of the same call made at line `step` of `code`; None if `code` has fewer lines."""
    left, inside = step, list[T]()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code is not code:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                inside.append(call())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        outer = call()
    finally:
        sys.settrace(before)
    return (outer, inside[0]) if inside else None


def test_handler_that_asks_for_a_new_manager_gets_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    step = 0
    while True:
        step += 1
        monkeypatch.setattr(manager, "_managers", {})
        found = again_at(step, manager.Manager.__init__.__code__, lambda: manager.manager_of(UNUSED_DEVICE))
        if found is None:
            break
        assert found[0] is found[1] is manager.manager_of(UNUSED_DEVICE)
    assert step > 10


def test_handler_that_asks_for_the_executor_gets_the_same_one(device: aioacl.Device) -> None:
    code = aioacl.DeviceExecutor.__init__.__code__
    jobs = manager.manager_of(0).jobs
    step = 0
    while True:
        step += 1
        found = again_at(step, code, lambda: device.executor)
        if found is None:
            break
        assert found[0] is found[1] is device.executor
        jobs.end_executor()
    assert step > 5
