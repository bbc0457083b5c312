"""Where things were made: the line of the user's code behind each device, stream, buffer and lease.

A ResourceWarning names the line that made what was not closed, a Site: the line that drops it is often one of the
standard library, or of whatever else the garbage collector interrupts.

A Site is one frame. An Origin, which has more of the stack and the end of the thing, is written only while
`aioacl.testing` has put a keeper in place; else `keeper` is None.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Coroutine
    from types import FrameType


T = TypeVar("T")


class Site(NamedTuple):
    """The line that made something, as a warning names it."""

    file: str
    line: int
    module: str


def caller() -> FrameType:
    """The innermost frame on the stack that is not one of aioacl's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _module_of(frame).partition(".")[0] == "aioacl":
        frame = frame.f_back
    return frame


def site() -> Site:
    """The line of the caller's code that called aioacl."""
    frame = caller()
    return Site(frame.f_code.co_filename, frame.f_lineno, _module_of(frame))


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def warn(sentence: str, made: Site | None, depth: int) -> None:
    """ResourceWarning at the line that made a thing; of one that aioacl made for itself, `depth` frames up."""
    if made is None:
        warnings.warn(sentence, ResourceWarning, stacklevel=depth + 1)
        return
    module = sys.modules.get(made.module)
    registry: dict[Any, Any] = {} if module is None else vars(module).setdefault("__warningregistry__", {})
    warnings.warn_explicit(sentence, ResourceWarning, *made, registry=registry)


class Droppable(Protocol):
    """What a finalizer may have to close or leave."""

    _born: Origin | None
    _site: Site | None


def warn_of_drop(thing: Droppable, sentence: str, depth: int = 3) -> None:
    """For finalizers: nothing has closed the thing, and nothing can any more."""
    if thing._born is not None:
        thing._born.dropped = True
    warn(sentence + told(thing._born), thing._site, depth)


class Frame(NamedTuple):
    """One line of a program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class Origin:
    """Where a thing was made, innermost line first, and what became of it.

    Attributes:
        frames: the user's lines on the way to it; none when aioacl made it for itself.
        thing: the thing, as long as somebody else keeps it.
        what: its name in a sentence.
        name: what its kind is called among the counts of what lives.
        dropped: nobody refers to it any more, and nobody had closed it.
        outlived: its device was closed before it.
        memory: of a pinned buffer, its bytes, as long as it or a view keeps them.
        owner: the fixture that made it, when that outlives the test.
    """

    __slots__ = ("dropped", "frames", "memory", "name", "outlived", "owner", "thing", "what")

    def __init__(self, thing: weakref.ref[Any], name: str, what: str, frames: tuple[Frame, ...]) -> None:
        self.thing = thing
        self.name = name
        self.what = what
        self.frames = frames
        self.dropped = False
        self.outlived = False
        self.memory: weakref.ref[Any] | None = None
        self.owner: Any = None


class Keeper(Protocol):
    """Who writes down where things come from."""

    def follow(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Callable[[], Coroutine[Any, Any, Any]]:
        """Called where something is about to be made: makes it likewise, and writes down this place."""
        ...

    def lent(self, lease: Any) -> None:
        """Called when somebody has asked for a lease, which he has not entered yet."""
        ...

    def closing(self, device: Any) -> None:
        """Called when somebody closes a device, before it is."""
        ...


keeper: Keeper | None = None


def lent(lease: T) -> T:
    """The lease that somebody has asked for, written down if there is a keeper."""
    if keeper is not None:
        keeper.lent(lease)
    return lease


def told(origin: Origin | None) -> str:
    """For the end of a sentence about a thing: where it was made, if that is known."""
    return f" (made at {origin.frames[0]})" if origin is not None and origin.frames else ""
