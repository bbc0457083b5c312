"""Contexts of aioacl's own, explicit contexts of other code, STOP mode of other code, and counted resets.

Each check runs in its own process, in which the device has not been set before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi, lib
from aioacl._selftest._bench import (
    BLOCK_BYTES,
    WRONG_CONTEXT,
    call,
    download,
    expect,
    fill,
    pattern,
    read,
    require,
    status_of,
    write,
    written_by,
)
from aioacl._selftest._records import Family, Needs
from aioacl._selftest._threads import on_a_thread
from aioacl._selftest.errors import FAULT
from aioacl._selftest.events import DONE
from aioacl._selftest.resets import force
from aioacl._selftest.states import RESET_POST, RESET_PRE, SET_POST, StateCallback

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench

OTHER_CODE: Final = Family("other-code", "own contexts, and other code of the process", alone=True)
SETS: Final = 3
STOP: Final = 1


def _own(bench: Bench) -> CData:
    """Makes an explicit context, which is then current on this thread."""
    made: CData = written_by("aclrtCreateContext", bench.device)
    return made


def _failure_mode(stream: CData) -> int:
    value: Any = ffi.new("aclrtStreamAttrValue *")
    expect(0, "aclrtGetStreamAttribute", stream, lib.ACL_STREAM_ATTR_FAILURE_MODE, value)
    return int(value.failureMode)


@OTHER_CODE.assumes(
    "no-set",
    "H",
    "aclrtCreateContext aclrtDestroyContext aclrtGetPrimaryCtxState aclrtMemsetAsync",
    "_lifecycle/own_context",
)
def _(bench: Bench) -> None:
    """An explicit context needs no aclrtSetDevice, does not set the device, and works."""
    context = _own(bench)
    require(bench.current_context() == context, "the new context is not current")
    require(not bench.is_active(), "the device is set")
    stream, memory = written_by("aclrtCreateStream"), bench.memory()
    fill(stream, memory, 1)
    expect(0, "aclrtSynchronizeStream", stream)
    require(download(memory, BLOCK_BYTES) == bytes([1]) * BLOCK_BYTES, "the work was not done")
    expect(0, "aclrtFree", memory)
    expect(0, "aclrtDestroyContext", context)
    bench.forget()


@OTHER_CODE.assumes(
    "memory",
    "H/D",
    "aclrtMalloc aclrtMallocHost aclrtMemcpyAsync aclrtFree aclrtFreeHost",
    "_lifecycle/own_context",
)
def _(bench: Bench) -> None:
    """Memory of one context can be used and freed in another context of the device."""
    bench.set_device()
    here, there = bench.pinned(), written_by("aclrtMalloc", BLOCK_BYTES, lib.ACL_MEM_MALLOC_HUGE_FIRST)
    write(here, pattern(BLOCK_BYTES))
    with bench.explicit_context():
        stream, back = written_by("aclrtCreateStream"), written_by("aclrtMallocHost", BLOCK_BYTES)
        up, down = lib.ACL_MEMCPY_HOST_TO_DEVICE, lib.ACL_MEMCPY_DEVICE_TO_HOST
        expect(0, "aclrtMemcpyAsync", there, BLOCK_BYTES, here, BLOCK_BYTES, up, stream)
        expect(0, "aclrtMemcpyAsync", back, BLOCK_BYTES, there, BLOCK_BYTES, down, stream)
        expect(0, "aclrtSynchronizeStream", stream)
        expect(0, "aclrtDestroyStream", stream)
        expect(0, "aclrtFree", there)
    require(read(back, BLOCK_BYTES) == pattern(BLOCK_BYTES), "the bytes differ")
    expect(0, "aclrtFreeHost", back)


@OTHER_CODE.assumes(
    "window",
    "H/D",
    "aclrtMemsetAsync aclrtCreateEventWithFlag aclrtRecordEvent aclrtGetThreadLastTaskId",
    "_native/enqueue.c _native/borrowed.c",
)
def _(bench: Bench) -> None:
    """The task id of a record is above the ids of all tasks that any thread has enqueued on the stream before."""
    bench.set_device()
    stream, memory, event, ids = bench.stream(), bench.memory(), bench.old_event(), ffi.new("uint32_t[2]")

    def elsewhere() -> None:
        for _ in range(10):
            fill(stream, memory, 1)
        expect(0, "aclrtGetThreadLastTaskId", ids)

    bench.helper(elsewhere).answer("aclrtMemsetAsync")
    expect(0, "aclrtRecordEvent", event, stream)
    expect(0, "aclrtGetThreadLastTaskId", ids + 1)
    expect(0, "aclrtSynchronizeStream", stream)
    require(ids[1] > ids[0], f"the record has the id {ids[1]}, the last task before it {ids[0]}")


@OTHER_CODE.assumes(
    "borrowed",
    "H",
    "aclrtRecordEvent aclrtStreamQuery aclrtCreateEventWithFlag",
    "_native/borrowed.c _handles/borrowing",
)
def _(bench: Bench) -> None:
    """An event can be recorded on a stream only while the context of the stream is current: 107003 otherwise."""
    bench.set_device()
    stream, event = bench.stream(), bench.old_event()
    with bench.explicit_context():
        expect(WRONG_CONTEXT, "aclrtRecordEvent", event, stream)
    expect(0, "aclrtRecordEvent", event, stream)
    expect(0, "aclrtSynchronizeStream", stream)


@OTHER_CODE.assumes(
    "recorded-again",
    "H",
    "aclrtRecordEvent aclrtQueryEventStatus aclrtStreamWaitEvent aclrtCreateEventWithFlag",
    "_native/events.c _native/borrowed.c",
)
def _(bench: Bench) -> None:
    """A query of an event of the old kind that is recorded again shows the newest record, in any context."""
    bench.set_device()
    stream, other, event, gate = bench.stream(), bench.stream(), bench.old_event(), bench.old_event()
    expect(0, "aclrtRecordEvent", event, stream)
    bench.finish(stream)
    require(bench.event_status(event) == DONE, "the first record is not done")
    expect(0, "aclrtStreamWaitEvent", stream, gate)  # it was never recorded, so the stream waits
    expect(0, "aclrtRecordEvent", event, stream)
    with bench.explicit_context():
        require(bench.event_status(event) != DONE, "the query shows the first record")
    expect(0, "aclrtRecordEvent", gate, other)
    bench.finish(stream)
    require(bench.event_status(event) == DONE, "the second record is not done")


@OTHER_CODE.assumes(
    "abort", "H", "aclrtCreateContext aclrtStreamAbort", "_native/abort.c _lifecycle/own_context"
)
def _(bench: Bench) -> None:
    """A stream can be aborted only while its own context is current: 107003 otherwise."""
    bench.set_device()
    stream = bench.stream()
    with bench.explicit_context():
        expect(WRONG_CONTEXT, "aclrtStreamAbort", stream)
    expect(0, "aclrtStreamAbort", stream)


@OTHER_CODE.assumes(
    "replace",
    "H/D",
    "aclrtStreamAbort aclrtCreateContext aclrtDestroyContext aclrtFree",
    "_lifecycle/own_context _lifecycle/blocks",
)
def _(bench: Bench) -> None:
    """The memory of a context outlives the context while another one exists, and can be freed there."""
    old = _own(bench)
    stream, memory = written_by("aclrtCreateStream"), bench.memory()
    fill(stream, memory, 1)
    expect(0, "aclrtStreamAbort", stream)
    new = _own(bench)
    expect(0, "aclrtDestroyContext", old)
    expect(0, "aclrtFree", memory)
    expect(0, "aclrtDestroyContext", new)
    bench.forget()


@OTHER_CODE.assumes(
    "stop-attribute",
    "H",
    "aclrtSetStreamFailureMode aclrtGetStreamAttribute",
    "_native/foreignstop.c",
)
def _(bench: Bench) -> None:
    """aclrtGetStreamAttribute returns the failure mode of a stream, without a context too."""
    bench.set_device()
    stopping, going_on = bench.stream(), bench.stream()
    expect(0, "aclrtSetStreamFailureMode", stopping, STOP)
    modes = on_a_thread(lambda: [_failure_mode(stream) for stream in (stopping, going_on)])
    require(modes == [STOP, 0], f"expected the modes 1 and 0, got {modes}")


@OTHER_CODE.assumes(
    "stop-shows",
    "H",
    "aclrtSetStreamFailureMode aclrtStreamQuery aclrtRecordEvent aclrtQueryEventStatus",
    "_native/ask.c _native/enqueue.c _native/watcher.c",
    needs=Needs.FAULTS,
)
def _(bench: Bench) -> None:
    """If a stream has STOP mode and a task of any stream fails, each query in the context returns the task's code."""
    bench.set_device()
    before, event, memory = bench.stream(), bench.event(), bench.memory()
    expect(0, "aclrtSetStreamFailureMode", bench.stream(), STOP)
    expect(0, "aclrtRecordEvent", event, before)
    expect(0, "aclrtSynchronizeStream", before)
    failing, fresh = bench.stream(), bench.stream()
    bench.fail_next(failing, FAULT)
    fill(failing, memory, 1)
    expect(FAULT, "aclrtSynchronizeStream", failing)
    expect(FAULT, "aclrtStreamQuery", fresh, ffi.new("aclrtStreamStatus *"))
    expect(FAULT, "aclrtRecordEvent", bench.event(), fresh)
    expect(FAULT, "aclrtQueryEventStatus", event, ffi.new("aclrtEventRecordedStatus *"))


