"""Frozen records: what is reported of devices, of their resets and of what happens to them."""

from dataclasses import dataclass, field, replace
from typing import Literal

from aioacl._base.states import State
from aioacl._base.unique import record


@record
@dataclass(frozen=True, slots=True)
class Stuck:
    """A call that was inside C when nobody should have been.

    Attributes:
        function: the ACL function, or "a job on device.executor".
        thread: the thread's number, as the system gives it.
        seconds: for how long it has been inside.
    """

    function: str
    thread: int
    seconds: float


@record
@dataclass(frozen=True, slots=True)
class ResetReport:
    """What one procedure of `force_reset` did.

    Attributes:
        device: the device's index.
        ok: whether the device is open again, on a new generation.
        generation: the device's generation after the procedure.
        reason: what the caller gave as the reason.
        requested_by: the name of the task or thread that asked first.
        joined: how many callers shared the procedure.
        drained: streams that were busy and finished within the grace time.
        aborted: streams whose work was aborted (aclrtStreamAbort), those named by `abortable()` included.
        not_aborted: streams that could not be aborted; their work was dropped by the reset.
        attempts: how often reset, set and probe were tried.
        codes: the calls of the procedure that failed, with their codes.
        stuck: who was inside C when the device should have been empty.
        stages: milliseconds spent in each stage, in order.
        problem: in a sentence, why the device is quarantined; "" when it is not.
    """

    device: int
    ok: bool
    generation: int
    reason: str = ""
    requested_by: str = ""
    joined: int = 1
    drained: int = 0
    aborted: int = 0
    not_aborted: int = 0
    attempts: int = 0
    codes: tuple[tuple[str, int], ...] = ()
    stuck: tuple[Stuck, ...] = ()
    stages: dict[str, float] = field(default_factory=dict[str, float])
    problem: str = ""

    def __str__(self) -> str:
        times = ", ".join(f"{stage} {spent:.1f} ms" for stage, spent in self.stages.items())
        ending = f"open at generation {self.generation}" if self.ok else f"QUARANTINED: {self.problem}"
        work = f"{self.drained} streams drained, {self.aborted} aborted, {self.not_aborted} not abortable"
        return f"device {self.device}: {ending}; {work}; attempts {self.attempts} ({times})"


EventKind = Literal[
    "opened",
    "draining",
    "resetting",
    "reopened",
    "quarantined",
    "closed",
    "foreign reset",
    "fault",
    "revoked",
]


@record
@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """One thing that has happened to a device.

    Attributes:
        kind: "opened", "draining", "resetting", "reopened" (a reset is over), "quarantined" (a reset failed),
            "closed", "foreign reset" (another library has reset it), "fault" (a task has failed, or the device has),
            "revoked" (leases that outlasted a reset's grace time, or met a foreign one or the last close).
        device: the device's index.
        state: the device's state after it.
        generation: the device's generation after it; of a failed task, the one in which it was enqueued.
        at: when, in seconds of `time.monotonic()`.
        report: of the reset that ended with it, if it was ours.
        text: the fault, why it is quarantined, or how many leases were revoked.
        missed: events before this one that were dropped, because nobody took them in time.
        stream: of a failed task, its stream's number (aclrtStreamGetId); -1 if the runtime did not name it.
        position: of a failed task, the position of its entry in the stream's queue.
        code: of a failed task, ACL's code; 0 for every other event.
    """

    kind: EventKind
    device: int
    state: State
    generation: int
    at: float
    report: ResetReport | None = None
    text: str = ""
    missed: int = 0
    stream: int = -1
    position: int = 0
    code: int = 0

    def after(self, missed: int) -> "DeviceEvent":
        """The same event, told to one who has missed some before it."""
        return replace(self, missed=missed) if missed else self


@record
@dataclass(frozen=True, slots=True)
class Health:
    """How a device is.

    Attributes:
        status: "ok", "poisoned" (a fault that only a reset clears, or quarantined) or "stuck" (a call has not
            returned for a second).
        state: what may be done with the device now.
        generation: raised by every reset.
        last_fault: the newest device fault of this generation, with its cure, or "".
        stuck_for: seconds that the longest call has been inside C, 0.0 when none is.
        leases: leases that are held.
        in_flight: calls inside C, and waits that have not ended.
        problem: why the device is quarantined, or "".
        failed_tasks: failed tasks since the first open, of each stream the first one, awaited or not.
        last_failure: code and place of the newest of them, or "".
        unknown_failures: reports of failed tasks that aioacl did not enqueue.
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

    @property
    def ready(self) -> bool:
        """Whether work that is sent now would be taken: what a readiness probe asks."""
        return self.status == "ok" and self.state is State.OPEN


@record
@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device that the runtime can see.

    Attributes:
        index: what `open_device` takes.
        soc: the chip's name (aclrtGetSocName), or "".
    """

    index: int
    soc: str


@record
@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Device memory in bytes (aclrtGetMemInfo, HBM)."""

    free: int
    total: int
