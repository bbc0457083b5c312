"""The health of a device: `device.health`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aioacl._base import sync
from aioacl._base.codes import DEVICE_ACTIONS
from aioacl._base.ffi import lib
from aioacl._base.health import Health
from aioacl._base.states import State
from aioacl._lifecycle.gate import counts, inside
from aioacl._lifecycle.stuck import is_stuck

if TYPE_CHECKING:
    from aioacl._lifecycle.manager import Manager


def is_poisoned(manager: Manager) -> bool:
    """Whether the device is quarantined, or has a fault that only a reset clears. Call it with the lock held."""
    fault = manager.failures.last_fault
    return manager.admission.state is State.QUARANTINED or (
        fault is not None and fault.action in DEVICE_ACTIONS
    )


def _stuck_for(manager: Manager) -> float:
    """How long the longest stuck call has been inside, in seconds; 0.0 if no call is stuck."""
    return max((call.seconds for call in inside(manager.index) if is_stuck(manager, call)), default=0.0)


def health_of(manager: Manager) -> Health:
    """The health of the manager's device now. Calls no ACL function, but wakes the maintenance thread to look for STOP
    mode of other code.
    """
    stuck = _stuck_for(manager)
    lib.aio_device_look_for_stop(manager.index)
    with manager.admission.changed:
        fault, since = manager.failures.last_fault, manager.admission.unready_since
        poisoned = is_poisoned(manager)
        made = partial(
            Health,
            status="stuck" if stuck else "poisoned" if poisoned else "ok",
            state=manager.admission.shown,
            generation=manager.generation,
            last_fault=str(fault) if fault is not None else "",
            stuck_for=stuck,
            leases=len(manager.admission.leases),
            problem=manager.admission.problem or (poisoned and manager.supervision.problem) or "",
            failed_tasks=manager.failures.count,
            last_failure=manager.failures.last_task,
            abandoned_models=manager.models.abandoned,
            foreign_stop=manager.failures.other_code_has_stop(manager.generation),
            device_aborts=lib.aio_device_task_aborts(manager.index),
            unknown_failures=lib.aio_device_unattributed(manager.index),
            in_flight=sum(counts(manager.index)) + lib.aio_device_waits(manager.index),
            device=manager.index,
            supervisor=manager.supervision.state,
            unready_for=max(stuck, 0.0 if since is None else sync.monotonic() - since),
        )
    return made()  # without the lock
