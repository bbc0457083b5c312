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
    one_of,
    require,
    require_code,
)
from aioacl._selftest._outcomes import Broken
from aioacl._selftest._records import SIMULATOR_ONLY, Family

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench

STREAMS: Final = Family("streams", "streams and their queues")
COMPLETE, NOT_READY = 0, 1
DEPTH: Final = 2046  # as in aioacl/_native/internal.h
STOP: Final = 1
LOWEST: Final = 7


@STREAMS.assumes(
    "idle",
    "aclrtStreamQuery writes 0 for a stream without work.",
    calls="aclrtStreamQuery",
    used_by="_native/stream.c _native/enqueue.c _native/abort.c",
    mark="H",
)
def _(bench: Bench) -> None:
    status = bench.stream_status(bench.stream())
    require(status == COMPLETE, f"aclrtStreamQuery wrote {status} for a new stream")


@STREAMS.assumes(
    "busy",
    "aclrtStreamQuery writes 1 while work is left, and returns at once.",
    calls="aclrtStreamQuery aclrtStreamWaitEvent",
    used_by="_native/stream.c _native/enqueue.c _native/abort.c",
    mark="H/D",
)
def _(bench: Bench) -> None:
    stream = bench.stream()
    with bench.held(stream):
        status = bench.helper(lambda: bench.stream_status(stream)).answer("aclrtStreamQuery")
        require(status == NOT_READY, f"aclrtStreamQuery wrote {status} while the stream had to wait")
    require(bench.stream_status(stream) == COMPLETE, "the stream is not complete after its work is done")


@STREAMS.assumes(
    "order",
    "Work of one stream is done in the order in which it was enqueued.",
    calls="aclrtMemsetAsync aclrtMemcpyAsync",
    used_by="_native/outcome.c _native/stream.c",
    mark="H/D",
)
def _(bench: Bench) -> None:
    stream, first, second = bench.stream(), bench.memory(), bench.memory()
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
    "A held stream does not stop another stream from working.",
    calls="aclrtStreamWaitEvent aclrtMemsetAsync aclrtSynchronizeStreamWithTimeout",
    used_by="_native/watcher.c _native/device.c",
    mark="H/D",
)
def _(bench: Bench) -> None:
    still, other, memory = bench.stream(), bench.stream(), bench.memory()
    with bench.held(still):
        fill(other, memory, 9)
        bench.finish(other)
        require(bench.stream_status(still) == NOT_READY, "the held stream is complete")


@STREAMS.assumes(
    "enqueue",
    "Enqueueing does not wait for work of the stream.",
    calls="aclrtMemsetAsync aclrtMemcpyAsync aclrtRecordEvent aclrtStreamWaitEvent",
    used_by="_native/enqueue.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory, here, event = bench.stream(), bench.memory(), bench.pinned(), bench.event()

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
    "depth",
    "A stream takes 2046 entries without blocking the caller.",
    calls="aclrtMemsetAsync aclrtStreamWaitEvent",
    used_by="_native/internal.h _native/enqueue.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory = bench.stream(), bench.memory(64)
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
    "destroy",
    "Destroying an idle stream returns 0, and a stream is idle after a wait for it.",
    calls="aclrtCreateStream aclrtDestroyStream aclrtSynchronizeStream",
    used_by="_native/stream.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory = ffi.new("aclrtStream *"), bench.memory()
    expect(0, "aclrtCreateStream", stream)
    fill(stream[0], memory, 1)
    expect(0, "aclrtSynchronizeStream", stream[0])
    destroyed = bench.helper(lambda: call("aclrtDestroyStream", stream[0])).answer("aclrtDestroyStream")
    require_code(0, destroyed, "aclrtDestroyStream")


@STREAMS.assumes(
    "force-destroy",
    "aclrtDestroyStreamForce returns 0 for a stream whose work has been waited for.",
    calls="aclrtCreateStream aclrtDestroyStreamForce",
    used_by="_native/device.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory = ffi.new("aclrtStream *"), bench.memory()
    expect(0, "aclrtCreateStream", stream)
    fill(stream[0], memory, 1)
    bench.finish(stream[0])
    expect(0, "aclrtDestroyStreamForce", stream[0])


@STREAMS.assumes(
    "priority",
    "Streams can have the priorities 1 to 7, without flags.",
    calls="aclrtCreateStreamWithConfig aclrtDestroyStream",
    used_by="_handles/stream",
    mark="H",
)
def _(bench: Bench) -> None:
    made: list[CData] = [
        bench.make("aclrtDestroyStream", "aclrtStream", "aclrtCreateStreamWithConfig", priority, 0)
        for priority in range(1, LOWEST + 1)
    ]
    for stream in made:
        bench.finish(stream)


@STREAMS.assumes(
    "failure-mode",
    "A stream can be set to stop its context at the first failure, and that cannot be undone.",
    calls="aclrtCreateContext aclrtSetStreamFailureMode",
    used_by="_handles/stream",
    mark="H",
)
def _(bench: Bench) -> None:
    with bench.explicit_context():
        stream = ffi.new("aclrtStream *")
        expect(0, "aclrtCreateStream", stream)
        expect(0, "aclrtSetStreamFailureMode", stream[0], STOP)
        expect(UNSUPPORTED, "aclrtSetStreamFailureMode", stream[0], 0)
        bench.finish(stream[0])
        expect(0, "aclrtDestroyStream", stream[0])


@STREAMS.assumes(
    "many",
    "Sixty-four streams of one device can be made, used and waited for.",
    calls="aclrtCreateStream aclrtMemsetAsync aclrtSynchronizeStreamWithTimeout",
    used_by="_native/device.c",
    mark="D",
)
def _(bench: Bench) -> None:
    streams, share = [bench.stream() for _ in range(64)], BLOCK_BYTES // 64
    memory = bench.memory()
    for value, stream in enumerate(streams, start=1):
        fill(stream, memory + share * (value - 1), value, share)
    for stream in streams:
        bench.finish(stream)
    wanted = b"".join(bytes([value]) * share for value in range(1, 65))
    require(download(memory, BLOCK_BYTES) == wanted, "the fill of a stream was not done")


@STREAMS.assumes(
    "beyond",
    "A fill that does not fit is refused before it is enqueued: 107000, or 100000 for NULL.",
    calls="aclrtMemsetAsync",
    used_by=SIMULATOR_ONLY,
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory = bench.stream(), bench.memory()
    code = call("aclrtMemsetAsync", memory, BLOCK_BYTES, 0, BLOCK_BYTES + 1, stream)
    one_of((REFUSED,), code, "aclrtMemsetAsync")
    if call("aclrtMemsetAsync", ffi.NULL, BLOCK_BYTES, 0, BLOCK_BYTES, stream) == 0:
        raise Broken("aclrtMemsetAsync accepted NULL")
    bench.finish(stream)
