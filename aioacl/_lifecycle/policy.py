"""Which resets of a device its opens permit."""

from __future__ import annotations

import os
from typing import Final

from aioacl._base.errors import ParameterError
from aioacl._base.options import repr_of

VARIABLE: Final = "AIOACL_RESETS"
ALLOWED: Final = "allowed"
NEVER: Final = "never"


def resets_of_environment() -> bool:
    """Whether the environment permits resets of devices. Raises ParameterError for an unknown value."""
    value = os.environ.get(VARIABLE) or ALLOWED
    if value not in (ALLOWED, NEVER):
        raise ParameterError(
            f"{VARIABLE} must be {ALLOWED!r} or {NEVER!r}, got {repr_of(value)}",
            hint=f"Unset {VARIABLE}, or set it to {NEVER!r}.",
        )
    return value == ALLOWED


class Policy:
    """What the opens of one device forbid, together.

    Attributes:
        keep: whether the last close leaves the device set.
        resets: whether a reset of the device is permitted although no caller has asked for it.
    """

    def __init__(self) -> None:
        self.keep = False
        self.resets = True

    def add(self, *, keep: bool, resets: bool) -> None:
        """Adds what one more open forbids. It holds until the device is closed."""
        self.resets = self.resets and resets
        self.keep = self.keep or keep or not resets

    def forget(self) -> None:
        """Called before the first open."""
        self.keep, self.resets = False, True
