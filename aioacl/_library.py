"""Load the ACL library once, and say what was found.

`_locate` finds the candidates and inspects them. A process has one ACL library: a reset through one copy does not reach
the handles of another. So a copy that other code has loaded before is used, unless the caller names another file;
then LibraryConflict is raised. Candidates that were passed over stay in the findings.
"""

import filecmp
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Final, Literal

from aioacl import _locate
from aioacl._errors import LibraryConflict, LibraryNotFound
from aioacl._locate import Candidate, Origin, Rules, Unusable
from aioacl._unique import record

_ERROR_SIZE_BYTES: Final = 1024
_PATHS_SIZE_BYTES: Final = 1 << 16

Backend = Literal["simulator", "ascend"]


@record
@dataclass(frozen=True, slots=True)
class MissingSymbol:
    """A function the library lacks, and the release of CANN that introduced it."""

    name: str
    since: str


@record
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


def search(
    tries: Iterable[Candidate], rules: Rules, load: Callable[[Candidate, tuple[str, ...]], LibraryInfo]
) -> LibraryInfo:
    """Load the first candidate that can be used; if there is none, say why for each."""
    refused: list[tuple[Candidate, str]] = []
    for candidate in tries:
        passed_over = tuple(
            f"passed over {each.path}: {why}" for each, why in refused if why != _locate.ABSENT
        )
        try:
            return load(candidate, passed_over + _locate.inspect(candidate, rules))
        except Unusable as unusable:
            refused.append((candidate, str(unusable)))
    raise LibraryNotFound(candidates=_locate.report(refused))


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

    def present(self) -> tuple[str, ...]:
        """Return the files of this process that hold ACL, whoever loaded them."""
        paths = self._ffi.new("char[]", _PATHS_SIZE_BYTES)
        size = self._lib.aio_library_present(paths, _PATHS_SIZE_BYTES)
        if size < 0:
            raise MemoryError("the list of the objects of this process does not fit in memory")
        return tuple(os.fsdecode(path) for path in bytes(self._ffi.buffer(paths, size)).split(b"\0") if path)

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
    if candidate.origin not in _locate.ON_REQUEST and _locate.is_simulator(candidate.path):
        raise Unusable("it is the simulator, which is used on request only")
    native = _Native()
    native.open(candidate.path)
    backend = native.backend()
    extra, more = _add_companions(native, candidate, rules) if backend == "ascend" else ((), ())
    missing = native.missing()
    if "aclInit" in {symbol.name for symbol in missing}:
        raise Unusable("it is not an ACL library: it has no aclInit")
    from aioacl import _detection  # noqa: PLC0415 - as above

    _detection.begin()
    told = tuple(dict.fromkeys(findings + more))
    return LibraryInfo(backend, candidate.path, candidate.origin, extra, missing, told)


def _add_companions(
    native: _Native, first: Candidate, rules: Rules
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fill what the library lacks from the files beside it, each inspected like the library itself."""
    extra: list[str] = []
    findings: list[str] = []
    for companion in _locate.companions(first):
        try:
            odd = _inspect_companion(companion, rules)
        except Unusable as unusable:
            why = str(unusable)
            findings += [f"passed over {companion.path}: {why}"] if why != _locate.ABSENT else []
            continue
        if native.missing() and native.add(companion.path):
            extra.append(companion.path)
            findings += odd
    return tuple(extra), tuple(findings)


def _inspect_companion(companion: Candidate, rules: Rules) -> tuple[str, ...]:
    findings = _locate.inspect(companion, rules)
    if _locate.is_simulator(companion.path):
        raise Unusable("it is the simulator, which never completes a real library")
    return findings


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
    request = _locate.requested(choice, environ)
    if present := _Native().present():
        tries = [_of_present(request, present)]
    elif request is not None:
        tries = [replace(request, path=_located(request.path))]
    else:
        tries = _locate.candidates(environ)
    return search(tries, rules, partial(_load, rules=rules))


def _of_present(request: Candidate | None, present: Sequence[str]) -> Candidate:
    """Choose among the copies of ACL that other code has loaded; any other file would be a second copy.

    Raises:
        LibraryConflict: the request names another file, or there is no request and the choice is not clear.
    """
    copies = " and ".join(repr(path) for path in present)
    if request is not None:
        for path in present:
            if _accepts(request.path, path):
                return replace(request, path=path)
        raise LibraryConflict(
            f"expected the ACL library that this process has loaded already, {copies}, "
            f"got {request.path!r} (by {request.origin})",
            hint="Name the loaded one, or choose with use_library() before other code loads ACL.",
        )
    if len(present) > 1:
        raise LibraryConflict(
            f"this process has loaded more than one ACL library: {copies}",
            hint="Name the one to use: use_library(path), or AIOACL_LIBRARY.",
        )
    if _is_readable_simulator(present[0]):
        raise LibraryConflict(
            f"other code has loaded the simulator into this process, {copies}, and no library was named",
            hint="Set AIOACL_LIBRARY=simulator if the simulator is meant; it is used on request only.",
        )
    return Candidate(present[0], "loaded")


def _is_readable_simulator(path: str) -> bool:
    try:
        return _locate.is_simulator(path)
    except OSError:  # the inspection refuses the path with the reason
        return False


def _located(path: str) -> str:
    if path != "simulator":
        return path
    # Not at the top: the simulator stands on a higher floor, and is seldom wanted.
    from aioacl.simulator import library_path  # noqa: PLC0415

    return str(library_path())


def _accepts(choice: str, loaded: str) -> bool:
    """Whether a choice means the loaded library; the word `simulator` means any copy of this release's simulator."""
    path = _located(choice)
    if path == loaded or _locate.same_installation(path, loaded):
        return True
    try:
        return choice == "simulator" and filecmp.cmp(path, loaded, shallow=False)
    except OSError:
        return False


def _refuse_another(info: LibraryInfo, choice: str) -> None:
    if not _accepts(choice, info.path):
        raise LibraryConflict(f"this process uses {info.path!r} already (by {info.origin}), not {choice!r}")


_process: Final = _Process()


def use_library(choice: str | os.PathLike[str]) -> LibraryInfo:
    """Load the ACL library at an absolute path, or the simulator by the word "simulator".

    Call it once, before the first open. The same choice again changes nothing.

    Raises:
        LibraryConflict: this process has loaded another ACL library already, here or in other code.
        LibraryNotFound: the library is absent or refused; the error says why.
    """
    return _process.use(os.fspath(choice))


def library_info() -> LibraryInfo:
    """Report the library of this process, and load it by the usual search if none is loaded yet.

    Raises:
        LibraryConflict: AIOACL_LIBRARY names another ACL library than other code has loaded; or it names none, and
            the loaded one is a simulator, or there are several.
        LibraryNotFound: no library was found; the error says why for each candidate.
    """
    return _process.use(None)


def ensure_loaded() -> LibraryInfo:
    """Load the library by the usual search, unless one is loaded: what the first open calls."""
    return _process.use(None)
