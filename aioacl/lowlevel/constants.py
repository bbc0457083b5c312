"""The enumerators of ACL's headers under their C names: `constants.ACL_MEMCPY_HOST_TO_DEVICE`.

The stub beside this file lists them with their values, for editors and type checkers; both come from the same headers.
"""

from __future__ import annotations

from aioacl._ffi import lib

_PREFIX = "ACL_"


def __getattr__(name: str) -> int:
    value = getattr(lib, name, None) if name.startswith(_PREFIX) else None
    if isinstance(value, int):
        return value
    raise AttributeError(f"ACL's headers have no enumerator {name}")


def __dir__() -> list[str]:
    return [name for name in dir(lib) if name.startswith(_PREFIX)]
