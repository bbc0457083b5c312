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
    Bench,
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

ABORTS: Final = Family("aborts", "aborting a stream")


def abort(bench: Bench, stream: CData) -> None:
    """Aborts the stream; the call must return."""
    code = bench.helper(lambda: call("aclrtStreamAbort", stream)).answer("aclrtStreamAbort")
    if code == UNSUPPORTED:
        raise NotTestable("the firmware cannot abort streams (207000)")
    require_code(0, code, "aclrtStreamAbort")


@ABORTS.assumes(
    "waiter",
    "A wait for the stream, or for an event recorded on it, returns 107023.",
    calls="aclrtStreamAbort aclrtSynchronizeStream aclrtSynchronizeEvent",
    used_by="_native/abort.c _native/waiters.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, event = bench.stream(), bench.event()
    with bench.held(stream):
        expect(0, "aclrtRecordEvent", event, stream)
        of_stream = bench.helper(lambda: call("aclrtSynchronizeStream", stream))
        of_event = bench.helper(lambda: call("aclrtSynchronizeEvent", event))
        bench.wait_inside(of_stream, "aclrtSynchronizeStream")
        bench.wait_inside(of_event, "aclrtSynchronizeEvent")
        abort(bench, stream)
        for waiter, name in ((of_stream, "aclrtSynchronizeStream"), (of_event, "aclrtSynchronizeEvent")):
            require_code(ABORTED, waiter.answer(name), name, "when the stream was aborted")


@ABORTS.assumes(
    "empty",
    "After an abort the stream is empty: its remaining work is never done.",
    calls="aclrtStreamAbort aclrtStreamQuery aclrtSynchronizeStream",
    used_by="_native/enqueue.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory = bench.stream(), bench.memory()
    fill(stream, memory, 1)
    bench.finish(stream)
    with bench.held(stream):
        fill(stream, memory, 2)
        abort(bench, stream)
        require(bench.stream_status(stream) == 0, "the stream is not complete after the abort")
        expect(0, "aclrtSynchronizeStream", stream)
    require(download(memory, 1) == b"\1", "the fill was done, although the stream was aborted before it ran")


@ABORTS.assumes(
    "usable",
    "After an abort the stream accepts and runs new work.",
    calls="aclrtStreamAbort aclrtMemsetAsync aclrtRecordEvent",
    used_by="_native/enqueue.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory, event = bench.stream(), bench.memory(), bench.event()
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


@ABORTS.assumes(
    "idle",
    "Aborting an idle stream returns 0 and does nothing.",
    calls="aclrtStreamAbort",
    used_by="_native/abort.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory = bench.stream(), bench.memory()
    abort(bench, stream)
    fill(stream, memory, 3)
    bench.finish(stream)


@ABORTS.assumes(
    "others",
    "An abort affects neither other streams nor the waits for those streams.",
    calls="aclrtStreamAbort aclrtSynchronizeStream",
    used_by="_native/abort.c",
    mark="H",
)
def _(bench: Bench) -> None:
    aborted, other = bench.stream(), bench.stream()
    with bench.held(aborted, other) as release:
        waiter = bench.helper(lambda: call("aclrtSynchronizeStream", other))
        bench.wait_inside(waiter, "aclrtSynchronizeStream")
        abort(bench, aborted)
        require(not waiter.returned(), "a wait for another stream ended")
        release()
        require_code(0, waiter.answer("aclrtSynchronizeStream"), "aclrtSynchronizeStream")


@ABORTS.assumes(
    "together",
    "Several threads can each abort a stream at the same time.",
    calls="aclrtStreamAbort",
    used_by="_native/abort.c",
    mark="H",
)
def _(bench: Bench) -> None:
    streams = [bench.stream() for _ in range(6)]
    with bench.held(*streams):
        helpers = [bench.helper(partial(abort, bench, stream)) for stream in streams]
        for helper in helpers:
            helper.answer("aclrtStreamAbort")
        require(not any(map(bench.stream_status, streams)), "a stream is not complete after its abort")


@ABORTS.assumes(
    "context",
    "A stream of another context is not aborted: 107003.",
    calls="aclrtCreateContext aclrtStreamAbort",
    used_by="_native/abort.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream = bench.stream()
    abort(bench, stream)  # to find out whether the firmware supports aborts
    with bench.explicit_context():
        expect(WRONG_CONTEXT, "aclrtStreamAbort", stream)
