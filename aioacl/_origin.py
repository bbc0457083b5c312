"""Where things were made: the user's line behind each device, stream, buffer and lease, while somebody asks for it.

Nobody does in production: `keeper` is None, and making something costs one look at that. `aioacl.testing` puts a
keeper in place, which writes an Origin for whatever is made and closed, so that a leak can be told by its line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable, Coroutine

    from aioacl._lease import Lease


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

    def lent(self, lease: Lease) -> None:
        """Called when somebody has asked for a lease, which he has not entered yet."""
        ...

    def closing(self, device: Any) -> None:
        """Called when somebody closes a device, before it is."""
        ...


keeper: Keeper | None = None


def lent(lease: Lease) -> Lease:
    """The lease that somebody has asked for, written down if there is a keeper."""
    if keeper is not None:
        keeper.lent(lease)
    return lease


def told(origin: Origin | None) -> str:
    """For the end of a sentence about a thing: where it was made, if that is known."""
    return f" (made at {origin.frames[0]})" if origin is not None and origin.frames else ""
