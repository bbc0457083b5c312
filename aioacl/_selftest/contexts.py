"""Contexts: which thread has which context, and which calls work without a context or with another one."""

from __future__ import annotations

from functools import partial
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
    on_a_thread,
    one_of,
    require,
    require_code,
)
from aioacl._selftest._records import SIMULATOR_ONLY, Family

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench

CONTEXTS: Final = Family("contexts", "contexts and threads")


@CONTEXTS.assumes(
    "fresh",
    "A thread that has bound no device has no context: 107002.",
    calls="aclrtGetCurrentContext aclrtGetDevice",
    used_by="_native/gate.c _native/abort.c",
    mark="H",
)
def _(_: Bench) -> None:
    device = ffi.new("int32_t *")
    code = on_a_thread(lambda: call("aclrtGetCurrentContext", ffi.new("aclrtContext *")))
    require_code(NO_CONTEXT, code, "aclrtGetCurrentContext", "on a new thread")
    code = on_a_thread(lambda: call("aclrtGetDevice", device))
    require_code(NO_CONTEXT, code, "aclrtGetDevice", "on a new thread")


@CONTEXTS.assumes(
    "set",
    "After aclrtSetDevice a thread has the same context as each other thread that has set the device.",
    calls="aclrtSetDevice aclrtGetCurrentContext aclrtGetDevice",
    used_by="_lifecycle/procedures/close",
    mark="H",
)
def _(bench: Bench) -> None:
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
    "aclrtSetCurrentContext gives the device's context to a thread that has not set the device.",
    calls="aclrtSetCurrentContext aclrtCreateStream aclrtRecordEvent aclrtSynchronizeStream",
    used_by="_native/gate.c _native/abort.c",
    mark="H",
)
def _(bench: Bench) -> None:
    event = bench.event()

    def helper() -> None:
        stream = ffi.new("aclrtStream *")
        expect(0, "aclrtCreateStream", stream)
        expect(0, "aclrtRecordEvent", event, stream[0])
        expect(0, "aclrtSynchronizeStream", stream[0])
        expect(0, "aclrtDestroyStream", stream[0])

    bench.helper(helper).answer("the helper")


@CONTEXTS.assumes(
    "own",
    "A binding belongs to its thread: a context that one thread makes current is not current on another.",
    calls="aclrtCreateContext aclrtSetCurrentContext aclrtGetCurrentContext",
    used_by="_native/gate.c",
    mark="H",
)
def _(bench: Bench) -> None:
    with bench.explicit_context() as context:
        bench.helper(lambda: None).answer("aclrtSetCurrentContext")
        require(
            bench.current_context() == context, "aclrtSetCurrentContext on another thread changed this thread"
        )


@CONTEXTS.assumes(
    "guard",
    "Reading the context, setting another one and setting the first again leaves the thread unchanged.",
    calls="aclrtCreateContext aclrtSetCurrentContext aclrtGetCurrentContext",
    used_by="_native/gate.c",
    mark="H",
)
def _(bench: Bench) -> None:
    with bench.explicit_context() as context:
        bench.borrow()
        require(bench.current_context() == bench.context, "aclrtSetCurrentContext did not bind")
        expect(0, "aclrtSetCurrentContext", context)
        require(bench.current_context() == context, "the first context is not current again")


@CONTEXTS.assumes(
    "null",
    "aclrtSetCurrentContext(NULL) is refused with 100000 and changes nothing.",
    calls="aclrtSetCurrentContext aclrtGetCurrentContext",
    used_by="_native/abort.c",
    mark="H",
)
def _(bench: Bench) -> None:
    expect(NULL_REFUSED, "aclrtSetCurrentContext", ffi.NULL)
    require(bench.current_context() == bench.context, "the refused call changed the context")


