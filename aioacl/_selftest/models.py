"""Offline models: loads, executions on streams, gears, and failed executions."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi, lib
from aioacl._selftest._bench import (
    MOMENT_SECONDS,
    Bench,
    call,
    expect,
    patience,
    read,
    require,
    require_code,
    status_of,
    write,
)
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

if TYPE_CHECKING:
    from aioacl._base.ffi import CData

MODELS: Final = Family("models", "offline models", needs=Needs.OM_FILE)
FAULT: Final = 507015
OLD_KIND: Final = 0x1
GARBAGE: Final = 0xFF  # in floating-point numbers: NaN
ROUNDS: Final = 3


# --- loads ----------------------------------------------------------------------------------------------------------


@MODELS.assumes(
    "shared-weights",
    "A model can be loaded twice with the same memory for weights, and each load works with its own work memory.",
    calls="aclmdlQuerySize aclmdlLoadFromFileWithMem aclmdlExecuteAsync aclmdlUnload",
    used_by="_models/loading _models/source",
    mark="doc",
)
def _(bench: Bench) -> None:
    path, stream = om_file(bench), bench.stream()
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
    "A model that is loaded from bytes computes the same outputs as a model that is loaded from the file.",
    calls="aclmdlQuerySizeFromMem aclmdlLoadFromMemWithMem aclmdlLoadFromFileWithMem aclmdlExecuteAsync",
    used_by="_models/source",
    mark="doc",
)
def _(bench: Bench) -> None:
    path, stream = om_file(bench), bench.stream()
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
    "After an unload, the memory of the model can be freed, and the file can be loaded again.",
    calls="aclmdlLoadFromFileWithMem aclmdlExecuteAsync aclmdlUnload aclrtFree",
    used_by="_models/loading _lifecycle/loaded_models",
    mark="doc",
)
def _(bench: Bench) -> None:
    path, stream = om_file(bench), bench.stream()
    sizes = sizes_of(path)
    wanted: bytes | None = None
    for _ in range(ROUNDS):
        memory = [ffi.new("void **") for _ in range(2)]
        for place, size in zip(memory, (sizes.work, sizes.weights), strict=True):
            expect(0, "aclrtMalloc", place, max(size, 1), lib.ACL_MEM_MALLOC_HUGE_FIRST)
        model = load(path, sizes, memory[0][0], memory[1][0])
        got = Execution(bench, model).reference(bench, stream)
        expect(0, "aclmdlUnload", model)
        for place in memory:
            expect(0, "aclrtFree", place[0])
        require(wanted in (None, got), "the outputs differ after the model was loaded again")
        wanted = got


# --- executions -----------------------------------------------------------------------------------------------------


@MODELS.assumes(
    "order",
    "An execution begins after the earlier work of its stream, and the later work begins after the execution.",
    calls="aclmdlExecuteAsync aclrtMemcpyAsync",
    used_by="_models/executing _native/enqueue.c",
    mark="doc",
)
def _(bench: Bench) -> None:
    stream = bench.stream()
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
    "A model whose execution is done can run on another stream next.",
    calls="aclmdlExecuteAsync aclrtSynchronizeStreamWithTimeout",
    used_by="_models/executing _models/loading",
    mark="doc",
)
def _(bench: Bench) -> None:
    streams = [bench.stream() for _ in range(ROUNDS)]
    execution = Execution(bench, loaded(bench, om_file(bench)))
    wanted = execution.reference(bench, streams[0])
    for stream in [*streams[1:], *streams]:
        require(execution.run(bench, stream) == wanted, "the outputs on another stream differ")


@MODELS.assumes(
    "next-thread",
    "A model that one thread has loaded can be executed by another thread with the same context.",
    calls="aclmdlLoadFromFileWithMem aclmdlExecuteAsync",
    used_by="_models/loading _lifecycle/executor",
    mark="doc",
)
def _(bench: Bench) -> None:
    stream = bench.stream()
    execution = Execution(bench, loaded(bench, om_file(bench)))
    wanted = execution.reference(bench, stream)
    got = bench.helper(lambda: execution.run(bench, stream)).answer("an execution")
    require(got == wanted, "the outputs differ on another thread")


@MODELS.assumes(
    "gears",
    "aclmdlSetDynamicBatchSize selects the batch size of the next execution, and the shapes of its outputs.",
    calls="aclmdlSetDynamicBatchSize aclmdlGetCurOutputDims aclmdlExecuteAsync",
    used_by="_models/instance _models/loading",
    mark="doc",
)
def _(bench: Bench) -> None:
    stream = bench.stream()
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

    idle = bench.stream()
    wake = bench.make("aclrtDestroyEvent", "aclrtEvent", "aclrtCreateEventWithFlag", OLD_KIND)
    bench.fail_next(stream, FAULT)
    thread: int = bench.helper(enqueue).answer("aclmdlExecuteAsync")
    for _ in range(patience.wait_ms):
        expect(0, "aclrtRecordEvent", wake, idle)
        status_of("aclrtQueryEvent", "aclrtEventStatus", wake)  # this wakes the thread that reports
        if bench.stream_status(stream) == 0:
            break
    code = call("aclrtSynchronizeStreamWithTimeout", stream, patience.wait_ms)
    require_code(FAULT, code, "aclrtSynchronizeStreamWithTimeout", "after the failed execution")
    return thread


@MODELS.assumes(
    "failure-thread",
    "The report of a failed execution has the id of the thread that enqueued it.",
    calls="aclmdlExecuteAsync aclrtSetExceptionInfoCallback aclrtGetThreadIdFromExceptionInfo",
    used_by="_native/attribution.c _native/report.c",
    mark="doc",
    needs=Needs.FAULTS,
)
def _(bench: Bench) -> None:
    stream = bench.stream()
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


@MODELS.assumes(
    "after-failure",
    "After a failed execution, the model can run on another stream.",
    calls="aclmdlExecuteAsync",
    used_by="_models/executing",
    mark="doc",
    needs=Needs.FAULTS,
)
def _(bench: Bench) -> None:
    failing, other = bench.stream(), bench.stream()
    execution = Execution(bench, loaded(bench, om_file(bench)))
    wanted = execution.reference(bench, other)
    _fail(bench, execution, failing)
    require(execution.run(bench, other) == wanted, "the outputs differ after another execution has failed")
