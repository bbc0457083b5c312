"""Each public await succeeds, fails, times out and is cancelled in a task that runs at once until it first suspends.

The tasks are asyncio's own, because a task group of anyio makes no task eager.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from tests.conftest import GUARD_SECONDS
from tests.kit import raises, until, wait_for
from tests.unit.handles.test_awaits import (
    AWAITS,
    Await,
    Setup,
    close_if_handle,
    every_await,
    every_failing,
    every_stalling,
    setup_on,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.kit import OpenDevice

# Type checkers check for Python 3.11, which has neither the factory nor the option of Task.
FACTORY: Any = vars(asyncio).get("eager_task_factory")
OPTIONS: dict[str, Any] = {"eager_start": True}
if FACTORY is None:
    pytest.skip("Python 3.12 introduced eager tasks", allow_module_level=True)


def loop_with_eager_tasks() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_task_factory(FACTORY)
    return loop


def eager_task(body: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Makes a task that runs at once until it first suspends.

    uvloop 0.23 does not work with asyncio.eager_task_factory: it passes an `eager_start` of its own to the factory.
    """
    loop = asyncio.get_running_loop()
    if isinstance(loop, uvloop.Loop):
        return asyncio.Task(body, loop=loop, **OPTIONS)
    return loop.create_task(body)


LOOPS = {"asyncio": loop_with_eager_tasks, "uvloop": uvloop.new_event_loop}
every_loop = pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
pytestmark = pytest.mark.uncached  # the cache would close streams and buffers without a call that can stall


def run_on(
    new_loop: Callable[[], asyncio.AbstractEventLoop], main: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    async def guarded() -> None:
        async with asyncio.timeout(GUARD_SECONDS):
            await main()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(guarded())


async def begun(entry: Await, prepared: Setup) -> Any:
    return await entry.begin(prepared)


@every_loop
@every_await
def test_eager_await_succeeds(open_device: OpenDevice, entry: Await, new_loop: Any) -> None:
    async def main() -> None:
        async with setup_on(open_device, entry) as prepared:
            await close_if_handle(await eager_task(begun(entry, prepared)))

    run_on(new_loop, main)


@every_loop
@every_failing
def test_eager_await_raises_the_device_error(open_device: OpenDevice, entry: Await, new_loop: Any) -> None:
    async def main() -> None:
        async with setup_on(open_device, entry) as prepared:
            entry.fail(prepared)
            error = await raises(aioacl.AclError, eager_task(begun(entry, prepared)))
            assert error.code == entry.code
            await prepared.stream.renew()
            await close_if_handle(await eager_task(begun(entry, prepared)))

    run_on(new_loop, main)


@every_loop
@every_stalling
def test_cancelled_eager_await_returns_at_once_and_later_awaits_succeed(
    open_device: OpenDevice, entry: Await, new_loop: Any
) -> None:
    async def main() -> None:
        async with setup_on(open_device, entry) as prepared:
            entry.stall(prepared)
            waiting = eager_task(begun(entry, prepared))
            await until(lambda: entry.is_stalled(prepared))
            waiting.cancel()
            await raises(asyncio.CancelledError, waiting)
            assert entry.is_stalled(prepared)
            prepared.release()
            await prepared.stream
            await close_if_handle(await eager_task(begun(entry, prepared)))

    run_on(new_loop, main)


@every_loop
@every_stalling
def test_stalled_eager_await_succeeds_after_the_release(
    open_device: OpenDevice, entry: Await, new_loop: Any
) -> None:
    async def main() -> None:
        async with setup_on(open_device, entry) as prepared:
            entry.stall(prepared)
            waiting = eager_task(begun(entry, prepared))
            await until(lambda: entry.is_stalled(prepared))
            assert not waiting.done()
            prepared.release()
            await close_if_handle(await waiting)

    run_on(new_loop, main)


@every_loop
def test_eager_task_has_begun_its_wait_when_create_task_returns(
    open_device: OpenDevice, new_loop: Any
) -> None:
    async def main() -> None:
        async with setup_on(open_device) as prepared:
            with simulator.held(prepared.stream):
                waiting = eager_task(begun(AWAITS["await ticket"], prepared))
                assert lib.aio_device_waits(0) == 1
            await waiting
            ended = eager_task(wait_for(prepared.stream.record()))
            await until(prepared.stream.query)
            await ended

    run_on(new_loop, main)


@every_loop
def test_lease_belongs_to_the_eager_task_that_entered_it(open_device: OpenDevice, new_loop: Any) -> None:
    async def main() -> None:
        async with setup_on(open_device) as prepared, prepared.device.lease() as lease:
            held: list[bool] = []

            async def child() -> None:
                held.append(lease.held)
                async with lease.share():
                    held.append(lease.held)
                held.append(lease.held)

            await eager_task(child())
            assert (held, lease.held) == ([False, True, False], True)

    run_on(new_loop, main)
