"""What borrowed streams and events need: the device, and the context of the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, lib
from aioacl._base.options import repr_of
from aioacl._lifecycle.abortable import address_of
from aioacl._lifecycle.gate import error_of, is_set
from aioacl._lifecycle.manager import Manager

if TYPE_CHECKING:
    from aioacl._base.ffi import CData


def manager_of_device(device: Any) -> Manager:
    """The manager of an open Device. Raises ParameterError for anything else."""
    manager = getattr(device, "_manager", None)
    if not isinstance(manager, Manager) or not hasattr(device, "create_stream"):  # a handle has a manager too
        raise ParameterError(
            f"expected a Device, got {repr_of(device)}", hint="Pass a device that open_device() opened."
        )
    device._check()
    return manager


def context_of(manager: Manager, context: Any) -> CData:
    """The context of a stream to borrow, from an int or a C value; None is the primary context of the device.

    Returns NULL for the context that the device itself uses.
    """
    if context is not None:
        return ffi.cast("aclrtContext", address_of(context, "aclrtContext"))
    if not manager.own_context.wanted:
        return ffi.NULL
    return _primary(manager.index)


def context_of_others(manager: Manager) -> CData:
    """The context of a stream of other code that is known by its address only.

    Returns NULL if the thread has a context of other code, which is that of the stream, or if no code has set the
    device. Otherwise the stream belongs to the primary context.
    """
    if lib.aio_context_is_foreign() or not is_set(manager.index):
        return ffi.NULL
    return _primary(manager.index)


def _current() -> CData:
    found: Any = ffi.new("aclrtContext *")
    lib.aio_u_aclrtGetCurrentContext(found)
    made: CData = found[0]
    return made


def _primary(index: int) -> CData:
    """The primary context, which is current after a set. The set is undone. The device stays set by other code."""
    if not is_set(index):
        raise ParameterError(
            f"expected a stream of device {index}, but no code has set this device",
            hint="Pass the context of the stream.",
        )
    before = _current()
    code = lib.aio_u_aclrtSetDevice(index)
    if code:
        raise error_of(code, "aclrtSetDevice", index, 0)
    try:
        lib.aio_u_aclGetRecentErrMsg()  # drops the text of `_current` on a thread that had no context
        return _current()
    finally:
        lib.aio_u_aclrtResetDevice(index)
        if before != ffi.NULL:
            lib.aio_u_aclrtSetCurrentContext(before)
