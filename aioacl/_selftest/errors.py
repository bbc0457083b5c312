"""Errors of tasks, which are delivered once, and the runtime's text about calls that failed.

A task can be made to fail on the simulator only. All checks call the generated functions of the table. These functions
read the text of a failure at once, and reading clears the text. So the checks of the text call the failing function by
its address instead.
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
TEXT: Final = Family("text", "the runtime's text about calls that failed")
FAULT: Final = 507001
STOP: Final = 1
NO_SUCH_DEVICE: Final = 4711


def fail(bench: Bench, stream: CData, memory: CData) -> None:
    """Enqueues a task that fails, and returns when the stream has passed it, without collecting the error.

    The runtime handles a failed stream only while a caller waits for work. So this function enqueues and awaits work on
    another stream until then.
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
    "aclrtStreamQuery and aclrtQueryEventStatus report a failed stream as complete, and keep its error for a wait.",
    calls="aclrtStreamQuery aclrtQueryEventStatus aclrtSynchronizeStream",
    used_by="_native/stream.c _native/outcome.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory, event = bench.stream(), bench.memory(), bench.event()
    fail(bench, stream, memory)
    expect(0, "aclrtRecordEvent", event, stream)
    expect(0, "aclrtSynchronizeEvent", event)
    require(bench.event_status(event) == 1, "the event after the failure is not complete")
    require(bench.stream_status(stream) == 0, "the failed stream is not complete")
    expect(FAULT, "aclrtSynchronizeStream", stream)


@ERRORS.assumes(
    "events-hide",
    "aclrtSynchronizeEvent returns 0 for an event recorded after the failure, and keeps the error.",
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
    "Tasks after a failed task still run.",
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
    require(bytes(ffi.buffer(here, 64)) == bytes([2]) * 64, "the fill after the failed one was not done")


@ERRORS.assumes(
    "device-collects",
    "A wait for the device collects the error too, so a later wait for the stream returns 0.",
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
    "A stream that waits for an event of a failed stream continues without an error.",
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
    "After a failure in the mode STOP, every wait and query for a stream of the context returns the error.",
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
    """Makes a call that fails, without the generated function, which would read the text."""
    function = ffi.cast("int (*)(int32_t)", lib.aio_library_symbol(b"aclrtSetDevice"))
    code = function(NO_SUCH_DEVICE)
    if code == 0:
        raise Broken(f"aclrtSetDevice({NO_SUCH_DEVICE}) returned 0")


def text() -> str:
    """Returns the text of this thread; reading clears it."""
    found: Any = call("aclGetRecentErrMsg")
    return text_of(found)


@TEXT.assumes(
    "failure",
    "After a refused call, aclGetRecentErrMsg on the same thread returns a text about the failure.",
    calls="aclGetRecentErrMsg aclrtSetDevice",
    used_by="_native/gate.c",
    mark="H",
)
def _(_: Bench) -> None:
    text()
    unread_failure()
    require(text(), "aclGetRecentErrMsg returned no text after a failure")


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
    require(not again, f"the second read returned {again[:60]!r}")


@TEXT.assumes(
    "own",
    "The text belongs to its thread: another thread neither reads nor clears it.",
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
    require(str(NO_SUCH_DEVICE) not in on_a_thread(other), "another thread read the text")
    require(text(), "the text was cleared, although this thread did not read it")


@TEXT.assumes(
    "kept",
    "Calls that succeed keep the text of an earlier failure.",
    calls="aclGetRecentErrMsg aclrtSetDevice aclrtCreateStream",
    used_by="_native/gate.c",
    mark="H",
)
def _(bench: Bench) -> None:
    text()
    unread_failure()
    bench.finish(bench.stream())
    require(text(), "a call that succeeded cleared the text")


@TEXT.assumes(
    "quiet",
    "Work that is not done yet is not a failure: a query of it leaves no text.",
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
    require(not found, f"the queries left the text {found[:60]!r}")


@TEXT.assumes(
    "code",
    "A device that does not exist is refused with 107001 by aclrtSetDevice.",
    calls="aclrtSetDevice",
    used_by="_base/codes",
    mark="H",
)
def _(_: Bench) -> None:
    code = call("aclrtSetDevice", NO_SUCH_DEVICE)
    require(code == 107001, f"aclrtSetDevice returned {named(code)}, expected {named(107001)}")
