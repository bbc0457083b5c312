"""The errors of the library: what went wrong, where, and how to mend it.

Two kinds share one base. An error of a family carries a code of ACL, and `error_for` picks its class by the
table of codes. An error of the library's own speaks for itself: its action and cure win over those of a code
it may carry as background. Every error can be pickled and copied whole: services send them across processes.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, TypedDict, Unpack

from aioacl._base.codes import Action, Family, lookup
from aioacl._base.records import ResetReport

MESSAGE_LIMIT_BYTES: Final = 8 * 1024
_CUT: Final = "..."
NEW_STREAM: Final = "Make a new stream, or `await stream.renew()`."
_NOT_ABOUT_TASKS: Final = (
    "aclInit",
    "aclrtCreate",
    "aclrtFree",
    "aclrtGet",
    "aclrtMalloc",
    "aclrtReset",
    "aclrtSet",
)
"""How the names of calls begin that report no failure of a task."""


class _Details(TypedDict, total=False):
    """The keyword arguments every error takes, for subclasses that add one of their own."""

    code: int | None
    call: str
    device: int | None
    generation: int | None
    hint: str | None
    action: Action | None


class AclError(Exception):
    """The base of every error of aioacl, and the class of codes that fit no family.

    `action` says what helps: retry, use a new stream, reset the device, repair something outside the program,
    replace the card, or fix the code; `hint` says it in a sentence.
    """

    default_action: ClassVar[Action] = "fix_code"
    default_hint: ClassVar[str] = (
        "Look the code up in CANN's list of error codes, and the log of the process."
    )

    code: int | None
    name: str
    call: str
    device: int | None
    generation: int | None
    message: str
    hint: str
    action: Action

    def __init__(
        self,
        message: str = "",
        *,
        code: int | None = None,
        call: str = "",
        device: int | None = None,
        generation: int | None = None,
        hint: str | None = None,
        action: Action | None = None,
    ) -> None:
        self.message = _capped(message)
        super().__init__(self.message)
        self.code = code
        self.name = "" if code is None else lookup(code).name
        self.call = call
        self.device = device
        self.generation = generation
        self.action = self._usual_action() if action is None else action
        self.hint = self._usual_hint() if hint is None else hint

    def _usual_hint(self) -> str:
        return self.default_hint if self.code is None else lookup(self.code).hint or self.default_hint

    def _usual_action(self) -> Action:
        return self.default_action if self.code is None else lookup(self.code).action

    def __str__(self) -> str:
        what = "" if self.code is None else f"{self.code} {self.name}"
        text = " ".join(self.message.split())
        return _sentences(": ".join(filter(None, (self._where(), what, text))), self.hint)

    def __repr__(self) -> str:
        told = {"code": self.code, "call": self.call or None, "device": self.device}
        facts = [f"{name}={value!r}" for name, value in told.items() if value is not None]
        return f"{type(self).__name__}({', '.join([repr(self.message), *facts])})"

    def _where(self) -> str:
        device = "" if self.device is None else f"device {self.device}"
        place = " on ".join(filter(None, (self.call, device)))
        generation = "" if self.generation is None else f"generation {self.generation}"
        return ", ".join(filter(None, (place, generation)))


class ParameterError(AclError, ValueError):
    """An argument was refused, by the library or by ACL; correct the call."""

    default_hint = "Check the arguments of the call."


class ContextError(AclError):
    """A handle met a context, device or thread that it does not belong to; use it where it was made."""

    default_hint = "Use the handle only with the device and generation that made it."


class OutOfMemoryError(AclError, MemoryError):
    """The device or the host has no memory left for this; free some, or ask for less."""

    default_action = "retry"
    default_hint = "Close buffers and models that are no longer used, or ask for less, then try again."


class ResourceExhausted(AclError):
    """Something countable has run out, such as streams, events or calls in flight; close some."""

    default_action = "retry"
    default_hint = "Close what is no longer used, or let work in flight finish, then try again."


class QueueFull(AclError):
    """A queue takes no more work, and enqueueing never waits; wait for room, then enqueue again."""

    default_action = "retry"
    default_hint = "`await stream.ready()`, then enqueue again."


class DeviceTimeout(AclError, TimeoutError):
    """The time for a wait ran out while its work may still run; wait again, or abort the stream."""

    default_action = "retry"
    default_hint = (
        "The work may still end: wait again, or drop it by `stream.abort()` or `stream.renew(abort=True)`."
    )


class StreamAborted(AclError):
    """An abort dropped the work, or work on which it depends; enqueue it again if it is still wanted."""

    default_action = "retry"
    default_hint = "The stream can be used again: enqueue the work once more if it is still wanted."


class DeviceFault(AclError):
    """A task, the device or its driver failed; `action` says whether a new stream or a reset helps."""

    default_action: ClassVar[Action] = "reset"
    default_hint = "Look for the first error, then reset the device by `force_reset()`."

    def _usual_hint(self) -> str:
        known = "" if self.code is None or lookup(self.code).action != self.action else lookup(self.code).hint
        return known or (NEW_STREAM if self.action == "new_stream" else DeviceFault.default_hint)


class TaskTimeout(DeviceFault):
    """A task ran longer on the device than the runtime allows, so it failed; use a new stream.

    It is not a DeviceTimeout: that one is the time of the awaiter, and the work may still end.
    """

    default_action: ClassVar[Action] = "new_stream"
    default_hint = NEW_STREAM


class NotSupported(AclError):
    """The library, driver or chip lacks the function; update CANN to release `since`, or do without it."""

    default_hint = "Update CANN, driver and firmware, or do without it."

    since: str | None

    def __init__(self, message: str = "", *, since: str | None = None, **details: Unpack[_Details]) -> None:
        self.since = since
        super().__init__(message, **details)

    def _usual_hint(self) -> str:
        if self.since is None:
            return super()._usual_hint()
        return f"It came with CANN {self.since}: update to that release or later, or do without it."


class _OwnError(AclError):
    """What the library itself refuses or reports, with or without a code behind it."""

    def _usual_hint(self) -> str:
        return self.default_hint

    def _usual_action(self) -> Action:
        return self.default_action


class StaleHandleError(_OwnError):
    """The handle was made before a reset of its device, so it names nothing any more; make a new one."""

    default_action = "retry"
    default_hint = "Make a new handle from the device, then repeat the step with it."


class _ReportedError(_OwnError):
    """An error that tells of a reset and brings its report along, if there is one."""

    report: ResetReport | None

    def __init__(
        self, message: str = "", *, report: ResetReport | None = None, **details: Unpack[_Details]
    ) -> None:
        self.report = report
        super().__init__(message, **details)


class DeviceReset(_ReportedError):
    """A reset dropped the work that this waited for; repeat it, with new handles of the device that was reset."""

    default_action = "retry"
    default_hint = "Make new handles from the device and repeat the work."


class DeviceResetting(_OwnError):
    """The device is about to be reset and takes no new work; try again when it is open, with new handles."""

    default_action = "retry"
    default_hint = "Try again with new handles: opening and creating wait until the reset is over."


class DeviceQuarantined(_ReportedError):
    """A reset did not bring the device back, so it stays shut; read `report`, then reset it once more."""

    default_action = "reset"
    default_hint = (
        "Call `force_reset()` again; if `error.report.stuck` names a call, wait first until it has returned. "
        "If that does not help, end the process."
    )


class LeaseHeldError(_OwnError):
    """A task or a job asked for a reset that waits for itself; leave the lease first, or return from the job."""

    default_hint = "Leave the `async with device.lease()` block before the reset."


class ForkedProcessError(_OwnError):
    """The process was forked after ACL was in use, and ACL does not survive a fork; spawn instead."""

    default_hint = 'Use the spawn start method: `multiprocessing.set_start_method("spawn")`.'


class LibraryNotFound(_OwnError):
    """No ACL library could be loaded; `candidates` says for each path that was tried why not."""

    default_hint = (
        "Install CANN and `source set_env.sh` of its toolkit, or set AIOACL_LIBRARY to the path of libascendcl.so. "
        "To run without a card, set AIOACL_LIBRARY=simulator."
    )

    candidates: tuple[tuple[str, str], ...]

    def __init__(
        self,
        message: str = "no ACL library could be loaded",
        *,
        candidates: tuple[tuple[str, str], ...] = (),
        **details: Unpack[_Details],
    ) -> None:
        self.candidates = candidates
        super().__init__(message, **details)

    def __str__(self) -> str:
        tried = [f"  {path!r}: {reason}" for path, reason in self.candidates]
        return "\n".join([f"{self.message}:", *tried, self.hint]) if tried else super().__str__()


class LibraryConflict(_OwnError):
    """Another library was asked for than the process already uses; there is one for the life of a process."""

    default_hint = "Call `use_library()` once, before the first open, or start a new process."


class AclWarning(RuntimeWarning):
    """A problem that no call can raise.

    A clean-up failed, and what it should release stays until a reset. Or a stream or a device was closed with a failed
    task that nothing awaited. Or the library does not report failed tasks, so that some may be missed.
    """


_CLASSES: Final[Mapping[Family, type[AclError]]] = MappingProxyType(
    {
        Family.PARAMETER: ParameterError,
        Family.CONTEXT: ContextError,
        Family.OUT_OF_MEMORY: OutOfMemoryError,
        Family.EXHAUSTED: ResourceExhausted,
        Family.QUEUE_FULL: QueueFull,
        Family.TIMEOUT: DeviceTimeout,
        Family.ABORTED: StreamAborted,
        Family.TASK_TIMEOUT: TaskTimeout,
        Family.DEVICE_FAULT: DeviceFault,
        Family.NOT_SUPPORTED: NotSupported,
        Family.OTHER: AclError,
    }
)


def error_for(
    code: int, call: str, *, device: int | None = None, generation: int | None = None, message: str = ""
) -> AclError:
    """Make the error of a code that a call answered; `message` is the runtime's own text, if it left one.

    A code of a failed task from a call that is about no task, such as aclrtMalloc, speaks for the device.
    """
    known = lookup(code)
    kind = _CLASSES[known.family]
    action: Action = known.action
    if action == "new_stream" and call.startswith(_NOT_ABOUT_TASKS):
        action = "reset"
    return kind(message, code=code, call=call, device=device, generation=generation, action=action)


def of_device(error: AclError) -> AclError:
    """Make the same error where a new stream does not help, only a reset of the device."""
    return type(error)(
        error.message,
        code=error.code,
        call=error.call,
        device=error.device,
        generation=error.generation,
        action="reset",
    )


def _capped(text: str) -> str:
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= MESSAGE_LIMIT_BYTES:
        return text
    return raw[: MESSAGE_LIMIT_BYTES - len(_CUT)].decode("utf-8", "ignore") + _CUT


def _sentences(first: str, second: str) -> str:
    stop = "." if first and second and first[-1] not in ".!?" else ""
    return f"{first}{stop} {second}".strip()
