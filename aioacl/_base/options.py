"""Frozen records: what is reported; and what numbers and times may be."""

from __future__ import annotations

import operator
import sys
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, SupportsFloat, SupportsIndex, TypeAlias

from aioacl._base import sync as _sync
from aioacl._base.errors import ParameterError
from aioacl._base.states import State
from aioacl._base.unique import record


def _unreadable(value: Any, error: Exception) -> ParameterError:
    """The error for a value whose own methods have raised one."""
    return ParameterError(
        f"expected a number, got an object of {type(value).__name__} whose value cannot be read: {error!r}",
        hint="Pass an int, or a float where one is allowed.",
    )


def _has_no_value(value: Any) -> bool:
    """Whether it is an array of several numbers, or a masked one, which numpy would read as nan or as its data."""
    return bool(getattr(value, "ndim", 0)) or (
        hasattr(value, "dtype") and bool(getattr(value, "mask", False))
    )


def whole_of(value: Any) -> int | None:
    """The int that a value is, or gives as its `__index__`, as numpy's integers do. None for others, and for a bool.

    ParameterError for one whose own methods raise an error.
    """
    if type(value) is int:
        return value
    try:
        return _whole(value)
    except Exception as error:
        raise _unreadable(value, error) from error


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or _has_no_value(value):
        return None
    try:
        return int(operator.index(value))
    except TypeError:
        return None


REAL_KINDS: Final = "iuf"  # of numpy's types; its bools, complex numbers and durations have `__float__` too


def real_of(value: Any) -> float | None:
    """The float of a real number, numpy's too: what has `__float__` or `__index__`. None for others, and for a bool.

    ParameterError for one whose own methods raise an error.
    """
    if type(value) is float:
        return value
    try:
        return _real(value)
    except Exception as error:
        raise _unreadable(value, error) from error


def _real(value: Any) -> float | None:
    kind = getattr(getattr(value, "dtype", None), "kind", "f")
    number = isinstance(value, SupportsFloat | SupportsIndex)  # float() takes texts too
    if isinstance(value, bool) or kind not in REAL_KINDS or not number or _has_no_value(value):
        return None
    try:
        return float(value)
    except OverflowError:  # an int that no float can hold
        whole = _whole(value)
        if whole is None:
            raise
        return None if whole < 0 else sys.float_info.max


Seconds: TypeAlias = SupportsFloat | SupportsIndex
LONGEST_SECONDS = 1e7  # a wait of four months is a wait without end, and more would not fit into C


def seconds_of(timeout: Seconds, least: float = 0.0) -> float:
    """The seconds of a timeout. ParameterError for what is no time."""
    seconds = real_of(timeout)
    if seconds is None or not seconds >= least:
        raise ParameterError(
            f"timeout must be a number of seconds, at least 0, or None, got {timeout!r}",
            hint="Pass None, or leave it out, to wait without a limit.",
        )
    return seconds


def deadline_of(timeout: Seconds | None) -> float | None:
    """The time on the clock at which a timeout ends. ParameterError for what is no time."""
    if timeout is None:
        return None
    seconds = seconds_of(timeout)
    return None if seconds > LONGEST_SECONDS else _sync.monotonic() + seconds


class DefaultSeconds(float):
    """A time that the caller has not chosen, so another argument may be below it."""

    __slots__ = ()


GRACE: Final = DefaultSeconds(5.0)
LEAST_RESET_SECONDS: Final = 0.05  # with less, a reset of an idle device ends in quarantine


def bound_of(name: str, value: Seconds, least: float = 0.0) -> float:
    """The seconds of a time that has to be given. ParameterError for what is none."""
    seconds = real_of(value)
    if seconds is None or not least <= seconds < float("inf"):
        raise ParameterError(
            f"{name} must be a finite number of seconds, at least {least:g}, got {value!r}",
            hint="Pass seconds, or leave it out for the default.",
        )
    return seconds


def limits_of_reset(grace: Seconds, timeout: Seconds) -> tuple[float, float]:
    """The grace time and the time of a reset. ParameterError for what is none."""
    drain, whole = bound_of("grace", grace), bound_of("timeout", timeout, LEAST_RESET_SECONDS)
    if drain > whole and not isinstance(grace, DefaultSeconds):
        raise ParameterError(
            f"grace must not be above timeout, got grace={grace!r} and timeout={timeout!r}",
            hint=f"Pass timeout={2 * drain:g}: the grace time is at most half of it, the reset needs the rest.",
        )
    return drain, whole


def must_be_reason(reason: object) -> None:
    """ParameterError for what is no reason of a reset."""
    if not isinstance(reason, str):
        raise ParameterError(f"reason must be a str, got {reason!r}", hint="Pass a text for the report.")


Strategy = Literal["watch", "thread"]
OnFailure = Literal["continue", "stop"]


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
    """What one flight of `force_reset` did.

    Attributes:
        device: the device's index.
        ok: whether the device is open again, on a new generation.
        generation: the device's generation after the flight.
        reason: what the caller gave as the reason.
        requested_by: the name of the task or thread that asked first.
        joined: how many callers shared the flight.
        drained: streams that were busy and finished within the grace time.
        aborted: streams whose work was aborted (aclrtStreamAbort), those named by `abortable()` included.
        not_aborted: streams that could not be aborted; their work was dropped by the reset.
        attempts: how often reset, set and probe were tried.
        codes: the calls of the flight that failed, with their codes.
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

    def after(self, missed: int) -> DeviceEvent:
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
