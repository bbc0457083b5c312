"""Child processes that run a module of the package."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_RUN: Final = (
    "import runpy, sys; sys.path[:] = {path!r}; runpy.run_module({module!r}, None, '__main__', True)"
)
_HOME: Final = str(Path(__file__).parents[2])


def command(module: str, *arguments: str) -> list[str]:
    """Returns a command that runs a module, with the `sys.path` of this process.

    The child searches the current folder last, where a file like `numpy.py` may be. `python -m`, and a child with the
    path of an interactive process, would search it first. If the package itself is in the current folder, the
    path keeps its order, so that the child runs the same package.
    """
    path = [str(folder) for folder in sys.path]
    if not _is_current(_HOME):
        path.sort(key=_is_current)
    return [sys.executable, "-P", "-c", _RUN.format(path=path, module=module), *arguments]


def _is_current(folder: str) -> bool:
    with suppress(OSError):  # the folder does not exist
        return Path(folder).samefile(".")
    return False
