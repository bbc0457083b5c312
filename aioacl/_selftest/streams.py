"""Streams: what queries return, the order of work, and the length of the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import ffi, lib
from aioacl._selftest._bench import (
    BLOCK_BYTES,
    REFUSED,
    UNSUPPORTED,
    call,
    download,
    expect,
    fill,
    require,
    written_by,
)
from aioacl._selftest._outcomes import Broken
from aioacl._selftest._records import SIMULATOR_ONLY, Family

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench, Event, Memory, Pinned, Stream

STREAMS: Final = Family("streams", "streams and their queues")
COMPLETE, NOT_READY = 0, 1
DEPTH: Final = 2046  # as in aioacl/_native/internal.h
STOP: Final = 1
LOWEST: Final = 7


@STREAMS.assumes("idle", "H", "aclrtStreamQuery", "_native/ask.c _native/enqueue.c _native/abort.c")
def _(bench: Bench) -> None:
    """aclrtStreamQuery writes 0 for a stream without work."""
    status = bench.stream_status(bench.stream())
    require(status == COMPLETE, f"aclrtStreamQuery wrote {status} for a new stream")


@STREAMS.assumes(
    "busy",
    "H/D",
    "aclrtStreamQuery aclrtStreamWaitEvent",
    "_native/ask.c _native/enqueue.c _native/abort.c",
)
def _(bench: Bench, stream: Stream) -> None:
    """aclrtStreamQuery writes 1 while work is left, and returns at once."""
    with bench.held(stream):
        status = bench.helper(lambda: bench.stream_status(stream)).answer("aclrtStreamQuery")
        require(status == NOT_READY, f"aclrtStreamQuery wrote {status} while the stream had to wait")
    require(bench.stream_status(stream) == COMPLETE, "the stream is not complete after its work is done")


@STREAMS.assumes("order", "H/D", "aclrtMemsetAsync aclrtMemcpyAsync", "_native/outcome.c _native/stream.c")
def _(bench: Bench, stream: Stream, first: Memory, second: Memory) -> None:
    """Work of one stream is done in the order in which it was enqueued."""
    for value in range(1, 41):
        fill(stream, first, value)
        kind = lib.ACL_MEMCPY_DEVICE_TO_DEVICE
        expect(0, "aclrtMemcpyAsync", second, BLOCK_BYTES, first, BLOCK_BYTES, kind, stream)
        fill(stream, first, 255 - value)
    bench.finish(stream)
    require(download(second, BLOCK_BYTES) == bytes([40]) * BLOCK_BYTES, "a copy ran out of order with a fill")
    require(
        download(first, BLOCK_BYTES) == bytes([215]) * BLOCK_BYTES,
        "a fill ran out of order with another fill",
    )


@STREAMS.assumes(
    "apart",
    "H/D",
    "aclrtStreamWaitEvent aclrtMemsetAsync aclrtSynchronizeStreamWithTimeout",
    "_native/watcher.c _native/device.c",
)
def _(bench: Bench, still: Stream, other: Stream, memory: Memory) -> None:
    """A held stream does not stop another stream from working."""
    with bench.held(still):
        fill(other, memory, 9)
        bench.finish(other)
        require(bench.stream_status(still) == NOT_READY, "the held stream is complete")


@STREAMS.assumes(
    "enqueue",
    "H",
    "aclrtMemsetAsync aclrtMemcpyAsync aclrtRecordEvent aclrtStreamWaitEvent",
    "_native/enqueue.c",
)
def _(bench: Bench, stream: Stream, memory: Memory, here: Pinned, event: Event) -> None:
    """Enqueueing does not wait for work of the stream."""

    def enqueue() -> None:
        fill(stream, memory, 1)
        up, down = lib.ACL_MEMCPY_HOST_TO_DEVICE, lib.ACL_MEMCPY_DEVICE_TO_HOST
        expect(0, "aclrtMemcpyAsync", memory, BLOCK_BYTES, here, BLOCK_BYTES, up, stream)
        expect(0, "aclrtMemcpyAsync", here, BLOCK_BYTES, memory, BLOCK_BYTES, down, stream)
        expect(0, "aclrtRecordEvent", event, stream)
        expect(0, "aclrtStreamWaitEvent", stream, event)

    with bench.held(stream):
        bench.helper(enqueue).answer("enqueueing on a held stream")


@STREAMS.assumes(
    "depth", "H", "aclrtMemsetAsync aclrtStreamWaitEvent", "_native/internal.h _native/enqueue.c"
)
def _(bench: Bench, stream: Stream) -> None:
    """A stream takes 2046 entries without blocking the caller."""
    memory = bench.memory(64)
    taken = 0

    def enqueue() -> None:
        nonlocal taken
        while taken < DEPTH:
            fill(stream, memory, 1, 64)
            taken += 1

    taken = 1  # the wait that holds the stream is an entry too
    with bench.held(stream):
        helper = bench.helper(enqueue)
        full = not helper.returned(5.0)
        entries = taken
    helper.answer("aclrtMemsetAsync")
    require(not full, f"a caller was blocked after {entries} entries")


@STREAMS.assumes(
    "destroy", "H", "aclrtCreateStream aclrtDestroyStream aclrtSynchronizeStream", "_native/stream.c"
)
def _(bench: Bench, memory: Memory) -> None:
    """Destroying an idle stream returns 0, and a stream is idle after a wait for it."""
    stream = written_by("aclrtCreateStream")
    fill(stream, memory, 1)
    expect(0, "aclrtSynchronizeStream", stream)
    bench.expect_return(0, "aclrtDestroyStream", stream)


@STREAMS.assumes("force-destroy", "H", "aclrtCreateStream aclrtDestroyStreamForce", "_native/nudge.c")
def _(bench: Bench, memory: Memory) -> None:
    """aclrtDestroyStreamForce returns 0 for a stream whose work has been waited for."""
    stream = written_by("aclrtCreateStream")
    fill(stream, memory, 1)
    bench.finish(stream)
    expect(0, "aclrtDestroyStreamForce", stream)


@STREAMS.assumes("priority", "H", "aclrtCreateStreamWithConfig aclrtDestroyStream", "_handles/stream")
def _(bench: Bench) -> None:
    """Streams can have the priorities 1 to 7, without flags."""
    made: list[CData] = [
        bench.make("aclrtDestroyStream", "aclrtCreateStreamWithConfig", priority, 0)
        for priority in range(1, LOWEST + 1)
    ]
    for stream in made:
        bench.finish(stream)


@STREAMS.assumes("failure-mode", "H", "aclrtCreateContext aclrtSetStreamFailureMode", "_handles/stream")
def _(bench: Bench) -> None:
    """A stream can be set to stop its context at the first failure, and that cannot be undone."""
    with bench.explicit_context():
        stream = written_by("aclrtCreateStream")
        expect(0, "aclrtSetStreamFailureMode", stream, STOP)
        expect(UNSUPPORTED, "aclrtSetStreamFailureMode", stream, 0)
        bench.finish(stream)
        expect(0, "aclrtDestroyStream", stream)


@STREAMS.assumes(
    "many", "D", "aclrtCreateStream aclrtMemsetAsync aclrtSynchronizeStreamWithTimeout", "_native/device.c"
)
def _(bench: Bench) -> None:
    """Sixty-four streams of one device can be made, used and waited for."""
    streams, share = [bench.stream() for _ in range(64)], BLOCK_BYTES // 64
    memory = bench.memory()
    for value, stream in enumerate(streams, start=1):
        fill(stream, memory + share * (value - 1), value, share)
    for stream in streams:
        bench.finish(stream)
    wanted = b"".join(bytes([value]) * share for value in range(1, 65))
    require(download(memory, BLOCK_BYTES) == wanted, "the fill of a stream was not done")


@STREAMS.assumes("beyond", "H", "aclrtMemsetAsync", SIMULATOR_ONLY)
def _(bench: Bench, stream: Stream, memory: Memory) -> None:
    """A fill that does not fit is refused before it is enqueued: 107000, or 100000 for NULL."""
    expect(REFUSED, "aclrtMemsetAsync", memory, BLOCK_BYTES, 0, BLOCK_BYTES + 1, stream)
    if call("aclrtMemsetAsync", ffi.NULL, BLOCK_BYTES, 0, BLOCK_BYTES, stream) == 0:
        raise Broken("aclrtMemsetAsync accepted NULL")
    bench.finish(stream)
