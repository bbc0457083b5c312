"""The bounds of a view: `buffer[start:stop]`."""

from __future__ import annotations

import operator
from typing import Any

from aioacl._base.errors import ParameterError


def bounds_of(part: Any, size: int) -> tuple[int, int]:
    """Returns the first byte of a slice and the byte after its last one.

    Raises:
        ParameterError: `part` is not a slice of ints with the step 1.
    """
    if not _is_slice(part):
        raise ParameterError(
            f"expected a slice of a buffer, got the index {part!r}",
            hint="Write buffer[start:stop], in bytes. To read bytes, use stream.download or `view` of a PinnedBuffer.",
        )
    try:
        step = 1 if part.step is None else operator.index(part.step)
        start, stop, _ = slice(part.start, part.stop).indices(size)
    except TypeError as error:
        raise ParameterError(
            f"expected a slice of ints, got {part!r}", hint="Write buffer[start:stop], in bytes."
        ) from error
    if step != 1:
        raise ParameterError(
            f"expected a slice with the step 1, got {part!r}",
            hint="A view is contiguous. Copy parts that are not contiguous one by one.",
        )
    return start, max(start, stop)


def _is_slice(part: object) -> bool:
    return isinstance(part, slice)
