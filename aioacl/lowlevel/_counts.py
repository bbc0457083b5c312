"""Functions that set and reset a device on the calling thread, as in C, for programs that keep ACL's counts.

Each call is first checked against the counts. If the runtime would return 507007, the call raises that error without
calling C. While `open_device` has the device open, all of these calls are refused.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, SupportsIndex

from aioacl._base import states
from aioacl._base.errors import ParameterError, error_for
from aioacl._base.ffi import ffi, lib
from aioacl._base.states import RELEASED_ALREADY, Counts, State
from aioacl._library import runtime
from aioacl._lifecycle.gate import RESET_BY_HAND, advise_without_device, error_of
from aioacl._lifecycle.manager import Manager, manager_of
from aioacl._lifecycle.procedures.procedure import Procedure

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData
    from aioacl._base.states import CountResult

NAP_SECONDS = 0.001

__all__ = ["reset_device", "reset_device_force", "set_device"]


class _Change(Procedure):
    """A set or reset on the caller's thread. As for any procedure, an open of the device waits until it ends."""

    name = "manual change"
    manual = True

    def __init__(self, manager: Manager, rule: Callable[[Counts], CountResult]) -> None:
        super().__init__(manager)
        self._rule = rule
        self._thread = threading.get_ident()
        self._before, self._resets_seen = Counts(), 0
        self.made: Any = ffi.new("aio_counted *")

    def begin(self, call: str) -> None:
        """Waits until sets and resets of other threads have ended, then begins.

        Raises an error, without calling C, if the counts refuse the change.
        """
        while not self._try_to_begin(call):
            # Condition.wait is not used here: if Ctrl-C interrupts it, it may release a lock that it does not hold.
            time.sleep(NAP_SECONDS)

    def _try_to_begin(self, call: str) -> bool:
        manager = self.manager
        with manager.admission.changed:
            other = manager.procedure
            if isinstance(other, _Change) and other._thread != self._thread:
                return False
            _must_be_closed(manager)
            self._before, self._resets_seen = manager.counts.standing(), manager.counts.foreign_resets_seen
            refused = self._rule(self._before).code
            if refused:
                raise error_for(refused, call, device=self.index, message="the device is not set")
            manager.procedure = self
            return True

    def finish(self) -> None:
        """Stores the counts after the call, and ends the procedure; a second call of `finish` has no effect."""
        manager = self.manager
        with manager.admission.changed:
            if manager.procedure is not self:
                return
            self._note()
            manager.admission.announce()
            manager.procedure = None
            manager.meet_foreign()

    def _note(self) -> None:
        made = self.made
        if not made.returned or made.code not in (0, RELEASED_ALREADY):
            return
        if self._resets_seen != made.foreign_resets:  # a foreign reset has ended all earlier sets
            self._before = Counts()
            self.manager.counts.change(self._before)
        self.manager.counts.foreign_resets_seen = made.foreign_resets
        self.manager.counts.change(Counts() if made.code else self._rule(self._before).counts)


def _perform(
    index: SupportsIndex,
    call: str,
    rule: Callable[[Counts], CountResult],
    change: Callable[[int, CData], None],
) -> None:
    manager = manager_of(index)
    runtime.load()
    procedure = _Change(manager, rule)
    try:
        procedure.begin(call)
        change(manager.index, procedure.made)
    finally:
        try:
            procedure.finish()
        finally:
            procedure.finish()  # again, because Ctrl-C may have interrupted the first call
    if procedure.made.code:
        error = error_of(procedure.made.code, call, manager.index, manager.generation)
        advise_without_device(error, RESET_BY_HAND)
        raise error


def _reset(index: int, made: CData) -> None:
    lib.aio_count_reset(index, 0, made)


def _reset_force(index: int, made: CData) -> None:
    lib.aio_count_reset(index, 1, made)


def _must_be_closed(manager: Manager) -> None:
    if (
        manager.admission.opens
        or manager.procedure is not None
        or manager.admission.state is not State.CLOSED
    ):
        raise ParameterError(
            f"device {manager.index} is open through `open_device`",
            hint="Close it first, or use device.force_reset().",
        )


def set_device(index: SupportsIndex) -> None:
    """Raises the count of a device by one, and binds the calling thread to the device (aclrtSetDevice).

    The first call sets the device up.

    Args:
        index: the index of the device.

    Raises:
        ParameterError: there is no such device (107001), or it is open through `open_device`.
        AclError: the runtime returned another code.
    """
    _perform(index, "aclrtSetDevice", states.set_device, lib.aio_count_set)


def reset_device(index: SupportsIndex) -> None:
    """Lowers the count of a device by one; at 0, the runtime releases the device (aclrtResetDevice).

    Args:
        index: the index of the device.

    Raises:
        AclError: the device is not set (507007), or the runtime returned another code.
        ParameterError: there is no such device, or it is open through `open_device`.
    """
    _perform(index, "aclrtResetDevice", states.reset_device, _reset)


def reset_device_force(index: SupportsIndex) -> None:
    """Lowers the count of a device to 0, and releases the device (aclrtResetDeviceForce).

    Args:
        index: the index of the device.

    Raises:
        AclError: the device is not set (507007), or the runtime returned another code.
        ParameterError: there is no such device, or it is open through `open_device`.
    """
    _perform(index, "aclrtResetDeviceForce", states.reset_device_force, _reset_force)
