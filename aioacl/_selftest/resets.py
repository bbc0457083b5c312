"""The rules of set and reset: counts, which threads keep a context, which objects remain valid, and how waits end.

Each check runs in its own process, in which the device has not been set before. No check runs without --reset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base import states
from aioacl._base.ffi import ffi, lib
from aioacl._lifecycle.probe import probe
from aioacl._selftest._bench import (
    BLOCK_BYTES,
    NO_CONTEXT,
    NO_DEVICE,
    NOT_SET,
    Bench,
    Helper,
    RemoteThread,
    call,
    download,
    expect,
    fill,
    named,
    patience,
    require,
    require_code,
)
from aioacl._selftest._outcomes import Broken
from aioacl._selftest._records import SIMULATOR_ONLY, Family, Needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData

RESETS: Final = Family("resets", "set and reset", alone=True, needs=Needs.RESET)
DEAD_STREAM: Final = 107017
BINDINGS: Final = ("aclrtSetDevice", "aclrtSetCurrentContext")
STEPS: Final = {
    "set": ("aclrtSetDevice", states.set_device),
    "reset": ("aclrtResetDevice", states.reset_device),
    "force": ("aclrtResetDeviceForce", states.reset_device_force),
}
# These sequences are from the vendor's documents.
SEQUENCES: Final = (
    "set force set force",
    "set set force",
    "set reset set force",
    "set set reset force",
    "set set reset reset force",
    "set set reset force force",
    "set set force reset",
    "reset",
    "force",
    "set set reset reset reset",
    "set reset reset set reset",
)


def _follow(steps: str) -> Callable[[Bench], None]:
    def check(bench: Bench) -> None:
        counts = states.Counts()
        for place, step in enumerate(steps.split(), start=1):
            function, rule = STEPS[step]
            result = rule(counts)
            code = call(function, bench.device)
            require_code(result.code, code, function, f"as step {place}")
            counts = result.counts

    return check


for _sequence in SEQUENCES:
    RESETS.assumes(
        "counts-" + "".join(step[0] for step in _sequence.split()),
        f"The calls {_sequence.replace(' ', ', ')} return the codes that aioacl expects.",
        calls="aclrtSetDevice aclrtResetDevice aclrtResetDeviceForce",
        used_by="_base/states _lifecycle/manager lowlevel",
        mark="H*",
    )(_follow(_sequence))


def force(bench: Bench) -> None:
    """Resets the device by force, and discards the handles that were made before."""
    expect(0, "aclrtResetDeviceForce", bench.device)
    bench.forget()


@RESETS.assumes(
    "threads",
    "The count belongs to the process: one thread may reset a device that another has set, and the count is then 0.",
    calls="aclrtSetDevice aclrtResetDeviceForce",
    used_by="_base/states _lifecycle/procedures/close",
    mark="H*",
)
def _(bench: Bench) -> None:
    bench.set_device()
    code = Helper(lambda: call("aclrtResetDeviceForce", bench.device)).answer("aclrtResetDeviceForce")
    require_code(0, code, "aclrtResetDeviceForce", "on another thread")
    expect(NOT_SET, "aclrtResetDeviceForce", bench.device)


@RESETS.assumes(
    "no-device",
    "The reset of a device number beyond the last one is refused with 107001.",
    calls="aclrtGetDeviceCount aclrtResetDevice aclrtResetDeviceForce",
    used_by="_base/codes lowlevel",
    mark="H",
)
def _(_: Bench) -> None:
    count = ffi.new("uint32_t *")
    expect(0, "aclrtGetDeviceCount", count)
    expect(NO_DEVICE, "aclrtResetDevice", int(count[0]))
    expect(NO_DEVICE, "aclrtResetDeviceForce", int(count[0]))


@RESETS.assumes(
    "decrement",
    "A reset that only decrements the count leaves contexts, streams and memory unchanged.",
    calls="aclrtResetDevice aclrtMemsetAsync aclrtSynchronizeStreamWithTimeout aclrtMemcpy",
    used_by="_base/states lowlevel",
    mark="H",
)
def _(bench: Bench) -> None:
    bench.set_device()
    bench.set_device()
    stream, memory = bench.stream(), bench.memory()
    fill(stream, memory, 1)
    bench.finish(stream)
    expect(0, "aclrtResetDevice", bench.device)
    require(bench.current_context() == bench.context, "the thread has another context")
    require(download(memory, BLOCK_BYTES) == bytes([1]) * BLOCK_BYTES, "the memory has changed")
    fill(stream, memory, 2)
    bench.finish(stream)
    require(download(memory, BLOCK_BYTES) == bytes([2]) * BLOCK_BYTES, "the stream's work was not done")
    force(bench)


@RESETS.assumes(
    "unbound",
    "After a reset that releases the device, the calling thread has no context: 107002.",
    calls="aclrtResetDevice aclrtResetDeviceForce aclrtGetCurrentContext",
    used_by="_lifecycle/procedures/close",
    mark="H",
)
def _(bench: Bench) -> None:
    for reset in ("aclrtResetDevice", "aclrtResetDeviceForce"):
        bench.set_device()
        expect(0, reset, bench.device)
        expect(NO_CONTEXT, "aclrtGetCurrentContext", ffi.new("aclrtContext *"))


@RESETS.assumes(
    "inactive",
    "After a reset that releases the device, its primary context is not active.",
    calls="aclrtResetDevice aclrtResetDeviceForce aclrtGetPrimaryCtxState",
    used_by=SIMULATOR_ONLY,
    mark="H",
)
def _(bench: Bench) -> None:
    for reset in ("aclrtResetDevice", "aclrtResetDeviceForce"):
        bench.set_device()
        expect(0, reset, bench.device)
        require(not bench.is_active(), f"the primary context is still active after {reset}")


@RESETS.assumes(
    "others-unbound",
    "After a reset, another thread has no context either, whether it set the device or only the context.",
    calls="aclrtResetDeviceForce aclrtSetDevice aclrtSetCurrentContext aclrtCreateStream",
    used_by="_native/gate.c _native/watcher.c",
    mark="H",
)
def _(bench: Bench) -> None:
    for bind in BINDINGS:
        bench.set_device()
        other = _bound(bench, bind)
        force(bench)
        code = other.do(_make_stream)
        require_code(NO_CONTEXT, code, "aclrtCreateStream", f"on a thread bound by {bind}")


@RESETS.assumes(
    "revival",
    "If another thread resets and sets the device, a thread that makes no call in between can use its context again.",
    calls="aclrtResetDeviceForce aclrtSetDevice aclrtSetCurrentContext aclrtCreateStream",
    used_by="_native/watcher.c",
    mark="H",
)
def _(bench: Bench) -> None:
    for bind in BINDINGS:
        bench.set_device()
        other = _bound(bench, bind)
        force(bench)
        bench.set_device()
        require_code(0, other.do(_make_stream), "aclrtCreateStream", f"on a thread bound by {bind}")
        force(bench)


@RESETS.assumes(
    "detached",
    "If a thread uses its context between a reset and a set, the thread has no context afterwards: 107002.",
    calls="aclrtResetDeviceForce aclrtSetDevice aclrtSetCurrentContext aclrtCreateStream",
    used_by=SIMULATOR_ONLY,
    mark="H",
    needs=Needs.MODEL,
)
def _(bench: Bench) -> None:
    for bind in BINDINGS:
        bench.set_device()
        other = _bound(bench, bind)
        force(bench)
        other.do(_make_stream)
        bench.set_device()
        code = other.do(_make_stream)
        require_code(NO_CONTEXT, code, "aclrtCreateStream", f"on a thread bound by {bind}")
        force(bench)


@RESETS.assumes(
    "works",
    "After a force reset and a set, the device works: a stream, memory, and a copy to the device and back.",
    calls="aclrtResetDeviceForce aclrtSetDevice aclrtCreateStream aclrtMalloc aclrtMemcpy",
    used_by="_lifecycle/procedures/reset _lifecycle/probe",
    mark="H",
)
def _(bench: Bench) -> None:
    for _round in range(3):
        bench.set_device()
        failed = probe(bench.device, lib.aio_device_foreign(bench.device))
        if failed is not None:
            raise Broken(f"{failed[0]} returned {named(failed[1])}")
        force(bench)


@RESETS.assumes(
    "same-context",
    "The primary context has the same address after a reset and a set.",
    calls="aclrtResetDeviceForce aclrtSetDevice aclrtGetCurrentContext",
    used_by=SIMULATOR_ONLY,
    mark="H",
    needs=Needs.MODEL,
)
def _(bench: Bench) -> None:
    bench.set_device()
    before = bench.context
    force(bench)
    bench.set_device()
    require(bench.context == before, "the primary context has another address")


@RESETS.assumes(
    "explicit",
    "An explicit context and its streams remain valid after a force reset of their device.",
    calls="aclrtCreateContext aclrtResetDeviceForce aclrtSetCurrentContext aclrtSynchronizeStream",
    used_by=SIMULATOR_ONLY,
    mark="H",
)
def _(bench: Bench) -> None:
    bench.set_device()
    context, stream = ffi.new("aclrtContext *"), ffi.new("aclrtStream *")
    expect(0, "aclrtCreateContext", context, bench.device)
    expect(0, "aclrtCreateStream", stream)
    force(bench)
    expect(0, "aclrtSetCurrentContext", context[0])
    expect(0, "aclrtSynchronizeStream", stream[0])
    expect(0, "aclrtDestroyStream", stream[0])
    expect(0, "aclrtDestroyContext", context[0])


@RESETS.assumes(
    "pinned",
    "Pinned memory remains valid after a force reset: it can be read and freed.",
    calls="aclrtMallocHost aclrtResetDeviceForce aclrtFreeHost",
    used_by="_handles/memory _native/stage.c",
    mark="doc",
)
def _(bench: Bench) -> None:
    here = ffi.new("void **")
    bench.set_device()
    expect(0, "aclrtMallocHost", here, 4096)
    ffi.buffer(here[0], 4)[:] = b"kept"
    force(bench)
    require(bytes(ffi.buffer(here[0], 4)) == b"kept", "the bytes of the pinned memory changed")
    bench.set_device()
    expect(0, "aclrtFreeHost", here[0])
    force(bench)


def _wait_through(bench: Bench, function: str, wait: Callable[[CData, CData], int]) -> None:
    """Resets the device by force while a thread waits for a held stream. The wait must return 0."""
    bench.set_device()
    stream, event, gate = bench.stream(), bench.event(), ffi.new("aclrtEvent *")
    expect(0, "aclrtCreateEventWithFlag", gate, 1)
    expect(0, "aclrtStreamWaitEvent", stream, gate[0])
    expect(0, "aclrtRecordEvent", event, stream)
    waiter = bench.helper(lambda: wait(stream, event))
    bench.wait_inside(waiter, function)
    force(bench)
    require_code(0, waiter.answer(function), function, "when the device was reset")


@RESETS.assumes(
    "stream-waiter",
    "A wait for a stream during a force reset returns 0, although the work was dropped.",
    calls="aclrtResetDeviceForce aclrtSynchronizeStreamWithTimeout",
    used_by="_native/confirm.c",
    mark="H",
    crash="the runtime may crash if a thread is in this wait, so aioacl lets the thread leave the wait before a reset",
)
def _(bench: Bench) -> None:
    function = "aclrtSynchronizeStreamWithTimeout"
    _wait_through(bench, function, lambda stream, _: int(call(function, stream, patience.wait_ms)))


@RESETS.assumes(
    "event-waiter",
    "A wait for an event during a force reset returns 0, too.",
    calls="aclrtResetDeviceForce aclrtSynchronizeEventWithTimeout",
    used_by="_native/confirm.c _native/waiters.c",
    mark="H",
)
def _(bench: Bench) -> None:
    function = "aclrtSynchronizeEventWithTimeout"
    _wait_through(bench, function, lambda _, event: int(call(function, event, patience.wait_ms)))


@RESETS.assumes(
    "stale-stream",
    "A stream from before a reset is refused with 107017.",
    calls="aclrtResetDeviceForce aclrtSynchronizeStream",
    used_by=SIMULATOR_ONLY,
    mark="H",
    needs=Needs.NO_CARD,
)
def _(bench: Bench) -> None:
    bench.set_device()
    stream = bench.stream()
    force(bench)
    bench.set_device()
    expect(DEAD_STREAM, "aclrtSynchronizeStream", stream)
    force(bench)


def _make_stream() -> int:
    return int(call("aclrtCreateStream", ffi.new("aclrtStream *")))


def _bound(bench: Bench, bind: str) -> RemoteThread:
    """Returns a thread that was bound by the given call, and has called nothing since."""
    thread = RemoteThread()
    argument = bench.device if bind == "aclrtSetDevice" else bench.context
    require_code(0, thread.do(lambda: call(bind, argument)), bind)
    return thread
