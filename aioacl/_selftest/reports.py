"""Reports of failed tasks: ids of tasks, what wakes the runtime, and the order of a report and a completion.

Because of this order, an await does not succeed for a task that failed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import lib
from aioacl._library import detection
from aioacl._selftest._bench import call, expect, fill, require, status_of, written_by
from aioacl._selftest._outcomes import NotTestable
from aioacl._selftest._records import Family, Needs
from aioacl._selftest._threads import patience

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench, Event, Memory, Stream

REPORTS: Final = Family("reports", "reports of failed tasks")
FAULT: Final = 507015
ROUNDS: Final = 8


def last_task() -> int:
    """Returns the id of the last task that this thread enqueued."""
    return int(written_by("aclrtGetThreadLastTaskId"))


def id_of(stream: CData) -> int:
    """Returns the id by which reports name the stream."""
    return status_of("aclrtStreamGetId", stream)


@REPORTS.assumes(
    "task-ids",
    "H",
    "aclrtGetThreadLastTaskId aclrtMemsetAsync aclrtRecordEvent",
    "_native/enqueue.c _native/attribution.c",
)
def _(bench: Bench, stream: Stream, memory: Memory, event: Event) -> None:
    """The id of a thread's last task is larger, modulo 2^32, after each enqueue on the same stream."""
    fill(stream, memory, 1)
    before = last_task()
    for _ in range(ROUNDS):
        expect(0, "aclrtRecordEvent", event, stream)
        fill(stream, memory, 1)
        now = last_task()
        require(
            0 < (now - before) % (1 << 32) < 1 << 31,
            f"the id after an enqueue is {now}, and before it {before}",
        )
        before = now
    bench.finish(stream)


@REPORTS.assumes(
    "nothing-submitted", "H", "aclrtGetThreadLastTaskId aclrtStreamWaitEvent", "_native/enqueue.c"
)
def _(stream: Stream, event: Event) -> None:
    """A wait for an event of the same stream submits nothing, and does not change the thread's last id."""
    expect(0, "aclrtRecordEvent", event, stream)
    before = last_task()
    expect(0, "aclrtStreamWaitEvent", stream, event)
    require(
        last_task() == before,
        f"the id is {last_task()} after a wait for an event of the same stream, expected {before}",
    )


@REPORTS.assumes("stream-ids", "H", "aclrtStreamGetId", "_native/attribution.c _native/stream.c")
def _(bench: Bench) -> None:
    """Two streams of a device that exist at the same time have different ids."""
    ids = [id_of(bench.stream()) for _ in range(ROUNDS)]
    require(len(set(ids)) == ROUNDS, f"expected {ROUNDS} streams with different ids, got the ids {ids}")


@REPORTS.assumes(
    "question", "H", "aclrtCreateEventWithFlag aclrtRecordEvent aclrtQueryEvent", "_native/nudge.c"
)
def _(bench: Bench, stream: Stream) -> None:
    """aclrtQueryEvent returns without waiting, for an event of the old kind that is not complete."""
    event = bench.old_event()
    with bench.held(stream):
        expect(0, "aclrtRecordEvent", event, stream)
        ask = bench.helper(lambda: status_of("aclrtQueryEvent", event))
        require(
            ask.answer("aclrtQueryEvent") == 1,
            "aclrtQueryEvent reports an event as complete, although the stream has not reached it",
        )


def _reported() -> int:
    """Returns the number of reported tasks that the engine did not enqueue, such as the tasks of this file."""
    return int(lib.aio_device_unattributed(0))


def _in_order(bench: Bench, is_complete: Callable[[CData, CData], bool]) -> None:
    """Queries until the work after a failed task is complete, and then checks that the task was reported."""
    if not detection.reported_by():
        raise NotTestable("the library has no function that registers a callback")
    memory = bench.memory()
    for _ in range(ROUNDS):
        stream, event = bench.stream(), bench.event()
        before = _reported()
        bench.fail_next(stream, FAULT)
        fill(stream, memory, 1)
        expect(0, "aclrtRecordEvent", event, stream)
        bench.nudge_until(partial(is_complete, stream, event))
        seen = _reported() - before
        require(
            seen == 1,
            f"expected 1 reported task when the work after the failed task was complete, got {seen}",
        )
        call("aclrtSynchronizeStreamWithTimeout", stream, patience.wait_ms)


@REPORTS.assumes(
    "before-the-event",
    "H",
    "aclrtMemsetAsync aclrtRecordEvent aclrtQueryEventStatus",
    "_native/report.c _library/detection",
    needs=Needs.FAULTS,
)
def _(bench: Bench) -> None:
    """An event after a failed task is complete only after the callback for the task has returned."""
    _in_order(bench, lambda _, event: bench.event_status(event) == 1)


@REPORTS.assumes(
    "before-idle",
    "H",
    "aclrtMemsetAsync aclrtStreamQuery",
    "_native/report.c _library/detection",
    needs=Needs.FAULTS,
)
def _(bench: Bench) -> None:
    """A stream with a failed task is idle only after the callback for the task has returned."""
    _in_order(bench, lambda stream, _: bench.stream_status(stream) == 0)
