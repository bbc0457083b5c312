"""ACL's counts by hand: set and reset a device as the C calls do, on the calling thread.

For programs that keep the counts themselves. Each call is checked against the counts: a call that the runtime would
answer with 507007 is refused with that code before C. While the device is open by `open_device`, all are refused.
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
from aioacl._lifecycle.gate import error_of
from aioacl._lifecycle.manager import manager_of
from aioacl._lifecycle.procedures.procedure import Host, Procedure

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData
    from aioacl._base.states import CountResult

NAP_SECONDS = 0.001

__all__ = ["reset_device", "reset_device_force", "set_device"]


class _Change(Procedure):
    """A change by hand, on the caller's thread. Who opens the device meanwhile waits, as for any procedure."""

    name = "change by hand"
    manual = True

    def __init__(self, host: Host, rule: Callable[[Counts], CountResult]) -> None:
        super().__init__(host)
        self._rule = rule
        self._thread = threading.get_ident()
        self._stood, self._told = Counts(), 0
        self.made: Any = ffi.new("aio_counted *")

    def begin(self, call: str) -> None:
        """Begins when the changes by other threads have ended. What the counts refuse does not reach C."""
        while not self._try_to_begin(call):
            time.sleep(
                NAP_SECONDS
            )  # a condition that Ctrl-C wakes may give back a lock that it has not got again

    def _try_to_begin(self, call: str) -> bool:
        manager = self.host
        with manager.admission.changed:
            other = manager.procedure
            if isinstance(other, _Change) and other._thread != self._thread:
                return False
            _must_be_closed(manager)
            self._stood, self._told = manager.counts.standing(), manager.counts.foreign_resets_seen
            refused = self._rule(self._stood).code
            if refused:
                raise error_for(refused, call, device=self.index, message="the device is not set")
            manager.procedure = self
            return True

    def finish(self) -> None:
        """Counts what has come of it; once more is the same."""
        manager = self.host
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
        if self._told != made.told:  # somebody else has released what stood
            self._stood = Counts()
            self.host.counts.change(self._stood)
        self.host.counts.foreign_resets_seen = made.told
        self.host.counts.change(Counts() if made.code else self._rule(self._stood).counts)


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
            procedure.finish()  # Ctrl-C may have come in the middle of it
    if procedure.made.code:
        raise error_of(procedure.made.code, call, manager.index, manager.generation)


def _reset(index: int, made: CData) -> None:
    lib.aio_count_reset(index, 0, made)


def _reset_force(index: int, made: CData) -> None:
    lib.aio_count_reset(index, 1, made)


def _must_be_closed(host: Host) -> None:
    if host.admission.opens or host.procedure is not None or host.admission.state is not State.CLOSED:
        raise ParameterError(
            f"device {host.index} is open by `open_device`, which keeps its counts",
            hint="Close it first, or use device.force_reset().",
        )


def set_device(index: SupportsIndex) -> None:
    """Sets the device once more, and binds the calling thread to it (aclrtSetDevice).

    Raises:
        ParameterError: no such device (107001), or it is open by `open_device`.
        AclError: the runtime's code.
    """
    _perform(index, "aclrtSetDevice", states.set_device, lib.aio_count_set)


def reset_device(index: SupportsIndex) -> None:
    """Counts one back; the last one releases the device (aclrtResetDevice).

    Raises:
        AclError: 507007 when it is not set, and the runtime's other codes.
        ParameterError: it is open by `open_device`.
    """
    _perform(index, "aclrtResetDevice", states.reset_device, _reset)


def reset_device_force(index: SupportsIndex) -> None:
    """Drops all counts and releases the device (aclrtResetDeviceForce).

    Raises:
        AclError: 507007 when it is not set, and the runtime's other codes.
        ParameterError: it is open by `open_device`.
    """
    _perform(index, "aclrtResetDeviceForce", states.reset_device_force, _reset_force)
