"""ACL's counts by hand: set and reset a device as the C calls do, on the calling thread.

For programs that keep the counts themselves. Each call passes the lifecycle's law: what the runtime would answer with
507007 is refused with that code before C. While the device is open on the face, they are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioacl import _law, _runtime
from aioacl._errors import ParameterError, error_for
from aioacl._ffi import ffi, lib
from aioacl._gate import error_of
from aioacl._law import RELEASED_ALREADY, Counts, State
from aioacl._lifecycle import Manager, manager_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._acl import CData
    from aioacl._law import Verdict

__all__ = ["reset_device", "reset_device_force", "set_device"]


def _perform(
    index: int, call: str, law: Callable[[Counts], Verdict], change: Callable[[int, CData], None]
) -> None:
    manager = manager_of(index)
    _runtime.load()
    with manager.changed:
        _must_be_closed(manager)
        stood, told = manager.standing(), manager.told
        refused = law(stood).code
        if refused:
            raise error_for(refused, call, device=index, message="the device is not set")
        made: Any = ffi.new("aio_counted *")
        try:
            change(index, made)
            _note(manager, law, stood, told, made)
        except BaseException:  # Ctrl-C, behind the call or in the note: now it is noted from the start
            _note(manager, law, stood, told, made)
            raise
        if made.code:
            raise error_of(made.code, call, index, manager.generation)


def _note(manager: Manager, law: Callable[[Counts], Verdict], stood: Counts, told: int, made: Any) -> None:
    """Counts what has come of a change, if it has been made; once more is the same."""
    if not made.returned or made.code not in (0, RELEASED_ALREADY):
        return
    if told != made.told:  # somebody else has released what stood
        stood = Counts()
    manager.counts, manager.told = Counts() if made.code else law(stood).counts, made.told


def _reset(index: int, made: CData) -> None:
    lib.aio_count_reset(index, 0, made)


def _reset_force(index: int, made: CData) -> None:
    lib.aio_count_reset(index, 1, made)


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
    _perform(index, "aclrtSetDevice", _law.set_device, lib.aio_count_set)


def reset_device(index: int) -> None:
    """Counts one back; the last one releases the device (aclrtResetDevice).

    Raises:
        AclError: 507007 when it is not set, and the runtime's other codes.
        ParameterError: it is open on the face.
    """
    _perform(index, "aclrtResetDevice", _law.reset_device, _reset)


def reset_device_force(index: int) -> None:
    """Drops all counts and releases the device (aclrtResetDeviceForce).

    Raises:
        AclError: 507007 when it is not set, and the runtime's other codes.
        ParameterError: it is open on the face.
    """
    _perform(index, "aclrtResetDeviceForce", _law.reset_device_force, _reset_force)
