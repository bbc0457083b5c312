"""Load the ACL library once, and report what was found.

`locate` finds the candidates and inspects them. A process uses one ACL library, because a reset through one copy does
not reach the handles of another copy. So aioacl uses the copy that other code has already loaded. If the caller names
another file, LibraryConflict is raised. Candidates that were passed over are listed in the findings.
"""

import filecmp
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, Literal, NamedTuple

from aioacl._base import flight, ranges
from aioacl._base import paths as _paths
from aioacl._base.errors import AclWarning, LibraryConflict, LibraryNotFound, ParameterError
from aioacl._base.options import repr_of
from aioacl._base.public import publish
from aioacl._base.unique import record
from aioacl._library import locate, onnxruntime
from aioacl._library.locate import Candidate, Origin, Rules, Unusable

_ERROR_SIZE_BYTES: Final = 1024
_PATHS_SIZE_BYTES: Final = 1 << 16
_TURN_US: Final = 100_000
_WORD: Final = "simulator"
_DRIVER: Final = "libascend_hal.so"
_WITHOUT_DRIVER: Final = (
    "Install the card's driver, or mount /usr/local/Ascend/driver in the container, or use Ascend's container runtime. "
    "Then `source set_env.sh`."
)
_WRONG_VARIABLE: Final = (
    "Unset AIOACL_LIBRARY to use the CANN of `source set_env.sh`, or set it to the path of libascendcl.so. To run "
    "without a card, set AIOACL_LIBRARY=simulator."
)
# The origins whose file may be the simulator. For a library that other code has loaded, C reports whether it is one.
_MAY_BE_SIMULATED: Final = (*locate.ON_REQUEST, "loaded")

Backend = Literal["simulator", "ascend"]


@record
class MissingSymbol:
    """A function that the library lacks.

    Attributes:
        name: the ACL function.
        since: the release of CANN that introduced it.
    """

    name: str
    since: str


@record
class LibraryInfo:
    """The ACL library of this process, from `use_library()` or `library_info()`.

    Attributes:
        backend: "simulator" or "ascend".
        path: the absolute path of the library.
        origin: the rule that found the library: "argument" (of `use_library()`), "loaded" (by other code),
            "installation" (under /usr/local/Ascend), "linker" (a folder of the dynamic linker), or the name of an
            environment variable.
        extra_paths: the files beside the library that have functions which the library lacks.
        missing: the functions of aioacl's table that the library lacks.
        findings: sentences about unusual permissions or owners of the files, and about files that were not used.
    """

    backend: Backend
    path: str
    origin: Origin
    extra_paths: tuple[str, ...] = ()
    missing: tuple[MissingSymbol, ...] = ()
    findings: tuple[str, ...] = ()

    @property
    def failure_detection(self) -> Literal["exact", "confirmed"]:
        """How failed tasks are found.

        "exact": the runtime reports each failed task before the work after it continues. "confirmed": aioacl
        synchronizes; an await may then miss a failure if other code synchronizes the same stream or device.

        The first read starts ACL's runtime, unless a device was opened before. Children that are forked later then
        cannot use the device.
        """
        from aioacl._library import detection  # noqa: PLC0415 - it needs the compiled module; this class does not

        return detection.detection()


def search(
    tries: Iterable[Candidate], rules: Rules, load: Callable[[Candidate, tuple[str, ...]], LibraryInfo]
) -> LibraryInfo:
    """Load the first candidate that can be used.

    Raises:
        LibraryNotFound: no candidate can be used; the error has the reason for each.
    """
    refused: list[tuple[Candidate, str]] = []
    for candidate in tries:
        passed_over = tuple(
            f"passed over {each.path}: {why}" for each, why in refused if why != locate.ABSENT
        )
        try:
            return load(candidate, passed_over + locate.inspect(candidate, rules))
        except Unusable as unusable:
            refused.append((candidate, str(unusable)))
    raise LibraryNotFound(candidates=locate.report(refused), hint=_hint(refused))


def _hint(refused: Iterable[tuple[Candidate, str]]) -> str | None:
    """Return what to do if the reasons show it, else None for the usual hint."""
    for candidate, why in refused:
        if _DRIVER in why:
            return _WITHOUT_DRIVER
        if candidate.origin == "AIOACL_LIBRARY":
            return _WRONG_VARIABLE
    return None


