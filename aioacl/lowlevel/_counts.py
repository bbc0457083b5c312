"""ACL's counts by hand: set and reset a device as the C calls do, on the calling thread.

For programs that keep the counts themselves. Each call passes the lifecycle's law: what the runtime would answer with
507007 is refused with that code before C. While the device is open on the face, they are refused.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, SupportsIndex

from aioacl._base import states as _law
from aioacl._base.errors import ParameterError, error_for
from aioacl._base.ffi import ffi, lib
from aioacl._base.states import RELEASED_ALREADY, Counts, State
from aioacl._library import runtime as _runtime
from aioacl._lifecycle.gate import error_of
from aioacl._lifecycle.manager import Manager, manager_of
from aioacl._lifecycle.procedures.procedure import Flight

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._acl import CData
    from aioacl._base.states import Verdict

NAP_SECONDS = 0.001

__all__ = ["reset_device", "reset_device_force", "set_device"]


class _Change(Flight):
    """A change by hand, on the caller's thread. Who opens the device meanwhile waits, as for any flight."""

    name = "change by hand"
    by_hand = True

    def __init__(self, manager: Manager, law: Callable[[Counts], Verdict]) -> None:
        super().__init__(manager)
        self._law = law
        self._thread = threading.get_ident()
        self._stood, self._told = Counts(), 0
        self.made: Any = ffi.new("aio_counted *")

    def begin(self, call: str) -> None:
        """Takes off when those by other threads have landed. What the law refuses does not reach C."""
        while not self._take_off(call):
            time.sleep(
                NAP_SECONDS
            )  # a condition that Ctrl-C wakes may give back a lock that it has not got again

    def _take_off(self, call: str) -> bool:
        manager = self.manager
        with manager.changed:
            other = manager.flight
            if isinstance(other, _Change) and other._thread != self._thread:
                return False
            _must_be_closed(manager)
            self._stood, self._told = manager.standing(), manager.told
            refused = self._law(self._stood).code
            if refused:
                raise error_for(refused, call, device=self.index, message="the device is not set")
            manager.flight = self
            return True

    def land(self) -> None:
        """Counts what has come of it; once more is the same."""
        manager = self.manager
        with manager.changed:
            if manager.flight is not self:
                return
            self._note()
            manager.announce()
            manager.flight = None
            manager.meet_foreign()

    def _note(self) -> None:
        made = self.made
        if not made.returned or made.code not in (0, RELEASED_ALREADY):
            return
        if self._told != made.told:  # somebody else has released what stood
            self._stood = Counts()
            self.manager.count(self._stood)
        self.manager.told = made.told
        self.manager.count(Counts() if made.code else self._law(self._stood).counts)


def _perform(
    index: SupportsIndex, call: str, law: Callable[[Counts], Verdict], change: Callable[[int, CData], None]
) -> None:
    manager = manager_of(index)
    _runtime.load()
    flight = _Change(manager, law)
    try:
        flight.begin(call)
        change(manager.index, flight.made)
    finally:
        try:
            flight.land()
        finally:
            flight.land()  # Ctrl-C may have come in the middle of it
    if flight.made.code:
        raise error_of(flight.made.code, call, manager.index, manager.generation)


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


def set_device(index: SupportsIndex) -> None:
    """Sets the device once more, and binds the calling thread to it (aclrtSetDevice).

    Raises:
        ParameterError: no such device (107001), or it is open on the face.
        AclError: the runtime's code.
    """
    _perform(index, "aclrtSetDevice", _law.set_device, lib.aio_count_set)


def reset_device(index: SupportsIndex) -> None:
    """Counts one back; the last one releases the device (aclrtResetDevice).

    Raises:
        AclError: 507007 when it is not set, and the runtime's other codes.
        ParameterError: it is open on the face.
    """
    _perform(index, "aclrtResetDevice", _law.reset_device, _reset)


def reset_device_force(index: SupportsIndex) -> None:
    """Drops all counts and releases the device (aclrtResetDeviceForce).

    Raises:
        AclError: 507007 when it is not set, and the runtime's other codes.
        ParameterError: it is open on the face.
    """
    _perform(index, "aclrtResetDeviceForce", _law.reset_device_force, _reset_force)
