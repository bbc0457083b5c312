"""Functions of the program that the runtime calls.

The runtime calls one C function for all callbacks of the program, and that function takes the GIL. It never waits for
anything else, so a callback cannot block a thread of the runtime for ever: all calls of `acl` and of aioacl release the
GIL while they are in C. An exception of a callback goes to sys.unraisablehook.

The runtime does not report a callback that it never calls, because a reset has ended its stream. So each callback is
kept with the number of resets that had released its device, and is forgotten once that number has changed. The number
counts the resets of all code, if the library reports them (aclrtRegDeviceStateCallback). Resets by other code than
this module are noticed at the next launch or reset through it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioacl._base import sync
from aioacl._base.ffi import ffi, lib, pointer
from aioacl._pyacl.arguments import enumerator

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData


class _Entry(NamedTuple):
    """A callback that is enqueued."""

    function: Callable[[Any], object]
    argument: Any
    device: int
    teardowns: int


# The callbacks that are enqueued. The runtime gets the number of the entry.
_pending: Final[dict[int, _Entry]] = {}
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
        _call(entry.function, entry.argument)


def _failed(info: CData) -> None:
    function = _exception_callback
    if function is not None:
        _call(function, pointer(info))


_on_launched: Final = ffi.callback("void(void *)", _launched)
_on_failed: Final = ffi.callback("void(aclrtExceptionInfo *)", _failed)


def _device() -> int | None:
    """The device of the current context, or None without a context."""
    device = ffi.new("int32_t *")
    return None if lib.aio_u_aclrtGetDevice(device) else device[0]


def _forget_ended() -> None:
    """Forgets the callbacks of streams that resets have ended."""
    for number, entry in _pending.copy().items():
        if lib.aio_device_teardowns(entry.device) != entry.teardowns:
            _pending.pop(number, None)


def launch_callback(function: Callable[[Any], object], argument: Any, block_type: int, stream: int) -> int:
    """Enqueues a call `function(argument)`, which runs on the thread that processes the stream's reports."""
    _forget_ended()
    number, device = next(_numbers), _device()
    if device is not None:  # else the runtime refuses the launch below
        _pending[number] = _Entry(function, argument, device, lib.aio_device_teardowns(device))
    code = lib.aio_u_aclrtLaunchCallback(
        _on_launched, ffi.cast("void *", number), enumerator(block_type), ffi.cast("aclrtStream", stream)
    )
    if code:
        _pending.pop(number, None)
    return code


def reset_device(device: int) -> int:
    """Undoes one set. The last reset releases the device, and then its callbacks are forgotten."""
    code: int = lib.aio_u_aclrtResetDevice(device)
    _forget_ended()
    return code


def reset_device_force(device: int) -> int:
    """Undoes all sets. The callbacks of the device are forgotten."""
    code: int = lib.aio_u_aclrtResetDeviceForce(device)
    _forget_ended()
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
    "reset_device": reset_device,
    "reset_device_force": reset_device_force,
    "set_exception_info_callback": set_exception_info_callback,
}
"""The functions of the table that are written here."""
