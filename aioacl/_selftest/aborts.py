"""Aborting a stream: which waits end, which work is dropped, and what the stream can do afterwards.

Only streams made here are aborted. Firmware without the feature returns 207000, which aioacl handles.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from aioacl._selftest._bench import (
    ABORTED,
    BLOCK_BYTES,
    UNSUPPORTED,
    WRONG_CONTEXT,
    call,
    download,
    expect,
    fill,
    require,
    require_code,
)
from aioacl._selftest._outcomes import NotTestable
from aioacl._selftest._records import Family

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench, Event, Memory, Stream

ABORTS: Final = Family("aborts", "aborting a stream")


def abort(bench: Bench, stream: CData) -> None:
    """Aborts the stream; the call must return."""
    code = bench.helper(lambda: call("aclrtStreamAbort", stream)).answer("aclrtStreamAbort")
    if code == UNSUPPORTED:
        raise NotTestable("the firmware cannot abort streams (207000)")
    require_code(0, code, "aclrtStreamAbort")


@ABORTS.assumes(
    "waiter",
    "H",
    "aclrtStreamAbort aclrtSynchronizeStream aclrtSynchronizeEvent",
    "_native/abort.c _native/waiters.c",
)
def _(bench: Bench, stream: Stream, event: Event) -> None:
    """A wait for the stream, or for an event recorded on it, returns 107023."""
    with bench.held(stream):
        expect(0, "aclrtRecordEvent", event, stream)
        waiters = bench.waiter("aclrtSynchronizeStream", stream), bench.waiter("aclrtSynchronizeEvent", event)
        abort(bench, stream)
        for waiter in waiters:
            waiter.must_return(ABORTED, "when the stream was aborted")


@ABORTS.assumes("empty", "H", "aclrtStreamAbort aclrtStreamQuery aclrtSynchronizeStream", "_native/enqueue.c")
def _(bench: Bench, stream: Stream, memory: Memory) -> None:
    """After an abort the stream is empty: its remaining work is never done."""
    fill(stream, memory, 1)
    bench.finish(stream)
    with bench.held(stream):
        fill(stream, memory, 2)
        abort(bench, stream)
        require(bench.stream_status(stream) == 0, "the stream is not complete after the abort")
        expect(0, "aclrtSynchronizeStream", stream)
    require(download(memory, 1) == b"\1", "the fill was done, although the stream was aborted before it ran")


@ABORTS.assumes("usable", "H", "aclrtStreamAbort aclrtMemsetAsync aclrtRecordEvent", "_native/enqueue.c")
def _(bench: Bench, stream: Stream, memory: Memory, event: Event) -> None:
    """After an abort the stream accepts and runs new work."""
    with bench.held(stream):
        fill(stream, memory, 2)
        abort(bench, stream)
        fill(stream, memory, 3)
        expect(0, "aclrtRecordEvent", event, stream)
        bench.finish(stream)
    require(bench.event_status(event) == 1, "an event recorded after the abort is not complete")
    require(
        download(memory, BLOCK_BYTES) == bytes([3]) * BLOCK_BYTES, "the fill after the abort was not done"
    )


@ABORTS.assumes("idle", "H", "aclrtStreamAbort", "_native/abort.c")
def _(bench: Bench, stream: Stream, memory: Memory) -> None:
    """Aborting an idle stream returns 0 and does nothing."""
    abort(bench, stream)
    fill(stream, memory, 3)
    bench.finish(stream)


@ABORTS.assumes("others", "H", "aclrtStreamAbort aclrtSynchronizeStream", "_native/abort.c")
def _(bench: Bench, aborted: Stream, other: Stream) -> None:
    """An abort affects neither other streams nor the waits for those streams."""
    with bench.held(aborted, other) as release:
        waiter = bench.waiter("aclrtSynchronizeStream", other)
        abort(bench, aborted)
        waiter.must_wait("a wait for another stream ended")
        release()
        waiter.must_return(0)


@ABORTS.assumes("together", "H", "aclrtStreamAbort", "_native/abort.c")
def _(bench: Bench) -> None:
    """Several threads can each abort a stream at the same time."""
    streams = [bench.stream() for _ in range(6)]
    with bench.held(*streams):
        helpers = [bench.helper(partial(abort, bench, stream)) for stream in streams]
        for helper in helpers:
            helper.answer("aclrtStreamAbort")
        require(not any(map(bench.stream_status, streams)), "a stream is not complete after its abort")


@ABORTS.assumes("context", "H", "aclrtCreateContext aclrtStreamAbort", "_native/abort.c")
def _(bench: Bench, stream: Stream) -> None:
    """A stream of another context is not aborted: 107003."""
    abort(bench, stream)  # to find out whether the firmware supports aborts
    with bench.explicit_context():
        expect(WRONG_CONTEXT, "aclrtStreamAbort", stream)
