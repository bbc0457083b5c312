"""Contexts: which thread has which context, and which calls work without a context or with another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi, lib
from aioacl._selftest._bench import (
    BLOCK_BYTES,
    NO_CONTEXT,
    NULL_REFUSED,
    SYNC,
    WRONG_CONTEXT,
    call,
    expect,
    expect_on_a_thread,
    require,
    require_code,
    written_by,
)
from aioacl._selftest._records import SIMULATOR_ONLY, Family
from aioacl._selftest._threads import on_a_thread

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench, Event, Memory, Pinned, Stream

CONTEXTS: Final = Family("contexts", "contexts and threads")


@CONTEXTS.assumes("fresh", "H", "aclrtGetCurrentContext aclrtGetDevice", "_native/gate.c _native/abort.c")
def _() -> None:
    """A thread that has bound no device has no context: 107002."""
    context, device = ffi.new("aclrtContext *"), ffi.new("int32_t *")
    expect_on_a_thread(NO_CONTEXT, "aclrtGetCurrentContext", context, when="on a new thread")
    expect_on_a_thread(NO_CONTEXT, "aclrtGetDevice", device, when="on a new thread")


@CONTEXTS.assumes(
    "set", "H", "aclrtSetDevice aclrtGetCurrentContext aclrtGetDevice", "_lifecycle/procedures/close"
)
def _(bench: Bench) -> None:
    """After aclrtSetDevice a thread has the same context as each other thread that has set the device."""

    def other() -> CData:
        expect(0, "aclrtSetDevice", bench.device)
        return bench.current_context()

    device = ffi.new("int32_t *", -1)
    expect(0, "aclrtGetDevice", device)
    require(device[0] == bench.device, f"aclrtGetDevice wrote {device[0]}")
    require(bench.context, "the context is NULL")
    require(on_a_thread(other) == bench.context, "another thread that has set the device has another context")


@CONTEXTS.assumes(
    "borrow",
    "H",
    "aclrtSetCurrentContext aclrtCreateStream aclrtRecordEvent aclrtSynchronizeStream",
    "_native/gate.c _native/abort.c",
)
def _(bench: Bench, event: Event) -> None:
    """aclrtSetCurrentContext gives the device's context to a thread that has not set the device."""

    def helper() -> None:
        stream = written_by("aclrtCreateStream")
        expect(0, "aclrtRecordEvent", event, stream)
        expect(0, "aclrtSynchronizeStream", stream)
        expect(0, "aclrtDestroyStream", stream)

    bench.helper(helper).answer("the helper")


@CONTEXTS.assumes(
    "own", "H", "aclrtCreateContext aclrtSetCurrentContext aclrtGetCurrentContext", "_native/gate.c"
)
def _(bench: Bench) -> None:
    """A binding belongs to its thread: a context that one thread makes current is not current on another."""
    with bench.explicit_context() as context:
        bench.helper(lambda: None).answer("aclrtSetCurrentContext")
        require(
            bench.current_context() == context, "aclrtSetCurrentContext on another thread changed this thread"
        )


@CONTEXTS.assumes(
    "guard", "H", "aclrtCreateContext aclrtSetCurrentContext aclrtGetCurrentContext", "_native/gate.c"
)
def _(bench: Bench) -> None:
    """Reading the context, setting another one and setting the first again leaves the thread unchanged."""
    with bench.explicit_context() as context:
        bench.borrow()
        require(bench.current_context() == bench.context, "aclrtSetCurrentContext did not bind")
        expect(0, "aclrtSetCurrentContext", context)
        require(bench.current_context() == context, "the first context is not current again")


@CONTEXTS.assumes("null", "H", "aclrtSetCurrentContext aclrtGetCurrentContext", "_native/abort.c")
def _(bench: Bench) -> None:
    """aclrtSetCurrentContext(NULL) is refused with 100000 and changes nothing."""
    expect(NULL_REFUSED, "aclrtSetCurrentContext", ffi.NULL)
    require(bench.current_context() == bench.context, "the refused call changed the context")


@CONTEXTS.assumes(
    "without",
    "H",
    "aclrtCreateStream aclrtStreamQuery aclrtSynchronizeStream aclrtRecordEvent aclrtMalloc aclrtMallocHost",
    "_native/gate.c _native/watcher.c",
)
def _(stream: Stream, event: Event) -> None:
    """Without a context, calls that make, enqueue or wait are refused with 107002."""
    status = ffi.new("aclrtStreamStatus *")
    policy = lib.ACL_MEM_MALLOC_HUGE_FIRST
    attempts: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("aclrtCreateStream", (ffi.new("aclrtStream *"),)),
        ("aclrtStreamQuery", (stream, status)),
        ("aclrtSynchronizeStream", (stream,)),
        ("aclrtRecordEvent", (event, stream)),
        ("aclrtMalloc", (ffi.new("void **"), BLOCK_BYTES, policy)),
        ("aclrtMallocHost", (ffi.new("void **"), BLOCK_BYTES)),
    )
    for function, arguments in attempts:
        expect_on_a_thread(NO_CONTEXT, function, *arguments, when="without a context")


