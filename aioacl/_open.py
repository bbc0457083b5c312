"""Opening devices, and listing those that there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, lib, text_of
from aioacl._base.options import DeviceInfo, Strategy, deadline_of
from aioacl._device import Device
from aioacl._handles.operation import Opening
from aioacl._library import runtime as _runtime
from aioacl._lifecycle.gate import error_of
from aioacl._lifecycle.manager import manager_of

if TYPE_CHECKING:
    from aioacl._base.options import Seconds


def open_device(
    index: SupportsIndex = 0, waits: Strategy = "watch", *, wait: bool = True, timeout: Seconds | None = None
) -> Opening[Device]:
    """Opens a device; the first open of one sets it (aclrtSetDevice), the last close resets it.

    Args:
        index: among the visible devices.
        waits: "watch": one native thread asks for all awaits. "thread": a thread in the blocking call for each.
        wait: with False, raises DeviceResetting at once instead of waiting for a reset to end.
        timeout: seconds to wait at most.

    Raises:
        LibraryNotFound: no ACL library could be loaded.
        ParameterError: no such device, or it is open with another `waits`.
        DeviceResetting, DeviceQuarantined, DeviceTimeout.
    """
    if waits not in ("watch", "thread"):
        raise ParameterError(
            f'waits must be "watch" or "thread", got {waits!r}', hint='Leave it out for "watch".'
        )
    manager = manager_of(index)

    async def make() -> Device:
        device = Device._make(manager)
        await manager.open(device._user, waits, wait=wait, deadline=deadline_of(timeout))
        device._handed_out = True
        return device

    return Opening(f"open_device({manager.index})", make)


def list_devices() -> tuple[DeviceInfo, ...]:
    """The devices that the runtime can see (aclrtGetDeviceCount); makes no context.

    Raises:
        LibraryNotFound: no ACL library could be loaded.
        AclError: the runtime cannot tell, for instance for a bad ASCEND_RT_VISIBLE_DEVICES (207004).
    """
    _runtime.load()
    found = ffi.new("uint32_t *")
    code = lib.aio_u_aclrtGetDeviceCount(found)
    if code:
        raise error_of(code, "aclrtGetDeviceCount", -1, 0)
    soc = text_of(lib.aio_u_aclrtGetSocName())
    return tuple(DeviceInfo(index, soc) for index in range(found[0]))
