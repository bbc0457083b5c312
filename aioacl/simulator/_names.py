"""Names that the controls take: what they are refused with, and which known names are close to a wrong one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, lib, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioacl._base.ffi import CData


def c_text(what: str, text: object) -> CData:
    """The text for C. ParameterError for what is not a str, or holds a null character, at which C would end it."""
    if not isinstance(text, str) or "\0" in text:
        raise ParameterError(f"expected {what}, got {text!r}", hint="Pass a str without null characters.")
    return ffi.new("char[]", text.encode("utf-8", "surrogatepass"))


def functions() -> list[str]:
    """The functions of ACL."""
    return [text_of(lib.aio_table_name(index)) for index in range(lib.aio_table_size())]


def suggestion(word: object, known: Iterable[str], otherwise: str) -> str:
    """A hint that names the known names which are close to the word; without any, the other one."""
    close = get_close_matches(str(word), known)
    return f"Did you mean {' or '.join(close)}?" if close else otherwise
