"""Where the ACL library may be, and whether the files on the path to it can be trusted. This module loads nothing.

A library runs its constructors when it is loaded. So a user who can write to the library, or to a folder on the path to
it, can run code in this process. Therefore every candidate is an absolute path. Each folder and link on that path is
inspected before the library is loaded by the path. This module searches the folders of the dynamic linker itself. A
dlopen of a bare name would inspect nothing, and would treat an empty element of LD_LIBRARY_PATH as the current
directory.

A choice, by argument or by AIOACL_LIBRARY, is the only candidate: no other library is tried. The simulator is used
only on request, because its results would look right and be wrong. Two things are not checked. The linker finds the
dependencies of a library by LD_LIBRARY_PATH, and a file may change between the inspection and the load.
"""

import errno
import mmap
import os
import re
import stat
import struct
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from glob import escape, glob
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final, Literal, NamedTuple

_FOLDERS: Final = ("/usr/local/Ascend/cann/lib64", "/usr/local/Ascend/ascend-toolkit/latest/lib64")
_SONAMES: Final = ("libascendcl.so", "libacl_rt.so")
_COMPANIONS: Final = ("libacl_rt.so", "libacl_mdl.so", "libacl_op_executor.so", "libacl_tdt_channel.so")
_ELF: Final = b"\x7fELF"
_ELF64: Final = _ELF + b"\x02\x01"  # 64 bits, little-endian
_HEADER: Final = struct.Struct("<32xQ14xHH4x2x")  # e_phoff, e_phentsize, e_phnum
_SEGMENT: Final = struct.Struct("<I4xQ16xQ16x")  # p_type, p_offset, p_filesz
_LOAD: Final = 1  # PT_LOAD
_SIMULATOR: Final = b"aclsim_control_version"  # a symbol that each simulator exports
_LINKER_CONFIGURATION: Final = Path("/etc/ld.so.conf")
_MAX_LINKS: Final = 40
ABSENT: Final = "no such file"

Home = Literal["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"]
Origin = Literal["argument", "AIOACL_LIBRARY", "loaded", Home, "installation", "LD_LIBRARY_PATH", "linker"]

_HOMES: Final[tuple[Home, ...]] = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_OF_LINKER: Final[tuple[Origin, ...]] = ("LD_LIBRARY_PATH", "linker")
_VARIABLES: Final[tuple[Origin, ...]] = ("AIOACL_LIBRARY", *_HOMES)
_REMEDIES: Final[Mapping[Origin, str]] = MappingProxyType(
    {
        "argument": "pass use_library() an absolute path or 'simulator'",
        "AIOACL_LIBRARY": "set AIOACL_LIBRARY to an absolute path or to 'simulator'",
        "loaded": "load it by an absolute path, or call use_library() before other code loads ACL",
        "ASCEND_HOME_PATH": "ASCEND_HOME_PATH must be an absolute path",
        "ASCEND_TOOLKIT_HOME": "ASCEND_TOOLKIT_HOME must be an absolute path",
        "LD_LIBRARY_PATH": "LD_LIBRARY_PATH must hold absolute paths",
        "linker": "ld.so.conf must hold absolute paths",
    }
)
ON_REQUEST: Final[tuple[Origin, ...]] = ("argument", "AIOACL_LIBRARY")


class Candidate(NamedTuple):
    """A file that may be the library, and the rule that names it."""

    path: str
    origin: Origin


class Rules(NamedTuple):
    """The user ids whose files are trusted, and whether a file with any finding is refused."""

    owners: frozenset[int]
    strict: bool = False


class Unusable(Exception):
    """A candidate cannot be used; the text is the reason, which becomes a line of the search's report."""


def requested(choice: str | None, environ: Mapping[str, str]) -> Candidate | None:
    """Return the caller's choice, else the choice in AIOACL_LIBRARY, else None."""
    if choice is not None:
        return Candidate(choice, "argument")
    if "AIOACL_LIBRARY" in environ:
        return Candidate(environ["AIOACL_LIBRARY"], "AIOACL_LIBRARY")
    return None


def candidates(environ: Mapping[str, str], configuration: Path = _LINKER_CONFIGURATION) -> list[Candidate]:
    """List the paths where CANN may be installed, in search order, for a process that names no library."""
    places = [Candidate(str(Path(environ[home], "lib64")), home) for home in _HOMES if home in environ]
    places += [Candidate(folder, "installation") for folder in _FOLDERS]
    tries = [place._replace(path=str(Path(place.path, name))) for place in places for name in _SONAMES]
    folders = _linker_folders(environ, configuration)
    tries += [place._replace(path=str(Path(place.path, name))) for name in _SONAMES for place in folders]
    firsts: dict[str, Candidate] = {}
    return [firsts.setdefault(each.path, each) for each in tries if each.path not in firsts]


