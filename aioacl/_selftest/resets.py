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
    call,
    download,
    expect,
    expect_on_a_thread,
    fill,
    named,
    read,
    require,
    require_code,
    write,
    written_by,
)
from aioacl._selftest._outcomes import Broken
from aioacl._selftest._records import SIMULATOR_ONLY, Family, Needs
from aioacl._selftest._threads import RemoteThread, patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench, Waiter

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


def _follow(sequence: str) -> Callable[[Bench], None]:
    """Returns the check of a sequence."""

    def check(bench: Bench) -> None:
        counts = states.Counts()
        for place, step in enumerate(sequence.split(), start=1):
            function, rule = STEPS[step]
            result = rule(counts)
            expect(result.code, function, bench.device, when=f"as step {place}")
            counts = result.counts

    check.__doc__ = f"The calls {sequence.replace(' ', ', ')} return the codes that aioacl expects."
    return check


for _sequence in SEQUENCES:
    RESETS.assumes(
        "counts-" + "".join(step[0] for step in _sequence.split()),
        "H*",
        "aclrtSetDevice aclrtResetDevice aclrtResetDeviceForce",
        "_base/states _lifecycle/manager lowlevel",
    )(_follow(_sequence))


def force(bench: Bench) -> None:
    """Resets the device by force, and discards the handles that were made before."""
    expect(0, "aclrtResetDeviceForce", bench.device)
    bench.forget()


@RESETS.assumes(
    "threads", "H*", "aclrtSetDevice aclrtResetDeviceForce", "_base/states _lifecycle/procedures/close"
)
def _(bench: Bench) -> None:
    """The count belongs to the process: one thread may reset a device that another has set, and the count is then 0."""
    bench.set_device()
    expect_on_a_thread(0, "aclrtResetDeviceForce", bench.device, when="on another thread")
    expect(NOT_SET, "aclrtResetDeviceForce", bench.device)


@RESETS.assumes(
    "no-device", "H", "aclrtGetDeviceCount aclrtResetDevice aclrtResetDeviceForce", "_base/codes lowlevel"
)
def _() -> None:
    """The reset of a device number beyond the last one is refused with 107001."""
    count = written_by("aclrtGetDeviceCount")
    expect(NO_DEVICE, "aclrtResetDevice", count)
    expect(NO_DEVICE, "aclrtResetDeviceForce", count)


@RESETS.assumes(
    "decrement",
    "H",
    "aclrtResetDevice aclrtMemsetAsync aclrtSynchronizeStreamWithTimeout aclrtMemcpy",
    "_base/states lowlevel",
)
def _(bench: Bench) -> None:
    """A reset that only decrements the count leaves contexts, streams and memory unchanged."""
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
    "H",
    "aclrtResetDevice aclrtResetDeviceForce aclrtGetCurrentContext",
    "_lifecycle/procedures/close",
)
def _(bench: Bench) -> None:
    """After a reset that releases the device, the calling thread has no context: 107002."""
    for reset in ("aclrtResetDevice", "aclrtResetDeviceForce"):
        bench.set_device()
        expect(0, reset, bench.device)
        expect(NO_CONTEXT, "aclrtGetCurrentContext", ffi.new("aclrtContext *"))


@RESETS.assumes(
    "inactive", "H", "aclrtResetDevice aclrtResetDeviceForce aclrtGetPrimaryCtxState", SIMULATOR_ONLY
)
def _(bench: Bench) -> None:
    """After a reset that releases the device, its primary context is not active."""
    for reset in ("aclrtResetDevice", "aclrtResetDeviceForce"):
        bench.set_device()
        expect(0, reset, bench.device)
        require(not bench.is_active(), f"the primary context is still active after {reset}")


@RESETS.assumes(
    "others-unbound",
    "H",
    "aclrtResetDeviceForce aclrtSetDevice aclrtSetCurrentContext aclrtCreateStream",
    "_native/gate.c _native/watcher.c",
)
def _(bench: Bench) -> None:
    """After a reset, another thread has no context either, whether it set the device or only the context."""
    for bind in BINDINGS:
        bench.set_device()
        other = _bound(bench, bind)
        force(bench)
        code = other.do(_make_stream)
        require_code(NO_CONTEXT, code, "aclrtCreateStream", f"on a thread bound by {bind}")


@RESETS.assumes(
    "revival",
    "H",
    "aclrtResetDeviceForce aclrtSetDevice aclrtSetCurrentContext aclrtCreateStream",
    "_native/watcher.c",
)
def _(bench: Bench) -> None:
    """If another thread resets and sets the device, a thread that makes no call in between can use its context
    again.
    """
    for bind in BINDINGS:
        bench.set_device()
        other = _bound(bench, bind)
        force(bench)
        bench.set_device()
        require_code(0, other.do(_make_stream), "aclrtCreateStream", f"on a thread bound by {bind}")
        force(bench)


