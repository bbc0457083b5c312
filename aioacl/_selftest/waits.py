"""Waits: their limits, what they cover, and which calls other threads can make during a wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import ffi
from aioacl._selftest._bench import (
    EVENT_TIMEOUT,
    REFUSED,
    STREAM_TIMEOUT,
    Bench,
    call,
    expect,
    fill,
    named,
    patience,
    require,
    require_code,
)
from aioacl._selftest._outcomes import Broken
from aioacl._selftest._records import Family

if TYPE_CHECKING:
    from aioacl._base.ffi import CData

WAITS: Final = Family("waits", "waits")
SHORT_MS: Final = 20
LONGER_MS: Final = 300
OF_STREAM: Final = "aclrtSynchronizeStreamWithTimeout"
OF_EVENT: Final = "aclrtSynchronizeEventWithTimeout"
OF_DEVICE: Final = "aclrtSynchronizeDeviceWithTimeout"


def _refuses(function: str, *handle: CData) -> None:
    for limit in (0, -2, -(1 << 31)):
        code = call(function, *handle, limit)
        if code != REFUSED:
            raise Broken(
                f"{function} returned {named(code)} for a limit of {limit}, expected {named(REFUSED)}"
            )


@WAITS.assumes(
    "zero",
    "A limit of 0, or below -1, is refused with 107000: it is neither a query nor a wait without a limit.",
    calls=f"{OF_STREAM} {OF_EVENT} {OF_DEVICE}",
    used_by="_device _native/device.c",
    mark="H",
)
def _(bench: Bench) -> None:
    _refuses(OF_STREAM, bench.stream())
    _refuses(OF_EVENT, bench.event())
    _refuses(OF_DEVICE)


@WAITS.assumes(
    "milliseconds",
    "Limits are milliseconds: a wait of 300 for a held stream ends after about that time.",
    calls=OF_STREAM,
    used_by="_device _native/device.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream = bench.stream()

    def wait() -> float:
        begun = time.monotonic()
        expect(STREAM_TIMEOUT, OF_STREAM, stream, LONGER_MS)
        return time.monotonic() - begun

    with bench.held(stream):
        spent = bench.helper(wait).answer(f"a wait of {LONGER_MS} ms")
    require(spent > LONGER_MS / 2000, f"a wait of {LONGER_MS} ms took {spent * 1000:.0f} ms")


@WAITS.assumes(
    "stream-limit",
    "A wait for a stream that times out returns 507046, and the stream remains usable.",
    calls=OF_STREAM,
    used_by="_base/codes",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory = bench.stream(), bench.memory()
    with bench.held(stream):
        expect(STREAM_TIMEOUT, OF_STREAM, stream, SHORT_MS)
        fill(stream, memory, 1)
        expect(STREAM_TIMEOUT, OF_STREAM, stream, SHORT_MS)
    bench.finish(stream)


@WAITS.assumes(
    "event-limit",
    "A wait for an event that times out returns 507047, and the event remains usable.",
    calls=OF_EVENT,
    used_by="_native/device.c _base/codes",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, event = bench.stream(), bench.event()
    with bench.held(stream):
        expect(0, "aclrtRecordEvent", event, stream)
        expect(EVENT_TIMEOUT, OF_EVENT, event, SHORT_MS)
    expect(0, OF_EVENT, event, patience.wait_ms)
    expect(0, "aclrtRecordEvent", event, stream)
    expect(0, OF_EVENT, event, patience.wait_ms)


@WAITS.assumes(
    "device-limit",
    "A wait for the device covers all its streams, and returns 507046 when it times out.",
    calls=OF_DEVICE,
    used_by="_device",
    mark="H",
)
def _(bench: Bench) -> None:
    streams = [bench.stream() for _ in range(3)]
    with bench.held(streams[1]):
        expect(STREAM_TIMEOUT, OF_DEVICE, SHORT_MS)
    expect(0, OF_DEVICE, patience.wait_ms)


@WAITS.assumes(
    "for-ever",
    "A limit of -1 waits until the work is done.",
    calls=f"{OF_STREAM} {OF_EVENT}",
    used_by="_device",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, event = bench.stream(), bench.event()
    with bench.held(stream) as release:
        expect(0, "aclrtRecordEvent", event, stream)
        of_stream = bench.helper(lambda: call(OF_STREAM, stream, -1))
        of_event = bench.helper(lambda: call(OF_EVENT, event, -1))
        bench.wait_inside(of_stream, OF_STREAM)
        bench.wait_inside(of_event, OF_EVENT)
        release()
        require_code(0, of_stream.answer(OF_STREAM), OF_STREAM)
        require_code(0, of_event.answer(OF_EVENT), OF_EVENT)


@WAITS.assumes(
    "covers",
    "aclrtSynchronizeStream and aclrtSynchronizeEvent return when the work is done, and not before.",
    calls="aclrtSynchronizeStream aclrtSynchronizeEvent",
    used_by="_native/stream.c _native/waiters.c",
    mark="H/D",
)
def _(bench: Bench) -> None:
    stream, event = bench.stream(), bench.event()
    with bench.held(stream) as release:
        expect(0, "aclrtRecordEvent", event, stream)
        of_stream = bench.helper(lambda: call("aclrtSynchronizeStream", stream))
        of_event = bench.helper(lambda: call("aclrtSynchronizeEvent", event))
        bench.wait_inside(of_stream, "aclrtSynchronizeStream")
        bench.wait_inside(of_event, "aclrtSynchronizeEvent")
        release()
        require_code(0, of_stream.answer("aclrtSynchronizeStream"), "aclrtSynchronizeStream")
        require_code(0, of_event.answer("aclrtSynchronizeEvent"), "aclrtSynchronizeEvent")


@WAITS.assumes(
    "entry",
    "A wait covers the work that was enqueued before the wait started; later work does not make it longer.",
    calls="aclrtSynchronizeStream",
    used_by="_native/waiters.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream = bench.stream()
    with bench.held(stream) as release:
        waiter = bench.helper(lambda: call("aclrtSynchronizeStream", stream))
        bench.wait_inside(waiter, "aclrtSynchronizeStream")
        with bench.held(stream):
            release()
            code = waiter.answer("a wait for what was enqueued before it")
            require_code(0, code, "aclrtSynchronizeStream")
            require(bench.stream_status(stream) == 1, "the held stream is complete")


@WAITS.assumes(
    "event-entry",
    "A wait for an event covers the record that was the newest when the wait started.",
    calls="aclrtSynchronizeEvent aclrtRecordEvent",
    used_by="_native/waiters.c _native/events.c",
    mark="H",
)
def _(bench: Bench) -> None:
    first, second, event = bench.stream(), bench.stream(), bench.event()
    with bench.held(second), bench.held(first) as release:
        expect(0, "aclrtRecordEvent", event, first)
        waiter = bench.helper(lambda: call("aclrtSynchronizeEvent", event))
        bench.wait_inside(waiter, "aclrtSynchronizeEvent")
        expect(0, "aclrtRecordEvent", event, second)
        release()
        code = waiter.answer("a wait for the record before it")
        require_code(0, code, "aclrtSynchronizeEvent")


@WAITS.assumes(
    "beside",
    "While one thread waits, others can query, enqueue, make and destroy.",
    calls="aclrtSynchronizeStream aclrtStreamQuery aclrtQueryEventStatus aclrtCreateStream aclrtDestroyStream",
    used_by="_native/watcher.c _native/gate.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, event, memory = bench.stream(), bench.event(), bench.memory()

    def others() -> None:
        expect(0, "aclrtRecordEvent", event, stream)
        require(bench.event_status(event) == 0, "the event is complete too early")
        require(bench.stream_status(stream) == 1, "the stream is complete too early")
        fill(stream, memory, 1)
        made = ffi.new("aclrtStream *")
        expect(0, "aclrtCreateStream", made)
        bench.finish(made[0])
        expect(0, "aclrtDestroyStream", made[0])

    with bench.held(stream) as release:
        waiter = bench.helper(lambda: call("aclrtSynchronizeStream", stream))
        bench.wait_inside(waiter, "aclrtSynchronizeStream")
        bench.helper(others).answer("the calls during a wait")
        release()
        require_code(0, waiter.answer("aclrtSynchronizeStream"), "aclrtSynchronizeStream")


@WAITS.assumes(
    "together",
    "Eight threads that wait for one stream all return 0.",
    calls="aclrtSynchronizeStream",
    used_by="_native/waiters.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream = bench.stream()
    with bench.held(stream) as release:
        waiters = [bench.helper(lambda: call("aclrtSynchronizeStream", stream)) for _ in range(8)]
        for waiter in waiters:
            bench.wait_inside(waiter, "aclrtSynchronizeStream")
        release()
        for waiter in waiters:
            require_code(0, waiter.answer("aclrtSynchronizeStream"), "aclrtSynchronizeStream")


@WAITS.assumes(
    "idle",
    "Waiting for a stream without work returns at once.",
    calls=f"aclrtSynchronizeStream {OF_DEVICE}",
    used_by="_native/stream.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream = bench.stream()
    code = bench.helper(lambda: call("aclrtSynchronizeStream", stream)).answer("aclrtSynchronizeStream")
    require_code(0, code, "aclrtSynchronizeStream")
    expect(0, OF_DEVICE, patience.wait_ms)