def _linker_folders(environ: Mapping[str, str], configuration: Path) -> list[Candidate]:
    """List the folders in which the dynamic linker searches for a bare name: see ld.so(8)."""
    listed = environ.get("LD_LIBRARY_PATH")
    places = [Candidate(folder, "LD_LIBRARY_PATH") for folder in re.split("[:;]", listed)] if listed else []
    multiarch = sysconfig.get_config_var("MULTIARCH")
    own = [f"{root}/{multiarch}" for root in ("/lib", "/usr/lib")] if multiarch else []
    own += ["/lib64", "/usr/lib64", "/lib", "/usr/lib"]
    return places + [Candidate(folder, "linker") for folder in [*_configured(configuration), *own]]


def _configured(configuration: Path) -> Iterator[str]:
    """Read the folders of ld.so.conf(5) and of the files that it includes, each file once."""
    pending: list[str | Path] = [configuration]
    seen: set[str] = set()
    while pending:
        entry = pending.pop()
        if isinstance(entry, str):
            yield entry
        elif (file := os.path.realpath(entry)) not in seen:
            seen.add(file)
            pending += reversed(_entries(entry))


def _entries(configuration: Path) -> list[str | Path]:
    """List the folders and included files that one file of the linker's configuration names."""
    entries: list[str | Path] = []
    try:
        lines = configuration.read_text(errors="replace").splitlines()
    except OSError:
        return entries
    for line in lines:
        words = line.partition("#")[0].split()
        if words[:1] == ["include"]:
            entries += (path for pattern in words[1:] for path in _matching(configuration.parent, pattern))
        elif words[:1] != ["hwcap"]:
            entries += words
    return entries


def _matching(folder: Path, pattern: str) -> list[Path]:
    # Not Path.glob, which refuses patterns that glob(3) accepts, such as a**b.
    try:
        return [Path(path) for path in sorted(glob(os.path.join(escape(str(folder)), pattern)))]  # noqa: PTH118, PTH207 - see above
    except ValueError:  # a NUL byte
        return []


def companions(candidate: Candidate) -> list[Candidate]:
    """List the files beside a library that have some of the library's functions in CANN 8.5 and later."""
    path = Path(candidate.path)
    return [candidate._replace(path=str(path.with_name(name))) for name in _COMPANIONS if name != path.name]


def report(refused: Iterable[tuple[Candidate, str]]) -> tuple[tuple[str, str], ...]:
    """Return the reason for each refused candidate; the linker's folders that lack the library share one line."""
    reasons: list[tuple[str, str]] = []
    absent: dict[str, list[str]] = {}
    for candidate, why in refused:
        folder, name = os.path.split(candidate.path)
        if why == ABSENT and candidate.origin in _OF_LINKER:
            absent.setdefault(name, []).append(folder)
        elif candidate.origin in _VARIABLES and candidate.origin not in why:
            reasons.append((candidate.path, f"{why} (from {candidate.origin})"))
        else:
            reasons.append((candidate.path, why))
    return (*reasons, *((name, f"not in {', '.join(folders)}") for name, folders in absent.items()))


def same_installation(first: str, second: str) -> bool:
    """Return whether two paths name the same file, or two parts of the same CANN installation."""
    if not (first.startswith("/") and second.startswith("/")):
        return False
    try:
        if Path(first).samefile(second):
            return True
        are_parts = {Path(first).name, Path(second).name} <= {*_SONAMES, *_COMPANIONS}
        if not (are_parts and Path(first).resolve().parent == Path(second).resolve().parent):
            return False
        return not (is_simulator(first) or is_simulator(second))
    except (OSError, ValueError):
        return False


def usual_name(path: str) -> str:
    """Return the path under CANN's usual name, if it is in the same folder and names the same file.

    The dynamic linker knows a file by the name under which it was loaded first. That may be a link, such as the
    libhccl.so of `simulator dir`.
    """
    usual = Path(path).with_name(_SONAMES[0])
    with suppress(OSError, ValueError):
        if usual.samefile(path):
            return str(usual)
    return path


