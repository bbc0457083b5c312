"""What a wheel of this tree has to contain."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import build_ffi
from tests.support.command import finished

ROOT: Final = Path(__file__).resolve().parents[2]
SIMULATORS: Final = frozenset(
    f"aioacl/simulator/libascendcl{suffix}.so"
    for suffix in ("", *(f"-{release}" for release in build_ffi.RELEASES[:-1]))
)
OBJECTS: Final = SIMULATORS | {"aioacl/_acl.abi3.so", "aioacl/simulator/libruntime.so"}


def tracked() -> set[str]:
    """The files that git tracks."""
    return set(finished(["git", "ls-files"], cwd=ROOT, check=True).stdout.split())


def files() -> set[str]:
    """The files of a wheel, without its metadata."""
    modules = {
        name
        for name in tracked()
        if name.startswith("aioacl/data/")
        or (name.startswith("aioacl/") and name.endswith((".py", ".pyi", ".typed")))
    }
    return {*modules, "pytest_aioacl.py", "aioacl/simulator/aclsim.h", *OBJECTS, *build_ffi.STUBS}
