"""Events: what their status means, which record a wait refers to, and what times the device reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import ffi
from aioacl._selftest._bench import (
    SYNC,
    TIME_LINE,
    call,
    expect,
    fill,
    require,
    require_code,
    status_of,
    until,
    written_by,
)
from aioacl._selftest._records import SIMULATOR_ONLY, Family, Needs

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench, Event, Memory, Pinned, Stream

EVENTS: Final = Family("events", "events")
NOT_YET, DONE = 0, 1  # of aclrtQueryEventStatus; aclrtQueryEvent uses the opposite numbers
NEVER_RECORDED: Final = 507000
NO_TIME: Final = 107006
DEAD: Final = 107017


def must_be(bench: Bench, event: CData, wanted: int, when: str) -> None:
    """Raises Broken if the event has another status."""
    status = bench.event_status(event)
    require(status == wanted, f"aclrtQueryEventStatus wrote {status} {when}, expected {wanted}")


@EVENTS.assumes(
    "unrecorded",
    "H",
    "aclrtCreateEventExWithFlag aclrtQueryEventStatus aclrtSynchronizeEvent aclrtStreamWaitEvent",
    SIMULATOR_ONLY,
)
def _(bench: Bench, event: Event, stream: Stream) -> None:
    """An event that was never recorded is complete: waits for it end at once, on the host and on a stream."""
    must_be(bench, event, DONE, "before any record")
    require_code(0, bench.helper(lambda: call("aclrtSynchronizeEvent", event)).answer("the wait"), "the wait")
    expect(0, "aclrtStreamWaitEvent", stream, event)
    bench.finish(stream)


@EVENTS.assumes("status", "H/D", "aclrtRecordEvent aclrtQueryEventStatus", "_native/ask.c")
def _(bench: Bench, event: Event, stream: Stream) -> None:
    """aclrtQueryEventStatus writes 0 while the stream has not reached the recorded point, and 1 after that."""
    with bench.held(stream):
        expect(0, "aclrtRecordEvent", event, stream)
        must_be(bench, event, NOT_YET, "for a point that the stream has not reached")
    must_be(bench, event, DONE, "for a point that the stream has reached")


@EVENTS.assumes("old-status", "H", "aclrtCreateEventWithFlag aclrtQueryEvent", SIMULATOR_ONLY)
def _(bench: Bench, stream: Stream) -> None:
    """aclrtQueryEvent, for events of the old kind, writes 1 before the recorded point is reached, and 0 soon after
    it.
    """
    event = bench.old_event()
    with bench.held(stream):
        expect(0, "aclrtRecordEvent", event, stream)
        pending = status_of("aclrtQueryEvent", event)
        require(pending == 1, f"aclrtQueryEvent wrote {pending} for a point that the stream has not reached")
    # A query only wakes the thread that updates the host's copy of the status, and returns that copy.
    until(
        lambda: status_of("aclrtQueryEvent", event) == 0,
        "aclrtQueryEvent did not write 0 for a point that the stream has reached",
    )


@EVENTS.assumes(
    "covers",
    "H/D",
    "aclrtMemsetAsync aclrtMemcpyAsync aclrtRecordEvent aclrtSynchronizeEvent aclrtQueryEventStatus",
    "_native/ask.c _native/outcome.c",
)
def _(bench: Bench, event: Event, stream: Stream, memory: Memory, here: Pinned) -> None:
    """When an event is complete, all work that was enqueued before its record is done."""

    def asked() -> None:
        until(lambda: bench.event_status(event) == DONE, "the event was not complete")

    def waited() -> None:
        expect(0, "aclrtSynchronizeEvent", event)

    for value in range(1, 21):
        fill(stream, memory, value)
        expect(0, "aclrtMemcpyAsync", here, 4096, memory, 4096, 2, stream)
        expect(0, "aclrtRecordEvent", event, stream)
        (asked, waited)[value % 2]()
        landed = bytes(ffi.buffer(here, 4096))
        require(landed == bytes([value]) * 4096, "the event was complete before the copy had arrived")


@EVENTS.assumes("again", "H", "aclrtRecordEvent aclrtQueryEventStatus", "_native/events.c _handles/event")
def _(bench: Bench, event: Event, still: Stream, idle: Stream) -> None:
    """An event that is recorded again refers to the newest record."""
    with bench.held(still):
        expect(0, "aclrtRecordEvent", event, idle)
        bench.finish(idle)
        expect(0, "aclrtRecordEvent", event, still)
        must_be(bench, event, NOT_YET, "although its newest record is not reached")
        expect(0, "aclrtRecordEvent", event, idle)
        bench.finish(idle)
        must_be(bench, event, DONE, "although its newest record is reached")


@EVENTS.assumes("kept-pending", "H", "aclrtRecordEvent aclrtStreamWaitEvent", "_native/events.c")
def _(bench: Bench, event: Event, still: Stream, idle: Stream, waiting: Stream) -> None:
    """A wait in a stream's queue keeps the record that it was enqueued for, if the event is recorded again."""
    with bench.held(still):
        expect(0, "aclrtRecordEvent", event, still)
        expect(0, "aclrtStreamWaitEvent", waiting, event)
        expect(0, "aclrtRecordEvent", event, idle)
        bench.finish(idle)
        require(bench.stream_status(waiting) == 1, "the newer record ended the older wait")
    bench.finish(waiting)