def is_simulator(path: str) -> bool:
    """Return whether a file is a simulator of aioacl, without loading it."""
    status = Path(path).stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
        return False  # to open a named pipe could take forever
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_SIMULATOR) >= 0


def inspect(candidate: Candidate, rules: Rules) -> tuple[str, ...]:
    """Inspect a file and each folder and link on the path to it; return the findings.

    Raises:
        Unusable: the file cannot be used, or there are findings and the rules are strict.
    """
    findings = tuple(_inspect_path(candidate, rules))
    if findings and rules.strict:
        raise Unusable(f"{'; '.join(findings)} (AIOACL_STRICT refuses this)")
    return findings


def _inspect_path(candidate: Candidate, rules: Rules) -> list[str]:
    _refuse_malformed(candidate)
    try:
        _refuse_other_files(Path(candidate.path))
        return inspect_way(candidate.path, rules)
    except (FileNotFoundError, NotADirectoryError):
        raise Unusable(ABSENT) from None
    except OSError as error:
        raise Unusable(f"it cannot be inspected: {error.strerror}") from error


def inspect_way(path: str, rules: Rules) -> list[str]:
    """Inspect the permissions and owners of a file, and of each folder and link on the path to it.

    Raises:
        Unusable: any user may write to one of them.
        OSError: one of them cannot be inspected.
    """
    way = list(_way(path))
    for step, status in way:
        if _writable(status.st_mode, stat.S_IWOTH):
            raise Unusable(f"any user may write to {step}")
    return list(dict.fromkeys(finding for step, status in way for finding in _odd(step, status, rules)))


def _refuse_malformed(candidate: Candidate) -> None:
    path = candidate.path
    if not path:
        raise Unusable(f"the path is empty; {_REMEDIES[candidate.origin]}")
    if "\0" in path:
        raise Unusable("the path contains a NUL byte")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        what = "a character that no file name can contain"
        raise Unusable(f"the path contains {what}, {path[error.start]!r}; correct it") from None
    if not path.startswith("/"):
        raise Unusable(f"the path is not absolute; {_REMEDIES[candidate.origin]}")
    # dlopen replaces $LIB, $ORIGIN and $PLATFORM, so it would load a different file from the one that was inspected.
    if "$" in path:
        raise Unusable("the path contains '$', which the dynamic linker may replace; use a link without '$'")


def _refuse_other_files(path: Path) -> None:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise Unusable("it is a folder")
    if not stat.S_ISREG(mode):
        raise Unusable("it is not a regular file")
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if header[: len(_ELF)] != _ELF:
            raise Unusable("it is not an ELF file")
        if _is_cut_off(file, header):
            raise Unusable("the file is shorter than its program headers require; copy or install it again")


def _is_cut_off(file: BinaryIO, header: bytes) -> bool:
    """Return whether the end of a segment is missing. The dynamic linker would get a SIGBUS when it reads the end."""
    if not header.startswith(_ELF64) or len(header) < _HEADER.size:
        return False  # dlopen refuses such a file without a crash
    table, entry_bytes, count = _HEADER.unpack(header)
    file.seek(table)
    rows = file.read(_SEGMENT.size * count)
    if entry_bytes != _SEGMENT.size or len(rows) < _SEGMENT.size * count:
        return False  # dlopen refuses this file too
    size = os.fstat(file.fileno()).st_size
    return any(
        kind == _LOAD and offset + length > size for kind, offset, length in _SEGMENT.iter_unpack(rows)
    )


def _way(path: str) -> Iterator[tuple[Path, os.stat_result]]:
    """Resolve the path as the kernel does; yield each folder, each link, and the file at the end."""
    here, links, pending = Path("/"), 0, [*reversed(Path(path).parts)]
    while pending:
        part = pending.pop()
        step = here.parent if part == ".." else here / part
        status = step.lstat()
        yield step, status
        if not stat.S_ISLNK(status.st_mode):
            here = step
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        pending += reversed(step.readlink().parts)


def _writable(mode: int, who: int) -> bool:
    """Return whether the users of the permission bit `who` can replace the file.

    The mode of a link has no effect, and a sticky folder protects its entries.
    """
    guarded = stat.S_ISLNK(mode) or (stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX))
    return bool(mode & who) and not guarded


def _odd(step: Path, status: os.stat_result, rules: Rules) -> Iterator[str]:
    if _writable(status.st_mode, stat.S_IWGRP):
        yield f"group {status.st_gid} may write to {step}"
    if status.st_uid not in rules.owners:
        yield f"{step} belongs to user {status.st_uid}"
