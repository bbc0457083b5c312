"""Errors of tasks, which are delivered once, and the runtime's text about calls that failed.

A task can be made to fail on the simulator only. All checks call the generated functions of the table. These functions
read the text of a failure at once, and reading clears the text. So the checks of the text call the failing function by
its address instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi, lib, text_of
from aioacl._selftest._bench import NO_DEVICE, call, download, expect, fill, require, written_by
from aioacl._selftest._outcomes import Broken
from aioacl._selftest._records import Family, Needs
from aioacl._selftest._threads import on_a_thread

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench, Event, Memory, Stream

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


@ERRORS.assumes("once", "H", "aclrtSynchronizeStream", "_native/confirm.c _native/waiters.c")
def _(bench: Bench, stream: Stream, memory: Memory) -> None:
    """The error of a task is delivered once: to the first synchronize of the stream."""
    fail(bench, stream, memory)
    expect(FAULT, "aclrtSynchronizeStream", stream)
    expect(0, "aclrtSynchronizeStream", stream, when="the second time")


@ERRORS.assumes(
    "queries-hide",
    "H",
    "aclrtStreamQuery aclrtQueryEventStatus aclrtSynchronizeStream",
    "_native/ask.c _native/outcome.c",
)
def _(bench: Bench, stream: Stream, memory: Memory, event: Event) -> None:
    """aclrtStreamQuery and aclrtQueryEventStatus report a failed stream as complete, and keep its error for a wait."""
    fail(bench, stream, memory)
    expect(0, "aclrtRecordEvent", event, stream)
    expect(0, "aclrtSynchronizeEvent", event)
    require(bench.event_status(event) == 1, "the event after the failure is not complete")
    require(bench.stream_status(stream) == 0, "the failed stream is not complete")
    expect(FAULT, "aclrtSynchronizeStream", stream)


@ERRORS.assumes("events-hide", "H", "aclrtSynchronizeEvent aclrtSynchronizeStream", "_native/stream.c")
def _(bench: Bench, stream: Stream, memory: Memory, event: Event) -> None:
    """aclrtSynchronizeEvent returns 0 for an event recorded after the failure, and keeps the error."""
    fail(bench, stream, memory)
    expect(0, "aclrtRecordEvent", event, stream)
    expect(0, "aclrtSynchronizeEvent", event)
    expect(FAULT, "aclrtSynchronizeStream", stream)


@ERRORS.assumes("go-on", "H", "aclrtMemsetAsync aclrtSynchronizeStream", "_native/failure.c")
def _(bench: Bench, stream: Stream) -> None:
    """Tasks after a failed task still run."""
    memory = bench.memory(64)
    bench.fail_next(stream, FAULT)
    fill(stream, memory, 1, 64)
    fill(stream, memory, 2, 64)
    expect(FAULT, "aclrtSynchronizeStream", stream)
    require(download(memory, 64) == bytes([2]) * 64, "the fill after the failed one was not done")


@ERRORS.assumes(
    "device-collects",
    "H",
    "aclrtSynchronizeDeviceWithTimeout aclrtSynchronizeStream",
    "_device _native/device.c",
)
def _(bench: Bench, stream: Stream, memory: Memory) -> None:
    """A wait for the device collects the error too, so a later wait for the stream returns 0."""
    fail(bench, stream, memory)
    expect(FAULT, "aclrtSynchronizeDeviceWithTimeout", 5000)
    expect(0, "aclrtSynchronizeStream", stream, when="after the wait for the device")


@ERRORS.assumes(
    "own",
    "H",
    "aclrtRecordEvent aclrtStreamWaitEvent aclrtSynchronizeStream",
    "_native/link.c _handles/event",
)
def _(bench: Bench, failed: Stream, other: Stream, memory: Memory, event: Event) -> None:
    """A stream that waits for an event of a failed stream continues without an error."""
    fail(bench, failed, memory)
    expect(0, "aclrtRecordEvent", event, failed)
    expect(0, "aclrtStreamWaitEvent", other, event)
    bench.finish(other)
    expect(FAULT, "aclrtSynchronizeStream", failed)


@ERRORS.assumes(
    "stop",
    "H",
    "aclrtCreateContext aclrtSetStreamFailureMode aclrtSynchronizeStream aclrtStreamQuery",
    "_handles/stream _native/stream.c",
)
def _(bench: Bench) -> None:
    """After a failure in the mode STOP, every wait and query for a stream of the context returns the error."""
    with bench.explicit_context():
        failed, other = written_by("aclrtCreateStream"), written_by("aclrtCreateStream")
        expect(0, "aclrtSetStreamFailureMode", failed, STOP)
        bench.fail_next(failed, FAULT)
        fill(failed, bench.memory(), 1)
        for _ in range(2):
            expect(FAULT, "aclrtSynchronizeStream", failed)
        expect(FAULT, "aclrtSynchronizeStream", other)
        expect(FAULT, "aclrtStreamQuery", other, ffi.new("aclrtStreamStatus *"))


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


@TEXT.assumes("failure", "H", "aclGetRecentErrMsg aclrtSetDevice", "_native/gate.c")
def _() -> None:
    """After a refused call, aclGetRecentErrMsg on the same thread returns a text about the failure."""
    text()
    unread_failure()
    require(text(), "aclGetRecentErrMsg returned no text after a failure")


@TEXT.assumes("cleared", "H", "aclGetRecentErrMsg aclrtSetDevice", "_native/gate.c")
def _() -> None:
    """Reading the text clears it."""
    unread_failure()
    text()
    again = text()
    require(not again, f"the second read returned {again[:60]!r}")


@TEXT.assumes("own", "H", "aclGetRecentErrMsg aclrtSetDevice", "_native/gate.c")
def _(bench: Bench) -> None:
    """The text belongs to its thread: another thread neither reads nor clears it."""

    def other() -> str:
        bench.borrow()
        return text()

    text()
    unread_failure()
    require(str(NO_SUCH_DEVICE) not in on_a_thread(other), "another thread read the text")
    require(text(), "the text was cleared, although this thread did not read it")


@TEXT.assumes("kept", "H", "aclGetRecentErrMsg aclrtSetDevice aclrtCreateStream", "_native/gate.c")
def _(bench: Bench) -> None:
    """Calls that succeed keep the text of an earlier failure."""
    text()
    unread_failure()
    bench.finish(bench.stream())
    require(text(), "a call that succeeded cleared the text")


@TEXT.assumes("quiet", "H", "aclGetRecentErrMsg aclrtStreamQuery aclrtQueryEventStatus", "_native/watcher.c")
def _(bench: Bench, stream: Stream, event: Event) -> None:
    """Work that is not done yet is not a failure: a query of it leaves no text."""
    text()
    with bench.held(stream):
        expect(0, "aclrtRecordEvent", event, stream)
        bench.stream_status(stream)
        bench.event_status(event)
        found = text()
    require(not found, f"the queries left the text {found[:60]!r}")


@TEXT.assumes("code", "H", "aclrtSetDevice", "_base/codes")
def _() -> None:
    """A device that does not exist is refused with 107001 by aclrtSetDevice."""
    expect(NO_DEVICE, "aclrtSetDevice", NO_SUCH_DEVICE)
