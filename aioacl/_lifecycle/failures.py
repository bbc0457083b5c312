"""Failed tasks, as the engine has found them, and how they are reported to the listeners of a device."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import origin as _origin
from aioacl._base import sync as _sync
from aioacl._base.codes import DEVICE_ACTIONS, lookup
from aioacl._base.errors import AclWarning, of_device
from aioacl._base.ffi import ffi, lib, text_of
from aioacl._library.detection import detection
from aioacl._lifecycle.gate import error_of

if TYPE_CHECKING:
    from aioacl._base.origin import Site
    from aioacl._lifecycle.manager import Manager

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


def tell(manager: Manager) -> None:
    """On the maintenance lane: takes the text of failed tasks, and reports them to the listeners."""
    for core in manager.cores.members():
        if lib.aio_stream_error(core.handle, LAST, ffi.NULL):
            lib.aio_stream_take_code(core.handle)
    tell_known(manager)


def tell_known(manager: Manager) -> None:
    """Reports failed tasks to the listeners, without asking the runtime for more."""
    found: Any = ffi.new("aio_error *")
    while lib.aio_device_take_failure(manager.index, found):
        _tell_one(manager, Failed.read(found))


def warn_at_close(manager: Manager) -> None:
    """AclWarning for each failure of the device's streams that nothing has collected, once the device is closed.

    Where warnings are errors it raises the first of them, and the others go to sys.unraisablehook.
    """
    errors: list[Exception] = []
    for core in manager.cores.members():
        try:
            core.warn_of_uncollected("its device was closed")
        except Exception as error:  # noqa: BLE001 - it is raised or reported below
            errors.append(error)
    for other in errors[1:]:
        _sync.report(other)
    if errors:
        raise errors[0]


def warn(failed: Failed, what: str, made: Site | None = None) -> None:
    """AclWarning for a failure that nothing has collected; each is shown, not only the first from the same line.

    It names the line that made the stream, if that is given, else the caller's: a thread of aioacl has none.
    """
    sentence = f"a task failed, no await raised it, and {what}: {failed.sentence}"
    warnings.warn_explicit(sentence, AclWarning, *(made or _origin.site()), registry={})


def _tell_one(manager: Manager, failed: Failed) -> None:
    error = error_of(failed.code, CALL, failed.device, failed.generation, failed.text)
    with manager.changed:
        manager.failures += 1
        manager.last_failure = failed.sentence
        if failed.stops or error.action in DEVICE_ACTIONS:
            manager.poison(of_device(error))
        manager.listeners.tell(
            "fault",
            manager.state,
            failed.generation,
            text=f"{failed.sentence}. {failed.text}".rstrip(". "),
            stream=failed.stream,
            position=failed.position,
            code=failed.code,
        )
        manager.announce()
