"""Objects that cannot be copied, because a copy would close or release the same resource again; frozen records."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any, Final, NoReturn, TypeVar, dataclass_transform

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


def _refuse(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(
        f"cannot change {name!r} of a {type(self).__name__}: it is a record; make a changed copy with "
        "dataclasses.replace()"
    )


def _set(self: object, name: str, value: object) -> None:
    """Sets a field that has no value yet: `__init__`, copies and pickles do so."""
    if name not in type(self).__slots__ or hasattr(self, name):  # type: ignore[attr-defined]  # records have slots
        _refuse(self, name)
    object.__setattr__(self, name, value)


def _values(record: Any) -> tuple[Any, ...]:
    return tuple(getattr(record, field.name) for field in fields(record))


def _eq(self: object, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: object) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    values = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


_SHARED: Final = {
    "__setattr__": _set,
    "__delattr__": _refuse,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
}


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(made: type[T]) -> type[T]:
    """Makes a frozen dataclass with slots of a class.

    All records share their methods, except `__init__`: `dataclass(frozen=True)` would compile each method for each
    class, which would be a large part of the time of `import aioacl`. The shared methods also raise the same error for
    every attribute name. Before Python 3.14, setting an unknown attribute of a frozen dataclass with slots raises a
    TypeError about super() (gh-90562).
    """
    made = dataclass(eq=False, repr=False, slots=True)(made)
    for name, method in _SHARED.items():
        setattr(made, name, method)
    return made
