"""A minimal ELF64 reader: the names, the dependencies and the processor of a shared object."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SYMTAB, DYNAMIC, DYNSYM, VERNEED = 2, 6, 11, 0x6FFFFFFE
DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 14, 15, 29
MACHINES = {62: "x86_64", 183: "aarch64"}
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
    """Returns the folders that the loader searches first for the libraries that the file needs."""
    texts = [*_dynamic(path, DT_RPATH), *_dynamic(path, DT_RUNPATH)]
    return [folder for text in texts for folder in text.split(":")]


def machine(path: Path) -> str:
    """Returns the processor of the file."""
    (number,) = struct.unpack_from("<H", path.read_bytes(), 0x12)
    return MACHINES[number]


def versions(path: Path) -> set[str]:
    """Returns the versions of symbols that the file needs, such as GLIBC_2.17."""
    data = path.read_bytes()
    sections = _sections(data)
    found: set[str] = set()
    for section in (each for each in sections if each.kind == VERNEED):
        names, library, step = sections[section.link].offset, section.offset, 1
        while step:
            _, count, _, first, step = struct.unpack_from("<HHIII", data, library)
            version = library + first
            for _ in range(count):
                *_, name, following = struct.unpack_from("<IHHII", data, version)
                found.add(_text(data, names + name))
                version += following
            library += step
    return found


def _dynamic(path: Path, wanted: int) -> list[str]:
    data = path.read_bytes()
    sections = _sections(data)
    dynamic = next(section for section in sections if section.kind == DYNAMIC)
    entries = struct.iter_unpack("<QQ", data[dynamic.offset : dynamic.offset + dynamic.size // 16 * 16])
    return [_text(data, sections[dynamic.link].offset + value) for tag, value in entries if tag == wanted]
