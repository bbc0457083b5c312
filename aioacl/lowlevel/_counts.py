"""ACL's counts by hand: set and reset a device as the C calls do, on the calling thread.

For programs that keep the counts themselves. Each call passes the lifecycle's law: what the runtime would answer with
507007 is refused with that code before C. While the device is open on the face, they are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioacl import _law, _runtime
from aioacl._errors import ParameterError, error_for
from aioacl._ffi import lib
from aioacl._gate import error_of
from aioacl._law import RELEASED_ALREADY, Counts, State
from aioacl._lifecycle import Manager, manager_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._law import Verdict

__all__ = ["reset_device", "reset_device_force", "set_device"]


def _perform(index: int, call: str, law: Callable[[Counts], Verdict], function: Callable[[int], int]) -> None:
    manager = manager_of(index)
    _runtime.load()
    with manager.changed:
        _must_be_closed(manager)
        told, verdict = lib.aio_device_foreign(index), law(manager.standing())
        if verdict.code:
            raise error_for(verdict.code, call, device=index, message="the device is not set")
        lib.aio_own_reset(1)
        code = function(index)
        lib.aio_own_reset(0)
        if code == RELEASED_ALREADY:  # somebody else has: nothing of ours is left
            manager.counts = Counts()
        if code:
            raise error_of(code, call, index, manager.generation)
        manager.counts, manager.told = verdict.counts, told


def _must_be_closed(manager: Manager) -> None:
    if manager.opens or manager.flight is not None or manager.state is not State.CLOSED:
        raise ParameterError(
            f"device {manager.index} is open on the face, which keeps its counts",
            hint="Close it first, or use device.force_reset().",
        )


def set_device(index: int) -> None:
    """Sets the device once more, and binds the calling thread to it (aclrtSetDevice).

    Raises:
        ParameterError: no such device (107001), or it is open on the face.
        AclError: the runtime's code.
    """
    _perform(index, "aclrtSetDevice", _law.set_device, lib.aio_u_aclrtSetDevice)


def reset_device(index: int) -> None:
    """Counts one back; the last one releases the device (aclrtResetDevice).

    Raises:
        AclError: 507007 when it is not set, and the runtime's other codes.
        ParameterError: it is open on the face.
    """
    _perform(index, "aclrtResetDevice", _law.reset_device, lib.aio_u_aclrtResetDevice)


def reset_device_force(index: int) -> None:
    """Drops all counts and releases the device (aclrtResetDeviceForce).

    Raises:
        AclError: 507007 when it is not set, and the runtime's other codes.
        ParameterError: it is open on the face.
    """
    _perform(index, "aclrtResetDeviceForce", _law.reset_device_force, lib.aio_u_aclrtResetDeviceForce)
