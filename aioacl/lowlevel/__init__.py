"""All ACL functions in Python, for tasks that the rest of aioacl does not support.

`on(device)` returns an object with every ACL function as a method. Its calls pass the device's gate, so no force reset
happens during a call. `functions` has the same functions without a device and without the gate. If ACL returns an error
code, the call raises AclError. Set and reset affect the whole process, so they are separate functions, for programs
that keep ACL's counts themselves.
"""

from __future__ import annotations

from typing import Final

import aioacl as _aioacl  # noqa: F401  # pyright: ignore[reportUnusedImport] - waits for another thread's import
from aioacl._base.errors import ParameterError
from aioacl._base.options import repr_of as _repr_of
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
"""The ACL functions, called without a device and without a gate."""


def on(device: Device) -> Functions:
    """Returns ACL's functions for an open device. Each call passes the device's gate and has its context current.

    A force reset waits for calls that are inside C. The result belongs to the device's current generation, as do the
    raw pointers that its calls return. After a reset, its calls raise StaleHandleError. Functions that need no device
    are called without the gate, as in `functions`.

    Args:
        device: an open device.

    Returns:
        ACL's functions as methods.

    Raises:
        ParameterError: `device` is not a Device, or is closed.
    """
    if not isinstance(device, Device):
        raise ParameterError(
            f"expected a Device, got {_repr_of(device)}", hint="Pass a device that open_device() opened."
        )
    device._check()
    return Functions(Place(device._manager, device.generation))


_publish(__name__, __all__)
