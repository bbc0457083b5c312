"""The rows of acl_api.inc, read once from the compiled module."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from inspect import Parameter as Argument
from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import lib, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PARAMETER: Final = re.compile(r"(?P<before>.*?)(?P<name>\w+)(?P<after>(?:\[\d*\])*)")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter, with its name and type as in the header."""

    name: str
    c_type: str

    @property
    def bare(self) -> str:
        """The type without qualifiers."""
        return " ".join(self.c_type.replace("const", " ").split())

    @property
    def writable(self) -> bool:
        """Whether the parameter is a pointer through which the function may write."""
        return "*" in self.c_type and not self.c_type.startswith("const")


@dataclass(frozen=True, slots=True)
class Row:
    """One function of the table."""

    index: int
    name: str
    kind: int
    returns: str
    since: str
    declared: str
    parameters: tuple[Parameter, ...]

    @property
    def prototype(self) -> str:
        """The declaration of the function in C."""
        return f"{self.returns} {self.name}{self.declared}"

    @property
    def signature(self) -> inspect.Signature:
        """The parameters of the function, as Python binds them."""
        return inspect.Signature([Argument(p.name, Argument.POSITIONAL_OR_KEYWORD) for p in self.parameters])


def _parameters(text: str) -> tuple[Parameter, ...]:
    inner = text.strip("()")
    return () if inner == "void" else tuple(_parameter(part.strip()) for part in inner.split(","))


def _parameter(text: str) -> Parameter:
    match = _PARAMETER.fullmatch(text)
    assert match is not None, text
    return Parameter(match["name"], (match["before"].strip() + " " + match["after"]).strip())


def _row(index: int) -> Row:
    declared = text_of(lib.aio_table_params(index))
    return Row(
        index,
        text_of(lib.aio_table_name(index)),
        lib.aio_table_kind(index),
        text_of(lib.aio_table_returns(index)),
        text_of(lib.aio_table_since(index)),
        declared,
        _parameters(declared),
    )


@cache
def rows() -> Mapping[str, Row]:
    """Returns all rows by the name of the function."""
    return {row.name: row for row in map(_row, range(lib.aio_table_size()))}


def like(name: str, names: Iterable[str]) -> str:
    """Returns " (did you mean NAME?)" for the most similar name, or "" if none is similar."""
    found = get_close_matches(name, names, n=1)
    return f" (did you mean {found[0]}?)" if found else ""
