"""Calls of event loops that are closed: their slots are given back although no garbage collection frees their tasks."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trio
import uvloop

import aioacl
from aioacl import simulator
from aioacl._base.ffi import failure, lib
from aioacl._wait.current import current_port
from aioacl._wait.thread import ThreadPort
from tests.kit import PATIENCE_SECONDS, Raised, until, until_now
from tests.support import offline
from tests.support.offline import WEIGHTS, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioacl._wait.port import Port

X = rows()
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> Generator[asyncio.AbstractEventLoop]:
    """A loop that the test closes while the garbage collector is off."""
    made = LOOPS[request.param]()
    made.set_exception_handler(lambda *_: None)  # asyncio reports each task that was dropped
    gc.disable()
    yield made
    gc.enable()
    gc.collect()  # frees the tasks that the test has left


@pytest.fixture
def model(device: aioacl.Device) -> Generator[aioacl.Model]:
    """A model with one slot."""
    made = device.load_model(offline.product(), slots=1).result()
    yield made
    made.close().result(PATIENCE_SECONDS)


async def call(model: aioacl.Model) -> Any:
    return await model(X)


def turn_until(loop: asyncio.AbstractEventLoop, condition: Callable[[], object]) -> None:
    while not condition():
        loop.run_until_complete(asyncio.sleep(0))


@contextmanager
def held(model: aioacl.Model) -> Generator[None]:
    """Holds the work of the model's slot."""
    with simulator.held(offline.streams_of(model)[0]):
        yield


def is_idle(model: aioacl.Model) -> bool:
    """Whether the device is done with the work of the model's slot."""
    core = offline.streams_of(model)[0]._live()
    return core.passed(lib.aio_stream_tail(core.handle))


def executes() -> bool:
    return simulator.calls("aclmdlExecuteAsync") > 0


def call_behind_another(
    model: aioacl.Model, loop: asyncio.AbstractEventLoop
) -> tuple[Raised, asyncio.Task[Any]]:
    """A call of a thread that has the slot, and a call of the loop that waits for it."""
    slots = offline.load_of(model).slots
    first = Raised(model(X).result)
    assert until_now(lambda: slots.free == 0)
    task = loop.create_task(call(model))
    turn_until(loop, lambda: slots.waiting)
    return first, task


def test_slot_whose_work_ends_after_its_loop_was_closed_is_given_back(
    model: aioacl.Model, loop: asyncio.AbstractEventLoop
) -> None:
    with held(model):
        task = loop.create_task(call(model))
        turn_until(loop, executes)
        loop.close()
        waiting = Raised(model(X).result)
    assert waiting.join().shape == (2, 4)
    assert not task.done()


def test_slot_whose_call_cannot_take_its_result_is_given_back(
    model: aioacl.Model, loop: asyncio.AbstractEventLoop
) -> None:
    with held(model):
        task = loop.create_task(call(model))
        turn_until(loop, executes)
    assert until_now(lambda: is_idle(model))  # the completion is at the port, but the loop does not run
    loop.close()
    assert model(X).result(PATIENCE_SECONDS).shape == (2, 4)
    assert not task.done()


def test_call_of_a_closed_loop_that_waits_for_a_slot_gets_none(
    model: aioacl.Model, loop: asyncio.AbstractEventLoop
) -> None:
    slots = offline.load_of(model).slots
    with held(model):
        first, task = call_behind_another(model, loop)
        loop.close()
        assert until_now(lambda: not slots.waiting)
    first.join()
    assert model(X).result(PATIENCE_SECONDS).shape == (2, 4)
    assert not task.done()


def test_slot_of_a_call_that_cannot_resume_goes_to_the_next_one(
    model: aioacl.Model, loop: asyncio.AbstractEventLoop
) -> None:
    slots = offline.load_of(model).slots
    with held(model):
        first, task = call_behind_another(model, loop)
    first.join()
    assert until_now(lambda: not slots.waiting)  # the call has the slot, but its loop does not run
    assert slots.free == 0
    waiting = Raised(model(X).result)
    assert until_now(lambda: slots.waiting)
    loop.close()
    assert waiting.join().shape == (2, 4)
    assert not task.done()


def test_close_of_a_model_does_not_wait_for_calls_of_closed_loops(
    model: aioacl.Model, loop: asyncio.AbstractEventLoop
) -> None:
    with held(model):
        tasks = [loop.create_task(call(model)) for _ in range(2)]
        turn_until(loop, lambda: executes() and offline.load_of(model).slots.waiting)
        loop.close()
    model.close().result(PATIENCE_SECONDS)
    assert not any(task.done() for task in tasks)


def test_call_whose_loop_is_blocked_delays_no_call_of_another_loop(model: aioacl.Model) -> None:
    """The model has one slot. The first loop has the completion of its call, but does not run."""
    go_on = threading.Event()
    blocked = threading.Event()
    results: list[Any] = []

    async def block() -> None:
        task = asyncio.ensure_future(call(model))
        await until(executes)
        blocked.set()
        go_on.wait(PATIENCE_SECONDS)
        results.append(await task)

    async def others() -> list[Any]:
        return await asyncio.gather(*(call(model) for _ in range(20)))

    loop = Raised(lambda: asyncio.run(block()))
    assert blocked.wait(PATIENCE_SECONDS)
    assert len(asyncio.run(others())) == 20
    assert not results
    go_on.set()
    loop.join()
    assert np.array_equal(results[0], X @ WEIGHTS)


@pytest.mark.filterwarnings("ignore:a task failed, no await raised the error:aioacl.AclWarning")
def test_map_whose_loop_is_closed_gives_back_the_slot_of_a_failed_call(
    model: aioacl.Model, loop: asyncio.AbstractEventLoop
) -> None:
    """The slot is kept for the error of the call, which no task takes any more."""
    ports: list[Port] = []

    async def map_one() -> None:
        async with model.map([X]):
            ports.append(current_port())
            await asyncio.Event().wait()

    with simulator.fault("model", async_error=507011):
        task = loop.create_task(map_one())
        turn_until(loop, lambda: ports and not ports[0].outstanding)
    assert model.busy == 1
    loop.close()
    assert model(X).result(PATIENCE_SECONDS).shape == (2, 4)
    assert not task.done()


@pytest.mark.filterwarnings("ignore:a task failed, no await raised the error:aioacl.AclWarning")
def test_map_that_outlives_its_trio_run_gives_back_the_slot_of_a_failed_call(model: aioacl.Model) -> None:
    maps: list[aioacl.ModelResults] = []

    async def enter() -> None:
        maps.append(model.map([X]))
        await maps[0].__aenter__()
        await until(lambda: not current_port().outstanding)

    with simulator.fault("model", async_error=507011):
        trio.run(enter)
    assert model(X).result(PATIENCE_SECONDS).shape == (2, 4)


def test_results_that_were_saved_are_returned_although_the_wait_for_them_was_refused(
    model: aioacl.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model has one slot. Before the caller sees the refusal, its results are saved for another call."""
    wait = ThreadPort.wait

    with monkeypatch.context() as patch:

        async def refused(port: ThreadPort, start: Callable[..., int], **limits: Any) -> int:
            patch.undo()
            await wait(port, start, **limits)
            Raised(model(X).result).join()
            return failure(lib.AIO_NO_THREAD)

        patch.setattr(ThreadPort, "wait", refused)
        result = model(rows(3)).result()
    assert np.array_equal(result, rows(3) @ WEIGHTS)
    assert offline.all_free(model)