@EVENTS.assumes("kept-done", "H", "aclrtRecordEvent aclrtStreamWaitEvent", "_native/events.c")
def _(bench: Bench, event: Event, still: Stream, idle: Stream, waiting: Stream) -> None:
    """A wait for a record that is reached does not become a wait for the next record."""
    with bench.held(still):
        expect(0, "aclrtRecordEvent", event, idle)
        expect(0, "aclrtStreamWaitEvent", waiting, event)
        expect(0, "aclrtRecordEvent", event, still)
        bench.finish(waiting)
        require(bench.stream_status(still) == 1, "the held stream is complete")


@EVENTS.assumes("across", "H/D", "aclrtRecordEvent aclrtStreamWaitEvent", "_native/enqueue.c _handles/stream")
def _(bench: Bench, event: Event, first: Stream, second: Stream) -> None:
    """A stream that waits for an event continues when the other stream has reached the record, and not before."""
    with bench.held(first):
        expect(0, "aclrtRecordEvent", event, first)
        expect(0, "aclrtStreamWaitEvent", second, event)
        require(bench.stream_status(second) == 1, "the wait was over before the record")
    bench.finish(second)


@EVENTS.assumes("own-stream", "H", "aclrtRecordEvent aclrtStreamWaitEvent", "_handles/stream")
def _(bench: Bench, event: Event, stream: Stream) -> None:
    """A stream may wait for an event that was recorded on it."""
    expect(0, "aclrtRecordEvent", event, stream)
    expect(0, "aclrtStreamWaitEvent", stream, event)
    bench.finish(stream)


@EVENTS.assumes(
    "destroy-pending", "H", "aclrtRecordEvent aclrtStreamWaitEvent aclrtDestroyEvent", "_native/events.c"
)
def _(bench: Bench, still: Stream, waiting: Stream) -> None:
    """An event may be destroyed before its record is reached and while a stream waits for it: the wait still ends."""
    event = written_by("aclrtCreateEventExWithFlag", SYNC)
    with bench.held(still):
        expect(0, "aclrtRecordEvent", event, still)
        expect(0, "aclrtStreamWaitEvent", waiting, event)
        bench.expect_return(0, "aclrtDestroyEvent", event)
    bench.finish(waiting)


@EVENTS.assumes(
    "destroyed",
    "H",
    "aclrtDestroyEvent aclrtQueryEventStatus aclrtRecordEvent",
    SIMULATOR_ONLY,
    needs=Needs.NO_CARD,
)
def _(bench: Bench) -> None:
    """An event that was destroyed is refused with 107017."""
    event, status = ffi.new("aclrtEvent *"), ffi.new("aclrtEventRecordedStatus *")
    expect(0, "aclrtCreateEventExWithFlag", event, SYNC)
    expect(0, "aclrtDestroyEvent", event[0])
    expect(DEAD, "aclrtQueryEventStatus", event[0], status)
    expect(DEAD, "aclrtRecordEvent", event[0], bench.stream())


@EVENTS.assumes(
    "many", "H", "aclrtCreateEventExWithFlag aclrtRecordEvent aclrtDestroyEvent", "_native/events.c"
)
def _(bench: Bench, stream: Stream) -> None:
    """Five hundred events can exist at the same time."""
    events = [bench.event() for _ in range(500)]
    for event in events:
        expect(0, "aclrtRecordEvent", event, stream)
    bench.finish(stream)
    require(all(bench.event_status(event) == DONE for event in events), "an event is not complete")


@EVENTS.assumes("elapsed", "H/D", "aclrtCreateEventExWithFlag aclrtEventElapsedTime", "_handles/event")
def _(bench: Bench, stream: Stream) -> None:
    """The time between two complete events for timing is in milliseconds and not negative."""
    start, end = bench.event(SYNC | TIME_LINE), bench.event(SYNC | TIME_LINE)
    expect(0, "aclrtRecordEvent", start, stream)
    fill(stream, bench.memory(), 1)
    expect(0, "aclrtRecordEvent", end, stream)
    bench.finish(stream)
    milliseconds = ffi.new("float *", -1.0)
    expect(0, "aclrtEventElapsedTime", milliseconds, start, end)
    require(0 <= milliseconds[0] < 60_000, f"aclrtEventElapsedTime wrote {milliseconds[0]:g} ms")


@EVENTS.assumes("elapsed-early", "H", "aclrtEventElapsedTime", "_handles/event")
def _(bench: Bench, stream: Stream) -> None:
    """The time between two events is refused before both are complete (107006), and without a record (507000)."""
    start, end = bench.event(SYNC | TIME_LINE), bench.event(SYNC | TIME_LINE)
    milliseconds = ffi.new("float *")
    expect(NEVER_RECORDED, "aclrtEventElapsedTime", milliseconds, start, end)
    expect(0, "aclrtRecordEvent", start, stream)
    with bench.held(stream):
        expect(0, "aclrtRecordEvent", end, stream)
        expect(NO_TIME, "aclrtEventElapsedTime", milliseconds, start, end)