class _Native:
    """The loader's interface to the native table: it converts text for C, and raises Unusable for a failure."""

    def __init__(self) -> None:
        # Not imported at the top: the part of this file that loads nothing must work without the compiled module.
        from aioacl._base.ffi import ffi, lib, plain_awaits  # noqa: PLC0415

        self._ffi, self._lib, self._plain_awaits = ffi, lib, plain_awaits

    def open(self, attempt: "_Attempt", key: int, wanted: int) -> int:
        """Open the library of the attempt and its companions, if no library is open. Return the open library's key."""
        path = os.fsencode(attempt.candidate.path)
        companions = b"".join(os.fsencode(each.path) + b"\0" for each in attempt.offered)
        error = self._ffi.new("char[]", _ERROR_SIZE_BYTES)
        if self._lib.aio_library_open(path, companions, wanted, key, error, _ERROR_SIZE_BYTES) != 0:
            raise Unusable(self._ffi.string(error).decode("utf-8", "replace"))
        return self._lib.aio_library_key()

    def key(self) -> int | None:
        """Return the key of the attempt that opened the library, or None if no library is open."""
        key = self._lib.aio_library_key()
        return None if key < 0 else key

    def present(self) -> dict[str, bool]:
        """Return the files from which any code has loaded ACL, and whether each was a simulator when it was loaded."""
        while not self._lib.aio_library_wait(_TURN_US):
            pass  # a loop of short waits, so Ctrl-C can end it: the thread that loads a library may never finish
        paths = self._ffi.new("char[]", _PATHS_SIZE_BYTES)
        size = self._lib.aio_library_present(paths, _PATHS_SIZE_BYTES)
        if size < 0:
            raise MemoryError("the list of the libraries of this process does not fit in memory")
        found = [path for path in bytes(self._ffi.buffer(paths, size)).split(b"\0") if path]
        return {
            locate.usual_name(os.fsdecode(path)): bool(self._lib.aio_library_loaded_simulator(path))
            for path in found
        }

    def wanted(self, request: Candidate | None) -> int:
        """Return which library may be opened.

        The simulator may be opened only on request. If the request is `simulator`, nothing else may be opened.
        """
        if request is None:
            return self._lib.AIO_WANT_REAL
        return self._lib.AIO_WANT_SIMULATOR if request.path == _WORD else self._lib.AIO_WANT_ANY

    def part(self, index: int) -> tuple[bool, str]:
        """Return whether an offered companion is used, and the reason if it was passed over, or ""."""
        part, lib = self._lib.aio_library_part(index), self._lib
        reasons = {
            lib.AIO_PART_BROKEN: "it cannot be loaded",
            lib.AIO_PART_SIMULATOR: "it depends on the simulator, whose functions are never added to a real library",
        }
        return part == lib.AIO_PART_USED, reasons.get(part, "")

    def borrowed(self) -> bool:
        """Return whether the process got rights from the program's file at its start, for example by setuid.

        The result stays True after the process has made its real and effective ids equal.
        """
        return bool(self._lib.aio_borrowed_rights())

    def plain_awaits(self, *, on: bool) -> None:
        """Make awaits on event loops run in Python, as on plain threads."""
        self._plain_awaits(on)

    def backend(self) -> Backend:
        return "simulator" if self._lib.aio_library_is_simulator() else "ascend"

    def missing(self) -> tuple[MissingSymbol, ...]:
        indices = range(self._lib.aio_table_size())
        return tuple(self._symbol(index) for index in indices if not self._lib.aio_table_present(index))

    def _symbol(self, index: int) -> MissingSymbol:
        string, lib = self._ffi.string, self._lib
        name, since = string(lib.aio_table_name(index)), string(lib.aio_table_since(index))
        return MissingSymbol(name.decode(), since.decode())


class _Companion(NamedTuple):
    """A file beside the library, its findings, and the reason why its functions cannot be used, or ""."""

    path: str
    findings: tuple[str, ...]
    refused: str = ""


class _Attempt(NamedTuple):
    """A library that C should open, and the findings to report if C opens it."""

    candidate: Candidate
    findings: tuple[str, ...]
    companions: tuple[_Companion, ...]

    @property
    def offered(self) -> list[_Companion]:
        return [each for each in self.companions if not each.refused]


class _Plan(NamedTuple):
    """The candidates of a search, and its rules."""

    request: Candidate | None
    tries: Sequence[Candidate]
    rules: Rules
    plain_awaits: bool
    recorder: str  # the file of the flight recorder, or ""


def _inspect_companion(companion: Candidate, rules: Rules) -> _Companion:
    try:
        findings = locate.inspect(companion, rules)
    except Unusable as unusable:
        return _Companion(companion.path, (), str(unusable))
    simulated = locate.is_simulator(companion.path)
    why = "it is the simulator, whose functions are never added to a real library" if simulated else ""
    return _Companion(companion.path, findings, why)


