"""health.check(): which probes fail, and how long a device may recover."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import State

if TYPE_CHECKING:
    from aioacl._base.health import SupervisorState

READY = aioacl.Health("ok", State.OPEN, 1, "", 0.0, 0, 0, device=3)
POISONED = replace(READY, status="poisoned", last_fault="507013 broken", unready_for=2.0)
QUARANTINED = replace(POISONED, state=State.QUARANTINED, problem="no reset helped")
STUCK = replace(READY, status="stuck", stuck_for=2.0, unready_for=2.0)
DRAINING = replace(READY, state=State.DRAINING, unready_for=2.0)
RESETTING = replace(DRAINING, state=State.RESETTING)
CLOSED = replace(READY, state=State.CLOSED, unready_for=2.0)
REPAIRS: tuple[SupervisorState, ...] = ("watching", "resetting", "pausing", "stuck")
ENDS: tuple[SupervisorState, ...] = ("none", "forbidden", "given up")


@pytest.mark.parametrize("supervisor", [*REPAIRS, *ENDS])
def test_65_check_of_a_ready_device_raises_nothing(supervisor: SupervisorState) -> None:
    health = replace(READY, supervisor=supervisor)
    health.check(0)
    assert not health.recovering


@pytest.mark.parametrize("supervisor", REPAIRS)
@pytest.mark.parametrize("health", [POISONED, QUARANTINED, STUCK, DRAINING, RESETTING])
def test_65_check_is_silent_while_a_supervisor_repairs_for_at_most_stuck_seconds(
    supervisor: SupervisorState, health: aioacl.Health
) -> None:
    repaired = replace(health, supervisor=supervisor)
    assert repaired.recovering
    repaired.check()
    repaired.check(stuck=2)
    with pytest.raises(aioacl.AclError, match=f"not been ready for 2.0 s, its supervisor: {supervisor}"):
        repaired.check(stuck=1.9)
    with pytest.raises(aioacl.AclError):
        replace(repaired, unready_for=30.1).check()


@pytest.mark.parametrize("supervisor", ENDS)
@pytest.mark.parametrize(
    ("health", "kind", "found"),
    [
        (POISONED, aioacl.DeviceFault, "device 3, generation 1: the device has failed.*507013 broken"),
        (QUARANTINED, aioacl.DeviceQuarantined, "device 3.*: the device is quarantined: no reset helped"),
        (STUCK, aioacl.DeviceTimeout, "a call has been inside C for 2.0 s"),
        (CLOSED, aioacl.ParameterError, "the device is closed"),
    ],
)
def test_65_check_raises_at_once_if_no_supervisor_repairs(
    supervisor: SupervisorState, health: aioacl.Health, kind: type[aioacl.AclError], found: str
) -> None:
    with pytest.raises(kind, match=found):
        replace(health, supervisor=supervisor).check()


@pytest.mark.parametrize("health", [DRAINING, RESETTING])
def test_65_check_is_silent_during_a_reset_without_a_supervisor(health: aioacl.Health) -> None:
    health.check()
    with pytest.raises(aioacl.DeviceResetting, match=f"the device is {health.state}; it has not been ready"):
        health.check(stuck=1)


@pytest.mark.parametrize("stuck", [-1, None, "1", float("inf"), float("nan")])
def test_wrong_stuck_is_refused_also_if_the_device_is_ready(stuck: Any) -> None:
    with pytest.raises(aioacl.ParameterError, match="stuck must be a finite number of seconds"):
        READY.check(stuck)
