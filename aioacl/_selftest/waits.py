"""Waits: their limits, what they cover, and which calls other threads can make during a wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from aioacl._selftest._bench import (
    EVENT_TIMEOUT,
    REFUSED,
    STREAM_TIMEOUT,
    expect,
    fill,
    require,
    written_by,
)
from aioacl._selftest._records import Family
from aioacl._selftest._threads import patience

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench, Event, Memory, Stream

WAITS: Final = Family("waits", "waits")
SHORT_MS: Final = 20
LONGER_MS: Final = 300
OF_STREAM: Final = "aclrtSynchronizeStreamWithTimeout"
OF_EVENT: Final = "aclrtSynchronizeEventWithTimeout"
OF_DEVICE: Final = "aclrtSynchronizeDeviceWithTimeout"


def _refuses(function: str, *handle: CData) -> None:
    for limit in (0, -2, -(1 << 31)):
        expect(REFUSED, function, *handle, limit, when=f"for a limit of {limit}")


@WAITS.assumes("zero", "H", f"{OF_STREAM} {OF_EVENT} {OF_DEVICE}", "_device _native/device.c")
def _(bench: Bench) -> None:
    """A limit of 0, or below -1, is refused with 107000: it is neither a query nor a wait without a limit."""
    _refuses(OF_STREAM, bench.stream())
    _refuses(OF_EVENT, bench.event())
    _refuses(OF_DEVICE)


@WAITS.assumes("milliseconds", "H", OF_STREAM, "_device _native/device.c")
def _(bench: Bench, stream: Stream) -> None:
    """Limits are milliseconds: a wait of 300 for a held stream ends after about that time."""

    def wait() -> float:
        begun = time.monotonic()
        expect(STREAM_TIMEOUT, OF_STREAM, stream, LONGER_MS)
        return time.monotonic() - begun

    with bench.held(stream):
        spent = bench.helper(wait).answer(f"a wait of {LONGER_MS} ms")
    require(spent > LONGER_MS / 2000, f"a wait of {LONGER_MS} ms took {spent * 1000:.0f} ms")


@WAITS.assumes("stream-limit", "H", OF_STREAM, "_base/codes")
def _(bench: Bench, stream: Stream, memory: Memory) -> None:
    """A wait for a stream that times out returns 507046, and the stream remains usable."""
    with bench.held(stream):
        expect(STREAM_TIMEOUT, OF_STREAM, stream, SHORT_MS)
        fill(stream, memory, 1)
        expect(STREAM_TIMEOUT, OF_STREAM, stream, SHORT_MS)
    bench.finish(stream)


@WAITS.assumes("event-limit", "H", OF_EVENT, "_native/device.c _base/codes")
def _(bench: Bench, stream: Stream, event: Event) -> None:
    """A wait for an event that times out returns 507047, and the event remains usable."""
    with bench.held(stream):
        expect(0, "aclrtRecordEvent", event, stream)
        expect(EVENT_TIMEOUT, OF_EVENT, event, SHORT_MS)
    expect(0, OF_EVENT, event, patience.wait_ms)
    expect(0, "aclrtRecordEvent", event, stream)
    expect(0, OF_EVENT, event, patience.wait_ms)


@WAITS.assumes("device-limit", "H", OF_DEVICE, "_device")
def _(bench: Bench) -> None:
    """A wait for the device covers all its streams, and returns 507046 when it times out."""
    streams = [bench.stream() for _ in range(3)]
    with bench.held(streams[1]):
        expect(STREAM_TIMEOUT, OF_DEVICE, SHORT_MS)
    expect(0, OF_DEVICE, patience.wait_ms)


@WAITS.assumes("for-ever", "H", f"{OF_STREAM} {OF_EVENT}", "_device")
def _(bench: Bench, stream: Stream, event: Event) -> None:
    """A limit of -1 waits until the work is done."""
    with bench.held(stream) as release:
        expect(0, "aclrtRecordEvent", event, stream)
        waiters = bench.waiter(OF_STREAM, stream, -1), bench.waiter(OF_EVENT, event, -1)
        release()
        for waiter in waiters:
            waiter.must_return(0)


@WAITS.assumes(
    "covers", "H/D", "aclrtSynchronizeStream aclrtSynchronizeEvent", "_native/stream.c _native/waiters.c"
)
def _(bench: Bench, stream: Stream, event: Event) -> None:
    """aclrtSynchronizeStream and aclrtSynchronizeEvent return when the work is done, and not before."""
    with bench.held(stream) as release:
        expect(0, "aclrtRecordEvent", event, stream)
        waiters = bench.waiter("aclrtSynchronizeStream", stream), bench.waiter("aclrtSynchronizeEvent", event)
        release()
        for waiter in waiters:
            waiter.must_return(0)


@WAITS.assumes("entry", "H", "aclrtSynchronizeStream", "_native/waiters.c")
def _(bench: Bench, stream: Stream) -> None:
    """A wait covers the work that was enqueued before the wait started; later work does not make it longer."""
    with bench.held(stream) as release:
        waiter = bench.waiter("aclrtSynchronizeStream", stream)
        with bench.held(stream):
            release()
            waiter.must_return(0, what="a wait for what was enqueued before it")
            require(bench.stream_status(stream) == 1, "the held stream is complete")


@WAITS.assumes(
    "event-entry", "H", "aclrtSynchronizeEvent aclrtRecordEvent", "_native/waiters.c _native/events.c"
)
def _(bench: Bench, first: Stream, second: Stream, event: Event) -> None:
    """A wait for an event covers the record that was the newest when the wait started."""
    with bench.held(second), bench.held(first) as release:
        expect(0, "aclrtRecordEvent", event, first)
        waiter = bench.waiter("aclrtSynchronizeEvent", event)
        expect(0, "aclrtRecordEvent", event, second)
        release()
        waiter.must_return(0, what="a wait for the record before it")


@WAITS.assumes(
    "beside",
    "H",
    "aclrtSynchronizeStream aclrtStreamQuery aclrtQueryEventStatus aclrtCreateStream aclrtDestroyStream",
    "_native/watcher.c _native/gate.c",
)
def _(bench: Bench, stream: Stream, event: Event, memory: Memory) -> None:
    """While one thread waits, others can query, enqueue, make and destroy."""

    def others() -> None:
        expect(0, "aclrtRecordEvent", event, stream)
        require(bench.event_status(event) == 0, "the event is complete too early")
        require(bench.stream_status(stream) == 1, "the stream is complete too early")
        fill(stream, memory, 1)
        made = written_by("aclrtCreateStream")
        bench.finish(made)
        expect(0, "aclrtDestroyStream", made)

    with bench.held(stream) as release:
        waiter = bench.waiter("aclrtSynchronizeStream", stream)
        bench.helper(others).answer("the calls during a wait")
        release()
        waiter.must_return(0)


@WAITS.assumes("together", "H", "aclrtSynchronizeStream", "_native/waiters.c")
def _(bench: Bench, stream: Stream) -> None:
    """Eight threads that wait for one stream all return 0."""
    with bench.held(stream) as release:
        waiters = [bench.waiter("aclrtSynchronizeStream", stream) for _ in range(8)]
        release()
        for waiter in waiters:
            waiter.must_return(0)


@WAITS.assumes("idle", "H", f"aclrtSynchronizeStream {OF_DEVICE}", "_native/stream.c")
def _(bench: Bench, stream: Stream) -> None:
    """Waiting for a stream without work returns at once."""
    bench.expect_return(0, "aclrtSynchronizeStream", stream)
    expect(0, OF_DEVICE, patience.wait_ms)
