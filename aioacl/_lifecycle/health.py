"""The health of a device: `device.health`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base.codes import DEVICE_ACTIONS
from aioacl._base.ffi import lib, name_of_function
from aioacl._base.records import Health
from aioacl._base.states import State
from aioacl._lifecycle.gate import counts, inside
from aioacl._lifecycle.jobs import USER_JOB

if TYPE_CHECKING:
    from aioacl._lifecycle.manager import Manager

STUCK_SECONDS: Final = 1.0
MAY_TAKE_LONG: Final = (
    name_of_function(USER_JOB),
    "aclrtSynchronizeStreamWithTimeout",
    "aclrtSynchronizeEventWithTimeout",
)
CONTROL: Final = (
    "aclInit",
    "aclrtSetDevice",
    "aclrtResetDevice",
    "aclrtResetDeviceForce",
    "aclFinalizeReference",
)


def _stuck_for(manager: Manager) -> float:
    """How long the longest stuck call has been inside, in seconds; 0.0 if no call is stuck.

    Calls that may take long are left out. While a procedure runs, its calls are left out too, because they have time
    limits.
    """
    exempt = MAY_TAKE_LONG if manager.procedure is None else MAY_TAKE_LONG + CONTROL
    calls = (call.seconds for call in inside(manager.index) if call.function not in exempt)
    longest = max(calls, default=0.0)
    return longest if longest > STUCK_SECONDS else 0.0


def health_of(manager: Manager) -> Health:
    """The health of the manager's device now. Calls no ACL function."""
    stuck = _stuck_for(manager)
    with manager.admission.changed:
        fault = manager.failures.last_fault
        poisoned = fault is not None and fault.action in DEVICE_ACTIONS
        poisoned = poisoned or manager.admission.state is State.QUARANTINED
        return Health(
            status="stuck" if stuck else "poisoned" if poisoned else "ok",
            state=manager.admission.shown,
            generation=manager.generation,
            last_fault=str(fault) if fault is not None else "",
            stuck_for=stuck,
            leases=len(manager.admission.leases),
            problem=manager.admission.problem,
            failed_tasks=manager.failures.count,
            last_failure=manager.failures.last_task,
            abandoned_models=manager.models.abandoned,
            unknown_failures=lib.aio_device_unattributed(manager.index),
            in_flight=sum(counts(manager.index)) + lib.aio_device_waits(manager.index),
        )
