"""The library and the process: which functions exist, what aclInit does, and what needs no device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import ffi, lib, text_of
from aioacl._library.features import called, is_needed
from aioacl._selftest._bench import (
    NO_DEVICE,
    REPEAT_INITIALIZE,
    call,
    expect,
    fill,
    one_of,
    require,
    written_by,
)
from aioacl._selftest._outcomes import NotTestable
from aioacl._selftest._records import SIMULATOR_ONLY, Family

if TYPE_CHECKING:
    from aioacl._selftest._bench import Bench

PROCESS: Final = Family("process", "the library and the process", alone=True, begins=False)
VERSION_BYTES: Final = 256
RELEASES: Final = {
    "8.1": (8, 1),
    "8.5": (8, 5),
    "8.5.0": (8, 5),
    "9.0": (9, 0),
    "9.0.0": (9, 0),
    "9.1": (9, 1),
}


def absent() -> dict[str, str]:
    """Returns the functions of the table that the library lacks, with the release that introduced each."""
    string = ffi.string
    return {
        string(lib.aio_table_name(index)).decode(): string(lib.aio_table_since(index)).decode()
        for index in range(lib.aio_table_size())
        if not lib.aio_table_present(index)
    }


def version() -> str:
    """Returns the release that the library reports, or an empty text."""
    text = ffi.new("char[]", VERSION_BYTES)
    code = call("aclsysGetVersionStr", ffi.new("char[]", b"runtime"), text)
    return "" if code else text_of(text)


@PROCESS.assumes("loads", "doc", "aclrtGetDeviceCount", "_library/load _device")
def _(bench: Bench) -> None:
    """The library can be loaded, and counts the devices."""
    count = written_by("aclrtGetDeviceCount")
    require(count > bench.device, f"aclrtGetDeviceCount wrote {count}, expected more than {bench.device}")


@PROCESS.assumes("needed", "doc", "", "_library/load _library/features")
def _() -> None:
    """The library has the functions that every use of a device needs."""
    lost = sorted(name for name in absent() if is_needed(name))
    require(not lost, f"the library lacks {', '.join(lost)}")


@PROCESS.assumes("since", "doc", "aclsysGetVersionStr", "_library/load _library/features")
def _() -> None:
    """The library has each function that aioacl calls and that its release should have."""
    found = re.match(r"(\d+)\.(\d+)", version())
    if found is None:
        raise NotTestable("the library does not report its release")
    release = (int(found[1]), int(found[2]))
    lost = [
        f"{name} (of {since})"
        for name, since in absent().items()
        if name in called() and RELEASES.get(since, (99, 0)) <= release
    ]
    require(not lost, f"the library reports release {found[0]}, but lacks {', '.join(lost)}")


@PROCESS.assumes("initialise", "doc", "aclInit", "_library/runtime")
def _() -> None:
    """aclInit without a file returns 0, and 100002 when it is called again."""
    expect(0, "aclInit", ffi.NULL)
    expect(REPEAT_INITIALIZE, "aclInit", ffi.NULL)


@PROCESS.assumes("finalise", "doc", "aclInit aclFinalizeReference aclrtSetDevice", "_library/runtime")
def _(bench: Bench) -> None:
    """aclFinalizeReference decrements the count of uses, and does not reset devices that are set."""
    left = ffi.new("uint64_t *", 77)
    expect(0, "aclInit", ffi.NULL)
    expect(REPEAT_INITIALIZE, "aclInit", ffi.NULL)  # this call counts too
    bench.set_device()
    for wanted in (1, 0):
        expect(0, "aclFinalizeReference", left)
        require(left[0] == wanted, f"aclFinalizeReference wrote {left[0]}, expected {wanted}")
        bench.finish(bench.stream())


@PROCESS.assumes("uninitialised", "H", "aclrtSetDevice", SIMULATOR_ONLY)
def _(bench: Bench) -> None:
    """A device can be set without aclInit."""
    bench.set_device()
    bench.finish(bench.stream())


@PROCESS.assumes(
    "look",
    "H",
    "aclrtGetDeviceCount aclrtGetSocName aclrtQueryDeviceStatus aclrtGetPrimaryCtxState",
    "_device _cli/devices",
)
def _(bench: Bench) -> None:
    """The number of devices, the name of the chip and a device's status need no context, and create none."""
    written_by("aclrtGetDeviceCount")
    require(text_of(call("aclrtGetSocName")), "aclrtGetSocName returned no name")
    expect(0, "aclrtQueryDeviceStatus", bench.device, ffi.new("aclrtDeviceStatus *"))
    require(not bench.is_active(), "the calls made a context: aclrtGetPrimaryCtxState reports it as active")


@PROCESS.assumes(
    "no-device", "H", "aclrtSetDevice aclrtGetDeviceCount", "_lifecycle/procedures/close _base/codes"
)
def _() -> None:
    """A device beyond the last one is refused with 107001."""
    expect(NO_DEVICE, "aclrtSetDevice", written_by("aclrtGetDeviceCount"))
    expect(NO_DEVICE, "aclrtSetDevice", -1)


@PROCESS.assumes("primary", "H", "aclrtSetDevice aclrtGetPrimaryCtxState", SIMULATOR_ONLY)
def _(bench: Bench) -> None:
    """Setting a device makes its primary context active."""
    bench.set_device()
    require(bench.is_active(), "aclrtGetPrimaryCtxState reports that it is not active")


@PROCESS.assumes("mode", "doc", "aclrtGetRunMode", SIMULATOR_ONLY)
def _() -> None:
    """The run mode can be read without a context."""
    mode = ffi.new("aclrtRunMode *", 77)
    expect(0, "aclrtGetRunMode", mode)
    one_of((lib.ACL_DEVICE, lib.ACL_HOST), int(mode[0]), "aclrtGetRunMode")


@PROCESS.assumes("exit", "H", "aclrtSetDevice aclrtCreateStream", "_native/exit.c", leaves=True)
def _(bench: Bench) -> None:
    """A process with a set device and finished work ends by itself, with its own status."""
    bench.set_device()
    fill(bench.stream(), bench.memory(), 1)
    bench.finish(ffi.NULL)


@PROCESS.assumes(
    "exit-inside",
    "H",
    "aclrtSetDevice aclrtStreamWaitEvent aclrtSynchronizeStream",
    "_native/exit.c",
    leaves=True,
)
def _(bench: Bench) -> None:
    """If an exit handler is installed after the load, it runs before the destructors: a process can end during a
    wait.
    """
    lib.aio_exit_install(200_000)
    bench.set_device()
    stream = written_by("aclrtCreateStream")
    bench.hold_for_ever(stream)
    bench.waiter("aclrtSynchronizeStream", stream)
