"""The members of a crowd that calls models, their operations, and the files of the models."""

from __future__ import annotations

import importlib.util
import threading
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING, Any, Final

from aioacl import AclError, ParameterError, QueueFull
from tests.reliability import operations
from tests.reliability.member import HANGS_SECONDS, Member, Plan
from tests.reliability.operations import must

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from aioacl import Device, Model
    from aioacl._base.options import Strategy

THREAD: Final = "thread"
BATCHES: Final = (1, 2, 4, 8)
INPUTS: Final = 16
OUTPUTS: Final = 5
ROWS: Final = 3  # of the model with fixed shapes
TASK_FAILS: Final = 507015
DEVICE_FAILS: Final = 507013
OUT_OF_MEMORY: Final = 207001
REFUSED: Final = 500002  # an execution that is not enqueued
CLOSED: Final = ("the model is closed", "the stream is closed")  # the stream of a closed model, too
RULES: Final = (
    f"aclmdlExecuteAsync:p=0.02:async-error={TASK_FAILS}",
    f"aclmdlExecuteAsync:p=0.0005:async-error={DEVICE_FAILS}",
    f"aclmdlExecuteAsync:p=0.01:rc={REFUSED}",
    f"aclmdlSetDynamicBatchSize:p=0.01:rc={REFUSED}",
    f"aclrtMemcpyAsync:p=0.01:async-error={TASK_FAILS}",
    f"aclmdlLoadFromFileWithMem:p=0.1:rc={OUT_OF_MEMORY}",
    f"aclrtMalloc:p=0.01:rc={OUT_OF_MEMORY}",
    "aclmdlExecuteAsync|copy:p=0.03:at=during:latency=1+-1",  # so that resets interrupt them
)
CODES: Final = frozenset({TASK_FAILS, DEVICE_FAILS, OUT_OF_MEMORY, REFUSED})


