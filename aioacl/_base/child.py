"""Child processes that run a module of the package."""

from __future__ import annotations

import sys
from typing import Final

_RUN: Final = (
    "import runpy, sys; sys.path[:] = {path!r}; runpy.run_module({module!r}, None, '__main__', True)"
)


def command(module: str, *arguments: str) -> list[str]:
    """Returns a command that runs a module, with the same `sys.path` as this process.

    `python -m` would search the current folder first, where a file like `numpy.py` may be.
    """
    path = [str(folder) for folder in sys.path]
    return [sys.executable, "-P", "-c", _RUN.format(path=path, module=module), *arguments]
