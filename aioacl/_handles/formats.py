"""Finds buffers that hold pointers.

A copy to such a buffer would overwrite references, and a copy from it would read addresses as data.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from types import WrapperDescriptorType
from typing import Any, Final, cast

from aioacl._handles.host_tensor import host_tensor

_FIELD_NAME: Final = re.compile(":[^:]*:")
# The codes of PEP 3118 and ctypes for an object, a void pointer, a char pointer, a function, a pointer and a wide char
# pointer. The pattern does not match the codes of complex numbers.
_POINTER: Final = re.compile("[OPzX&]|Z(?![fdgFDG])")
_POINTER_CODES: Final = "OPzZX"
OF_C: Final = object.__init__  # a method of a type of C; before Python 3.12, no type has `__buffer__`


@lru_cache(maxsize=256)
def format_holds_pointers(layout: str) -> bool:
    """Whether a PEP 3118 format contains a pointer, at any depth.

    A field name that contains a colon counts as a pointer, because such a name may hide the code of a pointer.
    """
    return "::" in layout or _POINTER.search(_FIELD_NAME.sub(";", layout)) is not None


@lru_cache(maxsize=256)
def type_holds_pointers(kind: Any) -> bool:
    """Whether a ctypes type contains a pointer. The format of a union or a packed structure does not show pointers."""
    ctypes: Any = sys.modules.get("_ctypes")  # the first copy of a program should not import ctypes
    if ctypes is None or not issubclass(
        kind, ctypes._SimpleCData.__mro__[-2]
    ):  # the base class of all ctypes types
        return False
    if issubclass(kind, ctypes.Array):
        return type_holds_pointers(kind._type_)
    if issubclass(kind, ctypes.Structure | ctypes.Union):
        fields = [field[1] for base in kind.__mro__ for field in base.__dict__.get("_fields_", ())]
        return any(type_holds_pointers(field) for field in fields)
    code = getattr(kind, "_type_", None)
    return not isinstance(code, str) or code in _POINTER_CODES  # pointers and functions have no type code


def view_of(thing: Any, *, writable: bool = False) -> tuple[Any, str]:
    """Returns the object to take the buffer from, and the buffer's format if the format contains pointers, else "".

    An object without a buffer may be a DLPack tensor in host memory.

    The buffer is requested only once, because a second call of a user's `__buffer__` may return a buffer that was not
    checked. Only a type of C may get a second request, which is one without a format.

    Raises:
        TypeError, ValueError, BufferError: the object has no buffer.
        ParameterError: it is a tensor that cannot be used as host memory.
    """
    try:
        view = memoryview(thing)
    except (TypeError, ValueError, BufferError) as error:
        tensor = host_tensor(thing, writable=writable) if isinstance(error, TypeError) else None
        if tensor is not None:
            return memoryview(tensor), ""
        if not isinstance(
            getattr(cast("type[object]", type(thing)), "__buffer__", OF_C), WrapperDescriptorType
        ):
            raise
        # For instance, numpy has no format for datetime64.
        kind = getattr(thing, "dtype", None)
        return thing, str(kind) if getattr(kind, "hasobject", False) else ""
    layout = view.format
    unsafe = format_holds_pointers(layout) or type_holds_pointers(type(view.obj))
    return view, layout if unsafe else ""
