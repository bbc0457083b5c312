"""The enumerators and flags of ACL's headers under their C names: `constants.ACL_MEMCPY_HOST_TO_DEVICE`.

The stub beside this file lists them with their values, for editors and type checkers; both come from the same headers.
"""

from __future__ import annotations

from aioacl._base.ffi import lib
from aioacl.lowlevel._table import like


def _is_theirs(name: str) -> bool:
    """Returns whether an enumerator of the compiled module is from ACL's headers; the engine's begin with AIO_."""
    return name.isupper() and not name.startswith("AIO_")


def __getattr__(name: str) -> int:
    value = getattr(lib, name, None) if _is_theirs(name) else None
    if isinstance(value, int):
        return value
    question = "" if name.startswith("_") else like(name, __dir__())
    raise AttributeError(f"ACL's headers have no enumerator or flag {name}{question}", name=name)


def __dir__() -> list[str]:
    return [name for name in dir(lib) if _is_theirs(name)]
