"""The line of the user's code that made each device, stream, buffer and lease.

If an object is not closed, its ResourceWarning names the line that made the object (a Site). It does not help to name
the line that drops the object: this line is often in the standard library, or in other code that the garbage collector
interrupts.

A Site is one frame. An Origin records more of the stack, and how the object was closed or dropped. Origins are
recorded only while `aioacl.testing` has installed a keeper; otherwise `keeper` is None.
"""

from __future__ import annotations

import sys
import warnings
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from aioacl._base.ffi import site as _native_site

if TYPE_CHECKING:
    import weakref

    from aioacl._lifecycle.lease import Lease
    from aioacl.testing._origins import Book


# The instruction that made an object: its code object, its offset, and its module.
Site = tuple[CodeType, int, str]

# Returns the Site of the caller, which is the code that called aioacl.
site: Final = _native_site


def line_of(made: Site) -> tuple[str, int, str]:
    """Returns the file, the number and the module of a line, in the form that a warning needs."""
    code, offset, module = made
    lines = (line for begin, end, line in code.co_lines() if line is not None and begin <= offset < end)
    return code.co_filename, next(lines, code.co_firstlineno), module


def warn(sentence: str, made: Site | None, depth: int, category: type[Warning] = ResourceWarning) -> None:
    """Emits a warning at the line that made an object.

    If aioacl made the object for itself, `made` is None, and the warning names the line `depth` frames up.
    """
    if made is None:
        warnings.warn(sentence, category, stacklevel=depth + 1)
        return
    module = sys.modules.get(made[2])
    registry: dict[Any, Any] = {} if module is None else vars(module).setdefault("__warningregistry__", {})
    warnings.warn_explicit(sentence, category, *line_of(made), registry=registry)


class Droppable(Protocol):
    """An object that a finalizer may have to close, or a lease that a finalizer may have to leave."""

    _born: Origin | None
    _site: Site | None


def warn_of_drop(thing: Droppable, sentence: str, depth: int = 3) -> None:
    """Emits the ResourceWarning of a finalizer: the object was not closed, and no code can close it any more."""
    if thing._born is not None:
        thing._born.dropped = True
    warn(sentence + _made_at(thing._born), thing._site, depth)


class Frame(NamedTuple):
    """One line of a program."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


class Origin:
    """Where an object was made, and how it was closed or dropped.

    Attributes:
        frames: the user's lines on the stack, innermost first; empty if aioacl made the object for itself.
        thing: a weak reference to the object.
        what: the object's description, as part of a sentence.
        name: the name of the object's kind in `Snapshot.counts`.
        dropped: whether the last reference to the object is gone although the object was not closed.
        outlived: whether the object's device was closed before the object.
        memory: a weak reference to the bytes of a pinned buffer. The buffer and its views keep the bytes alive.
        owner: the fixture that made the object, if that fixture outlives the test.
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


keeper: Book | None = None


def lent(lease: Lease) -> Lease:
    """Returns the requested lease, and records it if there is a keeper."""
    if keeper is not None:
        keeper.lent(lease)
    return lease


def _made_at(origin: Origin | None) -> str:
    """Returns the last part of a sentence about an object: the line that made it, or "" if that is not known."""
    return f" (made at {origin.frames[0]})" if origin is not None and origin.frames else ""