def _describe(native: _Native, attempt: _Attempt) -> LibraryInfo:
    """Return the LibraryInfo of the library that this attempt opened."""
    backend = native.backend()
    extra: list[str] = []
    findings = list(attempt.findings)
    outcomes = {each.path: native.part(index) for index, each in enumerate(attempt.offered)}
    for each in attempt.companions if backend == "ascend" else ():
        used, why = outcomes.get(each.path, (False, each.refused))
        if used:
            extra.append(each.path)
            findings += each.findings
        elif why and why != locate.ABSENT:
            findings.append(f"passed over {each.path}: {why}")
    candidate, distinct = attempt.candidate, tuple(dict.fromkeys(findings))
    return LibraryInfo(backend, candidate.path, candidate.origin, tuple(extra), native.missing(), distinct)


class _Process:
    """The one library of this process.

    It takes no lock, because C keeps the state: one call to C opens the library, and C reports which library is open.
    After an exception between any two lines, such as KeyboardInterrupt, the next call finds the library that was
    opened. The same holds if a signal handler or another thread has opened it.
    """

    def __init__(self) -> None:
        self._info: LibraryInfo | None = None
        self._attempts: dict[int, _Attempt] = {}
        self._choices: dict[int, str] = {}  # the choices of the searches that are running
        self._keys = count()

    def use(self, choice: str | None) -> LibraryInfo:
        info = self._info
        if info is None:
            info = self._info = self._find_chosen(choice)
        if choice is not None:
            _refuse_another(info, choice)
        return info

    def _find_chosen(self, choice: str | None) -> LibraryInfo:
        """Search for the library. Without a choice, use the choice of a search that has begun and not ended.

        That search may run on another thread, or on this thread if a signal handler has interrupted it.
        """
        if choice is None:
            return self._find(next(iter([*self._choices.values()]), None))
        key = next(self._keys)
        try:
            self._choices[key] = choice
            return self._find(choice)
        finally:
            self._choices.pop(key, None)

    def _find(self, choice: str | None) -> LibraryInfo:
        native = _Native()
        present = native.present()
        # The key is read after the list. Otherwise a library that aioacl opens between the two calls would count as
        # loaded by other code.
        if (key := native.key()) is not None:
            return _describe(native, self._attempts[key])
        plan = _plan(native, choice, present)
        native.plain_awaits(on=plan.plain_awaits)
        _record_to(plan.recorder)
        return search(plan.tries, plan.rules, partial(self._load, native, plan))

    def _load(
        self, native: _Native, plan: _Plan, candidate: Candidate, findings: tuple[str, ...]
    ) -> LibraryInfo:
        if candidate.origin not in _MAY_BE_SIMULATED and locate.is_simulator(candidate.path):
            raise Unusable("it is the simulator, which is used on request only")
        beside = tuple(_inspect_companion(each, plan.rules) for each in locate.companions(candidate))
        key = next(self._keys)
        attempt = self._attempts[key] = _Attempt(candidate, findings, beside)
        try:
            opened = native.open(attempt, key, native.wanted(plan.request))
        except Unusable:
            del self._attempts[key]
            raise
        if native.backend() == "simulator":
            onnxruntime.offer()
        _offer_ranges(candidate, plan.rules)
        return _describe(native, self._attempts[opened])


def _offer_ranges(candidate: Candidate, rules: Rules) -> None:
    """Use the optional library of ranges beside the ACL library, if it can be trusted."""
    beside = candidate._replace(path=str(Path(candidate.path).with_name(ranges.LIBRARY)))
    with suppress(Unusable):
        if not locate.inspect(beside, rules):
            ranges.offer(beside.path)


def _plan(native: _Native, choice: str | None, present: Mapping[str, bool]) -> _Plan:
    borrowed = native.borrowed() or os.getuid() != os.geteuid() or os.getgid() != os.getegid()
    environ: Mapping[str, str] = {"AIOACL_STRICT": "1"} if borrowed else os.environ
    rules = Rules(frozenset({0, os.geteuid()}), strict=_is_on(environ, "AIOACL_STRICT"))
    request = locate.requested(choice, environ)
    if present:
        tries = [_of_present(request, present)]
    elif request is not None:
        tries = [request._replace(path=_located(request.path))]
    else:
        tries = locate.candidates(environ)
    recorder = environ.get("AIOACL_RECORDER", "")
    return _Plan(request, tries, rules, _is_on(environ, "AIOACL_PLAIN_AWAITS"), recorder)


def _record_to(path: str) -> None:
    """Put the flight recorder into a file, if there is a path. A file that cannot be made does not stop the process."""
    try:
        if path:
            flight.open_file(path)
    except OSError as error:
        warnings.warn(
            f"expected AIOACL_RECORDER to name a file that can be made, got {path!r}: {error.strerror}; the flight "
            "recorder stays in memory. Name a new file; {pid} in the name stands for the id of the process",
            AclWarning,
            stacklevel=2,
        )


