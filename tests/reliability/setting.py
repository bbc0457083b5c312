"""The setting with which the parts open devices: whose context they use. `--context=own` of the command sets it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import aioacl
from tests.kit import CALLS_OF_RESETS

if TYPE_CHECKING:
    from aioacl._base.options import ContextKind, Strategy

VARIABLE: Final = "TEST_CONTEXT"  # a name that `python -m tests.reliability` passes on to the parts
CONTEXT: Final[ContextKind] = "own" if os.environ.get(VARIABLE) == "own" else "primary"
OWN: Final = CONTEXT == "own"
AGAIN: Final = " --context=own" if OWN else ""  # for the command that repeats a run
# The ACL functions with which an open, a force reset and the last close begin to change the context.
OPENS: Final = "aclrtCreateContext" if OWN else "aclrtSetDevice"
RESETS: Final = CALLS_OF_RESETS[CONTEXT]
CLOSES: Final = "aclrtDestroyContext" if OWN else "aclrtResetDevice"


def open_device(index: int = 0, waits: Strategy = "watch", **options: Any) -> aioacl.Opening[aioacl.Device]:
    """Opens a device, as `aioacl.open_device` does."""
    return aioacl.open_device(index, waits, context=CONTEXT, **options)