@OTHER_CODE.assumes(
    "stop-apart",
    "H",
    "aclrtSetStreamFailureMode aclrtCreateContext aclrtMemsetAsync aclrtSynchronizeStream",
    "_lifecycle/own_context",
    needs=Needs.FAULTS,
)
def _(bench: Bench) -> None:
    """STOP mode in the primary context does not stop an explicit context."""
    bench.set_device()
    failing, memory = bench.stream(), bench.memory()
    expect(0, "aclrtSetStreamFailureMode", failing, STOP)
    bench.fail_next(failing, FAULT)
    fill(failing, memory, 1)
    expect(FAULT, "aclrtSynchronizeStream", failing)
    with bench.explicit_context():
        stream = written_by("aclrtCreateStream")
        require(status_of("aclrtStreamQuery", stream) == 0, "an idle stream is not complete")
        fill(stream, memory, 2)
        expect(0, "aclrtSynchronizeStream", stream)
        expect(0, "aclrtDestroyStream", stream)


@OTHER_CODE.assumes(
    "kept",
    "H",
    "aclrtRegDeviceStateCallback aclrtCreateContext aclrtResetDeviceForce aclrtSetDevice aclrtFree",
    "_lifecycle/blocks _lifecycle/procedures/reset",
    needs=Needs.RESET,
)
def _(bench: Bench) -> None:
    """While an explicit context exists, a force reset does not release the device: the next set reports no SET_PRE, and
    memory from before the reset can be freed.
    """
    bench.set_device()
    memory, context = bench.memory(), _own(bench)
    reported = StateCallback(bench.device)
    force(bench)
    reported.must_be(RESET_PRE, RESET_POST)
    bench.set_device()
    reported.must_be(SET_POST)
    expect(0, "aclrtFree", memory)
    expect(0, "aclrtDestroyContext", context)
    force(bench)