def missing() -> str:
    """Returns what this machine lacks for the part; "" if nothing."""
    names = [name for name in ("numpy", "onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    return f"expected {', '.join(names)}: pip install 'aioacl[onnx]'" if names else ""


def _weights() -> Any:
    import numpy as np

    return (np.arange(INPUTS * OUTPUTS, dtype=np.float32).reshape(INPUTS, OUTPUTS) % 7) - 3


def files(folder: Path) -> Mapping[str, Path]:
    """Writes the models: y = x @ the weights, with gears of batches and with fixed shapes."""
    from onnx import helper, numpy_helper

    from aioacl.simulator._atc import Options, convert
    from tests.support.onnx_models import model, value

    source, made = folder / "m.onnx", dict[str, "Path"]()
    gears = {"input_shape": f"x:-1,{INPUTS}", "dynamic_batch_size": ",".join(map(str, BATCHES))}
    options: dict[str, tuple[Any, dict[str, Any]]] = {"gears": ("N", gears), "fixed": (ROWS, {})}
    for name, (rows, chosen) in options.items():
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        graph = model(
            [node],
            [value("x", [rows, INPUTS])],
            [value("y", [rows, OUTPUTS])],
            [numpy_helper.from_array(_weights(), "w")],
        )
        source.write_bytes(graph.SerializeToString())
        made[name] = folder / f"{name}.om"
        made[name].write_bytes(convert(source, Options(**chosen), name))
    return made


class Shared:
    """What the members of a crowd share: the plan, the models, and the number of calls."""

    def __init__(self, paths: Mapping[str, Path], calls: int, resets: int) -> None:
        self.plan = Plan(calls * 9 // 8 + resets, resets, WEIGHTS, faulty=True, cancelled=0.1)
        self.models: dict[str, Model] = {}
        self.paths = paths
        self.weights = _weights()
        self.calls = self.replaced = 0
        self._lock = threading.Lock()

    def options(self, name: str) -> dict[str, Any]:
        """Returns the options of the load."""
        return {"slots": 3, "instances": 2} if name == "gears" else {"slots": 2}

    def load(self, device: Device) -> None:
        """Loads the models."""
        for name, path in self.paths.items():
            self.models[name] = device.load_model(path, **self.options(name)).result(HANGS_SECONDS)

    def close(self) -> None:
        """Closes the models."""
        while self.models:
            self.models.popitem()[1].close().result(HANGS_SECONDS)

    def count(self) -> None:
        """Counts one call."""
        with self._lock:
            self.calls += 1

    def replace(self, name: str, model: Model) -> Model:
        """Puts a model in the place of another one, and returns the other one."""
        with self._lock:
            old, self.models[name] = self.models[name], model
            self.replaced += 1
        return old


class Caller(Member):
    """A member whose operations call the shared models."""

    def __init__(
        self, kind: str, number: int, shared: Shared, device: Device, waits: Strategy, seed: int
    ) -> None:
        super().__init__(kind, number, shared.plan, [device], waits, seed)
        self.shared = shared
        self._device = device

    def device(self) -> Device:
        """Returns the device, which stays open."""
        return self._device

    def x(self, rows: int) -> Any:
        """Returns an argument of that many rows. Its products with the weights are exact."""
        import numpy as np

        values = [self.random.randrange(-99, 100) for _ in range(rows * INPUTS)]
        return np.array(values, np.float32).reshape(rows, INPUTS)

    def batch(self) -> Any:
        """Returns an argument of the model with gears."""
        return self.x(self.random.randint(1, BATCHES[-1]))

    def check(self, x: Any, y: Any) -> None:
        """Checks the result for an argument."""
        wanted = x @ self.shared.weights
        must(y.shape == wanted.shape, f"expected a result of the shape {wanted.shape}, got {y.shape}")
        must((y == wanted).all(), f"expected the result {wanted}, got {y}")

    def _explained(self, error: AclError) -> bool:
        """Whether a rule of the crowd, a full queue or a model closed by another member explains the error."""
        closed = isinstance(error, ParameterError) and error.message.startswith(CLOSED)
        return closed or error.code in CODES or (isinstance(error, QueueFull) and error.code is None)


# --- operations of coroutines ----------------------------------------------------------------------------------------


async def call_gears(member: Caller, _: Device) -> None:
    """Calls the model with gears, with a batch of any size."""
    x = member.batch()
    member.shared.count()
    model = member.shared.models["gears"]
    member.check(x, await model(x, wait=member.random.random() < 0.95, timeout=member.timeout()))


async def call_fixed(member: Caller, _: Device) -> None:
    """Calls the model with fixed shapes, which writes to an array of the caller."""
    import numpy as np

    x, out = member.x(ROWS), np.full((ROWS, OUTPUTS), -1, np.float32)
    member.shared.count()
    try:
        await member.shared.models["fixed"](x, out=out, timeout=member.timeout())
    except BaseException:
        must((out == -1).all(), "expected a call that raised to write nothing, but it wrote to `out`")
        raise
    member.check(x, out)


async def map_some(member: Caller, _: Device) -> None:
    """Maps the model over a few batches, and in some cases leaves the block early."""
    xs = [member.batch() for _ in range(member.random.randint(1, 6))]
    ordered, leaves = member.random.random() < 0.5, member.random.random() < 0.2

    async def batches() -> AsyncGenerator[Any]:
        for x in xs:
            member.shared.count()
            yield x

    async with (
        aclosing(batches()) as items,
        member.shared.models["gears"].map(items, ordered=ordered, limit=3) as results,
    ):
        got = list[Any]()
        async for y in results:
            got.append(y)
            if leaves:
                return
    must(len(got) == len(xs), f"expected {len(xs)} results, got {len(got)}")
    if ordered:
        for x, y in zip(xs, got, strict=True):
            member.check(x, y)


async def enqueue(member: Caller, device: Device) -> None:
    """Executes the model with memory of the caller. The stream is shared, so its failure may be of another member.

    Another member may renew the stream between two steps. So each step has its own ticket, which keeps its outcome.
    """
    x, back = member.x(ROWS), bytearray(ROWS * OUTPUTS * 4)
    model = member.shared.models["fixed"]
    async with device.allocate(x.nbytes) as source, device.allocate(len(back)) as target:
        stream = model.stream
        if stream.error is not None:
            await stream.renew()
        sent = await operations.copied(stream, source, x)
        member.shared.count()
        executed = model.enqueue(source, target)
        received = await operations.copied(stream, back, target)
        for step in (sent, executed, received):
            await step
    import numpy as np

    member.check(x, np.frombuffer(back, np.float32).reshape(ROWS, OUTPUTS))


async def load_one(member: Caller, device: Device) -> None:
    """Loads a model, calls it and closes it."""
    x = member.batch()
    async with device.load_model(member.shared.paths["gears"], slots=1, timeout=member.timeout()) as model:
        member.shared.count()
        member.check(x, await model(x))


async def replace(member: Caller, device: Device) -> None:
    """Puts a new model in the place of one that the others call, and closes the old one."""
    name = member.random.choice(("gears", "fixed"))
    made = await device.load_model(member.shared.paths[name], **member.shared.options(name))
    await member.shared.replace(name, made).close()


WEIGHTS: Final[Mapping[Any, int]] = {
    call_gears: 60,
    call_fixed: 40,
    map_some: 4,
    enqueue: 6,
    load_one: 1,
    replace: 1,
}


# --- operations of threads -------------------------------------------------------------------------------------------


def _call(member: Caller, _: Device) -> None:
    x = member.batch()
    member.shared.count()
    member.check(x, member.shared.models["gears"](x).result(member.timeout()))


def _load(member: Caller, device: Device) -> None:
    x = member.x(ROWS)
    with ExitStack() as stack:
        model = device.load_model(member.shared.paths["fixed"], slots=1).result()
        stack.callback(lambda: model.close().result(HANGS_SECONDS))
        member.shared.count()
        member.check(x, model(x).result())


def _reset(member: Caller, device: Device) -> None:
    member.check_report(device.force_reset(grace=0.01, reason=f"thread {member.name}").result())


def work(member: Caller) -> None:
    """The body of a thread: runs the operations of the plan."""
    while (asked := member.plan.next(member.random)) is not None:
        often = member.random.random() < 0.97
        operation = _reset if asked is operations.reset else _call if often else _load
        member.begins()
        name = "reset" if operation is _reset else operation.__name__
        try:
            operation(member, member.device())
        except Exception as error:
            member.ended(name, error)
        else:
            member.plan.ended(member.kind, name, "ok")
