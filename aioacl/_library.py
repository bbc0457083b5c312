"""Find the ACL library, load it once, and say what was found.

Whoever can write to the library, or to a folder on the way to it, runs code in this process. So each folder
and link that leads to a candidate is looked at before anything is loaded. There is no fallback nobody asked
for: a choice, by argument or by AIOACL_LIBRARY, is the only candidate, and the simulator is loaded on request
alone, for its results would look right and be wrong. What the search passed over stays in the findings.

The first half of this file turns a choice and an environment into candidates and judges them; it loads
nothing. The second half loads. Beyond its reach: the dependencies of a library follow LD_LIBRARY_PATH, and a
file may change between the look and the load.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Final, Literal

from aioacl._errors import LibraryConflict, LibraryNotFound

_FOLDERS: Final = ("/usr/local/Ascend/cann/lib64", "/usr/local/Ascend/ascend-toolkit/latest/lib64")
_SONAMES: Final = ("libascendcl.so", "libacl_rt.so")
_SIBLINGS: Final = ("libacl_rt.so", "libacl_mdl.so", "libacl_op_executor.so", "libacl_tdt_channel.so")
_ELF: Final = b"\x7fELF"
_MAX_LINKS: Final = 40
_ERROR_SIZE_BYTES: Final = 1024
_ABSENT: Final = "no such file"

Backend = Literal["simulator", "ascend"]
Home = Literal["ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"]
Origin = Literal["argument", "AIOACL_LIBRARY", Home, "installation", "soname"]

_HOMES: Final[tuple[Home, ...]] = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_ASKED_FOR: Final[tuple[Origin, ...]] = ("argument", "AIOACL_LIBRARY")


@dataclass(frozen=True, slots=True)
class MissingSymbol:
    """A function the library lacks, and the release of CANN that introduced it."""

    name: str
    since: str


@dataclass(frozen=True, slots=True)
class LibraryInfo:
    """The library of this process: where it is, which rule found it, what it lacks, what is odd about it."""

    backend: Backend
    path: str
    origin: Origin
    extra_paths: tuple[str, ...] = ()
    missing: tuple[MissingSymbol, ...] = ()
    findings: tuple[str, ...] = ()

    @property
    def failure_detection(self) -> Literal["exact", "confirmed"]:
        """How failed tasks are found.

        "exact": the runtime reports each one, and the chip keeps the order that this takes. "confirmed": by
        synchronizing; an await may then miss a failure if other code synchronizes the same stream or device.
        """
        from aioacl import _detection  # noqa: PLC0415 - it needs the compiled module, and this class does not

        return _detection.detection()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be the library, and the rule that names it."""

    path: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Rules:
    """Whose files are trusted, and whether what is merely odd is refused too."""

    owners: frozenset[int]
    strict: bool = False


class Unusable(Exception):
    """A candidate cannot be used, and why; the search makes a line of its report from it."""


def candidates(choice: str | None, environ: Mapping[str, str]) -> list[Candidate]:
    """List what to try, in order: a choice alone, else each place where CANN may be installed."""
    if choice is not None:
        return [Candidate(choice, "argument")]
    if "AIOACL_LIBRARY" in environ:
        return [Candidate(environ["AIOACL_LIBRARY"], "AIOACL_LIBRARY")]
    places = [Candidate(str(Path(environ[home], "lib64")), home) for home in _HOMES if home in environ]
    places += [Candidate(folder, "installation") for folder in _FOLDERS]
    tries = [replace(place, path=str(Path(place.path, name))) for place in places for name in _SONAMES]
    tries += [Candidate(name, "soname") for name in _SONAMES]
    firsts: dict[str, Candidate] = {}
    return [firsts.setdefault(each.path, each) for each in tries if each.path not in firsts]


def siblings(candidate: Candidate) -> list[Candidate]:
    """List the files beside a library among which CANN 8.5 and later spread its functions."""
    path = Path(candidate.path)
    return [replace(candidate, path=str(path.with_name(name))) for name in _SIBLINGS if name != path.name]


