"""Checks and converts the arguments of a call, when cffi has refused them or a function is written by hand.

As in pyACL, an unsigned argument keeps its low bits only. Every other misfit raises TypeError, OverflowError or
ValueError.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NoReturn

from aioacl._base.options import repr_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioacl._pyacl.table import Field, Row

_MASKS: Final = {"pointer": (1 << 64) - 1, "size": (1 << 64) - 1, "uint": (1 << 32) - 1}
_RANGES: Final = {"int": 31, "long": 63}
_TYPES: Final[dict[str, type[Any]]] = {
    "text": str,
    "bytes": bytes,
    "list": list,
    "tuple": tuple,
    "dict": dict,
}


def _mistaken(row: Row, text: str) -> NoReturn:
    raise TypeError(f"{row.signature}: {text}")


def count(row: Row, arguments: Sequence[object]) -> None:
    """Raises TypeError if the number of arguments is wrong."""
    most = len(row.arguments)
    least = sum(not each.optional for each in row.arguments)
    if not least <= len(arguments) <= most:
        expected = str(most) if least == most else f"{least} to {most}"
        _mistaken(row, f"expected {expected} argument{'s' * (most != 1)}, got {len(arguments)}")


def converted(row: Row, field: Field, value: Any) -> Any:
    """Returns an argument as cffi accepts it. Raises TypeError, OverflowError or ValueError for a wrong argument."""
    kind = field.kind
    if kind in _MASKS or kind in _RANGES:
        if not hasattr(value, "__index__"):
            _mistaken(row, f"expected {field.name} to be an int, got {repr_of(value)}")
        number = value.__index__()
        if kind in _MASKS:
            return number & _MASKS[kind]
        bits = _RANGES[kind]
        if not -(1 << bits) <= number < 1 << bits:
            raise OverflowError(
                f"{row.signature}: expected {field.name} to have {bits + 1} bits, got {number}"
            )
        return number
    if kind == "float":
        if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
            _mistaken(row, f"expected {field.name} to be a float, got {repr_of(value)}")
        return float(value)
    if kind == "callable" and not callable(value) and not (field.optional and value is None):
        _mistaken(row, f"expected {field.name} to be callable, got {repr_of(value)}")
    if kind in _TYPES and not issubclass(type(value), _TYPES[kind]):
        _mistaken(row, f"expected {field.name} to be a {_TYPES[kind].__name__}, got {repr_of(value)}")
    if isinstance(value, str) and "\0" in value:
        raise ValueError(
            f"{row.signature}: expected {field.name} without a null character, got {repr_of(value)}"
        )
    return value


def check(row: Row, arguments: Sequence[Any]) -> list[Any]:
    """Returns the arguments as cffi accepts them. Raises TypeError, OverflowError or ValueError for a wrong one."""
    count(row, arguments)
    return [converted(row, field, value) for field, value in zip(row.arguments, arguments, strict=False)]


def encoded(text: str) -> bytes:
    """Returns a text, such as a path, as C gets it."""
    return os.fsencode(text)


def enumerator(value: int) -> int:
    """Returns a number as cffi accepts it for an enumeration without negative values."""
    return value & _MASKS["uint"]
