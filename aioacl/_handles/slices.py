"""The bounds of a view: `buffer[start:stop]`."""

from __future__ import annotations

from typing import Any

from aioacl._base.errors import ParameterError
from aioacl._base.options import whole_of


def bounds_of(part: Any, size: int) -> tuple[int, int]:
    """Returns the first byte of a slice and the byte after its last one.

    Raises:
        ParameterError: `part` is not a slice of ints with the step 1.
    """
    if not _is_slice(part):
        raise ParameterError(
            f"expected a slice of a buffer, got an index of the type {type(part).__name__}",
            hint="Write buffer[start:stop], in bytes. To read bytes, use stream.download or `view` of a PinnedBuffer.",
        )
    if (1 if part.step is None else whole_of(part.step)) != 1:
        raise ParameterError(
            "expected a slice with the step 1, got another step",
            hint="A view is contiguous. Copy parts that are not contiguous one by one.",
        )
    start, stop, _ = slice(_bound(part.start), _bound(part.stop)).indices(size)
    return start, max(start, stop)


def _is_slice(part: object) -> bool:
    return isinstance(part, slice)


def _bound(value: object) -> int | None:
    if value is None:
        return None
    bound = whole_of(value)
    if bound is None:
        raise ParameterError(
            f"expected a slice of ints, got a bound of the type {type(value).__name__}",
            hint="Write buffer[start:stop], in bytes.",
        )
    return bound