def search(
    tries: Iterable[Candidate], rules: Rules, load: Callable[[Candidate, tuple[str, ...]], LibraryInfo]
) -> LibraryInfo:
    """Load the first candidate that can be used; if there is none, say why for each."""
    refused: list[tuple[str, str]] = []
    for candidate in tries:
        passed_over = tuple(f"passed over {path}: {why}" for path, why in refused if why != _ABSENT)
        try:
            return load(candidate, passed_over + inspect(candidate, rules))
        except Unusable as unusable:
            refused.append((candidate.path, str(unusable)))
    raise LibraryNotFound(candidates=tuple(refused))


def inspect(candidate: Candidate, rules: Rules) -> tuple[str, ...]:
    """Look at a file and all on the way to it; return what is odd, raise Unusable for what is wrong."""
    if candidate.origin == "soname":
        findings = ["the dynamic linker chose the folder, so nobody looked at it"]
    else:
        findings = _inspect_path(candidate.path, rules)
    if findings and rules.strict:
        raise Unusable(f"{'; '.join(findings)} (AIOACL_STRICT refuses that)")
    return tuple(findings)


def _inspect_path(path: str, rules: Rules) -> list[str]:
    _refuse_malformed(path)
    try:
        _refuse_other_files(Path(path))
        way = list(_way(path))
    except (FileNotFoundError, NotADirectoryError):
        raise Unusable(_ABSENT) from None
    except OSError as error:
        raise Unusable(f"it cannot be looked at: {error.strerror}") from error
    for step, status in way:
        if _writable(status.st_mode, stat.S_IWOTH):
            raise Unusable(f"anybody may write to {step}")
    return list(dict.fromkeys(finding for step, status in way for finding in _odd(step, status, rules)))


def _refuse_malformed(path: str) -> None:
    if not path:
        raise Unusable("the path is empty")
    if "\0" in path:
        raise Unusable("the path holds a NUL byte")
    if not path.startswith("/"):
        raise Unusable("the path is not absolute")


def _refuse_other_files(path: Path) -> None:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise Unusable("it is a folder")
    if not stat.S_ISREG(mode):
        raise Unusable("it is not a regular file")
    with path.open("rb") as file:
        if file.read(len(_ELF)) != _ELF:
            raise Unusable("it is not an ELF file")


def _way(path: str) -> Iterator[tuple[Path, os.stat_result]]:
    """Walk as the kernel does, and show each folder, each link, and the file at the end."""
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
    """Say whether they can swap the thing: a link has no mode, a sticky folder guards what is in it."""
    guarded = stat.S_ISLNK(mode) or (stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX))
    return bool(mode & who) and not guarded


def _odd(step: Path, status: os.stat_result, rules: Rules) -> Iterator[str]:
    if _writable(status.st_mode, stat.S_IWGRP):
        yield f"group {status.st_gid} may write to {step}"
    if status.st_uid not in rules.owners:
        yield f"{step} belongs to user {status.st_uid}"


class _Native:
    """The native table as the loader sees it: text in and out, and Unusable for what fails."""

    def __init__(self) -> None:
        # Not at the top: the half of this file that loads nothing works without the compiled module.
        from aioacl._ffi import ffi, lib  # noqa: PLC0415

        self._ffi, self._lib = ffi, lib

    def open(self, path: str) -> None:
        if len(self.missing()) < self._lib.aio_table_size():
            raise Unusable("a library that was refused is still in this process: start a new one")
        error = self._ffi.new("char[]", _ERROR_SIZE_BYTES)
        if self._lib.aio_library_open(os.fsencode(path), error, _ERROR_SIZE_BYTES) != 0:
            raise Unusable(self._ffi.string(error).decode("utf-8", "replace"))

    def add(self, path: str) -> bool:
        return self._lib.aio_library_add(os.fsencode(path)) > 0

    def backend(self) -> Backend:
        return "simulator" if self._lib.aio_library_is_simulator() else "ascend"

    def missing(self) -> tuple[MissingSymbol, ...]:
        indices = range(self._lib.aio_table_size())
        return tuple(self._symbol(index) for index in indices if not self._lib.aio_table_present(index))

    def _symbol(self, index: int) -> MissingSymbol:
        string, lib = self._ffi.string, self._lib
        name, since = string(lib.aio_table_name(index)), string(lib.aio_table_since(index))
        return MissingSymbol(name.decode(), since.decode())


