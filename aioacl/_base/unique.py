"""Objects that cannot be copied, because a copy would close or release the same resource again; frozen records."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import NoReturn, TypeVar

T = TypeVar("T")


class Unique:
    """The base class of objects that cannot be copied or pickled.

    The error names `_noun`, or the class if `_noun` is empty.
    """

    __slots__ = ()
    _noun = ""

    def __reduce__(self) -> NoReturn:
        noun = self._noun or type(self).__name__
        article = "an" if noun[0] in "aeiou" else "a"
        raise TypeError(
            f"{article} {noun} cannot be copied or pickled, because it refers to a device of this process; use the "
            f"same {noun} within this process, and make another one in each other process"
        )


def _refuse(self: object, name: str, _: object = None) -> NoReturn:
    raise FrozenInstanceError(
        f"cannot change {name!r} of a {type(self).__name__}: it is a record; make a changed copy with "
        "dataclasses.replace()"
    )


def record(made: type[T]) -> type[T]:
    """Makes a frozen dataclass with slots raise the same error for every attribute name.

    Before Python 3.14, setting an unknown attribute of such a class raises a TypeError about super() (gh-90562).
    """
    made.__setattr__ = made.__delattr__ = _refuse  # type: ignore[method-assign]  # for all instances of the class
    return made