def _is_on(environ: Mapping[str, str], variable: str) -> bool:
    return environ.get(variable, "") not in ("", "0")


def _of_present(request: Candidate | None, present: Mapping[str, bool]) -> Candidate:
    """Choose among the copies of ACL that other code has loaded, because any other file would be a second copy.

    Raises:
        LibraryConflict: the request names another file; or there is no request and the choice is not clear; or the
            file was replaced after it was loaded.
    """
    if request is None:
        chosen = Candidate(_only(present), "loaded")
    else:
        chosen = request._replace(path=_requested_copy(request, present))
    if present[chosen.path] != _is_readable_simulator(chosen.path):
        raise LibraryConflict(
            f"expected {chosen.path!r} to be the file that other code has loaded, got another file with that name",
            hint="Start a new process: the file was replaced after it was loaded.",
        )
    return chosen


def _requested_copy(request: Candidate, present: Mapping[str, bool]) -> str:
    for path in present:
        if _accepts(request.path, path):
            return path
    raise LibraryConflict(
        f"expected the ACL library that this process has already loaded, {_listed(present)}, "
        f"got {request.path!r} (from {request.origin})",
        hint="Name the loaded library, or call use_library() before other code loads ACL.",
    )


def _only(present: Mapping[str, bool]) -> str:
    if len(present) > 1:
        raise LibraryConflict(
            f"expected one ACL library in this process, got more than one: {_listed(present)}",
            hint="Name the library to use with use_library(path) or AIOACL_LIBRARY.",
        )
    [(path, simulated)] = present.items()
    if simulated:
        raise LibraryConflict(
            f"other code has loaded the simulator into this process, {path!r}, but no library was named",
            hint="Set AIOACL_LIBRARY=simulator to use the simulator; it is used on request only.",
        )
    return path


def _listed(present: Mapping[str, bool]) -> str:
    return " and ".join(repr(path) for path in present)


def _is_readable_simulator(path: str) -> bool:
    try:
        return locate.is_simulator(path)
    except OSError:  # the inspection will refuse the path and report the reason
        return False


def _located(path: str) -> str:
    return str(_paths.NEWEST_SIMULATOR) if path == _WORD else path


def _accepts(choice: str, loaded: str) -> bool:
    """Return whether a choice names the loaded library; `simulator` names any copy of this release's simulator."""
    path = _located(choice)
    if path == loaded or locate.same_installation(path, loaded):
        return True
    try:
        return choice == _WORD and filecmp.cmp(path, loaded, shallow=False)
    except OSError:
        return False


def _refuse_another(info: LibraryInfo, choice: str) -> None:
    if not _accepts(choice, info.path):
        raise LibraryConflict(
            f"expected {info.path!r} (from {info.origin}), which this process already uses, got {repr_of(choice)}"
        )


_process: Final = _Process()


def use_library(choice: str | os.PathLike[str]) -> LibraryInfo:
    """Loads the ACL library at an absolute path, or the simulator.

    Call it once, before the first open. A second call with the same choice changes nothing.

    Args:
        choice: the absolute path of a libascendcl.so, or "simulator".

    Returns:
        The library that is loaded.

    Raises:
        LibraryConflict: aioacl or other code has already loaded another ACL library into this process.
        LibraryNotFound: the library does not exist or was refused; the error has the reason.
        ParameterError: the choice is neither a str nor an os.PathLike[str].
    """
    path: object = (
        choice if isinstance(choice, type) or not isinstance(choice, os.PathLike) else os.fspath(choice)
    )
    if not isinstance(path, str):
        raise ParameterError(
            f"expected a path as str or os.PathLike[str], or 'simulator', got {repr_of(choice)}",
            hint="Convert a path of bytes with os.fsdecode(). To search for the library, call library_info().",
        )
    return _process.use(path)


def library_info() -> LibraryInfo:
    """Returns the library of this process. If none is loaded yet, loads it first by the usual search.

    Returns:
        The library that is loaded.

    Raises:
        LibraryConflict: AIOACL_LIBRARY names a different ACL library from the one that other code has loaded; or
            AIOACL_LIBRARY is not set, and other code has loaded a simulator or several libraries.
        LibraryNotFound: no library was found; the error has the reason for each candidate.
    """
    return _process.use(None)


def ensure_loaded() -> LibraryInfo:
    """Load the library by the usual search, unless one is loaded. The first open calls it."""
    return _process.use(None)


publish("aioacl", ["LibraryInfo", "MissingSymbol", "library_info", "use_library"], of=__name__)
