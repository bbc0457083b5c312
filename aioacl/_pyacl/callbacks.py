"""Functions of the program that the runtime calls.

The runtime calls one C function for all callbacks of the program, and that function takes the GIL. It never waits for
anything else, so a callback cannot block a thread of the runtime for ever: all calls of `acl` and of aioacl release the
GIL while they are in C. An exception of a callback goes to sys.unraisablehook.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import sync
from aioacl._base.ffi import ffi, lib, pointer
from aioacl._pyacl.arguments import enumerator

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData

# The callbacks that are enqueued, with their arguments and streams. The runtime gets the number of the entry.
_pending: Final[dict[int, tuple[Callable[[Any], object], Any, int]]] = {}
_numbers: Final = itertools.count(1)
_exception_callback: Callable[[int], object] | None = None


def _call(function: Callable[[Any], object], argument: Any) -> None:
    try:
        function(argument)
    except BaseException as error:  # noqa: BLE001 - the caller is C
        sync.report(error)


def _launched(data: CData) -> None:
    entry = _pending.pop(pointer(data), None)
    if entry is not None:
        _call(entry[0], entry[1])


def _failed(info: CData) -> None:
    function = _exception_callback
    if function is not None:
        _call(function, pointer(info))


_on_launched: Final = ffi.callback("void(void *)", _launched)
_on_failed: Final = ffi.callback("void(aclrtExceptionInfo *)", _failed)


def launch_callback(function: Callable[[Any], object], argument: Any, block_type: int, stream: int) -> int:
    """Enqueues a call `function(argument)`, which runs on the thread that processes the stream's reports."""
    number = next(_numbers)
    _pending[number] = (function, argument, stream)
    code = lib.aio_u_aclrtLaunchCallback(
        _on_launched, ffi.cast("void *", number), enumerator(block_type), ffi.cast("aclrtStream", stream)
    )
    if code:
        _pending.pop(number, None)
    return code


def set_exception_info_callback(function: Callable[[int], object] | None = None) -> int:
    """Sets the function that is called with the address of each failed task's information, or None for no function.

    The address is valid during the call only. A thread of the runtime makes the call.
    """
    global _exception_callback  # noqa: PLW0603 - the runtime has one callback
    _exception_callback = function
    return lib.aio_u_aclrtSetExceptionInfoCallback(ffi.NULL if function is None else _on_failed)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "launch_callback": launch_callback,
    "set_exception_info_callback": set_exception_info_callback,
}
"""The functions of the table that are written here."""
