"""The simulator's shared objects: one for each release of CANN, which lacks the functions that came later."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, Literal, get_args

from aioacl._base import paths
from aioacl._base.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Release = Literal["8.1", "8.5", "9.0", "9.1", "master"]
RELEASES: Final[tuple[Release, ...]] = get_args(Release)
NEWEST: Final = RELEASES[-1]
WITHOUT_RUNTIME: Final[tuple[Release, ...]] = ("8.1",)


def library_path(cann: Release | None = None) -> Path:
    """Where the simulator's shared object is: the newest, or the one that stands for an older release of CANN.

    An older one lacks the functions that came later, as that release's own library does.

    Raises:
        ParameterError: the simulator does not know the release.
    """
    if cann is None or cann == NEWEST:
        return paths.NEWEST_SIMULATOR
    if cann not in RELEASES:
        raise ParameterError(
            f"cann={cann!r} is no release that the simulator knows",
            hint=f"Pass one of {', '.join(RELEASES)}.",
        )
    return paths.SIMULATOR / f"libascendcl-{cann}.so"


def runtime_path(cann: Release) -> Path | None:
    """The libruntime.so that this release's libascendcl.so needs beside it; None if it needs none."""
    return None if cann in WITHOUT_RUNTIME else paths.SIMULATOR / "libruntime.so"


def include_dir() -> Path:
    """The folder in which `aclsim.h` is, the header of the simulator's controls for C."""
    return paths.SIMULATOR / "csrc"


def functions() -> dict[str, str]:
    """The simulator's ACL functions, each with the release that it came with."""
    return dict(_functions(ctypes.CDLL(str(library_path())).aclsim_function))


def _functions(ask: ctypes._NamedFuncPointer) -> Iterator[tuple[str, str]]:
    ask.restype = ctypes.c_char_p
    since = ctypes.c_char_p()
    for index in range(1 << 16):
        name: bytes | None = ask(index, ctypes.byref(since))
        if name is None:
            return
        yield name.decode(), (since.value or b"").decode()


def newer_than(cann: Release, since: str) -> bool:
    """Whether what came with release `since` is missing from release `cann`."""
    return [*RELEASES].index(cann) < [str(release) for release in RELEASES].index(since)
