"""Modules that are imported when they are first used, so that `import aioacl` takes less time.

Type checkers do not understand `late`. So a file that uses it has an `import` of the same name in `if TYPE_CHECKING:`.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

listeners: Final[set[Callable[[], object]]] = set()  # called after each import, before the module is used
_lock: Final = threading.RLock()
_loaded: Final[dict[str, ModuleType]] = {}


def _unlock() -> None:
    with suppress(RuntimeError):  # Ctrl-C has interrupted the wait for the lock
        _lock.release()


# If a process forked while another thread imports a module, an import of that module would hang in the child. So a fork
# waits until the import has ended.
os.register_at_fork(before=_lock.acquire, after_in_parent=_unlock, after_in_child=_unlock)


def load(name: str) -> ModuleType:
    """Returns the module, and imports it if this is its first use.

    The first use must not be in a finalizer, and not while the thread holds a lock: the import runs finalizers.
    """
    module = _loaded.get(name)
    if module is None:
        with _lock:
            module = import_module(name)
            for listener in tuple(listeners):
                listener()
            _loaded[name] = module
    return module


class _Late(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a tool that inspects all objects should not import the module
            raise AttributeError(f"module {self.__name__!r} has not been imported yet", name=name)
        return getattr(load(self.__name__), name)


def late(name: str) -> ModuleType:
    """Returns a stand-in for a module. The first look-up of an attribute imports the module."""
    return _Late(name)
