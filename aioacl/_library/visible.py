"""Which devices the process sees, for the error of a device that it does not see."""

from __future__ import annotations

import os
from typing import Final

from aioacl._base.ffi import ffi, lib

VARIABLE: Final = "ASCEND_RT_VISIBLE_DEVICES"


def physical_id(index: int) -> str:
    """Returns the number of the card that a device is, or "" if the variable does not name one.

    The runtime reads the variable once, when it is initialised. Without the variable, the process sees all cards.
    """
    value = os.environ.get(VARIABLE)
    if value is None:
        return str(index)
    ids = [part.strip() for part in value.split(",")]
    return ids[index] if index < len(ids) and ids[index].isdecimal() else ""


def not_visible(index: int) -> str:
    """Describes which device was expected, because CANN's own text does not (aclrtGetDeviceCount)."""
    found = ffi.new("uint32_t *")
    visible = found[0] if lib.aio_u_aclrtGetDeviceCount(found) == 0 else 0
    value = os.environ.get(VARIABLE)
    why = "" if value is None else f", because {VARIABLE} is {value!r}"
    if not visible:
        return f"expected a visible device, got index {index}: the process sees no device{why}"
    wanted = f"a device index from 0 to {visible - 1}" if visible > 1 else "device index 0"
    return f"expected {wanted}, got {index}: the process sees {visible} device{'s' * (visible > 1)}{why}"
