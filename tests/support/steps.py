"""The places in Python code at which a signal handler can run, for tests that interrupt the code there."""

from __future__ import annotations

import dis
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType


@cache
def beginnings(code: CodeType) -> frozenset[int]:
    """The offsets of line starts at which a handler can run.

    No handler runs at a bare `try:` or at the end of a `with`.
    """
    first: dict[int, int] = {}
    for offset, line in dis.findlinestarts(code):
        first.setdefault(line, offset)
    return frozenset(offset for offset in first.values() if code.co_code[offset] != dis.opmap["NOP"])
