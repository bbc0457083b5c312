"""Reports of failed tasks: ids of tasks, what wakes the runtime, and the order of a report and a completion.

Because of this order, an await does not succeed for a task that failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base.ffi import ffi, lib
from aioacl._library import detection
from aioacl._selftest._bench import Bench, call, expect, fill, patience, require, status_of
from aioacl._selftest._outcomes import NotTestable
from aioacl._selftest._records import Family, Needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl._base.ffi import CData

REPORTS: Final = Family("reports", "reports of failed tasks")
FAULT: Final = 507015
OLD_KIND: Final = 0x1
ROUNDS: Final = 8


def last_task() -> int:
    """Returns the id of the last task that this thread enqueued."""
    number = ffi.new("uint32_t *")
    expect(0, "aclrtGetThreadLastTaskId", number)
    return int(number[0])


def id_of(stream: CData) -> int:
    """Returns the id by which reports name the stream."""
    number = ffi.new("int32_t *")
    expect(0, "aclrtStreamGetId", stream, number)
    return int(number[0])


@REPORTS.assumes(
    "task-ids",
    "The id of a thread's last task is larger, modulo 2^32, after each enqueue on the same stream.",
    calls="aclrtGetThreadLastTaskId aclrtMemsetAsync aclrtRecordEvent",
    used_by="_native/enqueue.c _native/attribution.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, memory, event = bench.stream(), bench.memory(), bench.event()
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
    "nothing-submitted",
    "A wait for an event of the same stream submits nothing, and does not change the thread's last id.",
    calls="aclrtGetThreadLastTaskId aclrtStreamWaitEvent",
    used_by="_native/enqueue.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, event = bench.stream(), bench.event()
    expect(0, "aclrtRecordEvent", event, stream)
    before = last_task()
    expect(0, "aclrtStreamWaitEvent", stream, event)
    require(
        last_task() == before,
        f"the id is {last_task()} after a wait for an event of the same stream, expected {before}",
    )


@REPORTS.assumes(
    "stream-ids",
    "Two streams of a device that exist at the same time have different ids.",
    calls="aclrtStreamGetId",
    used_by="_native/attribution.c _native/stream.c",
    mark="H",
)
def _(bench: Bench) -> None:
    ids = [id_of(bench.stream()) for _ in range(ROUNDS)]
    require(len(set(ids)) == ROUNDS, f"expected {ROUNDS} streams with different ids, got the ids {ids}")


@REPORTS.assumes(
    "question",
    "aclrtQueryEvent returns without waiting, for an event of the old kind that is not complete.",
    calls="aclrtCreateEventWithFlag aclrtRecordEvent aclrtQueryEvent",
    used_by="_native/device.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream = bench.stream()
    event = bench.make("aclrtDestroyEvent", "aclrtEvent", "aclrtCreateEventWithFlag", OLD_KIND)
    with bench.held(stream):
        expect(0, "aclrtRecordEvent", event, stream)
        ask = bench.helper(lambda: status_of("aclrtQueryEvent", "aclrtEventStatus", event))
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
        stream, idle, event = bench.stream(), bench.stream(), bench.event()
        wake = bench.make("aclrtDestroyEvent", "aclrtEvent", "aclrtCreateEventWithFlag", OLD_KIND)
        before = _reported()
        bench.fail_next(stream, FAULT)
        fill(stream, memory, 1)
        expect(0, "aclrtRecordEvent", event, stream)
        for _ in range(patience.wait_ms):
            expect(0, "aclrtRecordEvent", wake, idle)
            status_of("aclrtQueryEvent", "aclrtEventStatus", wake)
            if is_complete(stream, event):
                break
        seen = _reported() - before
        require(
            seen == 1,
            f"expected 1 reported task when the work after the failed task was complete, got {seen}",
        )
        call("aclrtSynchronizeStreamWithTimeout", stream, patience.wait_ms)


@REPORTS.assumes(
    "before-the-event",
    "An event after a failed task is complete only after the callback for the task has returned.",
    calls="aclrtMemsetAsync aclrtRecordEvent aclrtQueryEventStatus",
    used_by="_native/report.c _library/detection",
    mark="H",
    needs=Needs.FAULTS,
)
def _(bench: Bench) -> None:
    _in_order(bench, lambda _, event: bench.event_status(event) == 1)


@REPORTS.assumes(
    "before-idle",
    "A stream with a failed task is idle only after the callback for the task has returned.",
    calls="aclrtMemsetAsync aclrtStreamQuery",
    used_by="_native/report.c _library/detection",
    mark="H",
    needs=Needs.FAULTS,
)
def _(bench: Bench) -> None:
    _in_order(bench, lambda stream, _: bench.stream_status(stream) == 0)