@OTHER_CODE.assumes(
    "survives",
    "H",
    "aclrtCreateContext aclrtResetDeviceForce aclrtMemsetAsync aclrtSynchronizeStream",
    "_lifecycle/own_context",
    needs=Needs.RESET,
)
def _(bench: Bench) -> None:
    """Streams and memory of an explicit context are usable after a force reset, before and after the next set."""

    def reset_by_other_code() -> None:
        expect(0, "aclrtSetDevice", bench.device)
        expect(0, "aclrtResetDeviceForce", bench.device)

    context = _own(bench)
    stream, memory = written_by("aclrtCreateStream"), bench.memory()
    for value in (1, 2):
        on_a_thread(reset_by_other_code)
        fill(stream, memory, value)
        expect(0, "aclrtSynchronizeStream", stream)
        require(download(memory, BLOCK_BYTES) == bytes([value]) * BLOCK_BYTES, "the work was not done")
    expect(0, "aclrtFree", memory)
    expect(0, "aclrtDestroyContext", context)
    bench.forget()


@OTHER_CODE.assumes(
    "counted",
    "H",
    "aclrtSetDevice aclrtResetDevice aclrtGetPrimaryCtxState",
    "_lifecycle/procedures/procedure",
    needs=Needs.RESET,
)
def _(bench: Bench) -> None:
    """A device that was set several times is inactive after as many calls of aclrtResetDevice, and not before."""
    bench.set_device()
    for _extra in range(SETS - 1):
        on_a_thread(lambda: expect(0, "aclrtSetDevice", bench.device))
    for left in reversed(range(SETS)):
        require(bench.is_active(), f"the device is not set, but {left + 1} sets are left")
        expect(0, "aclrtResetDevice", bench.device)
    require(not bench.is_active(), "the device is still set")
    bench.forget()


@OTHER_CODE.assumes(
    "counted-hang",
    "H/D",
    "aclrtSetDevice aclrtResetDevice aclrtCreateStream",
    "_lifecycle/procedures/procedure",
    needs=Needs.RESET,
)
def _(bench: Bench) -> None:
    """The last aclrtResetDevice also ends work that would never end, as a force reset does."""
    bench.set_device()
    bench.hold_for_ever(bench.stream())
    require(call("aclrtResetDevice", bench.device) == 0, "aclrtResetDevice has failed")
    bench.forget()
    bench.set_device()
    stream, memory = bench.stream(), bench.memory()
    fill(stream, memory, 1)
    bench.finish(stream)
