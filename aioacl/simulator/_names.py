"""Checks of the names that the controls take, and hints with similar known names."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, lib, text_of
from aioacl._base.options import repr_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioacl._base.ffi import CData


def c_text(what: str, text: object) -> CData:
    """Returns the text as a C string. Raises ParameterError if it is not a str or contains a null character."""
    if not isinstance(text, str) or "\0" in text:
        raise ParameterError(
            f"expected {what}, got {repr_of(text)}", hint="Pass a str without null characters."
        )
    return ffi.new("char[]", text.encode("utf-8", "surrogatepass"))


def functions() -> list[str]:
    """The names of the ACL functions."""
    return [text_of(lib.aio_table_name(index)) for index in range(lib.aio_table_size())]


def suggestion(word: object, known: Iterable[str], otherwise: str) -> str:
    """Returns a hint with known names that are similar to the word, or `otherwise` if there are none."""
    close = get_close_matches(str(word), known)
    return f"Did you mean {' or '.join(close)}?" if close else otherwise
