"""The record of `device.health`, and the check of a probe."""

from __future__ import annotations

from typing import Literal

from aioacl._base.errors import (
    AclError,
    DeviceFault,
    DeviceQuarantined,
    DeviceResetting,
    DeviceTimeout,
    ParameterError,
)
from aioacl._base.options import Seconds, bound_of
from aioacl._base.public import publish
from aioacl._base.states import State
from aioacl._base.unique import record

SupervisorState = Literal["none", "watching", "resetting", "pausing", "stuck", "forbidden", "given up"]
"""What the supervisor of a device does: see `Health.supervisor`."""


@record
class Health:
    """The health of a device, from `device.health`.

    Attributes:
        status: "ok", "poisoned" (quarantined, or a fault that only a reset clears) or "stuck" (a call has been inside
            C for more than a second). Jobs, waits of aioacl, loads of models, and calls of a running procedure do not
            count as stuck.
        state: the device's state, which decides which calls the device admits now.
        generation: the device's generation; every reset raises it.
        last_fault: the newest device fault of this generation, with its hint, or "".
        stuck_for: the seconds that the longest stuck call has been inside C; 0.0 if no call is stuck.
        leases: the number of leases that are held.
        in_flight: the number of calls inside C and of waits that have not ended.
        problem: why the device is quarantined, or why its supervisor does not reset it, or "".
        failed_tasks: the number of failed tasks since the first open, awaited or not; only the first failed task of
            each stream counts.
        last_failure: the code and place of the newest failed task, or "".
        unknown_failures: the number of reports of failed tasks that aioacl did not enqueue, also of tasks of other code
            in other contexts of the device.
        abandoned_models: the number of models that a reset or close ended without unloading them, because the device
            had a fault or their work was not done. The runtime keeps some memory of the host for each of them.
        foreign_stop: whether other code has set STOP mode on a stream of aioacl's context. A failed task of any stream
            of the context then stops the whole context, and `ready` is False until a reset. aioacl looks for this mode
            soon after `health` is read. True until a reset, also if the stream is destroyed. Before CANN 8.5, for
            streams that were made before aioacl has loaded the library, and for streams that are destroyed before
            aioacl looks, it is known only after such a failure. A device that has failed may look like that too.
        device_aborts: how often other code has aborted all work of the device (aclrtDeviceTaskAbort, which
            `torch.npu.stop_device` calls) since aioacl has loaded the library. Awaits of the work raise StreamAborted.
            0 if the library has no aclrtSetDeviceTaskAbortCallback.
        device: the device's index.
        supervisor: what the supervisor of `device.supervise()` does. "none": there is no supervisor. "watching": it
            would reset the device. "resetting": a reset runs, by the supervisor or by another caller. "pausing": a
            reset has failed, and the next one begins after a pause. "stuck": a call is inside C, so no reset can be
            made until it returns. "forbidden": it does not reset the device, because other code perhaps uses it, or
            because AIOACL_RESETS=never or `resets=False` forbids it. "given up": it begins no more resets, until the
            device is ready again.
        unready_for: the seconds for which the device has not been ready; 0.0 if it is ready.
    """

    status: Literal["ok", "poisoned", "stuck"]
    state: State
    generation: int
    last_fault: str
    stuck_for: float
    leases: int
    in_flight: int
    problem: str = ""
    failed_tasks: int = 0
    last_failure: str = ""
    unknown_failures: int = 0
    abandoned_models: int = 0
    foreign_stop: bool = False
    device_aborts: int = 0
    device: int = -1
    supervisor: SupervisorState = "none"
    unready_for: float = 0.0

    @property
    def recovering(self) -> bool:
        """Whether the device is not ready, and a reset runs or a supervisor will begin one."""
        repaired = self.supervisor in ("watching", "resetting", "pausing", "stuck")
        return not self.ready and (repaired or self.state in (State.DRAINING, State.RESETTING))

    def check(self, stuck: Seconds = 30.0) -> None:
        """Raises an error if a probe that restarts the process should fail. Calls no ACL function.

        Returns if the device is ready. It also returns while the device is `recovering`, for at most `stuck` seconds,
        so that a process is not ended whose device works again soon.

        Args:
            stuck: the longest time in seconds for which the device may be `recovering`, a finite number of at least 0.

        Raises:
            DeviceQuarantined: the device is quarantined.
            DeviceTimeout: a call has been inside C for more than a second.
            DeviceFault: the device has failed.
            DeviceResetting: the device is draining or being reset.
            ParameterError: the device is closed, or `stuck` has a wrong value.
        """
        patience = bound_of("stuck", stuck)
        if not self.ready and not (self.recovering and self.unready_for <= patience):
            raise _error(self)

    @property
    def ready(self) -> bool:
        """Whether the device admits work now: the status is "ok" and the state is OPEN. For readiness probes."""
        return self.status == "ok" and self.state is State.OPEN


def _error(health: Health) -> AclError:
    device, generation = health.device, health.generation
    since = f"it has not been ready for {health.unready_for:.1f} s"
    if health.supervisor != "none":
        since += f", its supervisor: {health.supervisor}"
    if health.state is State.CLOSED:
        return ParameterError(
            "the device is closed", device=device, hint="Read the health of a device that is open."
        )
    if health.status == "stuck":
        return DeviceTimeout(
            f"a call has been inside C for {health.stuck_for:.1f} s; {since}",
            device=device,
            generation=generation,
            hint="`device.events()` names the call. If it does not return, end the process.",
        )
    if health.state is State.QUARANTINED:
        return DeviceQuarantined(
            f"the device is quarantined: {health.problem}; {since}", device=device, generation=generation
        )
    if health.status == "poisoned":
        why = " ".join(filter(None, (f"the device has failed; {since}: {health.last_fault}", health.problem)))
        return DeviceFault(why, device=device, generation=generation)
    return DeviceResetting(f"the device is {health.state}; {since}", device=device, generation=generation)


publish("aioacl", ["Health"], of=__name__)
