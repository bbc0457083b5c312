"""The keeper of origins: writes down the user's line behind whatever is made.

The lines are taken from the stack where the thing is asked for (`device.create_stream()`), not where it is awaited:
by then a task of its own may be all that is on the stack. Coroutines that await each other are on it, so the callers
are told too. What is kept are a file's name and two numbers for each line; the text is read when it is shown.
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
from aioacl._handles.memory import DeviceBuffer, PinnedBuffer
from aioacl._handles.stream import Stream
from aioacl._lifecycle.lease import Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import CodeType, FrameType

FRAMES_AT_MOST: Final = 4
OUTERMOST: Final = frozenset(
    {"_pytest", "pluggy", "unittest", "xdist"}
)  # who calls a test: no line above matters
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
}


@lru_cache(maxsize=4096)
def _is_library(file: str) -> bool:
    """Whether a file is Python's own. What is installed beside it may be the user's."""
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
    """The user's lines on a stack, innermost first, at most four."""
    lines = (Frame(_shown(code.co_filename), line, code.co_qualname) for code, line in _stack(frame))
    return tuple(line for line, _ in zip(lines, range(FRAMES_AT_MOST), strict=False))


@lru_cache(maxsize=4096)
def _shown(file: str) -> str:
    """A path as one would type it here."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def where(frames: tuple[Frame, ...], *, indent: str = "    ") -> str:
    """The lines and their text, for a report; empty if none is known."""
    told: list[str] = []
    for frame in frames:
        told.append(f"{indent}{'called ' if told else ''}at {frame}")
        text = linecache.getline(frame.file, frame.line).strip()
        told += [f"{indent}    {text}"] if text else []
    return "\n".join(told)


class Book:
    """The keeper: what was made since it was put in place, except what was removed."""

    def __init__(self) -> None:
        self.origins: list[Origin] = []
        self.owner: object = None
        self._audits = 0

    def open(self) -> None:
        """One more audit is under way: the book is written."""
        self._audits += 1
        _origin.keeper = self

    def shut(self) -> None:
        """One less; after the last, nothing is written down."""
        self._audits -= 1
        if not self._audits:
            _origin.keeper = None

    def follow(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[[], Coroutine[Any, Any, Any]]:
        """Makes it likewise, and writes down who asked for it."""
        frames = frames_of(sys._getframe(1))

        async def made() -> Any:
            __tracebackhide__ = True  # pytest's word for: this is not where it went wrong
            thing = await begin()
            self._write(thing, frames)
            return thing

        return made

    def _write(self, thing: Any, frames: tuple[Frame, ...]) -> None:
        kind = next((kind for kind in _NAMES if isinstance(thing, kind)), None)
        if kind is None:  # events are pooled: nobody need close one
            return
        origin = Origin(weakref.ref(thing), _NAMES[kind], _what(thing), frames)
        origin.owner = self.owner
        if isinstance(thing, PinnedBuffer):
            origin.memory = weakref.ref(thing._bytes)
        thing._born = origin
        self.origins.append(origin)

    def lent(self, lease: Lease) -> None:
        """Writes down who asked for it."""
        what = f"a lease on device {lease._grantor.index}"
        origin = Origin(weakref.ref(lease), "leases", what, frames_of(sys._getframe(1)))
        origin.owner = self.owner
        lease._born = origin
        self.origins.append(origin)

    def closing(self, device: Any) -> None:
        """What is still open when its device is closed for the last time was left."""
        if device._manager.admission.opens > 1:
            return
        for origin in self.origins:
            thing = origin.thing()
            if thing is None or isinstance(thing, Lease):  # which may be left later
                continue
            if thing._manager is device._manager and is_open(thing):
                origin.outlived = True

    def remove(self, gone: list[Origin]) -> None:
        """Forgets these."""
        removed = set(gone)
        self.origins = [origin for origin in self.origins if origin not in removed]


def _what(thing: Any) -> str:
    if isinstance(thing, Device):
        return f"device {thing.index}"
    size = f" of {thing.size} bytes" if isinstance(thing, DeviceBuffer | PinnedBuffer) else ""
    return f"a {thing.noun}{size} on device {thing._manager.index}"


def is_open(thing: Any) -> bool:
    """Whether something is left to close, or a lease to leave."""
    if isinstance(thing, Lease):
        return bool(thing._holders or thing._lost)
    return not thing._closed and not getattr(thing, "stale", False)


def is_viewed(origin: Origin) -> bool:
    """Whether it is pinned memory that was closed, or dropped, and lives on: somebody has a view of it."""
    thing = origin.thing()
    return origin.memory is not None and (thing is None or thing._closed) and origin.memory() is not None


def is_held(origin: Origin) -> bool:
    """Whether it is a lease that somebody has entered and not left yet, taken from him or not."""
    thing = origin.thing()
    return isinstance(thing, Lease) and is_open(thing)


def verdict(origin: Origin) -> str:
    """What is wrong about how the thing ended; "" if nothing is."""
    thing = origin.thing()
    if origin.name == "leases":
        return "was never left" if origin.dropped or is_held(origin) else ""
    if origin.dropped:
        return "was dropped without being closed"
    if thing is not None and is_open(thing):
        return "is still open"
    if origin.outlived and (thing is None or not thing._closed):
        return "was still open when its device was closed"
    if is_viewed(origin):
        return "was closed, and a view of it is still there"
    return ""


_book: Final = Book()


def book() -> Book:
    """The one of this process."""
    return _book


def origin_of(thing: object) -> str:
    """Where a device, stream or buffer was made, as `file:line in function`; "" if nobody wrote it down.

    It is written down while an audit is under way: within `audit()`, or in a test that the plugin looks after.
    """
    born: Origin | None = getattr(thing, "_born", None)
    return str(born.frames[0]) if born is not None and born.frames else ""
