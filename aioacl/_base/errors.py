"""The exceptions of aioacl: what went wrong, where, and what to do.

There are two kinds of errors, with one base class. `error_for` makes an error from a code that ACL returned. The table
of codes has the family of the code, and the family decides the class of the error. If aioacl itself raises an error,
the error may have a code as additional information. The class of such an error decides its action and hint. Every error
can be pickled and copied without loss, because services send errors across processes.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypedDict, Unpack

from aioacl._base.codes import RETRYABLE_ACTIONS, Action, Family, lookup
from aioacl._base.flight import FlightRecord
from aioacl._base.records import ResetReport

MESSAGE_LIMIT_BYTES: Final = 8 * 1024
_LONGEST_CHARACTER_BYTES: Final = 6  # a lone surrogate is written as \udc80
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
"""Prefixes of the names of calls that do not report the failure of a task."""


class _Details(TypedDict, total=False):
    """The keyword arguments of every error, for subclasses that add an argument of their own."""

    code: int | None
    call: str
    device: int | None
    generation: int | None
    hint: str | None
    action: Action | None


class AclError(Exception):
    """The base class of all errors of aioacl. AclError itself is raised for codes that belong to no subclass.

    Attributes:
        code: the code of ACL, or None if the error has none.
        name: the name of the code, for example "ACL_ERROR_RT_FAILURE"; "" without a code.
        call: the name of the call that failed, usually an ACL function; "" if there is none.
        device: the index of the device, or None.
        generation: the generation of the device in which the error occurred, or None.
        message: what happened, at most 8 KiB of text. For an ACL call it is the runtime's own text, if there is one.
        hint: what to do, in one or two sentences.
        action: the remedy, for use by programs. "retry": repeat the operation, perhaps later. "new_stream": continue
            with a new stream. "reset": reset the device. "repair": first repair the cause outside the program.
            "replace": take the card out of service. "fix_code": change the program or its environment.
        item: of an exception that `model.map(xs, errors="return")` yields: the item of `xs`. Otherwise None.
    """

    default_action: ClassVar[Action] = "fix_code"
    default_hint: ClassVar[str] = (
        "Look up the code in CANN's list of error codes, and check the log of the process."
    )

    code: int | None
    name: str
    call: str
    device: int | None
    generation: int | None
    message: str
    hint: str
    action: Action
    item: Any = None

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

    @property
    def retryable(self) -> bool:
        """Whether the program may repeat the work now: whether `action` is "retry" or "new_stream".

        The other actions come first, or nothing helps. Only the program knows whether its work may run twice: the
        failed work may have written memory already.
        """
        return self.action in RETRYABLE_ACTIONS

    def __str__(self) -> str:
        what = "" if self.code is None else f"{self.code} {self.name}"
        text = " ".join(self.message.split())
        return _sentences(": ".join(filter(None, (self._where(), what, text))), self.hint)

    def __repr__(self) -> str:
        shown = {"code": self.code, "call": self.call or None, "device": self.device}
        facts = [f"{name}={value!r}" for name, value in shown.items() if value is not None]
        return f"{type(self).__name__}({', '.join([repr(self.message), *facts])})"

    def _where(self) -> str:
        device = "" if self.device is None else f"device {self.device}"
        place = " on ".join(filter(None, (self.call, device)))
        generation = "" if self.generation is None else f"generation {self.generation}"
        return ", ".join(filter(None, (place, generation)))


class ParameterError(AclError, ValueError):
    """aioacl or ACL refused an argument; correct the call."""

    default_hint = "Check the arguments of the call."


class ContextError(AclError):
    """A handle was used with a context, device or thread to which it does not belong; use it where it was made."""

    default_hint = "Use the handle only with the device and generation that made it."


class OutOfMemoryError(AclError, MemoryError):
    """The device or the host does not have enough free memory; free some, or request less."""

    default_action = "retry"
    default_hint = "Close buffers and models that are no longer used, or request less, then try again."


class ResourceExhausted(AclError):
    """A limited resource, such as streams or events, is used up; close handles, or let running work finish."""

    default_action = "retry"
    default_hint = "Close handles that are no longer used, or let work in flight finish, then try again."


class QueueFull(AclError):
    """The queue of a stream, the staging memory or a batcher is full, or all slots of a model are in use.

    Enqueueing never waits for room. Wait for room with `await stream.ready()`, then enqueue again. A call of a model or
    of a batcher raises this error only with `wait=False`; call it again later.

    Attributes:
        retry_after: the seconds after which a batcher will probably have room; None if this is not known.
    """

    default_action = "retry"
    default_hint = "`await stream.ready()`, then enqueue again."

    retry_after: float | None

    def __init__(
        self, message: str = "", *, retry_after: float | None = None, **details: Unpack[_Details]
    ) -> None:
        self.retry_after = retry_after
        super().__init__(message, **details)


class DeviceTimeout(AclError, TimeoutError):
    """A wait reached its timeout, and the work may still be running; wait again, or abort the stream.

    Attributes:
        started: for a call of a model or an item of a batcher, whether its work had begun. False: no slot was free, the
            model was being loaded, a reset had not ended, or the item waited for a batch; the work does not begin later
            either. True: the work continues on the device, and its result is dropped. None for other waits.
    """

    default_action = "retry"
    default_hint = (
        "The work may still end: wait again, or drop the work with `stream.abort()` or "
        "`stream.renew(abort=True)`."
    )

    started: bool | None

    def __init__(
        self, message: str = "", *, started: bool | None = None, **details: Unpack[_Details]
    ) -> None:
        self.started = started
        super().__init__(message, **details)


class StreamAborted(AclError):
    """An abort dropped the awaited work, or work on which it depends; enqueue the work again if it is still needed."""

    default_action = "retry"
    default_hint = "The stream can be used again: enqueue the work once more if it is still needed."


class DeviceFault(AclError):
    """A task, the device or its driver failed; `action` states whether a new stream or a reset helps."""

    default_action: ClassVar[Action] = "reset"
    default_hint = "Look for the first error, then reset the device with `force_reset()`."

    def _usual_hint(self) -> str:
        known = "" if self.code is None or lookup(self.code).action != self.action else lookup(self.code).hint
        return known or (NEW_STREAM if self.action == "new_stream" else DeviceFault.default_hint)


class TaskTimeout(DeviceFault):
    """A task failed because it ran longer on the device than the runtime allows; use a new stream.

    After a DeviceTimeout, in contrast, only the caller's wait has timed out, and the work may still end.
    """

    default_action: ClassVar[Action] = "new_stream"
    default_hint = NEW_STREAM


class NotSupported(AclError):
    """The library, driver or chip lacks the function; update CANN to release `since`, or do without the function.

    Attributes:
        since: the release of CANN that introduced the function, for example "8.5"; None if the function is missing for
            another reason.
    """

    default_hint = "Update CANN, driver and firmware, or do without the function."

    since: str | None

    def __init__(self, message: str = "", *, since: str | None = None, **details: Unpack[_Details]) -> None:
        self.since = since
        super().__init__(message, **details)

    def _usual_hint(self) -> str:
        if self.since is None:
            return super()._usual_hint()
        return (
            f"CANN {self.since} introduced the function: update to that release or later, or do not use it."
        )


class _OwnError(AclError):
    """An error that aioacl itself raises, with or without a code of ACL."""

    def _usual_hint(self) -> str:
        return self.default_hint

    def _usual_action(self) -> Action:
        return self.default_action


class ResetError(_OwnError):
    """The base class of the errors that a call raises because its device was or is being reset, or was closed.

    They are DeviceReset, DeviceResetting and StaleHandleError. Catch this class, and repeat the work with new handles.
    """

    default_action = "retry"
    default_hint = "Make new handles from the device and repeat the work."


class StaleHandleError(ResetError):
    """The handle is stale: it was made before a reset or the last close of its device. Make a new handle."""

    default_hint = "Make a new handle from the device, then repeat the operation with it."


class _ReportedError(_OwnError):
    """An error about a reset, with the report of that reset if there is one."""

    report: ResetReport | None

    def __init__(
        self, message: str = "", *, report: ResetReport | None = None, **details: Unpack[_Details]
    ) -> None:
        self.report = report
        super().__init__(message, **details)


class DeviceReset(ResetError, _ReportedError):
    """A reset, or the close of the device, dropped the awaited work; repeat the work with new handles.

    Attributes:
        report: the ResetReport of that reset, or None if there is none.
    """


class DeviceResetting(ResetError):
    """The device is draining or being reset and admits no new work; try again with new handles when it is open."""

    default_hint = (
        "Try again with new handles. Calls that open a device or make handles wait until the reset ends."
    )


class DeviceQuarantined(_ReportedError):
    """The device is closed to work because a reset failed or could not be tried; read `report`, then reset the device.

    Attributes:
        report: the ResetReport of the failed reset, open or close, or None if there is no report.
    """

    @property
    def recent(self) -> tuple[FlightRecord, ...]:
        """The last records of the device in the flight recorder, from `report`; empty if there is no report."""
        return () if self.report is None else self.report.recent

    default_action = "reset"
    default_hint = (
        "Call `force_reset()` again; if `error.report.stuck` names a call, first wait until that call has returned. "
        "If that does not help, end the process."
    )


class LeaseHeldError(_OwnError):
    """A task or job requested a reset that would wait for that task or job; first leave the lease or end the job."""

    default_hint = "Leave the `async with device.lease()` block before the reset."


class ForkedProcessError(_OwnError):
    """The process was forked after ACL was used, and ACL does not work in the child; use spawn instead."""

    default_hint = (
        "Use the spawn start method of multiprocessing, or fork before the parent opens or lists a device."
    )


class LibraryNotFound(_OwnError):
    """No ACL library could be loaded.

    Attributes:
        candidates: the paths that were tried, each with the reason why it was not used.
    """

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
    """The caller requested an ACL library other than the one in use; a process uses one library until it ends."""

    default_hint = "Call `use_library()` once, before the first open, or start a new process."


class AclWarning(RuntimeWarning):
    """The category of warnings about problems that no call can raise as an error.

    The problem has one of five causes: (1) a clean-up failed, so a resource stays allocated until a reset; (2) a
    stream was closed or renewed, or a device was closed, with a failure that was not collected; (3) the library does
    not report failed tasks, so aioacl may miss some; (4) the simulator has loaded an ONNX model, which a card refuses;
    (5) the file of AIOACL_RECORDER cannot be made.
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
    """Make the error for a code that a call returned; `message` is the runtime's own text, if there is one.

    If a call that concerns no task, such as aclrtMalloc, returns the code of a failed task, the device has failed. Then
    the error's action is "reset", not "new_stream".
    """
    known = lookup(code)
    kind = _CLASSES[known.family]
    action: Action = known.action
    if action == "new_stream" and call.startswith(_NOT_ABOUT_TASKS):
        action = "reset"
    return kind(message, code=code, call=call, device=device, generation=generation, action=action)


def of_device(error: AclError, reason: str = "") -> AclError:
    """Return a copy of the error with the action "reset", for a failure after which a new stream does not help.

    The reason is added to the message.
    """
    return type(error)(
        _sentences(error.message, reason),
        code=error.code,
        call=error.call,
        device=error.device,
        generation=error.generation,
        action="reset",
    )


def _capped(text: str) -> str:
    if len(text) * _LONGEST_CHARACTER_BYTES <= MESSAGE_LIMIT_BYTES:
        return text
    raw = text.encode("utf-8", "backslashreplace")
    if len(raw) <= MESSAGE_LIMIT_BYTES:
        return text
    return raw[: MESSAGE_LIMIT_BYTES - len(_CUT)].decode("utf-8", "ignore") + _CUT


def _sentences(first: str, second: str) -> str:
    stop = "." if first and second and first[-1] not in ".!?" else ""
    return f"{first}{stop} {second}".strip()
