"""Errors of tasks, which are delivered once, and the runtime's text on failures of calls.

A task can be made to fail on the simulator only. The trampolines that everybody here calls through read the text of a
failure at once, which clears it; so the checks of the text call the function by its address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi, lib, text_of
from aioacl._selftest._bench import Bench, call, expect, fill, named, on_a_thread, require, require_code
from aioacl._selftest._outcomes import Broken
from aioacl._selftest._records import Family, Needs

if TYPE_CHECKING:
    from aioacl._base.ffi import CData

ERRORS: Final = Family("errors", "errors of tasks, delivered once", needs=Needs.FAULTS)
TEXT: Final = Family("text", "the runtime's text on failures")
FAULT: Final = 507001
STOP: Final = 1
NO_SUCH_DEVICE: Final = 4711


def fail(bench: Bench, stream: CData, memory: CData) -> None:
    """Enqueues a task that fails, and lets the stream come past it without collecting the error.

    Nobody but a wait that has something to wait for makes the runtime look at a stream that has failed.
    """
    other = bench.stream()
    bench.fail_next(stream, FAULT)
    fill(stream, memory, 1)
    while bench.stream_status(stream):
        for _ in range(16):
            fill(other, memory, 1)
        bench.finish(other)


@ERRORS.assumes(
    "once",
    "The error of a task is delivered once: to the first synchronize of the stream.",
    calls="aclrtSynchronizeStream",
    used_by="_native/confirm.c _native/waiters.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory = bench.stream(), bench.memory()
    fail(bench, stream, memory)
    expect(FAULT, "aclrtSynchronizeStream", stream)
    code = call("aclrtSynchronizeStream", stream)
    require_code(0, code, "aclrtSynchronizeStream", "the second time")


@ERRORS.assumes(
    "queries-hide",
    "aclrtStreamQuery and aclrtQueryEventStatus call a failed stream complete, and keep its error for a wait.",
    calls="aclrtStreamQuery aclrtQueryEventStatus aclrtSynchronizeStream",
    used_by="_native/stream.c _native/outcome.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory, event = bench.stream(), bench.memory(), bench.event()
    fail(bench, stream, memory)
    expect(0, "aclrtRecordEvent", event, stream)
    expect(0, "aclrtSynchronizeEvent", event)
    require(bench.event_status(event) == 1, "the event behind the failure is not complete")
    require(bench.stream_status(stream) == 0, "the failed stream is not complete")
    expect(FAULT, "aclrtSynchronizeStream", stream)


@ERRORS.assumes(
    "events-hide",
    "aclrtSynchronizeEvent answers 0 for an event recorded after the failure, and keeps the error.",
    calls="aclrtSynchronizeEvent aclrtSynchronizeStream",
    used_by="_native/stream.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory, event = bench.stream(), bench.memory(), bench.event()
    fail(bench, stream, memory)
    expect(0, "aclrtRecordEvent", event, stream)
    expect(0, "aclrtSynchronizeEvent", event)
    expect(FAULT, "aclrtSynchronizeStream", stream)


@ERRORS.assumes(
    "go-on",
    "What comes after a failed task is done all the same.",
    calls="aclrtMemsetAsync aclrtSynchronizeStream",
    used_by="_native/failure.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory = bench.stream(), bench.memory(64)
    here = ffi.new("char[]", 64)
    bench.fail_next(stream, FAULT)
    fill(stream, memory, 1, 64)
    fill(stream, memory, 2, 64)
    expect(FAULT, "aclrtSynchronizeStream", stream)
    expect(0, "aclrtMemcpy", here, 64, memory, 64, lib.ACL_MEMCPY_DEVICE_TO_HOST)
    require(bytes(ffi.buffer(here, 64)) == bytes([2]) * 64, "the fill behind the failed one was not done")


@ERRORS.assumes(
    "device-collects",
    "A wait for the device takes the error too, so that the stream's own wait does not see it.",
    calls="aclrtSynchronizeDeviceWithTimeout aclrtSynchronizeStream",
    used_by="_device _native/device.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory = bench.stream(), bench.memory()
    fail(bench, stream, memory)
    expect(FAULT, "aclrtSynchronizeDeviceWithTimeout", 5000)
    code = call("aclrtSynchronizeStream", stream)
    require_code(0, code, "aclrtSynchronizeStream", "after the wait for the device")


@ERRORS.assumes(
    "own",
    "A stream that waits for an event of a failed stream goes on as if nothing had happened.",
    calls="aclrtRecordEvent aclrtStreamWaitEvent aclrtSynchronizeStream",
    used_by="_native/link.c _handles/event",
    mark="H",
)
def _(bench: Bench) -> None:
    failed, other, memory, event = bench.stream(), bench.stream(), bench.memory(), bench.event()
    fail(bench, failed, memory)
    expect(0, "aclrtRecordEvent", event, failed)
    expect(0, "aclrtStreamWaitEvent", other, event)
    bench.finish(other)
    expect(FAULT, "aclrtSynchronizeStream", failed)


@ERRORS.assumes(
    "stop",
    "In the mode STOP, every wait and every query of the context's streams answers with the error, again and again.",
    calls="aclrtCreateContext aclrtSetStreamFailureMode aclrtSynchronizeStream aclrtStreamQuery",
    used_by="_handles/stream _native/stream.c",
    mark="H",
)
def _(bench: Bench) -> None:
    with bench.explicit_context():
        failed, other = ffi.new("aclrtStream *"), ffi.new("aclrtStream *")
        status, memory = ffi.new("aclrtStreamStatus *"), bench.memory()
        expect(0, "aclrtCreateStream", failed)
        expect(0, "aclrtCreateStream", other)
        expect(0, "aclrtSetStreamFailureMode", failed[0], STOP)
        bench.fail_next(failed[0], FAULT)
        fill(failed[0], memory, 1)
        for _ in range(2):
            expect(FAULT, "aclrtSynchronizeStream", failed[0])
        expect(FAULT, "aclrtSynchronizeStream", other[0])
        expect(FAULT, "aclrtStreamQuery", other[0], status)


# --- the text -------------------------------------------------------------------------------------------------------


def unread_failure() -> None:
    """A call that fails, without the trampoline that would read the text."""
    function = ffi.cast("int (*)(int32_t)", lib.aio_library_symbol(b"aclrtSetDevice"))
    code = function(NO_SUCH_DEVICE)
    if code == 0:
        raise Broken(f"aclrtSetDevice({NO_SUCH_DEVICE}) returned 0")


def text() -> str:
    """What this thread finds now; reading clears it."""
    found: Any = call("aclGetRecentErrMsg")
    return text_of(found)


@TEXT.assumes(
    "failure",
    "A refused call leaves a text about it, for the thread that made it.",
    calls="aclGetRecentErrMsg aclrtSetDevice",
    used_by="_native/gate.c",
    mark="H",
)
def _(_: Bench) -> None:
    text()
    unread_failure()
    require(text(), "there is no text after a failure")


@TEXT.assumes(
    "cleared",
    "Reading the text clears it.",
    calls="aclGetRecentErrMsg aclrtSetDevice",
    used_by="_native/gate.c",
    mark="H",
)
def _(_: Bench) -> None:
    unread_failure()
    text()
    again = text()
    require(not again, f"the second reading still found {again[:60]!r}")


@TEXT.assumes(
    "own",
    "The text is the thread's own: another thread neither finds nor clears it.",
    calls="aclGetRecentErrMsg aclrtSetDevice",
    used_by="_native/gate.c",
    mark="H",
)
def _(bench: Bench) -> None:
    def other() -> str:
        bench.borrow()
        return text()

    text()
    unread_failure()
    require(str(NO_SUCH_DEVICE) not in on_a_thread(other), "another thread has found the text")
    require(text(), "the text is gone although no call has read it")


@TEXT.assumes(
    "kept",
    "Calls that succeed leave the text of an earlier failure where it is.",
    calls="aclGetRecentErrMsg aclrtSetDevice aclrtCreateStream",
    used_by="_native/gate.c",
    mark="H",
)
def _(bench: Bench) -> None:
    text()
    unread_failure()
    bench.finish(bench.stream())
    require(text(), "a call that succeeded has cleared the text")


@TEXT.assumes(
    "quiet",
    "Work that is not done yet is no failure: asking for it leaves no text.",
    calls="aclGetRecentErrMsg aclrtStreamQuery aclrtQueryEventStatus",
    used_by="_native/watcher.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, event = bench.stream(), bench.event()
    text()
    with bench.held(stream):
        expect(0, "aclrtRecordEvent", event, stream)
        bench.stream_status(stream)
        bench.event_status(event)
        found = text()
    require(not found, f"the queries have left {found[:60]!r}")


@TEXT.assumes(
    "code",
    "A device that does not exist is refused with 107001 however it is called.",
    calls="aclrtSetDevice",
    used_by="_base/codes",
    mark="H",
)
def _(_: Bench) -> None:
    code = call("aclrtSetDevice", NO_SUCH_DEVICE)
    require(code == 107001, f"aclrtSetDevice returned {named(code)}")
