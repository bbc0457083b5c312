"""The simulator's shared objects: one per release of CANN, without the functions that later releases added."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final, Literal, get_args

from aioacl._base import paths
from aioacl._base.errors import ParameterError
from aioacl._base.options import is_one_of, repr_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Release = Literal["8.1", "8.5", "9.0", "9.1", "master"]
RELEASES: Final[tuple[Release, ...]] = get_args(Release)
NEWEST: Final = RELEASES[-1]
WITHOUT_RUNTIME: Final[tuple[Release, ...]] = ("8.1",)


def library_path(cann: Release | None = None) -> Path:
    """Returns the path of the simulator's shared object.

    Args:
        cann: the release of CANN that the library imitates: "8.1", "8.5", "9.0", "9.1" or "master". The library lacks
            the functions that later releases added. None selects the newest release, "master".

    Raises:
        ParameterError: the simulator has no library for that release.
    """
    if cann is not None and not is_one_of(cann, *RELEASES):
        raise ParameterError(
            f"expected a release of CANN that the simulator has, got cann={repr_of(cann)}",
            hint=f"Pass one of {', '.join(RELEASES)}.",
        )
    return paths.NEWEST_SIMULATOR if cann in (None, NEWEST) else paths.SIMULATOR / f"libascendcl-{cann}.so"


def runtime_path(cann: Release) -> Path | None:
    """The libruntime.so that must be in the same folder as this release's libascendcl.so; None if the release needs
    none.
    """
    return None if cann in WITHOUT_RUNTIME else paths.SIMULATOR / "libruntime.so"


def include_dir() -> Path:
    """Returns the folder that contains `aclsim.h`, the header of the simulator's controls for C."""
    return paths.SIMULATOR


def functions() -> dict[str, str]:
    """The simulator's ACL functions, each with the release that added it."""
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
    """Whether release `cann` lacks the functions that release `since` added."""
    return [*RELEASES].index(cann) < [str(release) for release in RELEASES].index(since)
