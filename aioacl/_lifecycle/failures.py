"""Failed tasks, as the engine has found them, and how they are reported to the listeners of a device."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from aioacl._base import origin, sync
from aioacl._base.codes import DEVICE_ACTIONS, lookup
from aioacl._base.errors import AclWarning, of_device
from aioacl._base.ffi import ffi, lib, text_of
from aioacl._library.detection import detection
from aioacl._lifecycle.gate import error_of

if TYPE_CHECKING:
    from aioacl._base.errors import AclError
    from aioacl._base.ffi import CData
    from aioacl._base.origin import Site
    from aioacl._lifecycle.admission import Admission

CALL: Final = "aclrtSynchronizeStream"  # what would have returned the code
TASKS: Final = {  # by what enqueues them
    "aclrtMemcpyAsync": "a copy",
    "aclrtMemsetAsync": "a fill",
    "aclrtStreamWaitEvent": "a wait for an event",
}
LAST: Final = (1 << 64) - 1  # a position behind every other


def name_of(code: int) -> str:
    """A code of ACL and its name."""
    return f"{code} {lookup(code).name}" if code > lib.AIO_LIMIT else "not known"


def name_of_stream(number: int) -> str:
    """A stream by its number, if the runtime has one."""
    return "a stream" if number < 0 else f"stream {number}"


@dataclass(frozen=True, slots=True)
class Failed:
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
        """What the engine has written."""
        place = found.device, found.generation, found.stream, found.position
        return cls(found.code, *place, bool(found.own), bool(found.stops), text_of(found.text))

    @property
    def place(self) -> str:
        """Which task it was."""
        return f"position {self.position} of {name_of_stream(self.stream)} on device {self.device}"

    @property
    def task(self) -> str:
        """The failed task, in a sentence; without reports the position is the first that it may have."""
        if detection() == "exact":
            return f"the task at {self.place}"
        return f"a task at or behind {self.place}"

    def ending(self, by: str) -> str:
        """That it failed, in a sentence; `by` is the ACL function that enqueued what is at the position, or ""."""
        kind = f", {TASKS[by]}," if by in TASKS and detection() == "exact" else ""
        return f"{self.task}{kind} failed"

    @property
    def name(self) -> str:
        """The code and its name."""
        return name_of(self.code)

    @property
    def sentence(self) -> str:
        """All of it, for a warning or a log."""
        return f"{self.name}, {self.place}"


def warn(failed: Failed, what: str, made: Site | None = None) -> None:
    """AclWarning for a failure that nothing has collected; each is shown, not only the first from the same line.

    It names the line that made the stream, if that is given, else the caller's: a thread of aioacl has none.
    """
    sentence = f"a task failed, no await raised it, and {what}: {failed.sentence}"
    warnings.warn_explicit(sentence, AclWarning, *(made or origin.site()), registry={})


class TrackedStream(Protocol):
    """What is asked of a stream whose native stream is not destroyed yet."""

    @property
    def handle(self) -> CData:
        """The engine's."""
        ...

    def warn_of_uncollected(self, what: str) -> None:
        """AclWarning for a failure of it that nothing has collected."""
        ...

    def release_done(self) -> None:
        """Lets go of what its finished work has used."""
        ...


class Failures:
    """Faults and failed tasks of one device. Written with the lock of the device's admission held.

    Attributes:
        last_fault: the newest fault of this generation.
        count: the failed tasks since the first open.
        last_task: the newest of them, as a sentence.
    """

    def __init__(self, admission: Admission, streams: sync.WeakSet[TrackedStream]) -> None:
        self._admission = admission
        self._streams = streams
        self.last_fault: AclError | None = None
        self.count = 0
        self.last_task = ""

    def collect(self) -> None:
        """On a thread of the device's own: takes the text of failed tasks, and reports them to the listeners."""
        for stream in self._streams.members():
            if lib.aio_stream_error(stream.handle, LAST, ffi.NULL):
                lib.aio_stream_take_code(stream.handle)
        self.collect_known()

    def collect_known(self) -> None:
        """Reports failed tasks to the listeners, without asking the runtime for more."""
        found: Any = ffi.new("aio_error *")
        while lib.aio_device_take_failure(self._admission.index, found):
            self._report(Failed.read(found))

    def _report(self, failed: Failed) -> None:
        error = error_of(failed.code, CALL, failed.device, failed.generation, failed.text)
        admission = self._admission
        with admission.changed:
            self.count += 1
            self.last_task = failed.sentence
            if failed.stops or error.action in DEVICE_ACTIONS:
                self.poison(of_device(error))
            admission.listeners.tell(
                "fault",
                admission.state,
                failed.generation,
                text=f"{failed.sentence}. {failed.text}".rstrip(". "),
                stream=failed.stream,
                position=failed.position,
                code=failed.code,
            )
            admission.announce()

    def note_fault(self, error: AclError, *, told: bool = False) -> None:
        """Remembers a device fault until the next reset, and reports it to the listeners, unless the engine has."""
        admission = self._admission
        with admission.changed:
            if self.poison(error) and not told:
                admission.listeners.tell("fault", admission.state, admission.generation, text=str(error))
                admission.announce()

    def poison(self, error: AclError) -> bool:
        """With the lock held. Keeps a copy, for a traceback would keep its frames. False if a reset has cured it."""
        if error.generation != self._admission.generation:
            return False
        self.last_fault = copy.copy(error)
        return True

    def warn_at_close(self) -> None:
        """AclWarning for each failure of the device's streams that nothing has collected, once the device is closed.

        Where warnings are errors it raises the first of them, and the others go to sys.unraisablehook.
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
