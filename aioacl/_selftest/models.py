"""Offline models: loads, executions on streams, gears, and failed executions."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi, lib
from aioacl._selftest._bench import call, expect, read, require, require_code, write, written_by
from aioacl._selftest._executions import (
    BEFORE,
    Execution,
    described,
    load,
    loaded,
    om_file,
    om_file_with_gears,
    room,
    set_memory,
    sizes_of,
)
from aioacl._selftest._outcomes import NotTestable
from aioacl._selftest._records import Family, Needs
from aioacl._selftest._threads import MOMENT_SECONDS, patience

if TYPE_CHECKING:
    from aioacl._base.ffi import CData
    from aioacl._selftest._bench import Bench, Stream

MODELS: Final = Family("models", "offline models", needs=Needs.OM_FILE)
FAULT: Final = 507015
GARBAGE: Final = 0xFF  # in floating-point numbers: NaN
ROUNDS: Final = 3


# --- loads ----------------------------------------------------------------------------------------------------------


@MODELS.assumes(
    "shared-weights",
    "doc",
    "aclmdlQuerySize aclmdlLoadFromFileWithMem aclmdlExecuteAsync aclmdlUnload",
    "_models/loading _models/source",
)
def _(bench: Bench, stream: Stream) -> None:
    """A model can be loaded twice with the same memory for weights, and each load works with its own work memory."""
    path = om_file(bench)
    sizes = sizes_of(path)
    weights = room(bench, sizes.weights)
    models = [load(path, sizes, room(bench, sizes.work), weights) for _ in range(2)]
    require(models[0] != models[1], f"both loads have the id {models[0]}")
    first, second = (Execution(bench, model) for model in models)
    wanted = first.reference(bench, stream)
    require(
        second.reference(bench, stream) == wanted, "the second load computes other outputs than the first"
    )
    expect(0, "aclmdlUnload", models[0])
    require(second.reference(bench, stream) == wanted, "the outputs changed when the other load was unloaded")
    expect(0, "aclmdlUnload", models[1])


@MODELS.assumes(
    "from-bytes",
    "doc",
    "aclmdlQuerySizeFromMem aclmdlLoadFromMemWithMem aclmdlLoadFromFileWithMem aclmdlExecuteAsync",
    "_models/source",
)
def _(bench: Bench, stream: Stream) -> None:
    """A model that is loaded from bytes computes the same outputs as a model that is loaded from the file."""
    path = om_file(bench)
    content = path.read_bytes()
    code, place = ffi.from_buffer("char[]", content), ffi.new("uint32_t *")
    work, weights = ffi.new("size_t *"), ffi.new("size_t *")
    expect(0, "aclmdlQuerySizeFromMem", code, len(content), work, weights)
    memory = (room(bench, work[0]), work[0], room(bench, weights[0]), weights[0])
    expect(0, "aclmdlLoadFromMemWithMem", code, len(content), place, *memory)
    bench.keep("aclmdlUnload", place[0])
    wanted = Execution(bench, loaded(bench, path)).reference(bench, stream)
    got = Execution(bench, int(place[0])).reference(bench, stream)
    require(got == wanted, "the outputs of the two models differ")


@MODELS.assumes(
    "unload",
    "doc",
    "aclmdlLoadFromFileWithMem aclmdlExecuteAsync aclmdlUnload aclrtFree",
    "_models/loading _lifecycle/loaded_models",
)
def _(bench: Bench, stream: Stream) -> None:
    """After an unload, the memory of the model can be freed, and the file can be loaded again."""
    path = om_file(bench)
    sizes = sizes_of(path)
    wanted: bytes | None = None
    for _ in range(ROUNDS):
        memory = [
            written_by("aclrtMalloc", max(size, 1), lib.ACL_MEM_MALLOC_HUGE_FIRST)
            for size in (sizes.work, sizes.weights)
        ]
        model = load(path, sizes, *memory)
        got = Execution(bench, model).reference(bench, stream)
        expect(0, "aclmdlUnload", model)
        for address in memory:
            expect(0, "aclrtFree", address)
        require(wanted in (None, got), "the outputs differ after the model was loaded again")
        wanted = got


# --- executions -----------------------------------------------------------------------------------------------------


@MODELS.assumes("order", "doc", "aclmdlExecuteAsync aclrtMemcpyAsync", "_native/runner.c _native/enqueue.c")
def _(bench: Bench, stream: Stream) -> None:
    """An execution begins after the earlier work of its stream, and the later work begins after the execution."""
    execution = Execution(bench, loaded(bench, om_file(bench)))
    wanted = execution.reference(bench, stream)
    address, size = execution.inputs[0]
    zeros, back = bench.pinned(max(size, 1)), [bench.pinned(max(size, 1)) for _, size in execution.outputs]
    write(zeros, bytes(size))
    set_memory(execution.inputs[0], GARBAGE)
    for memory in execution.outputs:
        set_memory(memory, BEFORE[0])

    def enqueue() -> None:
        require_code(0, execution.enqueue(stream), "aclmdlExecuteAsync")
        for (output, nbytes), into in zip(execution.outputs, back, strict=True):
            copy = (into, nbytes, output, nbytes, lib.ACL_MEMCPY_DEVICE_TO_HOST)
            expect(0, "aclrtMemcpyAsync", *copy, stream)

    with bench.held(stream) as release:
        expect(0, "aclrtMemcpyAsync", address, size, zeros, size, lib.ACL_MEMCPY_HOST_TO_DEVICE, stream)
        enqueuing = bench.helper(enqueue)  # the runtime may block in the call until the stream is released
        enqueuing.returned(MOMENT_SECONDS)
        release()
        enqueuing.answer("aclmdlExecuteAsync")
        bench.finish(stream)
    got = b"".join(read(into, nbytes) for (_, nbytes), into in zip(execution.outputs, back, strict=True))
    require(got == wanted, "the outputs differ from those of an execution that was waited for")


@MODELS.assumes(
    "next-stream",
    "doc",
    "aclmdlExecuteAsync aclrtSynchronizeStreamWithTimeout",
    "_native/runner.c _models/loading",
)
def _(bench: Bench) -> None:
    """A model whose execution is done can run on another stream next."""
    streams = [bench.stream() for _ in range(ROUNDS)]
    execution = Execution(bench, loaded(bench, om_file(bench)))
    wanted = execution.reference(bench, streams[0])
    for stream in [*streams[1:], *streams]:
        require(execution.run(bench, stream) == wanted, "the outputs on another stream differ")


@MODELS.assumes(
    "next-thread",
    "doc",
    "aclmdlLoadFromFileWithMem aclmdlExecuteAsync",
    "_models/loading _lifecycle/executor",
)
def _(bench: Bench, stream: Stream) -> None:
    """A model that one thread has loaded can be executed by another thread with the same context."""
    execution = Execution(bench, loaded(bench, om_file(bench)))
    wanted = execution.reference(bench, stream)
    got = bench.helper(lambda: execution.run(bench, stream)).answer("an execution")
    require(got == wanted, "the outputs differ on another thread")


@MODELS.assumes(
    "gears",
    "doc",
    "aclmdlSetDynamicBatchSize aclmdlGetCurOutputDims aclmdlExecuteAsync",
    "_native/runner.c _models/loading",
)
def _(bench: Bench, stream: Stream) -> None:
    """aclmdlSetDynamicBatchSize selects the batch size of the next execution, and the shapes of its outputs."""
    model = loaded(bench, om_file_with_gears(bench))
    execution = Execution(bench, model)
    if not execution.gears:
        raise NotTestable("the model of --model has no batch sizes")
    outputs = dict[int, set[bytes]]()
    small, large = min(execution.gears), max(execution.gears)
    for batch in (small, large, small, large):
        execution.select(batch)
        with described(model) as desc:
            shapes = [desc.dims("aclmdlGetCurOutputDims", at) for at in range(len(execution.outputs))]
        require(
            any(shape[:1] == (batch,) for shape in shapes),
            f"after the selection of the batch size {batch}, the shapes of the outputs are {shapes}",
        )
        outputs.setdefault(batch, set()).add(execution.run(bench, stream))
    for batch, different in outputs.items():
        require(len(different) == 1, f"two executions with the batch size {batch} wrote different outputs")
    require(outputs[small] != outputs[large], "executions with different batch sizes wrote the same outputs")


# --- failed executions ----------------------------------------------------------------------------------------------


def _fail(bench: Bench, execution: Execution, stream: CData) -> int:
    """Makes an execution fail, and waits until the runtime has reported it. Returns the thread that enqueued it."""

    def enqueue() -> int:
        require_code(0, execution.enqueue(stream), "aclmdlExecuteAsync")
        return threading.get_native_id()

    bench.fail_next(stream, FAULT)
    thread: int = bench.helper(enqueue).answer("aclmdlExecuteAsync")
    bench.nudge_until(lambda: bench.stream_status(stream) == 0)
    wait = "aclrtSynchronizeStreamWithTimeout"
    expect(FAULT, wait, stream, patience.wait_ms, when="after the failed execution")
    return thread


@MODELS.assumes(
    "failure-thread",
    "doc",
    "aclmdlExecuteAsync aclrtSetExceptionInfoCallback aclrtGetThreadIdFromExceptionInfo",
    "_native/attribution.c _native/report.c",
    needs=Needs.FAULTS,
)
def _(bench: Bench, stream: Stream) -> None:
    """The report of a failed execution has the id of the thread that enqueued it."""
    execution = Execution(bench, loaded(bench, om_file(bench)))
    reported, enqueued = list[int](), list[int]()

    def note(info: Any) -> None:
        reported.append(int(call("aclrtGetThreadIdFromExceptionInfo", info)))

    callback = ffi.callback("void(aclrtExceptionInfo *)", note)
    expect(0, "aclrtSetExceptionInfoCallback", callback)
    try:
        enqueued.append(_fail(bench, execution, stream))
    finally:
        expect(0, "aclrtSetExceptionInfoCallback", ffi.NULL)
    require(reported == enqueued, f"expected one report with the thread {enqueued}, got {reported}")


@MODELS.assumes("after-failure", "doc", "aclmdlExecuteAsync", "_native/calls.c", needs=Needs.FAULTS)
def _(bench: Bench, failing: Stream, other: Stream) -> None:
    """After a failed execution, the model can run on another stream."""
    execution = Execution(bench, loaded(bench, om_file(bench)))
    wanted = execution.reference(bench, other)
    _fail(bench, execution, failing)
    require(execution.run(bench, other) == wanted, "the outputs differ after another execution has failed")
