"""Frozen records: reports about devices, their resets and their events."""

from dataclasses import field, replace
from typing import Final, Literal

from aioacl._base.flight import FlightRecord, lines
from aioacl._base.states import State
from aioacl._base.unique import record

SHOWN_RECORDS: Final = 12  # of `recent`, in the text of a report


@record
class Stuck:
    """A call that was still inside C when an open, a close or a reset of the device failed.

    Attributes:
        function: the ACL function, or "a job on device.executor".
        thread: the thread's id in the operating system.
        seconds: how long the call has been inside C.
    """

    function: str
    thread: int
    seconds: float


Scope = Literal["context", "device"]
"""What a force reset replaces: aioacl's own context, or the device with all contexts that other code uses."""


@record
class ResetReport:
    """The result of one `force_reset`; callers that join a running reset receive the same report.

    `print(report)` shows it in words, with the last records of the flight recorder.

    Attributes:
        device: the device's index.
        ok: whether the device is open again, in a new generation.
        generation: the device's generation after the procedure.
        reason: the `reason` that the caller passed.
        requested_by: the name of the task or thread that requested the reset first.
        joined: the number of callers that shared this reset.
        drained: the number of busy streams whose work finished within the grace time.
        aborted: the number of streams whose work was aborted (aclrtStreamAbort), including those that were passed to
            `abortable()`.
        not_aborted: the number of streams that could not be aborted; the reset dropped their work.
        attempts: how often reset, set and probe were tried.
        codes: the calls of this reset that failed, each with its code.
        stuck: the calls that were still inside C when the reset failed.
        stages: the milliseconds spent in each stage, in order.
        problem: why the device is quarantined, in a sentence; "" if it is not quarantined.
        scope: "context" if only aioacl's own context was replaced, "device" if the device was reset.
        foreign_sets: how many sets (aclrtSetDevice) of other code the reset has undone, and made again; at most 4,096.
        more_foreign_sets: whether other code had made more sets than 4,096. They were not made again.
        device_kept: whether the reset did not release the device, because other code has an explicit context on it.
            The runtime then frees no memory; aioacl has freed its own. Always False before CANN 8.5, which does not
            report it.
        hook_errors: the hooks (`before_reset`, `after_reset`) that failed or did not return in time, each as a text.
        recent: the last records of the device in the flight recorder, at most 256, newest last, from before the end of
            the reset. `repr(report)` leaves them out.
        cann_log: the files of CANN's own log, and the times in it that belong to `recent`; "" on the simulator.
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
    scope: Scope = "device"
    foreign_sets: int = 0
    more_foreign_sets: bool = False
    device_kept: bool = False
    hook_errors: tuple[str, ...] = ()
    recent: tuple[FlightRecord, ...] = field(default=(), repr=False)
    cann_log: str = ""

    def __str__(self) -> str:
        seen = [f"  {line}" for line in lines(self.recent, SHOWN_RECORDS)]
        log = [f"  CANN's own log: {self.cann_log}"] if self.cann_log else []
        return "\n".join([self.summary(), *seen, *log])

    def summary(self) -> str:
        """Returns the report in one line, without the records."""
        times = ", ".join(f"{stage} {spent:.1f} ms" for stage, spent in self.stages.items())
        ending = f"open at generation {self.generation}" if self.ok else f"QUARANTINED: {self.problem}"
        work = f"{self.drained} streams drained, {self.aborted} aborted, {self.not_aborted} not abortable"
        origin = [f"requested by {self.requested_by}"] if self.requested_by else []
        origin += [f"reason: {self.reason}"] if self.reason else []
        hooks = f"hook errors: {'; '.join(self.hook_errors)}" if self.hook_errors else ""
        parts = [ending, ", ".join(origin), work, f"attempts {self.attempts} ({times})", hooks]
        return f"device {self.device}: {'; '.join(part for part in parts if part)}"


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
    "model_loading",
    "model_loaded",
    "stuck",
    "recovered",
]


@record
class DeviceEvent:
    """One event of a device, from `device.events()`.

    Attributes:
        kind: what has happened, one of the strings of `EventKind`. The page "Records" of the reference has a table of
            their meanings and of the attributes that each kind sets.
        device: the device's index.
        state: the device's state after the event.
        generation: the device's generation after the event; for a failed task, the generation in which the task was
            enqueued.
        at: the time of the event, in seconds of `time.monotonic()`.
        report: the report of the reset that ended with this event, or of the reset, open or close that failed; None if
            there is no report.
        text: the fault, the reason for the quarantine, the number of revoked leases, the label or the name of the
            model, or the function and the thread of a stuck call.
        missed: the number of events before this one that were dropped because they were not read in time.
        stream: for a failed task, the number of its stream (aclrtStreamGetId); -1 if the runtime did not name it.
        position: for a failed task, the position of its entry in the stream's queue.
        code: for a failed task, ACL's code; 0 for every other event.
        seconds: for a model that was loaded, how long the load took; for a stuck call, how long it had been inside C
            when aioacl last looked.
        nbytes: for a model that was loaded, the bytes of device memory that all its instances and slots use.
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
    seconds: float = 0.0
    nbytes: int = 0

    def after(self, missed: int) -> "DeviceEvent":
        """Returns this event for a listener that missed `missed` events before it."""
        return replace(self, missed=missed) if missed else self


@record
class DeviceInfo:
    """A device that the runtime can see, from `list_devices()`.

    Attributes:
        index: the index to pass to `open_device`.
        soc: the name of the chip (aclrtGetSocName), or "".
    """

    index: int
    soc: str


@record
class MemoryInfo:
    """The memory of a device (aclrtGetMemInfo, HBM), and the memory that aioacl has cached.

    Attributes:
        free: the free memory in bytes, without the cached memory.
        total: the device's total memory in bytes.
        cached: the device memory in bytes that is kept for later requests.
        cached_pinned: the pinned memory in bytes that is kept for later requests.
    """

    free: int
    total: int
    cached: int = 0
    cached_pinned: int = 0
