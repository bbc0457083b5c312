"""`await infer(x)` of a batcher, beside the least code that makes batches.

A number of tasks await one item after another. With executions that do nothing, all ways join the rows of a batch with
numpy.concatenate, and split the result. Other rows have the digits model of the simulator behind the batcher. The ways
alternate.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import aioacl
from aioacl import _digits, simulator
from aioacl._batches.batcher import Batcher
from aioacl._batches.executor import Look, Watched
from aioacl._batches.state import Rules
from benchmarks.batch_peers import MAX_ROWS, PEERS, by_hand, installed
from benchmarks.floor import floor
from benchmarks.harness import Suite, cpus, no_collections, timed
from benchmarks.rows import Row, ratio_row, skipped_row

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager

    from benchmarks.harness import Sample, Session

    Infer = Callable[[Any], Awaitable[Any]]
    Way = Callable[[Any], AbstractAsyncContextManager[Infer]]
    Start = Callable[[Coroutine[Any, Any, Any]], Any]

NAME: Final = "batches"
CALLERS: Final = (1, 64, 1024)
MODEL_CALLERS: Final = (64, 256)
ITEMS: Final = 20480
QUICK_ITEMS: Final = 4096
MODEL_ITEMS: Final = 5120  # fewer take so little time that other threads of the process decide the figure
LONE_ITEMS: Final = 200  # few, so that what another process does concerns few of the samples
LONE_REPEATS: Final = 300
GEARS: Final = (1, 2, 4, 8, 16, 32)
CPU: Final = "CPU per item"
OURS: Final = "batcher"
FLOOR: Final = "floor"
HAND: Final = "queue by hand"
NOTHING: Final = "floor of nothing"
UNBATCHED: Final = "await model(x)"
IMAGE: Final = (3, 224, 224)  # 602 KB
EXECUTION_MS: Final = 5
BEST_OF: Final = 5
SETTLE_SECONDS: Final = (
    0.02  # a new thread would wait for the GIL beside the load, and wake at each turn of uvloop
)


# --- executions that do nothing -----------------------------------------------------------------------------------


class _Device:
    """A device that is always open."""

    def look(self) -> Look:
        """It never changes."""
        return Look(generation=1, is_open=True, failed=False, returns=False)

    def listen(self, changed: Callable[[], object]) -> Callable[[], object]:
        return changed


class _Nothing:
    """Executions that end at once."""

    zeros = None

    def execute(self, calls: list[Any], ended: Callable[[Any], object]) -> None:
        out = np.concatenate(calls)
        ended([out[i : i + 1] for i in range(len(calls))])

    def alone(self) -> Callable[[], bool]:
        """Whether nothing else runs beside an execution is not known."""
        return lambda: False

    def close(self) -> None:
        """Nothing is kept."""


def _serve(*_: object) -> list[tuple[_Nothing, Watched]]:
    return [(_Nothing(), Watched(_Device()))]


def _check(x: Any) -> tuple[Any, int, None]:
    return x, len(x), None


async def _nothing(rows: Any) -> Any:
    return rows


@asynccontextmanager
async def _ours(_: object) -> AsyncGenerator[Infer]:
    infer = Batcher._make(Rules(GEARS, limit=4096), _check, _serve)
    try:
        yield infer
    finally:
        await infer.close(grace=0)


def _floor(function: Infer) -> AbstractAsyncContextManager[Infer]:
    return floor(function, max_rows=MAX_ROWS)


def _loops() -> dict[str, Start]:
    if find_spec("uvloop") is None:
        return {"asyncio": asyncio.run}
    import uvloop  # noqa: PLC0415 - the package is optional

    return {"asyncio": asyncio.run, "uvloop": uvloop.run}


async def _load(infer: Infer, x: Any, callers: int, items: int) -> Sample:
    async def caller() -> None:
        for _ in range(items // callers):
            await infer(x)

    with timed() as timer:
        await asyncio.gather(*(caller() for _ in range(callers)))
    return timer.sample(items // callers * callers)


def _nothing_rows(session: Session) -> list[Row]:
    x, rows = np.zeros((1, 64), np.float32), list[Row]()
    peers: dict[str, Way] = {name: peer for name, (package, peer) in PEERS.items() if installed(package)}
    for loop, start in _loops().items():
        for callers in CALLERS:
            ways: dict[str, Way] = {OURS: _ours, FLOOR: _floor, HAND: by_hand, **peers}

            items = QUICK_ITEMS if session.quick else ITEMS

            def once(way: Way, callers: int = callers, start: Start = start, items: int = items) -> Sample:
                async def load() -> Sample:
                    async with way(_nothing) as infer:
                        await asyncio.sleep(SETTLE_SECONDS)
                        return await _load(infer, x, callers, items)

                sample: Sample = start(load())
                return sample

            what = f"{loop}, {callers} callers: {CPU}"
            found = session.interleave(
                {name: partial(once, way) for name, way in ways.items()}, session.repeats(9), what
            )
            cpu = {name: cpus(samples) for name, samples in found.items()}
            rows += [ratio_row(NAME, what, other, cpu[OURS], cpu[other]) for other in ways if other != OURS]
            rows += [skipped_row(NAME, what, name, PEERS[name][0]) for name in PEERS if name not in cpu]
    return rows


# --- the digits model ---------------------------------------------------------------------------------------------


async def _model_samples(
    session: Session, callers: int, ways: Mapping[str, Infer], items: int, repeats: int
) -> dict[str, list[float]]:
    x = _digits.inputs(_digits.digits().images[:1])
    found: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for repeat in range(session.repeats(repeats) + 1):
        first = repeat % len(names)
        # One collection for all ways: it takes as long as some of them, and the processors idle then.
        with no_collections():
            for name in names[first:] + names[:first]:
                cpu = (await _load(ways[name], x, callers, items)).cpu
                if repeat:  # the first round warms up
                    found[name].append(cpu)
        session.step(f"digits, {callers} callers")
    return found


async def _model_rows(session: Session) -> list[Row]:
    rows = list[Row]()
    async with (
        aioacl.open_device() as device,
        device.load_model(_digits.BATCH_MODEL) as model,
        aioacl.open_batcher(model) as infer,
        floor(model, max_rows=MAX_ROWS) as least,
        floor(_nothing, max_rows=MAX_ROWS) as nothing,
        by_hand(model) as hand,
    ):
        batched: dict[str, Infer] = {OURS: infer, FLOOR: least, HAND: hand}
        for callers in MODEL_CALLERS:
            items = MODEL_ITEMS // 4 if session.quick else MODEL_ITEMS
            # Not in turn with the others: aioacl learns how long the waits of a stream take, and the way that
            # follows the calls of one row would pay for what was learned from them.
            cpu = await _model_samples(session, callers, {UNBATCHED: model}, items, 9)
            cpu |= await _model_samples(session, callers, batched, items, 9)
            what = f"digits, {callers} callers: times less CPU than {UNBATCHED}"
            for name in (OURS, FLOOR, HAND):
                rows.append(ratio_row(NAME, f"{what}, {name}", "", cpu[UNBATCHED], cpu[name]))
            rows.append(ratio_row(NAME, what, FLOOR, cpu[FLOOR], cpu[OURS]))
        ways: dict[str, Infer] = {UNBATCHED: model, OURS: infer, FLOOR: least, NOTHING: nothing}
        cpu = await _model_samples(session, 1, ways, LONE_ITEMS, LONE_REPEATS)
        rows += _lone_rows(cpu)
    return rows


def _lone_rows(cpu: Mapping[str, list[float]]) -> list[Row]:
    """The processor time that the batcher, and the floor in its place, add to a lone request."""
    alone = cpu[UNBATCHED]
    added = {
        name: [each - without for each, without in zip(cpu[name], alone, strict=True)]
        for name in (OURS, FLOOR)
    }
    what = f"1 caller: CPU added to {UNBATCHED}"
    return [
        ratio_row(NAME, what, NOTHING, added[OURS], cpu[NOTHING]),
        ratio_row(NAME, f"{what} by the floor", NOTHING, added[FLOOR], cpu[NOTHING]),
    ]


# --- large items, and two devices ---------------------------------------------------------------------------------


def _image_model(folder: Path) -> Path:
    """Writes a model whose rows are images, and whose result is small."""
    from onnx import TensorProto, helper  # noqa: PLC0415 - the package is optional

    from aioacl.simulator._atc import Options, convert  # noqa: PLC0415 - needs onnx

    tensors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *dims])
        for name, dims in (("x", IMAGE), ("y", (IMAGE[0], 1, 1)))
    ]
    graph = helper.make_graph(
        [helper.make_node("GlobalAveragePool", ["x"], ["y"])], "images", tensors[:1], tensors[1:]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    source, path = folder / "images.onnx", folder / "images.om"
    source.write_bytes(made.SerializeToString())
    shape = f"x:-1,{','.join(map(str, IMAGE))}"
    path.write_bytes(
        convert(source, Options(input_shape=shape, dynamic_batch_size=f"1,{MAX_ROWS}"), "images")
    )
    return path


async def _longest_turn(work: Awaitable[Any]) -> float:
    """Returns the longest time between two turns of the loop while the work runs."""
    loop, longest, last = asyncio.get_running_loop(), 0.0, time.perf_counter()
    task = asyncio.ensure_future(work)

    def turn() -> None:
        nonlocal longest, last
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
        if not task.done():
            loop.call_soon(turn)

    loop.call_soon(turn)
    await task
    return longest


async def _stall_row(session: Session, folder: Path) -> Row:
    what, peer = f"{MAX_ROWS} items of 602 KB: longest turn of the loop", "numpy.concatenate"
    if find_spec("onnx") is None:
        return skipped_row(NAME, what, peer, "onnx")
    images = [np.full((1, *IMAGE), number, np.float32) for number in range(MAX_ROWS)]
    ours, theirs = list[float](), list[float]()
    async with (
        aioacl.open_device() as device,
        device.load_model(_image_model(folder)) as model,
        aioacl.open_batcher(model) as infer,
    ):
        for repeat in range(session.repeats(15) + 1):
            turns, spent = list[float](), list[float]()
            for _ in range(BEST_OF):  # other work of the machine makes some of them longer
                with no_collections():
                    turns.append(await _longest_turn(asyncio.gather(*(infer(image) for image in images))))
                    began = time.perf_counter()
                    np.concatenate(images)
                    spent.append(time.perf_counter() - began)
            if repeat:
                ours.append(min(turns))
                theirs.append(min(spent))
            session.step("large items")
    return ratio_row(NAME, what, peer, ours, theirs)


async def _devices_row(session: Session) -> Row:
    """The rate of two devices beside that of one, if an execution takes 5 ms."""
    x, found = _digits.inputs(_digits.digits().images[:1]), dict[int, list[float]]()
    async with AsyncExitStack() as stack:
        models = list[aioacl.Model]()
        for index in range(2):
            device = await stack.enter_async_context(aioacl.open_device(index))
            models.append(await stack.enter_async_context(device.load_model(_digits.BATCH_MODEL)))
        batchers = {
            count: await stack.enter_async_context(aioacl.open_batcher(*models[:count], limit=4096))
            for count in (1, 2)
        }
        for infer in batchers.values():
            await _load(infer, x, 1, 10)
        stack.enter_context(simulator.fault(f"model:at=during:latency={EXECUTION_MS}"))
        for _ in range(session.repeats(5)):
            for count, infer in batchers.items():
                wall = (await _load(infer, x, 8 * MAX_ROWS, 64 * MAX_ROWS)).wall
                found.setdefault(count, []).append(1 / wall)
            session.step("two devices")
    return ratio_row(NAME, "two devices: rate", "one device", found[2], found[1])


def run(session: Session) -> list[Row]:
    """Measures all rows."""
    rows = _nothing_rows(session)
    aioacl.use_library("simulator")
    with tempfile.TemporaryDirectory() as folder:
        rows += asyncio.run(_model_rows(session))
        rows.append(asyncio.run(_stall_row(session, Path(folder))))
        rows.append(asyncio.run(_devices_row(session)))
    return rows


SUITE: Final = Suite(
    NAME,
    "await infer(x) of a batcher, beside the least code that makes batches",
    run,
    cores=2,
    environment={"AIOACL_SIM_DEVICES": "2"},
)
