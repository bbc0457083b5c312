"""Awaits leave no reference cycle, so what they used is freed at once, also while the garbage collector is off.

`tests/test_awaitables.py` checks that CASES has a row for each awaitable of the public API.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

import aioacl
from aioacl import simulator, testing
from aioacl._wait.current import current_port
from aioacl.testing._snapshot import open_devices
from tests.kit import (
    TASK_FAULT,
    Raised,
    Waiting,
    drop_abandoned,
    hanging,
    held_fill,
    settle_maintenance,
    turns,
    until,
    until_now,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

    from tests.kit import OpenDevice

pytestmark = [pytest.mark.uncached, pytest.mark.filterwarnings("ignore::aioacl.AclWarning")]

STREAM: Final = "a held stream"
SLOTS: Final = "slots that are in use"
SHORT: Final = 0.001  # ends while the call hangs


class OwnError(Exception):
    """The error of a job of the user."""


class World:
    """The objects of one test."""

    def __init__(self, device: Any) -> None:
        self.device = device

    async def fill(self, *, with_model: bool) -> None:
        """Makes the objects that the cases use."""
        device = self.device
        self.stream: Any = await device.create_stream()
        self.memory: Any = await device.allocate(64)
        self.pinned: Any = await device.pinned(64)
        self.event: Any = self.stream.record(await device.create_event())
        self.model: Any = None
        if with_model:
            import numpy as np

            self.x = np.zeros((2, 3), np.float32)
            self.model = await device.load_model(product(), slots=2)
        await self.stream.synchronize()

    async def settle(self) -> None:
        """Returns when the work that an await has left is done."""
        await self.stream.synchronize()
        await until(lambda: len(open_devices()) == 1)
        for _ in range(2):  # a note may leave another note
            await self.device.memory_info()
            settle_maintenance()
        await turns()

    def use_all_slots(self) -> None:
        """Lets calls of other threads use all slots of the model."""
        simulator.hang_call("aclmdlExecuteAsync")
        self.others = [Raised(self.model(self.x).result) for _ in range(2)]
        assert until_now(lambda: self.model.busy == 2)

    def free_all_slots(self) -> None:
        """Lets these calls end."""
        simulator.clear()
        simulator.release_call("aclmdlExecuteAsync")
        while self.others:
            self.others.pop().join()

    async def close(self) -> None:
        """Closes everything."""
        for thing in (self.model, self.event, self.pinned, self.memory, self.stream):
            if thing is not None:
                await thing.close()
        await self.device.close()


def product() -> bytes:
    from tests.support import offline

    return offline.product()


async def made_and_closed(opening: Any) -> None:
    made = await opening
    await made.close()


def raise_own() -> None:
    raise OwnError


async def reset() -> None:
    async with aioacl.open_device(1) as device:
        await device.force_reset()


async def reloaded() -> None:
    async with aioacl.open_device(1) as device:
        model = await device.load_model(product(), slots=1)
        try:
            await device.force_reset(grace=0)
            await model.reload()
        finally:
            with anyio.CancelScope(shield=True):
                await model.close()


async def executed(world: World) -> None:
    async with world.device.allocate(24) as x, world.device.allocate(32) as y:
        await world.model.enqueue(x, y)


async def mapped(world: World, errors: Any = "raise") -> None:
    async with world.model.map([world.x], errors=errors) as results:
        async for _ in results:
            pass


async def several(x: Any) -> AsyncGenerator[Any]:
    for _ in range(3):
        yield x


async def mapped_async(world: World) -> None:
    async with aclosing(several(world.x)) as xs, world.model.map(xs) as results:
        async for _ in results:
            pass


async def batched(world: World) -> None:
    async with aioacl.open_batcher(world.model) as infer:
        await infer(world.x)


async def replaced(world: World) -> None:
    async with aioacl.open_batcher(world.model) as infer:
        await infer.replace(world.model)


def pool() -> aioacl.Opening[aioacl.Pool]:
    return aioacl.open_pool(product(), (1,), slots=2, pauses=())


async def replaced_in_pool() -> None:
    async with pool() as infer, infer.devices[0].load_model(product()) as model:
        await infer.replace(model)


@dataclass(frozen=True)
class Case:
    """An await, how to stop it, and how to make it fail.

    Attributes:
        begin: begins the await.
        stops: the ACL function that hangs, or STREAM, or SLOTS.
        fails: the ACL function that fails, or STREAM.
        timed: begins the await with a timeout.
        leaves: what the simulator has left after a failure.
    """

    begin: Callable[[World], Awaitable[object]]
    stops: str = ""
    fails: str = ""
    timed: Callable[[World], Awaitable[object]] | None = None
    leaves: str = ""


def opening(name: str, function: str, *arguments: Any) -> Case:
    """The case of a method of the device that makes an object on the maintenance thread."""

    def begin(world: World, **options: Any) -> Awaitable[object]:
        return made_and_closed(getattr(world.device, name)(*arguments, **options))

    return Case(begin, function, function, partial(begin, timeout=SHORT))


CASES: Final[dict[str, Case]] = {
    "open_device": Case(
        lambda _: made_and_closed(aioacl.open_device(1)),
        "aclrtSetDevice",
        "aclrtSetDevice",
        lambda _: made_and_closed(aioacl.open_device(1, timeout=SHORT)),
    ),
    "device.close": Case(lambda _: made_and_closed(aioacl.open_device(1)), "aclrtResetDevice"),
    "device.allocate": opening("allocate", "aclrtMalloc", 64),
    "device.pinned": opening("pinned", "aclrtMallocHost", 64),
    "device.create_stream": opening("create_stream", "aclrtCreateStream"),
    "device.create_event": Case(lambda w: made_and_closed(w.device.create_event())),
    "device.load_model": Case(
        lambda w: made_and_closed(w.device.load_model(product())),
        "aclmdlLoadFromMemWithMem",
        "aclmdlLoadFromMemWithMem",
        lambda w: made_and_closed(w.device.load_model(product(), timeout=SHORT)),
    ),
    "device.empty_cache": Case(lambda w: w.device.empty_cache()),
    "device.memory_info": Case(lambda w: w.device.memory_info(), "aclrtGetMemInfo", "aclrtGetMemInfo"),
    "device.run": Case(lambda w: w.device.run(simulator.stats)),
    "device.run of a job that raises": Case(lambda w: w.device.run(raise_own)),
    "device.synchronize": Case(
        lambda w: w.device.synchronize(),
        "aclrtSynchronizeDeviceWithTimeout",
        "aclrtSynchronizeDeviceWithTimeout",
        lambda w: w.device.synchronize(SHORT),
    ),
    "device.force_reset": Case(lambda _: reset(), "aclrtResetDeviceForce", "aclrtResetDeviceForce"),
    "memory.close": Case(
        lambda w: made_and_closed(w.device.allocate(64)), "aclrtFree", "aclrtFree", leaves="device_blocks"
    ),
    "pinned.close": Case(
        lambda w: made_and_closed(w.device.pinned(64)), "aclrtFreeHost", "aclrtFreeHost", leaves="host_blocks"
    ),
    "event.close": Case(lambda w: made_and_closed(w.device.create_event())),
    "event.record": Case(lambda w: w.event.record(w.stream), STREAM),
    "event.synchronize": Case(
        lambda w: w.stream.record().synchronize(),
        STREAM,
        timed=lambda w: w.stream.record().synchronize(SHORT),
    ),
    "stream.abort": Case(lambda w: w.stream.abort(), "aclrtStreamAbort", "aclrtStreamAbort"),
    "stream.close": Case(
        lambda w: made_and_closed(w.device.create_stream()),
        "aclrtDestroyStream",
        "aclrtDestroyStream",
        leaves="streams",
    ),
    "stream.copy": Case(lambda w: w.stream.copy(w.memory, w.pinned), STREAM, STREAM),
    "stream.copy of pageable memory": Case(lambda w: w.stream.copy(w.memory, bytes(64)), STREAM, STREAM),
    "stream.fill": Case(lambda w: w.stream.fill(w.memory, 1), STREAM, STREAM),
    "stream.record": Case(lambda w: w.stream.record(), STREAM),
    "stream.wait_event": Case(lambda w: w.stream.wait_event(w.event), STREAM),
    "stream.upload": Case(lambda w: w.stream.upload(w.memory, bytes(64)), STREAM, STREAM),
    "stream.download": Case(lambda w: w.stream.download(bytearray(64), w.memory), STREAM, STREAM),
    "stream.ready": Case(lambda w: w.stream.ready()),
    "stream.renew": Case(
        lambda w: w.stream.renew(), STREAM, "aclrtCreateStream", lambda w: w.stream.renew(timeout=SHORT)
    ),
    "stream.synchronize": Case(
        lambda w: w.stream.synchronize(), STREAM, timed=lambda w: w.stream.synchronize(SHORT)
    ),
    "model()": Case(
        lambda w: w.model(w.x),
        "aclmdlExecuteAsync",
        "aclmdlExecuteAsync",
        lambda w: w.model(w.x, timeout=SHORT),
    ),
    "model() that waits for a slot": Case(
        lambda w: w.model(w.x), SLOTS, timed=lambda w: w.model(w.x, timeout=SHORT)
    ),
    "model.reload": Case(lambda w: w.model.reload()),
    "model.reload after a reset": Case(
        lambda _: reloaded(), "aclmdlLoadFromMemWithMem", "aclmdlLoadFromMemWithMem"
    ),
    "model.close": Case(
        lambda w: made_and_closed(w.device.load_model(product())),
        "aclmdlUnload",
        "aclmdlUnload",
        leaves="offline_models",
    ),
    "open_batcher": Case(lambda w: made_and_closed(aioacl.open_batcher(w.model))),
    "batcher()": Case(batched, fails="aclmdlExecuteAsync"),
    "batcher.close": Case(lambda w: made_and_closed(aioacl.open_batcher(w.model))),
    "batcher.replace": Case(replaced, fails="aclmdlExecuteAsync"),
    "open_pool": Case(lambda _: made_and_closed(pool()), fails="aclmdlExecuteAsync"),
    "pool.close": Case(lambda _: made_and_closed(pool())),
    "pool.replace": Case(lambda _: replaced_in_pool(), fails="aclmdlExecuteAsync"),
    "model.enqueue": Case(executed, fails="aclmdlExecuteAsync"),
    "model.map": Case(mapped, "aclmdlExecuteAsync", "aclmdlExecuteAsync"),
    "model.map with returned errors": Case(
        lambda w: mapped(w, errors="return"), "aclmdlExecuteAsync", "aclmdlExecuteAsync"
    ),
    "model.map that waits for a slot": Case(mapped, SLOTS),
    # Nothing that ends the block early: it cancels a task of anyio, which leaves a cycle of anyio.
    "model.map of an async iterable": Case(mapped_async),
}


# --- the outcomes of an await -------------------------------------------------------------------------------------


async def ended(awaited: Awaitable[object]) -> None:
    with suppress(aioacl.AclError, OwnError):
        await awaited


async def succeed(world: World, case: Case) -> None:
    await ended(case.begin(world))


async def fail(world: World, case: Case) -> None:
    if case.fails == STREAM:
        simulator.fail_next(world.stream, TASK_FAULT)
    else:
        simulator.fail_call(case.fails, TASK_FAULT, times=1)
    await ended(case.begin(world))
    simulator.clear()
    if case.fails == STREAM:
        await world.stream.renew()


def stop(world: World, case: Case) -> None:
    if case.stops == STREAM:
        held_fill(world.stream, world.memory, 0)
    elif case.stops == SLOTS:
        world.use_all_slots()
    else:
        simulator.hang_call(case.stops)


async def is_stopped(world: World, case: Case) -> None:
    if case.stops == STREAM:
        await turns()
    else:
        await until((lambda: world.model.waiting) if case.stops == SLOTS else hanging(case.stops))


def go_on(world: World, case: Case) -> None:
    if case.stops == STREAM:
        simulator.release_all()
    elif case.stops == SLOTS:
        world.free_all_slots()
    else:
        simulator.clear()  # first: an await that timed out early may not have reached the call yet
        simulator.release_call(case.stops)


async def be_cancelled(world: World, case: Case) -> None:
    stop(world, case)
    async with anyio.create_task_group() as group:
        waiting = Waiting(group, lambda: case.begin(world))
        await is_stopped(world, case)
        waiting.cancel()
        await turns()
        go_on(world, case)


async def time_out(world: World, case: Case) -> None:
    assert case.timed is not None
    stop(world, case)
    await ended(case.timed(world))
    go_on(world, case)


OUTCOMES: Final = {"success": succeed, "failure": fail, "cancellation": be_cancelled, "timeout": time_out}
ROWS: Final = [
    pytest.param(
        case,
        outcome,
        id=f"{name} {what}",
        marks=[pytest.mark.leaves(case.leaves)] if case.leaves and what == "failure" else (),
    )
    for name, case in CASES.items()
    for what, outcome in OUTCOMES.items()
    if what == "success"
    or (what == "failure" and case.fails)
    or (what == "cancellation" and case.stops)
    or (what == "timeout" and case.timed)
]


# --- garbage --------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    with suppress(ImportError):
        import_module("onnxruntime")  # its first import opens files that stay open


@contextmanager
def no_garbage() -> Generator[None]:
    """Asserts that the block leaves no object that only the garbage collector would free."""
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = sorted(map(described, gc.garbage))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not found, f"{len(found)} objects: " + ", ".join(found)


def described(thing: Any) -> str:
    name = getattr(getattr(thing, "f_code", thing), "co_qualname", getattr(thing, "__qualname__", ""))
    return f"{type(thing).__name__} {name}"


@pytest.mark.anyio
@pytest.mark.parametrize(("case", "outcome"), ROWS)
async def test_await_leaves_no_garbage(
    open_device: OpenDevice, case: Case, outcome: Callable[[World, Case], Awaitable[None]], request: Any
) -> None:
    with_model = any(name in request.node.name for name in ("model", "batcher", "pool"))
    if with_model:
        pytest.importorskip("onnxruntime", reason="executing a model needs onnxruntime")
    world = World(await open_device())
    await world.fill(with_model=with_model)
    try:
        await outcome(world, case)  # the first await of its kind makes objects that stay
        await world.settle()
        waits = current_port().outstanding
        with no_garbage():
            await outcome(world, case)
            await world.settle()
        port = current_port()
        await until(lambda: port.outstanding <= waits)  # the port refers to each of these waits
    finally:
        simulator.clear()
        await world.close()
        if (
            simulator.models()
        ):  # a failed device keeps its model; the tests of models demand that none is left
            drop_abandoned()


@contextmanager
def opened(open_device: OpenDevice) -> Generator[Any]:
    """A device with a model, for tests without an event loop."""
    pytest.importorskip("onnxruntime", reason="executing a model needs onnxruntime")
    with open_device() as device, device.load_model(product(), slots=2) as model:
        yield device, model


def run_all(device: Any, model: Any, done: Callable[[Any], object]) -> None:
    """Ends a call of the model in each way, and a job that raises."""
    x = bytearray(24)
    call = memoryview(x).cast("f", (2, 3))
    done(lambda: model(call))
    simulator.fail_call("aclmdlExecuteAsync", TASK_FAULT, times=1)
    done(lambda: model(call))
    simulator.clear()
    simulator.hang_call("aclmdlExecuteAsync")
    done(lambda: model(call, timeout=SHORT))
    simulator.clear()
    simulator.release_call("aclmdlExecuteAsync")
    done(lambda: device.run(raise_own))


def test_results_on_a_thread_leave_no_garbage(open_device: OpenDevice) -> None:
    def done(begin: Callable[[], Any]) -> None:
        with suppress(aioacl.AclError, OwnError):
            begin().result()

    with opened(open_device) as (device, model):
        run_all(device, model, done)
        with no_garbage():
            run_all(device, model, done)
            done(lambda: model(bytearray(24)))
            settle_maintenance()


def test_loops_leave_no_descriptor_while_the_collector_is_off(open_device: OpenDevice) -> None:
    def descriptors() -> int:
        return len(testing.snapshot().descriptors)

    def done(begin: Callable[[], Any]) -> None:
        asyncio.run(ended(begin()))

    with opened(open_device) as (device, model):
        run_all(device, model, done)
        with no_garbage():
            before = descriptors()
            run_all(device, model, done)
            settle_maintenance()
            assert until_now(lambda: descriptors() <= before)
