"""The failed tasks that the engine found, and how they are reported to the listeners of a device."""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioacl._base import logs, origin, sync, totals
from aioacl._base.codes import DEVICE_ACTIONS, EFFECTS, lookup
from aioacl._base.errors import AclWarning, DeviceFault, of_device
from aioacl._base.ffi import ffi, lib, text_of
from aioacl._library.detection import detection
from aioacl._lifecycle.gate import error_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.errors import AclError
    from aioacl._base.origin import Site
    from aioacl._handles.stream_core import StreamCore
    from aioacl._lifecycle.admission import Admission
    from aioacl._lifecycle.manager import Manager

CALL: Final = "aclrtSynchronizeStream"  # the function that would have returned the code
TASKS: Final = {  # by the ACL function that enqueues them
    "aclrtMemcpyAsync": "a copy",
    "aclrtMemsetAsync": "a fill",
    "aclrtStreamWaitEvent": "a wait for an event",
    "aclmdlExecuteAsync": "an execution of a model",
}
STOPPED: Final = (
    "Other code has set STOP mode on a stream of this context, so a failed task has stopped the whole context, and "
    "this work may have run"
)
PERHAPS_STOPPED: Final = (
    "All streams of this context return the code, so either the device has failed, or other code has set STOP mode on "
    "a stream and a failed task has stopped the whole context. This work may have run"
)
LAST: Final = (1 << 64) - 1  # a position after all others


def name_of(code: int) -> str:
    """A code of ACL and its name."""
    return f"{code} {lookup(code).name}" if code > lib.AIO_LIMIT else "unknown code"


def name_of_stream(number: int) -> str:
    """Returns how a message names a stream: with its number, if the runtime gives one (a number of at least 0)."""
    return "a stream" if number < 0 else f"stream {number}"


class Failed(NamedTuple):
    """A task that failed, or work that was dropped: where, and the runtime's code and text."""

    code: int
    device: int
    generation: int
    stream: int
    position: int
    own: bool
    stops: bool
    text: str

    @classmethod
    def read(cls, found: Any) -> Failed:
        """Makes a Failed record from the C struct that the engine filled."""
        place = found.device, found.generation, found.stream, found.position
        return cls(found.code, *place, bool(found.own), bool(found.stops), text_of(found.text))

    @property
    def place(self) -> str:
        """The position, stream and device of the task."""
        return f"position {self.position} of {name_of_stream(self.stream)} on device {self.device}"

    @property
    def task(self) -> str:
        """Names the failed task in a sentence.

        If the library has no reports, the text gives the lowest possible position.
        """
        if detection() == "exact":
            return f"the task at {self.place}"
        return f"a task at or after {self.place}"

    def ending(self, by: str) -> str:
        """A sentence which states that the task failed. `by` is the ACL function that enqueued the task, or ""."""
        kind = f", {TASKS[by]}," if by in TASKS and detection() == "exact" else ""
        return f"{self.task}{kind} failed"

    @property
    def name(self) -> str:
        """The code and its name."""
        return name_of(self.code)

    @property
    def sentence(self) -> str:
        """Code, name and place, for a warning or a log."""
        return f"{self.name}, {self.place}"


def warn(failed: Failed, what: str, made: Site | None = None) -> None:
    """Emits an AclWarning for a failure that was not collected.

    Python shows each of these warnings, not only the first one for a line of code.

    The warning names the line that made the stream, if `made` is given, else the line of the caller. A thread of aioacl
    must pass `made`.
    """
    sentence = f"a task failed, no await raised the error, and {what}: {failed.sentence}"
    logs.warning(sentence, device=failed.device, generation=failed.generation, code=failed.code)
    warnings.warn_explicit(sentence, AclWarning, *origin.line_of(made or origin.site()), registry={})


