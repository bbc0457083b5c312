"""The declarations of the simulator and of five releases of CANN: functions with normalised prototypes, enumerators.

`prototypes.tsv` has one line for each prototype. Its columns are the oldest and the newest release with the prototype,
the header that declares it, and the prototype without the names of parameters. A function whose prototype changed has
two lines. `enumerators.tsv` has the releases, enumeration, name and value of each enumerator.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import build_ffi

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE: Final = Path(__file__).resolve().parent
RELEASES: Final = build_ffi.RELEASES
ROWS: Final = """
#define ACL_FN(kind, ret, name, params, args, since) since ret name params;
#include "sim_api.inc"
"""
# Enumerators that one or two releases had, but that the newest headers do not have.
WITHDRAWN: Final = {"ACL_PROF_AIV_METRICS", "ACL_PROF_SCALE", "ACL_HIFLOAT4", "ACL_OPT_EARLY_START"}
TYPEDEF_ENUM: Final = re.compile(r"typedef\s+enum\s*\w*\s*\{(?P<body>[^}]*)\}\s*(?P<name>\w+)\s*;")
ENUMERATOR: Final = re.compile(r"^\s*([A-Z]\w+)[^=]*(?:=\s*(-?\w+))?")
OUR_TYPES: Final = {"acldumpMessageCallback": "int32_t (*const)(const acldumpChunk *, int32_t)"}


@dataclass(frozen=True)
class Declared:
    """A function of the simulator."""

    name: str
    since: str
    prototype: str

    @property
    def normal(self) -> str:
        """The prototype, normalised, with the types that CANN's headers use."""
        text = normalised(self.prototype)
        for ours, theirs in OUR_TYPES.items():
            text = text.replace(ours, theirs)
        return text


@dataclass(frozen=True)
class Prototype:
    """A line of prototypes.tsv."""

    first: str
    last: str
    header: str
    text: str

    @property
    def name(self) -> str:
        """The name of the function."""
        return name_of(self.text)

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases that have the function with this prototype."""
        return RELEASES[RELEASES.index(self.first) : RELEASES.index(self.last) + 1]


def name_of(prototype: str) -> str:
    """Returns the name of the function that a prototype declares."""
    match = re.match(r"[^(]*?(\w+)\s*\(", prototype)
    assert match is not None, prototype
    return match[1]


def normalised(prototype: str) -> str:
    """Returns the prototype without names of parameters, and with spaces only where they are needed."""
    head, _, rest = prototype.partition("(")
    parameters = [_nameless(each) for each in _split(rest.rstrip("; ").removesuffix(")").strip() or "void")]
    return f"{_spaced(head)}({', '.join(parameters)})"


def _split(parameters: str) -> list[str]:
    """Splits at the commas that are not in parentheses."""
    return [each.strip() for each in re.split(r",(?![^()]*\))", parameters)]


def _nameless(parameter: str) -> str:
    pointer = re.sub(r"\(\s*\*\s*(const)?\s*\w*\s*\)", r"(*\1)", parameter)
    if pointer != parameter:
        return _spaced(pointer)
    match = re.fullmatch(r"(?P<type>.*[\s*])(?P<name>\w+)(?P<array>(\s*\[\w*\])*)", parameter, re.DOTALL)
    if match is None or match["name"] in ("const", "void"):
        return _spaced(parameter)
    return _spaced(match["type"]) + "".join(match["array"].split())


def _spaced(text: str) -> str:
    words = " ".join(text.replace("*", " * ").split())
    return re.sub(r"\* (?=[*\w])|(?<=\() | (?=[,)])", lambda found: found[0].strip(), words)


@cache
def declared() -> dict[str, Declared]:
    """Returns the functions of the simulator, as the preprocessor expands its table."""
    folders = build_ffi.include_flags()
    command = ["gcc", "-E", "-P", "-x", "c", *folders, "-"]
    text = subprocess.run(command, input=ROWS, capture_output=True, text=True, check=True).stdout
    rows = re.findall(r'"([^"]+)"\s+([^";]+);', text)
    return {name_of(prototype): Declared(name_of(prototype), since, prototype) for since, prototype in rows}


@cache
def prototypes() -> tuple[Prototype, ...]:
    """Returns the lines of prototypes.tsv."""
    lines = (HERE / "prototypes.tsv").read_text().splitlines()
    return tuple(Prototype(*line.split("\t")) for line in lines)


@cache
def enumerators() -> tuple[tuple[str, ...], ...]:
    """Returns the lines of enumerators.tsv: first and last release, enumeration, name, value."""
    return tuple(tuple(line.split("\t")) for line in (HERE / "enumerators.tsv").read_text().splitlines())


@cache
def types_text() -> str:
    """Returns the simulator's declarations of types."""
    return build_ffi.plain(str(build_ffi.SIMULATOR / "core" / "sim_types.h"))


def enumerations(text: str) -> dict[str, dict[str, str]]:
    """Returns the enumerations of headers, each with its enumerators and the values that the text sets."""
    return {match["name"]: dict(_enumerators(match["body"])) for match in TYPEDEF_ENUM.finditer(text)}


def _enumerators(body: str) -> Iterator[tuple[str, str]]:
    for each in body.split(","):
        match = ENUMERATOR.match(each)
        if match is not None:
            yield match[1], match[2] or ""
