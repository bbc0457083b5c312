"""ACL from Python, function by function: what the rest of aioacl does not offer, under the same gate.

`on(device)` has every function of the runtime as a method that no force reset runs into; `functions` has them without a
device, unguarded. A call that ACL refuses raises AclError instead of answering a code. Set and reset, which concern
everybody, are here as functions of their own, for programs that keep ACL's counts by hand.
"""

from __future__ import annotations

from typing import Final

import aioacl as _aioacl  # noqa: F401  # pyright: ignore[reportUnusedImport] - waits for another thread's import
from aioacl._base.errors import ParameterError
from aioacl._base.public import publish as _publish
from aioacl._device import Device
from aioacl.lowlevel import constants, ffi
from aioacl.lowlevel._calls import Place, handle
from aioacl.lowlevel._counts import reset_device, reset_device_force, set_device
from aioacl.lowlevel._functions import Functions

__all__ = [
    "Functions",
    "constants",
    "ffi",
    "functions",
    "handle",
    "on",
    "reset_device",
    "reset_device_force",
    "set_device",
]

functions: Final = Functions()


def on(device: Device) -> Functions:
    """ACL's functions on an open device, each of which passes its gate and finds its context current.

    A force reset waits for calls that are inside, and whoever calls after it gets StaleHandleError: what `on` returns
    is of the device's present generation, as are the raw pointers that come from it. Functions that need no device go
    as in `functions`.

    Raises:
        ParameterError: it is no device, or is closed.
    """
    if not isinstance(device, Device):
        raise ParameterError(f"expected a Device, got {device!r}", hint="Pass what open_device() has opened.")
    device._check()
    return Functions(Place(device._manager, device.generation))


_publish(__name__, __all__)
