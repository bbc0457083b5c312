"""The library and the process: which functions exist, what aclInit does, and what needs no device."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import ffi, lib, text_of
from aioacl._library.features import called, is_needed
from aioacl._selftest._bench import NO_DEVICE, REPEAT_INITIALIZE, call, expect, fill, named, one_of, require
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


@PROCESS.assumes(
    "loads",
    "The library can be loaded, and counts the devices.",
    calls="aclrtGetDeviceCount",
    used_by="_library/load _device",
    mark="doc",
)
def _(bench: Bench) -> None:
    count = ffi.new("uint32_t *")
    expect(0, "aclrtGetDeviceCount", count)
    require(
        count[0] > bench.device, f"aclrtGetDeviceCount wrote {count[0]}, expected more than {bench.device}"
    )


@PROCESS.assumes(
    "needed",
    "The library has the functions that every use of a device needs.",
    calls="",
    used_by="_library/load _library/features",
    mark="doc",
)
def _(_: Bench) -> None:
    lost = sorted(name for name in absent() if is_needed(name))
    require(not lost, f"the library lacks {', '.join(lost)}")


@PROCESS.assumes(
    "since",
    "The library has each function that aioacl calls and that its release should have.",
    calls="aclsysGetVersionStr",
    used_by="_library/load _library/features",
    mark="doc",
)
def _(_: Bench) -> None:
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


@PROCESS.assumes(
    "initialise",
    "aclInit without a file returns 0, and 100002 when it is called again.",
    calls="aclInit",
    used_by="_library/runtime",
    mark="doc",
)
def _(_: Bench) -> None:
    expect(0, "aclInit", ffi.NULL)
    expect(REPEAT_INITIALIZE, "aclInit", ffi.NULL)


@PROCESS.assumes(
    "finalise",
    "aclFinalizeReference decrements the count of uses, and does not reset devices that are set.",
    calls="aclInit aclFinalizeReference aclrtSetDevice",
    used_by="_library/runtime",
    mark="doc",
)
def _(bench: Bench) -> None:
    left = ffi.new("uint64_t *", 77)
    expect(0, "aclInit", ffi.NULL)
    expect(REPEAT_INITIALIZE, "aclInit", ffi.NULL)  # this call counts too
    bench.set_device()
    for wanted in (1, 0):
        expect(0, "aclFinalizeReference", left)
        require(left[0] == wanted, f"aclFinalizeReference wrote {left[0]}, expected {wanted}")
        bench.finish(bench.stream())


@PROCESS.assumes(
    "uninitialised",
    "A device can be set without aclInit.",
    calls="aclrtSetDevice",
    used_by=SIMULATOR_ONLY,
    mark="H",
)
def _(bench: Bench) -> None:
    bench.set_device()
    bench.finish(bench.stream())


@PROCESS.assumes(
    "look",
    "The number of devices, the name of the chip and a device's status need no context, and create none.",
    calls="aclrtGetDeviceCount aclrtGetSocName aclrtQueryDeviceStatus aclrtGetPrimaryCtxState",
    used_by="_device _cli/devices",
    mark="H",
)
def _(bench: Bench) -> None:
    count, status = ffi.new("uint32_t *"), ffi.new("aclrtDeviceStatus *")
    expect(0, "aclrtGetDeviceCount", count)
    require(text_of(call("aclrtGetSocName")), "aclrtGetSocName returned no name")
    expect(0, "aclrtQueryDeviceStatus", bench.device, status)
    require(not bench.is_active(), "the calls made a context: aclrtGetPrimaryCtxState reports it as active")


@PROCESS.assumes(
    "no-device",
    "A device beyond the last one is refused with 107001.",
    calls="aclrtSetDevice aclrtGetDeviceCount",
    used_by="_lifecycle/procedures/close _base/codes",
    mark="H",
)
def _(_: Bench) -> None:
    count = ffi.new("uint32_t *")
    expect(0, "aclrtGetDeviceCount", count)
    expect(NO_DEVICE, "aclrtSetDevice", int(count[0]))
    expect(NO_DEVICE, "aclrtSetDevice", -1)


@PROCESS.assumes(
    "primary",
    "Setting a device makes its primary context active.",
    calls="aclrtSetDevice aclrtGetPrimaryCtxState",
    used_by=SIMULATOR_ONLY,
    mark="H",
)
def _(bench: Bench) -> None:
    bench.set_device()
    require(bench.is_active(), "aclrtGetPrimaryCtxState reports that it is not active")


@PROCESS.assumes(
    "mode",
    "The run mode can be read without a context.",
    calls="aclrtGetRunMode",
    used_by=SIMULATOR_ONLY,
    mark="doc",
)
def _(_: Bench) -> None:
    mode = ffi.new("aclrtRunMode *", 77)
    code = call("aclrtGetRunMode", mode)
    require(code == 0, f"aclrtGetRunMode returned {named(code)}, expected {named(0)}")
    one_of((lib.ACL_DEVICE, lib.ACL_HOST), int(mode[0]), "aclrtGetRunMode")


@PROCESS.assumes(
    "exit",
    "A process with a set device and finished work ends by itself, with its own status.",
    calls="aclrtSetDevice aclrtCreateStream",
    used_by="_native/exit.c",
    mark="H",
    leaves=True,
)
def _(bench: Bench) -> None:
    bench.set_device()
    fill(bench.stream(), bench.memory(), 1)
    bench.finish(ffi.NULL)


@PROCESS.assumes(
    "exit-inside",
    "If an exit handler is installed after the load, it runs before the destructors: a process can end during a wait.",
    calls="aclrtSetDevice aclrtStreamWaitEvent aclrtSynchronizeStream",
    used_by="_native/exit.c",
    mark="H",
    leaves=True,
)
def _(bench: Bench) -> None:
    lib.aio_exit_install(200_000)
    bench.set_device()
    stream, gate = ffi.new("aclrtStream *"), ffi.new("aclrtEvent *")
    expect(0, "aclrtCreateStream", stream)
    expect(0, "aclrtCreateEventWithFlag", gate, 1)
    expect(0, "aclrtStreamWaitEvent", stream[0], gate[0])
    waiter = bench.helper(lambda: call("aclrtSynchronizeStream", stream[0]))
    bench.wait_inside(waiter, "aclrtSynchronizeStream")
