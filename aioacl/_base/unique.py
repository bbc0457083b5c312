"""Objects that exist once: a copy would close, leave or release the same thing a second time. And frozen records."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import NoReturn, TypeVar

T = TypeVar("T")


class Unique:
    """The base of what cannot be copied or pickled. `noun` names it in the error, or its class does."""

    __slots__ = ()
    noun = ""

    def __reduce__(self) -> NoReturn:
        noun = self.noun or type(self).__name__
        article = "an" if noun[0] in "aeiou" else "a"
        raise TypeError(
            f"{article} {noun} cannot be copied or pickled: it names something on a device of this process; pass the "
            f"{noun} itself"
        )


def _refuse(self: object, name: str, _: object = None) -> NoReturn:
    raise FrozenInstanceError(
        f"cannot change {name!r} of a {type(self).__name__}: it is a record; make a changed copy with "
        "dataclasses.replace()"
    )


def record(made: type[T]) -> type[T]:
    """Makes a frozen dataclass with slots refuse all names alike.

    Before Python 3.14 such a class refuses a name that it does not have by a TypeError about super() (gh-90562).
    """
    made.__setattr__ = made.__delattr__ = _refuse  # type: ignore[method-assign]  # for all instances of the class
    return made