class Failures:
    """Faults and failed tasks of one device. The lock of the device's admission is held to write them.

    Attributes:
        last_fault: the newest fault of this generation.
        cause: the first fault of this generation, but not one that is only the effect of another one.
        count: the number of failed tasks since the first open.
        last_task: the newest failed task, as a sentence.
    """

    def __init__(
        self, admission: Admission, streams: sync.WeakSet[StreamCore], poisoned: Callable[[], object]
    ) -> None:
        self._admission = admission
        self._poisoned = poisoned  # called with the lock held
        self._streams = streams
        self.last_fault: AclError | None = None
        self.cause: AclError | None = None
        self.count = 0
        self.last_task = ""

    def collect(self) -> None:
        """Reads the runtime's text of failed tasks, and reports the tasks to the listeners.

        Runs on a thread of the device.
        """
        for stream in self._streams.members():
            if lib.aio_stream_error(stream.handle, LAST, ffi.NULL):
                lib.aio_stream_take_code(stream.handle)
        self.collect_known()

    def collect_known(self) -> None:
        """Reports failed tasks to the listeners, without reading their texts from the runtime."""
        found: Any = ffi.new("aio_error *")
        while lib.aio_device_take_failure(self._admission.index, found):
            self._report(Failed.read(found))

    def stopped_by_other_code(self, generation: int) -> bool:
        """Whether a failed task has stopped the context, although aioacl has not set STOP mode on a stream.

        In a stopped context, each query returns the code of a task. The queries of a device that has failed may do so
        too. Calls no ACL function.
        """
        if self._admission.stop_generation == generation:
            return False  # a stream of aioacl has STOP mode
        code = lib.aio_device_stop_code(self._admission.index, generation)
        return code != 0 and lookup(code).action not in DEVICE_ACTIONS

    def why_stopped(self, generation: int) -> str:
        """A sentence on a context that is stopped, although aioacl has not set STOP mode; "" if it is not stopped."""
        if not self.stopped_by_other_code(generation):
            return ""
        is_known = lib.aio_device_has_foreign_stop(self._admission.index, generation)
        return STOPPED if is_known else PERHAPS_STOPPED

    def other_code_has_stop(self, generation: int) -> bool:
        """Whether other code is known to have set STOP mode on a stream of the context. Calls no ACL function."""
        has_stop = lib.aio_device_has_foreign_stop(self._admission.index, generation)
        return bool(has_stop) or self.stopped_by_other_code(generation)

    def _report(self, failed: Failed) -> None:
        error = error_of(failed.code, CALL, failed.device, failed.generation, failed.text)
        admission = self._admission
        why_stopped = self.why_stopped(failed.generation)
        parts = failed.sentence, failed.text, why_stopped
        with admission.changed:
            self.count += 1
            self.last_task = failed.sentence
            totals.count("faults_total", failed.device, failed.code, error.action)
            if failed.stops and error.action not in DEVICE_ACTIONS:
                error = of_device(error, why_stopped)
            if error.action in DEVICE_ACTIONS:
                self.poison(error)
            admission.listeners.tell(
                "fault",
                admission.state,
                failed.generation,
                text=". ".join(part.rstrip(". ") for part in parts if part),
                stream=failed.stream,
                position=failed.position,
                code=failed.code,
                error=error,
            )
            admission.announce()

    def note_fault(self, error: AclError, *, reported: bool = False) -> None:
        """Stores a device fault until the next reset, and reports it to the listeners.

        With `reported=True` the fault is not reported, because the engine has reported it already.
        """
        admission = self._admission
        with admission.changed:
            if self.poison(error) and not reported:
                totals.count("faults_total", admission.index, error.code or 0, error.action)
                admission.listeners.tell(
                    "fault", admission.state, admission.generation, text=str(error), error=error
                )
                admission.announce()

    def poison(self, error: AclError) -> bool:
        """Stores a copy of the fault without the traceback, which would keep frames alive. Call it with the lock held.

        Returns False if the fault is from before a reset. Such a fault no longer matters.
        """
        if error.generation != self._admission.generation:
            return False
        self.last_fault = copy.copy(error)
        if self.cause is None or (self.cause.code in EFFECTS and error.code not in EFFECTS):
            self.cause = self.last_fault
        if error.action in DEVICE_ACTIONS:
            self._admission.note_unready()
            self._poisoned()
        return True

    def forget_faults(self) -> None:
        """A new generation begins, to which no fault belongs. Call it with the lock held."""
        self.last_fault = self.cause = None

    def warn_at_close(self) -> None:
        """Emits an AclWarning for each failure of the device's streams that was not collected. Called after the close.

        If warnings are errors, this raises the first error and reports the others to sys.unraisablehook.
        """
        errors: list[Exception] = []
        for stream in self._streams.members():
            try:
                stream.warn_of_uncollected("its device was closed")
            except Exception as error:  # noqa: BLE001 - it is raised or reported below
                errors.append(error)
        for other in errors[1:]:
            sync.report(other)
        if errors:
            raise errors[0]


def concerns_device(error: AclError) -> bool:
    """Returns True for a fault of the device, which only a reset ends; False for the failure of one task."""
    return isinstance(error, DeviceFault) and error.action in DEVICE_ACTIONS


def warn_of_failure(manager: Manager, call: str, code: int, what: str) -> None:
    """Emits an AclWarning for a failed clean-up, because no caller can get an exception. Stores a device fault."""
    error = error_of(code, call, manager.index, manager.generation)
    # Without the maintenance thread, a finalizer may run this function on a thread that holds the lock.
    if concerns_device(error) and manager.maintenance.running:
        manager.failures.note_fault(error)
    sentence = f"{call} returned {code} on device {manager.index}: {what} is not freed until a reset"
    logs.warning(sentence, device=manager.index, code=code, call=call)
    warnings.warn(sentence, AclWarning, stacklevel=3)