@CONTEXTS.assumes(
    "without",
    "Without a context, calls that make, enqueue or wait are refused with 107002.",
    calls="aclrtCreateStream aclrtStreamQuery aclrtSynchronizeStream aclrtRecordEvent aclrtMalloc aclrtMallocHost",
    used_by="_native/gate.c _native/watcher.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, event, status = bench.stream(), bench.event(), ffi.new("aclrtStreamStatus *")
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
        code = on_a_thread(partial(call, function, *arguments), function)
        require_code(NO_CONTEXT, code, function, "without a context")


@CONTEXTS.assumes(
    "events-without",
    "aclrtQueryEventStatus and aclrtSynchronizeEvent need no context.",
    calls="aclrtQueryEventStatus aclrtSynchronizeEvent",
    used_by="_native/stream.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, event = bench.stream(), bench.event()
    expect(0, "aclrtRecordEvent", event, stream)
    bench.finish(stream)
    require(on_a_thread(lambda: bench.event_status(event)) == 1, "a recorded event is not complete")
    require_code(0, on_a_thread(lambda: call("aclrtSynchronizeEvent", event)), "aclrtSynchronizeEvent")


@CONTEXTS.assumes(
    "free-without",
    "A thread without a context can free memory.",
    calls="aclrtFree aclrtFreeHost",
    used_by="_handles/memory _native/stage.c",
    mark="doc",
)
def _(_: Bench) -> None:
    there, here = ffi.new("void **"), ffi.new("void **")
    expect(0, "aclrtMalloc", there, BLOCK_BYTES, lib.ACL_MEM_MALLOC_HUGE_FIRST)
    expect(0, "aclrtMallocHost", here, BLOCK_BYTES)
    require_code(0, on_a_thread(lambda: call("aclrtFreeHost", here[0])), "aclrtFreeHost")
    require_code(0, on_a_thread(lambda: call("aclrtFree", there[0])), "aclrtFree")


@CONTEXTS.assumes(
    "foreign-work",
    "Enqueueing on a stream of another context is refused with 107003.",
    calls="aclrtCreateContext aclrtRecordEvent aclrtStreamWaitEvent aclrtMemsetAsync aclrtMemcpyAsync",
    used_by="_native/gate.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream, event, memory, here = bench.stream(), bench.event(), bench.memory(), bench.pinned()
    size, kind = BLOCK_BYTES, lib.ACL_MEMCPY_HOST_TO_DEVICE
    with bench.explicit_context():
        expect(WRONG_CONTEXT, "aclrtRecordEvent", event, stream)
        expect(WRONG_CONTEXT, "aclrtStreamWaitEvent", stream, event)
        expect(WRONG_CONTEXT, "aclrtMemsetAsync", memory, size, 1, size, stream)
        expect(WRONG_CONTEXT, "aclrtMemcpyAsync", memory, size, here, size, kind, stream)


@CONTEXTS.assumes(
    "foreign-questions",
    "A stream of another context can be queried and waited for.",
    calls="aclrtCreateContext aclrtStreamQuery aclrtSynchronizeStream",
    used_by=SIMULATOR_ONLY,
    mark="H",
)
def _(bench: Bench) -> None:
    stream = bench.stream()
    with bench.explicit_context():
        require(bench.stream_status(stream) == 0, "an idle stream of another context is not complete")
        expect(0, "aclrtSynchronizeStream", stream)


@CONTEXTS.assumes(
    "foreign-destroy",
    "Destroying a stream of another context is refused with 107003.",
    calls="aclrtCreateContext aclrtDestroyStream",
    used_by="_native/gate.c",
    mark="H",
)
def _(bench: Bench) -> None:
    stream = bench.stream()
    with bench.explicit_context():
        expect(WRONG_CONTEXT, "aclrtDestroyStream", stream)
    bench.finish(stream)


@CONTEXTS.assumes(
    "destroyed",
    "After the current context of a thread was destroyed, the thread has no context.",
    calls="aclrtCreateContext aclrtDestroyContext aclrtGetCurrentContext",
    used_by="_native/gate.c",
    mark="H",
)
def _(bench: Bench) -> None:
    with bench.explicit_context():
        pass
    made = ffi.new("aclrtContext *")
    expect(0, "aclrtCreateContext", made, bench.device)
    expect(0, "aclrtDestroyContext", made[0])
    code = call("aclrtGetCurrentContext", ffi.new("aclrtContext *"))
    bench.borrow()
    one_of((NO_CONTEXT,), code, "aclrtGetCurrentContext")


@CONTEXTS.assumes(
    "default-stream",
    "A device has a default stream, which can be queried and waited for as NULL.",
    calls="aclrtStreamQuery aclrtSynchronizeStream",
    used_by=SIMULATOR_ONLY,
    mark="doc",
)
def _(bench: Bench) -> None:
    require(bench.stream_status(ffi.NULL) == 0, "the idle default stream is not complete")
    expect(0, "aclrtSynchronizeStream", ffi.NULL)
    event = bench.event(SYNC)
    expect(0, "aclrtRecordEvent", event, ffi.NULL)
    expect(0, "aclrtSynchronizeStream", ffi.NULL)
