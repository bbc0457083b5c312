"""The keeper of origins: it records the user's line that makes each object.

The lines are taken from the stack of the request (`device.create_stream()`). The stack of the await may contain only a
separate task. Coroutines that await each other are on the stack, so the callers are recorded too.
Each record has the file, the line and the function; the line's text is read only for a report.
"""

from __future__ import annotations

import linecache
import sys
import sysconfig
import weakref
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import origin as _origin
from aioacl._base.origin import Frame, Origin
from aioacl._device import Device
from aioacl._handles.memory import DeviceBuffer
from aioacl._handles.pinned import PinnedBuffer
from aioacl._handles.stream import Stream
from aioacl._lifecycle.lease import Lease
from aioacl._models.model import Model

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import CodeType, FrameType

    from aioacl._lifecycle.manager import Manager

FRAMES_AT_MOST: Final = 4
# The packages that call a test. Their frames, and the frames that call them, are not recorded.
OUTERMOST: Final = frozenset({"_pytest", "pluggy", "unittest", "xdist"})
BETWEEN: Final = frozenset(
    {"aioacl", "pytest_aioacl", "pytest", "pytest_asyncio", "anyio", "trio", "outcome"}
)
STDLIB: Final = sysconfig.get_path("stdlib")
INSTALLED: Final = ("site-packages", "dist-packages")

_NAMES: Final[dict[type, str]] = {
    Device: "devices",
    Stream: "streams",
    DeviceBuffer: "device_blocks",
    PinnedBuffer: "host_blocks",
    Model: "offline_models",
}


@lru_cache(maxsize=4096)
def _is_library(file: str) -> bool:
    """Whether a file belongs to Python's standard library. Files of installed packages do not belong to it."""
    return file.startswith("<frozen") or (
        file.startswith(STDLIB) and not any(place in file for place in INSTALLED)
    )


