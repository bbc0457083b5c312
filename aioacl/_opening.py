"""`open_device()` and `list_devices()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, lib, text_of
from aioacl._base.options import ContextKind, Strategy, deadline_of, is_one_of, must_be_bool, repr_of
from aioacl._base.public import publish
from aioacl._base.records import DeviceInfo
from aioacl._device import Device
from aioacl._handles.operation import Opening
from aioacl._library import runtime
from aioacl._lifecycle.gate import advise_without_device, error_of
from aioacl._lifecycle.manager import manager_of
from aioacl._lifecycle.policy import resets_of_environment

if TYPE_CHECKING:
    from aioacl._base.options import Seconds


def open_device(
    index: SupportsIndex = 0,
    waits: Strategy = "watch",
    *,
    context: ContextKind = "primary",
    cache: bool = True,
    keep: bool = False,
    resets: bool = True,
    heal: bool = False,
    wait: bool = True,
    timeout: Seconds | None = None,
) -> Opening[Device]:
    """Opens a device. The first open sets it (aclrtSetDevice), and the last close undoes this set (aclrtResetDevice).

    With `context="own"`, they make and destroy a context instead (aclrtCreateContext, aclrtDestroyContext).

    Args:
        index: the index of the device among the visible devices, an int from 0.
        waits: "watch": one native thread of the device polls for all waits. "thread": each wait blocks a thread in an
            ACL function. Later opens of an open device must pass the same value.
        context: "primary": the device's primary context, which other code of the process uses too. "own": a context
            that aioacl makes and destroys (aclrtCreateContext), so that failures and resets of other code do not
            concern it. Later opens of an open device must pass the same value.
        cache: whether closed device memory, pinned memory and streams are kept, and used again by later requests. While
            an open of the device has passed False, nothing is kept.
        keep: if True, the last close leaves one set, which belongs to other code from then on. It leaves none if the
            set of an earlier close still stands. Not with `context="own"`, because aioacl makes no set then. It holds
            until the last close, also if only one of several opens has passed True.
        resets: if False, `force_reset()` needs `foreign=True` to reset a device that other code has perhaps set, and
            the last close leaves one set, as with `keep`. It holds until the last close, also if only one of several
            opens has passed False. The environment variable AIOACL_RESETS=never, which each open reads, has the same
            effect on all opens. aioacl's own context is replaced all the same.
        heal: if True, the first open probes the device with a stream, with memory and with a copy. If the probe fails,
            the open resets the device once (aclrtResetDeviceForce), and probes it again. It does not reset a device
            that other code has perhaps set, nor with `resets=False` or AIOACL_RESETS=never. Provisional: no card has
            shown yet that this helps. A device that is open already is not probed.
        wait: if False, raises DeviceResetting at once instead of waiting for a reset to end.
        timeout: the longest wait in seconds; None waits without a limit.

    Returns:
        An Opening of a Device: await it, or enter it with `async with`.

    Raises:
        LibraryNotFound: no ACL library could be loaded.
        LibraryConflict: other code of the process has loaded another ACL library.
        ParameterError: the device does not exist, it is open with another `waits` or `context`, or an argument has a
            wrong value.
        DeviceResetting: the device is draining, being reset or being closed, and `wait` is False.
        DeviceQuarantined: the device is quarantined.
        DeviceFault: the device cannot be set, or the probe of `heal` has failed. The code of the failure may select
            another subclass of AclError.
        DeviceTimeout: the device was not open within `timeout` seconds.
    """
    check_kinds(waits, context)
    for name, value in (("cache", cache), ("keep", keep), ("resets", resets), ("heal", heal)):
        must_be_bool(name, value)
    if keep and context == "own":
        raise ParameterError(
            'keep must be False with context="own", got True: aioacl does not set the device then',
            hint="Omit keep.",
        )
    resets = resets and resets_of_environment()
    manager = manager_of(index)

    async def make() -> Device:
        device = Device._make(manager)
        await manager.open(
            device._user,
            waits,
            context,
            cache=cache,
            keep=keep,
            resets=resets,
            heal=heal,
            wait=wait,
            deadline=deadline_of(timeout),
        )
        device._handed_out = True
        return device

    return Opening(f"open_device({manager.index})", make)


def check_kinds(waits: object, context: object) -> None:
    """Raises ParameterError unless `waits` and `context` have values that `open_device` takes."""
    if not is_one_of(waits, "watch", "thread"):
        raise ParameterError(
            f'waits must be "watch" or "thread", got {repr_of(waits)}', hint='Omit waits for "watch".'
        )
    if not is_one_of(context, "primary", "own"):
        raise ParameterError(
            f'context must be "primary" or "own", got {repr_of(context)}', hint='Omit context for "primary".'
        )


def list_devices() -> tuple[DeviceInfo, ...]:
    """Returns the visible devices (aclrtGetDeviceCount, aclrtGetSocName). Makes no context.

    Returns:
        A DeviceInfo for each device: its index, and `soc`, the name of its chip.

    Raises:
        LibraryNotFound: no ACL library could be loaded.
        LibraryConflict: other code of the process has loaded another ACL library.
        AclError: the runtime could not count the devices, for instance because ASCEND_RT_VISIBLE_DEVICES is invalid
            (207004).
    """
    runtime.load()
    found = ffi.new("uint32_t *")
    code = lib.aio_u_aclrtGetDeviceCount(found)
    if code:
        error = error_of(code, "aclrtGetDeviceCount", -1, 0)
        advise_without_device(error, "Check with npu-smi whether the cards and their driver work.")
        raise error
    soc = text_of(lib.aio_u_aclrtGetSocName())
    return tuple(DeviceInfo(index, soc) for index in range(found[0]))


publish("aioacl", ["list_devices", "open_device"], of=__name__)
