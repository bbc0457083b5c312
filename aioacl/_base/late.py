"""Modules that are imported when they are first used, so that `import aioacl` takes less time.

Type checkers do not understand `late`. So a file that uses it has an `import` of the same name in `if TYPE_CHECKING:`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class _Late(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def late(name: str) -> ModuleType:
    """Returns a stand-in for a module. The first look-up of an attribute imports the module."""
    return _Late(name)