def _stack(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    while frame is not None:
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package in OUTERMOST:
            return
        if package not in BETWEEN and not _is_library(frame.f_code.co_filename):
            yield frame.f_code, frame.f_lineno
        frame = frame.f_back


def frames_of(frame: FrameType | None) -> tuple[Frame, ...]:
    """Returns the user's lines on a stack, innermost first, at most four."""
    lines = (Frame(_shown(code.co_filename), line, code.co_qualname) for code, line in _stack(frame))
    return tuple(line for line, _ in zip(lines, range(FRAMES_AT_MOST), strict=False))


@lru_cache(maxsize=4096)
def _shown(file: str) -> str:
    """Returns a path relative to the current directory, if the file is in it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def where(frames: tuple[Frame, ...], *, indent: str = "    ") -> str:
    """Returns the lines and their text for a report; "" if no line is known."""
    lines: list[str] = []
    for frame in frames:
        lines.append(f"{indent}{'called ' if lines else ''}at {frame}")
        text = linecache.getline(frame.file, frame.line).strip()
        lines += [f"{indent}    {text}"] if text else []
    return "\n".join(lines)


class Book:
    """The keeper: the origins of all objects made since it was installed, except removed ones."""

    def __init__(self) -> None:
        self.origins: list[Origin] = []
        self.owner: object = None
        self._audits = 0

    def open(self) -> None:
        """Begins an audit. Origins are recorded while at least one audit runs."""
        self._audits += 1
        _origin.keeper = self

    def shut(self) -> None:
        """Ends an audit. After the end of the last audit, no origins are recorded."""
        self._audits -= 1
        if not self._audits:
            _origin.keeper = None

    def follow(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[[], Coroutine[Any, Any, Any]]:
        """Returns a coroutine function that makes the object and records its origin."""
        frames = frames_of(sys._getframe(1))

        async def made() -> Any:
            __tracebackhide__ = True  # pytest omits this frame from tracebacks
            thing = await begin()
            self._record(thing, frames)
            return thing

        return made

    def _record(self, thing: Any, frames: tuple[Frame, ...]) -> None:
        kind = next((kind for kind in _NAMES if isinstance(thing, kind)), None)
        if kind is None:  # events are pooled and need no close
            return
        origin = Origin(weakref.ref(thing), _NAMES[kind], _what(thing), frames)
        origin.owner = self.owner
        if isinstance(thing, PinnedBuffer):
            origin.memory = weakref.ref(thing._bytes)
        thing._born = origin
        self.origins.append(origin)

    def made(self, thing: Any) -> None:
        """Records the origin of an object that a plain call made."""
        self._record(thing, frames_of(sys._getframe(1)))

    def lent(self, lease: Lease) -> None:
        """Records the origin of a lease."""
        what = f"a lease on device {lease._admission.index}"
        origin = Origin(weakref.ref(lease), "leases", what, frames_of(sys._getframe(1)))
        origin.owner = self.owner
        lease._born = origin
        self.origins.append(origin)

    def closing(self, device: Any) -> None:
        """Marks the objects that are still open when their device is closed for the last time."""
        if device._manager.admission.opens > 1:
            return
        for origin in self.origins:
            thing = origin.thing()
            if thing is None or isinstance(thing, Lease):  # a lease may be left after the close
                continue
            if _manager_of(thing) is device._manager and is_open(thing):
                origin.outlived = True

    def remove(self, gone: list[Origin]) -> None:
        """Removes these origins."""
        removed = set(gone)
        self.origins = [origin for origin in self.origins if origin not in removed]


def _what(thing: Any) -> str:
    if isinstance(thing, Device):
        return f"device {thing.index}"
    size = f" of {thing.size} bytes" if isinstance(thing, DeviceBuffer | PinnedBuffer) else ""
    return f"a {thing._noun}{size} on device {_manager_of(thing).index}"


def _manager_of(thing: Any) -> Manager:
    manager: Manager = thing._life.manager if isinstance(thing, Model) else thing._manager
    return manager


def _is_closed(thing: Any) -> bool:
    """Whether `close` was called."""
    return bool(thing._life.closed if isinstance(thing, Model) else thing._closed)


def is_open(thing: Any) -> bool:
    """Whether an object is not closed yet, or a lease is not left yet."""
    if isinstance(thing, Lease):
        return bool(thing._holders or thing._lost)
    return not _is_closed(thing) and not getattr(thing, "stale", False)


def is_viewed(origin: Origin) -> bool:
    """Whether the object is pinned memory that was closed or dropped, while a view keeps its bytes alive."""
    thing = origin.thing()
    return origin.memory is not None and (thing is None or thing._closed) and origin.memory() is not None


def is_held(origin: Origin) -> bool:
    """Whether the object is a lease that was entered and not left yet, revoked or not."""
    thing = origin.thing()
    return isinstance(thing, Lease) and is_open(thing)


def problem_of(origin: Origin) -> str:
    """Describes why the object was not closed correctly; "" if it was."""
    thing = origin.thing()
    if origin.name == "leases":
        return "was never left" if origin.dropped or is_held(origin) else ""
    if origin.dropped:
        return "was dropped without being closed"
    outlived = origin.outlived and (thing is None or not _is_closed(thing))
    if thing is not None and is_open(thing) and not (outlived and isinstance(thing, Model)):
        return "is still open"
    if outlived:
        return "was still open when its device was closed"
    if is_viewed(origin):
        return "was closed, but a view of it is still alive"
    return ""


_book: Final = Book()


def book() -> Book:
    """Returns the keeper of this process."""
    return _book


def origin_of(thing: object) -> str:
    """Returns the line that made a device, stream, buffer, model or lease, as `file:line in function`.

    Lines are recorded only during an audit: within `audit()`, or in a test that the plugin checks.

    Args:
        thing: a Device, Stream, DeviceBuffer, PinnedBuffer, Model or lease.

    Returns:
        The line, or "" if it was not recorded.
    """
    born: Origin | None = getattr(thing, "_born", None)
    return str(born.frames[0]) if born is not None and born.frames else ""
