"""The keys of items, which tell whose item it is.

The driver of a batcher compares keys. An exception of a comparison would fail the items of all keys. So the driver gets
only keys of Python's own classes, and a HashedKey for each other one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.errors import ParameterError
from aioacl._base.options import repr_of

if TYPE_CHECKING:
    from collections.abc import Hashable

PLAIN: Final = frozenset({bool, bytes, float, int, str, type(None)})


class HashedKey:
    """A key whose hash is known, and that is unequal to each key with which it cannot be compared."""

    __slots__ = ("_hash", "_key")

    def __init__(self, key: Hashable, number: int) -> None:
        self._key = key
        self._hash = number

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        theirs: Any = other._key if isinstance(other, HashedKey) else other
        try:
            return self._key is theirs or bool(self._key == theirs)
        except Exception:  # noqa: BLE001 - of the program
            return False


def key_of(key: Hashable) -> Hashable:
    """Returns a key whose hash and comparisons raise nothing. Equal keys stay equal.

    Raises:
        ParameterError: the key is not hashable.
    """
    if type(key) in PLAIN or (type(key) is tuple and all(type(each) in PLAIN for each in key)):
        return key
    try:
        return HashedKey(key, hash(key))
    except Exception as error:
        raise ParameterError(
            f"key must be hashable, got {repr_of(key)}, whose hash raises {type(error).__name__}",
            hint="Pass for example a str or an int.",
        ) from error
