"""Which resets of a device its opens permit, and whether the first open repairs the device."""

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


def shared(*, known: bool) -> str:
    """Why a reset may disturb other code. `known` is whether sets of other code are reported."""
    if known:
        return "other code of the process has perhaps set it"
    return "this release of CANN does not report whether other code of the process has set it"


def refusal(index: int, *, own: bool, known: bool) -> ParameterError:
    """The error for a reset of the device that may not be made. `known` is whether sets of other code are reported."""
    instead = (
        "omit the scope to replace only the context of aioacl"
        if own
        else 'close the device and open it with context="own"'
    )
    return ParameterError(
        f"device {index} was not reset, because {shared(known=known)}",
        hint=f"Pass foreign=True to reset it all the same, or {instead}.",
    )


class Policy:
    """What the opens of one device forbid, together, and whether the first of them heals it.

    Attributes:
        keep: whether the last close leaves one set of the device.
        resets: whether a reset of the device is permitted although no caller has asked for it.
        heal: whether the first open probes the device, and resets it if the probe fails.
    """

    def __init__(self) -> None:
        self.keep = False
        self.resets = True
        self.heal = False

    def add(self, *, keep: bool, resets: bool, heal: bool) -> None:
        """Adds what one more open forbids. It holds until the device is closed."""
        self.resets = self.resets and resets
        self.keep = self.keep or keep or not resets
        self.heal = self.heal or heal

    def forget(self) -> None:
        """Called before the first open."""
        self.keep, self.resets, self.heal = False, True, False
