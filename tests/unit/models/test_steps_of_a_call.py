"""How many functions of aioacl one call of a model runs. No time is measured, so a slow machine does not matter."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import aioacl
from tests.support.offline import rows

if TYPE_CHECKING:
    from types import FrameType

    import pytest

PACKAGE = str(Path(aioacl.__file__).parent)
FUNCTIONS_AT_MOST = 12
CROSSINGS_AT_MOST = 4


class Steps:
    """The functions of aioacl that begin, and the functions of C that they call, in their order.

    A coroutine that continues does not count as another function.
    """

    def __init__(self) -> None:
        self.functions = list[str]()
        self.crossings = list[str]()

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """Takes an event of sys.setprofile."""
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return
        if event == "call" and frame.f_lineno == code.co_firstlineno:
            self.functions.append(code.co_qualname)
        elif event == "c_call":
            self.crossings.append(getattr(argument, "__qualname__", repr(argument)))


async def steps_of_a_call(model: aioacl.Model) -> Steps:
    """Returns the steps of the call with the fewest: finalizers of other objects may run during a call."""
    calls, x = list[Steps](), rows(1)
    for _ in range(8):
        calls.append(found := Steps())
        sys.setprofile(found.note)
        try:
            await model(x)
        finally:
            sys.setprofile(None)
    return min(calls, key=lambda steps: len(steps.functions))


def test_call_of_a_model_runs_few_functions_and_crosses_into_c_a_few_times(
    model: aioacl.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After the first lease of a device, each call looks for leases. An earlier test may have had one.
    monkeypatch.setattr(model._life.manager.admission.leases, "ever", False)
    found = asyncio.run(steps_of_a_call(model))
    assert "Model.__call__" in found.functions
    assert len(found.functions) <= FUNCTIONS_AT_MOST, found.functions
    assert "check_arguments" in found.crossings
    assert len(found.crossings) <= CROSSINGS_AT_MOST, found.crossings
