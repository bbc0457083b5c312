"""A minimal ELF64 reader: the exported names, the SONAME and the dependencies of a shared object."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SYMTAB, DYNAMIC, DYNSYM = 2, 6, 11
DT_NEEDED, DT_SONAME, DT_RUNPATH = 1, 14, 29
UNDEFINED, LOCAL = 0, 0


@dataclass(frozen=True)
class Section:
    """A row of the section table."""

    kind: int
    offset: int
    size: int
    link: int


def _text(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()


def _sections(data: bytes) -> list[Section]:
    assert data[:6] == b"\x7fELF\x02\x01", "expected a little-endian ELF64 file"
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, table + size * index) for index in range(count)]
    return [Section(kind=row[1], offset=row[4], size=row[5], link=row[6]) for row in rows]


def is_stripped(path: Path) -> bool:
    """Whether the file has neither debug information nor the names of local symbols."""
    data = path.read_bytes()
    return b".debug_info" not in data and SYMTAB not in {section.kind for section in _sections(data)}


def exports(path: Path) -> set[str]:
    """Returns the names that the file exports."""
    data = path.read_bytes()
    sections = _sections(data)
    symbols = next(section for section in sections if section.kind == DYNSYM)
    names = sections[symbols.link].offset
    found: set[str] = set()
    for offset in range(symbols.offset, symbols.offset + symbols.size, 24):
        name, info, _, section = struct.unpack_from("<IBBH", data, offset)
        if section != UNDEFINED and info >> 4 != LOCAL:
            found.add(_text(data, names + name))
    return found


def soname(path: Path) -> str | None:
    """Returns the name of the file for the linker (SONAME)."""
    return next(iter(_dynamic(path, DT_SONAME)), None)


def needed(path: Path) -> list[str]:
    """Returns the libraries that are loaded with the file (NEEDED)."""
    return _dynamic(path, DT_NEEDED)


def runpath(path: Path) -> list[str]:
    """Returns the folders that the linker searches first for the libraries that the file needs (RUNPATH)."""
    return [folder for text in _dynamic(path, DT_RUNPATH) for folder in text.split(":")]


def _dynamic(path: Path, wanted: int) -> list[str]:
    data = path.read_bytes()
    sections = _sections(data)
    dynamic = next(section for section in sections if section.kind == DYNAMIC)
    entries = struct.iter_unpack("<QQ", data[dynamic.offset : dynamic.offset + dynamic.size // 16 * 16])
    return [_text(data, sections[dynamic.link].offset + value) for tag, value in entries if tag == wanted]