@RESETS.assumes(
    "detached",
    "H",
    "aclrtResetDeviceForce aclrtSetDevice aclrtSetCurrentContext aclrtCreateStream",
    SIMULATOR_ONLY,
    needs=Needs.MODEL,
)
def _(bench: Bench) -> None:
    """If a thread uses its context between a reset and a set, the thread has no context afterwards: 107002."""
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
    "H",
    "aclrtResetDeviceForce aclrtSetDevice aclrtCreateStream aclrtMalloc aclrtMemcpy",
    "_lifecycle/procedures/reset _lifecycle/probe",
)
def _(bench: Bench) -> None:
    """After a force reset and a set, the device works: a stream, memory, and a copy to the device and back."""
    for _round in range(3):
        bench.set_device()
        failed = probe(bench.device, lib.aio_device_foreign(bench.device))
        if failed is not None:
            raise Broken(f"{failed[0]} returned {named(failed[1])}")
        force(bench)


@RESETS.assumes(
    "same-context",
    "H",
    "aclrtResetDeviceForce aclrtSetDevice aclrtGetCurrentContext",
    SIMULATOR_ONLY,
    needs=Needs.MODEL,
)
def _(bench: Bench) -> None:
    """The primary context has the same address after a reset and a set."""
    bench.set_device()
    before = bench.context
    force(bench)
    bench.set_device()
    require(bench.context == before, "the primary context has another address")


@RESETS.assumes(
    "explicit",
    "H",
    "aclrtCreateContext aclrtResetDeviceForce aclrtSetCurrentContext aclrtSynchronizeStream",
    SIMULATOR_ONLY,
)
def _(bench: Bench) -> None:
    """An explicit context and its streams remain valid after a force reset of their device."""
    bench.set_device()
    context, stream = written_by("aclrtCreateContext", bench.device), written_by("aclrtCreateStream")
    force(bench)
    expect(0, "aclrtSetCurrentContext", context)
    expect(0, "aclrtSynchronizeStream", stream)
    expect(0, "aclrtDestroyStream", stream)
    expect(0, "aclrtDestroyContext", context)


@RESETS.assumes(
    "pinned", "doc", "aclrtMallocHost aclrtResetDeviceForce aclrtFreeHost", "_handles/memory _native/stage.c"
)
def _(bench: Bench) -> None:
    """Pinned memory remains valid after a force reset: it can be read and freed."""
    bench.set_device()
    here = written_by("aclrtMallocHost", BLOCK_BYTES)
    write(here, b"kept")
    force(bench)
    require(read(here, 4) == b"kept", "the bytes of the pinned memory changed")
    bench.set_device()
    expect(0, "aclrtFreeHost", here)
    force(bench)


def _held(bench: Bench) -> tuple[CData, CData]:
    """Returns a stream that is held for ever, and an event that is recorded on it."""
    bench.set_device()
    stream, event = bench.stream(), bench.event()
    bench.hold_for_ever(stream)
    expect(0, "aclrtRecordEvent", event, stream)
    return stream, event


def _reset_during(bench: Bench, waiter: Waiter) -> None:
    """Resets the device by force while a thread waits. The wait must return 0."""
    force(bench)
    waiter.must_return(0, "when the device was reset")


@RESETS.assumes(
    "stream-waiter",
    "H",
    "aclrtResetDeviceForce aclrtSynchronizeStreamWithTimeout",
    "_native/confirm.c",
    crash="the runtime may crash if a thread is in this wait, so aioacl lets the thread leave the wait before a reset",
)
def _(bench: Bench) -> None:
    """A wait for a stream during a force reset returns 0, although the work was dropped."""
    stream, _ = _held(bench)
    _reset_during(bench, bench.waiter("aclrtSynchronizeStreamWithTimeout", stream, patience.wait_ms))


@RESETS.assumes(
    "event-waiter",
    "H",
    "aclrtResetDeviceForce aclrtSynchronizeEventWithTimeout",
    "_native/confirm.c _native/waiters.c",
)
def _(bench: Bench) -> None:
    """A wait for an event during a force reset returns 0, too."""
    _, event = _held(bench)
    _reset_during(bench, bench.waiter("aclrtSynchronizeEventWithTimeout", event, patience.wait_ms))


@RESETS.assumes(
    "stale-stream", "H", "aclrtResetDeviceForce aclrtSynchronizeStream", SIMULATOR_ONLY, needs=Needs.NO_CARD
)
def _(bench: Bench) -> None:
    """A stream from before a reset is refused with 107017."""
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