def _load(candidate: Candidate, findings: tuple[str, ...], rules: Rules) -> LibraryInfo:
    native = _Native()
    native.open(candidate.path)
    backend = native.backend()
    if backend == "simulator" and candidate.origin not in _ASKED_FOR:
        raise Unusable("it is the simulator, which is used on request only")
    extra, more = _add_siblings(native, candidate, rules)
    missing = native.missing()
    if "aclInit" in {symbol.name for symbol in missing}:
        raise Unusable("it is not an ACL library: it has no aclInit")
    from aioacl import _detection  # noqa: PLC0415 - as above

    _detection.begin()
    told = tuple(dict.fromkeys(findings + more))
    return LibraryInfo(backend, candidate.path, candidate.origin, extra, missing, told)


def _add_siblings(native: _Native, first: Candidate, rules: Rules) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fill what the library lacks from the files beside it, each looked at like the library itself."""
    extra: list[str] = []
    findings: list[str] = []
    for sibling in siblings(first):
        try:
            odd = inspect(sibling, rules)
        except Unusable as unusable:
            findings += [f"passed over {sibling.path}: {unusable}"] if str(unusable) != _ABSENT else []
            continue
        if native.missing() and native.add(sibling.path):
            extra.append(sibling.path)
            findings += odd
    return tuple(extra), tuple(findings)


class _Process:
    """The one library of this process: chosen under a lock, then never changed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._info: LibraryInfo | None = None

    def use(self, choice: str | None) -> LibraryInfo:
        info = self._info
        if info is None:
            with self._lock:
                info = self._info = self._info or _find(choice)
        if choice is not None:
            _refuse_another(info, choice)
        return info


def _find(choice: str | None) -> LibraryInfo:
    borrowed = os.getuid() != os.geteuid() or os.getgid() != os.getegid()
    environ: Mapping[str, str] = {"AIOACL_STRICT": "1"} if borrowed else os.environ
    rules = Rules(frozenset({0, os.geteuid()}), strict=environ.get("AIOACL_STRICT", "") not in ("", "0"))
    tries = [replace(each, path=_located(each.path)) for each in candidates(choice, environ)]
    return search(tries, rules, partial(_load, rules=rules))


def _located(path: str) -> str:
    if path != "simulator":
        return path
    # Not at the top: the simulator stands on a higher floor, and is seldom wanted.
    from aioacl.simulator import library_path  # noqa: PLC0415

    return str(library_path())


def _refuse_another(info: LibraryInfo, choice: str) -> None:
    path = _located(choice)
    if path != info.path and not _same_file(path, info.path):
        raise LibraryConflict(f"this process uses {info.path!r} already (by {info.origin}), not {choice!r}")


def _same_file(first: str, second: str) -> bool:
    try:
        return first.startswith("/") and second.startswith("/") and Path(first).samefile(second)
    except (OSError, ValueError):
        return False


_process: Final = _Process()


def use_library(choice: str | os.PathLike[str]) -> LibraryInfo:
    """Load the ACL library at an absolute path, or the simulator by the word "simulator".

    Call it once, before the first open. The same choice again changes nothing; a different one raises
    LibraryConflict. A library that is absent or refused raises LibraryNotFound, which says why.
    """
    return _process.use(os.fspath(choice))


def library_info() -> LibraryInfo:
    """Report the library of this process, and load it by the usual search if none is loaded yet."""
    return _process.use(None)


def ensure_loaded() -> LibraryInfo:
    """Load the library by the usual search, unless one is loaded: what the first open calls."""
    return _process.use(None)
