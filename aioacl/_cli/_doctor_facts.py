"""The facts that `doctor` collects: about the library, its runtime, and the process."""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl import __version__
from aioacl._base.codes import lookup
from aioacl._base.errors import AclError
from aioacl._base.ffi import ffi, lib, text_of
from aioacl._library import detection
from aioacl._library import runtime as _runtime
from aioacl._library.build import PACKAGE, version_text
from aioacl._library.features import cost_of, is_needed

if TYPE_CHECKING:
    from aioacl._library.load import LibraryInfo

INTERNAL_ERROR: Final = 500000
RUNTIME_INTERNAL_ERROR: Final = 507000
FEW_FILES: Final = 256


@dataclass(slots=True)
class Facts:
    """The facts by section, and advice. If there is a problem, devices cannot be used; with warnings only, they can."""

    library: dict[str, Any] | None = None
    candidates: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    runtime: dict[str, Any] = field(default_factory=dict[str, Any])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    python: dict[str, str] = field(default_factory=dict[str, str])
    ray: dict[str, Any] = field(default_factory=dict[str, Any])
    timing: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list[str])
    warnings: list[str] = field(default_factory=list[str])


def look_at_library(facts: Facts, info: LibraryInfo) -> None:
    """Collects where the library was found, what it lacks, and its findings."""
    facts.library = {
        "path": info.path,
        "origin": info.origin,
        "backend": info.backend,
        "extra_paths": list(info.extra_paths),
        "functions": lib.aio_table_size() - len(info.missing),
        "missing": [
            {"name": each.name, "since": each.since, "cost": cost_of(each.name)} for each in info.missing
        ],
    }
    needed = [each.name for each in info.missing if is_needed(each.name)]
    if needed:
        facts.problems.append(f"the library lacks functions that every device needs: {', '.join(needed)}")
    facts.warnings += info.findings


def ask_runtime(facts: Facts) -> int | None:
    """Collects what the loaded library reports; returns the number of visible devices. Opens no device."""
    initialised = _initialised()
    code, count = _device_count()
    facts.runtime = {
        "aclInit": initialised,
        "version": version_text(),
        "version_number": _version_number(),
        "soc": text_of(lib.aio_u_aclrtGetSocName()),
        "aclrtGetDeviceCount": code,
        "devices": count,
        "failure_detection": detection.detection(),
        "failure_detection_means": detection.explanation(),
    }
    if initialised == INTERNAL_ERROR or code == RUNTIME_INTERNAL_ERROR:
        facts.problems.append(
            "the library does not find other libraries of CANN: `source set_env.sh` of CANN's toolkit before the "
            "program starts"
        )
    elif initialised or code:
        facts.problems += [
            f"{call} returned {_named(answer)}"
            for call, answer in (("aclInit", initialised), ("aclrtGetDeviceCount", code))
            if answer
        ]
    elif count == 0:
        facts.warnings.append(
            "the runtime sees no device: check `npu-smi info`, and which cards the container may use"
        )
    return count


def _initialised() -> int:
    """Initialises ACL and finalizes it at once. Returns the code of aclInit, or 0 if other code initialised ACL."""
    try:
        _runtime.acquire("doctor")
    except AclError as error:
        return error.code or -1
    _runtime.release("doctor")
    return 0


def _named(code: int) -> str:
    known = lookup(code)
    return f"{code} {known.name}" + (f" ({known.hint})" if known.hint else "")


def _device_count() -> tuple[int, int | None]:
    count = ffi.new("uint32_t *")
    code = lib.aio_u_aclrtGetDeviceCount(count)
    return code, None if code else int(count[0])


def _version_number() -> int | None:
    number = ffi.new("int32_t *")
    code = lib.aio_u_aclsysGetVersionNum(ffi.new("char[]", PACKAGE), number)
    return None if code else int(number[0])


def look_at_limits(facts: Facts) -> None:
    """Collects the limits of the process; -1 means no limit."""
    files, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes, most_processes = resource.getrlimit(resource.RLIMIT_NPROC)
    facts.limits = {
        "open_files": files,
        "open_files_hard": most_files,
        "processes": processes,
        "processes_hard": most_processes,
        "threads": sum(1 for _ in Path("/proc/self/task").iterdir()),
        "cpus": len(os.sched_getaffinity(0)),
    }
    if 0 <= files < FEW_FILES:
        facts.warnings.append(
            f"ulimit -n is {files}, which may be too low: each event loop and each device needs descriptors"
        )


def look_at_python(facts: Facts) -> None:
    """Collects the versions of the interpreter and of the packages that aioacl uses."""
    facts.python = {
        "aioacl": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "cffi": version("cffi"),
        "anyio": version("anyio"),
        "platform": platform.platform(),
    }