@CONTEXTS.assumes("events-without", "H", "aclrtQueryEventStatus aclrtSynchronizeEvent", "_native/ask.c")
def _(bench: Bench, stream: Stream, event: Event) -> None:
    """aclrtQueryEventStatus and aclrtSynchronizeEvent need no context."""
    expect(0, "aclrtRecordEvent", event, stream)
    bench.finish(stream)
    require(on_a_thread(lambda: bench.event_status(event)) == 1, "a recorded event is not complete")
    expect_on_a_thread(0, "aclrtSynchronizeEvent", event)


@CONTEXTS.assumes("free-without", "doc", "aclrtFree aclrtFreeHost", "_handles/memory _native/stage.c")
def _() -> None:
    """A thread without a context can free memory."""
    there = written_by("aclrtMalloc", BLOCK_BYTES, lib.ACL_MEM_MALLOC_HUGE_FIRST)
    here = written_by("aclrtMallocHost", BLOCK_BYTES)
    expect_on_a_thread(0, "aclrtFreeHost", here)
    expect_on_a_thread(0, "aclrtFree", there)


@CONTEXTS.assumes(
    "foreign-work",
    "H",
    "aclrtCreateContext aclrtRecordEvent aclrtStreamWaitEvent aclrtMemsetAsync aclrtMemcpyAsync",
    "_native/gate.c",
)
def _(bench: Bench, stream: Stream, event: Event, memory: Memory, here: Pinned) -> None:
    """Enqueueing on a stream of another context is refused with 107003."""
    size, kind = BLOCK_BYTES, lib.ACL_MEMCPY_HOST_TO_DEVICE
    with bench.explicit_context():
        expect(WRONG_CONTEXT, "aclrtRecordEvent", event, stream)
        expect(WRONG_CONTEXT, "aclrtStreamWaitEvent", stream, event)
        expect(WRONG_CONTEXT, "aclrtMemsetAsync", memory, size, 1, size, stream)
        expect(WRONG_CONTEXT, "aclrtMemcpyAsync", memory, size, here, size, kind, stream)


@CONTEXTS.assumes(
    "foreign-questions", "H", "aclrtCreateContext aclrtStreamQuery aclrtSynchronizeStream", SIMULATOR_ONLY
)
def _(bench: Bench, stream: Stream) -> None:
    """A stream of another context can be queried and waited for."""
    with bench.explicit_context():
        require(bench.stream_status(stream) == 0, "an idle stream of another context is not complete")
        expect(0, "aclrtSynchronizeStream", stream)


@CONTEXTS.assumes("foreign-destroy", "H", "aclrtCreateContext aclrtDestroyStream", "_native/gate.c")
def _(bench: Bench, stream: Stream) -> None:
    """Destroying a stream of another context is refused with 107003."""
    with bench.explicit_context():
        expect(WRONG_CONTEXT, "aclrtDestroyStream", stream)
    bench.finish(stream)


@CONTEXTS.assumes(
    "destroyed", "H", "aclrtCreateContext aclrtDestroyContext aclrtGetCurrentContext", "_native/gate.c"
)
def _(bench: Bench) -> None:
    """After the current context of a thread was destroyed, the thread has no context."""
    with bench.explicit_context():
        pass
    expect(0, "aclrtDestroyContext", written_by("aclrtCreateContext", bench.device))
    code = call("aclrtGetCurrentContext", ffi.new("aclrtContext *"))
    bench.borrow()
    require_code(NO_CONTEXT, code, "aclrtGetCurrentContext")


@CONTEXTS.assumes("default-stream", "doc", "aclrtStreamQuery aclrtSynchronizeStream", SIMULATOR_ONLY)
def _(bench: Bench) -> None:
    """A device has a default stream, which can be queried and waited for as NULL."""
    require(bench.stream_status(ffi.NULL) == 0, "the idle default stream is not complete")
    expect(0, "aclrtSynchronizeStream", ffi.NULL)
    event = bench.event(SYNC)
    expect(0, "aclrtRecordEvent", event, ffi.NULL)
    expect(0, "aclrtSynchronizeStream", ffi.NULL)
