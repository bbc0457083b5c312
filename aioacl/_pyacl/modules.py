"""The module objects `acl`, `acl.rt`, `acl.mdl` and the others, which are made once in a process.

`import acl` and `import aioacl.pyacl` give the same objects. Making them loads the ACL library, but does not start it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import codes
from aioacl._base.errors import LibraryConflict, LibraryNotFound
from aioacl._library import load
from aioacl._pyacl import callbacks, dicts, process, tensors, util
from aioacl._pyacl.calls import make
from aioacl._pyacl.table import MODULES, rows
from aioacl.lowlevel import constants
from aioacl.lowlevel._table import like

if TYPE_CHECKING:
    from collections.abc import Callable

_BY_HAND: Final[dict[str, tuple[dict[str, Callable[..., Any]], ...]]] = {
    "acl": (process.FUNCTIONS, tensors.FUNCTIONS),
    "rt": (callbacks.FUNCTIONS, dicts.FUNCTIONS),
    "mdl": (dicts.FUNCTIONS,),
    "util": (util.FUNCTIONS,),
    "media": (dicts.FUNCTIONS,),
}
_DOCS: Final = {
    "acl": "CANN's Python module `acl`, as a part of aioacl.",
    "rt": "Devices, contexts, streams, events and memory.",
    "mdl": "Offline models.",
    "util": "Addresses of Python objects, and threads.",
    "media": "Memory for images. The image unit itself is not implemented.",
    "prof": "Profiling, which is not implemented.",
    "op": "Single operators, which are not implemented.",
}


def _by_hand(module: str, name: str) -> Callable[..., Any] | None:
    return next((each[name] for each in _BY_HAND.get(module, ()) if name in each), None)


def _absent() -> frozenset[str]:
    """The ACL functions that the loaded library lacks."""
    return frozenset(each.name for each in load.ensure_loaded().missing)


def constant(name: str) -> int:
    """Returns an enumerator of ACL's headers, or an error code, by its C name. Raises AttributeError."""
    code = codes.by_name().get(name)
    if code is None:
        value: int = getattr(constants, name)
        return value
    return code


def _missing(module: ModuleType) -> Callable[[str], Any]:
    """What a module does for a name that it does not have."""

    def missing(name: str) -> Any:
        if module.__name__ == "acl" and name.startswith("ACL_"):
            return constant(name)
        question = "" if name.startswith("_") else like(name, list(vars(module)))
        raise AttributeError(
            f"module {module.__name__!r} has no function {name}{question}", name=name, obj=module
        )

    return missing


def _make() -> dict[str, ModuleType]:
    absent = _absent()
    made = {name: ModuleType("acl" if name == "acl" else f"acl.{name}", _DOCS[name]) for name in MODULES}
    for row in rows():
        function = make(row, _by_hand(row.module, row.name), absent)
        setattr(made[row.module], row.name, function)
    for name, module in made.items():
        module.__getattr__ = _missing(module)  # type: ignore[method-assign]
        if name != "acl":
            setattr(made["acl"], name, module)
    made["acl"].__file__ = __file__
    return made


_made: Final[dict[str, ModuleType]] = {}


def modules() -> dict[str, ModuleType]:
    """Returns the modules by their names without "acl.", and loads the library at the first call.

    Raises:
        ImportError: no ACL library can be used; the text has the cure.
    """
    if not _made:
        try:
            _made.update(_make())
        except (LibraryNotFound, LibraryConflict) as error:
            raise ImportError(f"the module acl needs an ACL library: {error}", name="acl") from None
    return _made


def install(package: str) -> ModuleType:
    """Puts the modules into sys.modules under the name of a package, and returns the first."""
    found = modules()
    for name, module in found.items():
        sys.modules[package if name == "acl" else f"{package}.{name}"] = module
    return found["acl"]
