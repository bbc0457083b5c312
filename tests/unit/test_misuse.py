"""Mistakes in a program: each raises an error at its own line, and the message states what to do."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import gc
import inspect
import re
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from tests.kit import Waiting, hung_in, in_thread, no_call, raises, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio

OPENINGS: dict[str, Callable[[OpenDevice, aioacl.Device], aioacl.Opening[Any]]] = {
    "open_device(1)": lambda open_device, _: open_device(1),
    "create_stream()": lambda _, device: device.create_stream(),
    "allocate(64)": lambda _, device: device.allocate(64),
    "pinned(64)": lambda _, device: device.pinned(64),
    "create_event()": lambda _, device: device.create_event(),
}


# --- objects that are used once --------------------------------------------------------------------------------


@pytest.mark.parametrize("what", OPENINGS)
async def test_opening_that_is_used_twice_raises_and_makes_nothing_more(
    open_device: OpenDevice, what: str
) -> None:
    async with open_device() as device:
        opening = OPENINGS[what](open_device, device)
        refused = pytest.raises(
            aioacl.ParameterError,
            match=f"{re.escape(what)} was already used. Call {re.escape(what)} once more",
        )
        async with opening as made:
            with no_call():
                with refused:
                    await opening
                with refused:
                    async with opening:
                        raise AssertionError("the block began")
                with refused:
                    in_thread(opening.result)
                with refused:
                    in_thread(opening.__enter__)
            assert not made._closed
        with no_call(), refused:
            await opening


async def test_lease_that_is_entered_inside_its_own_block_raises_and_stays_held(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.lease() as lease:
        with pytest.raises(aioacl.ParameterError) as caught:
            async with lease:
                raise AssertionError("the block began")
        assert str(caught.value) == (
            "device 0: the lease was already entered. Call device.lease() once for each "
            "block, or pass lease.share() to another task."
        )
        assert lease.held
        assert device.health.leases == 1


async def test_lease_that_was_left_cannot_be_entered_again(open_device: OpenDevice) -> None:
    async with open_device() as device:
        lease = device.lease()
        async with lease:
            pass
        with pytest.raises(aioacl.ParameterError, match="lease was already entered"):
            async with lease:
                raise AssertionError("the block began")
        with pytest.raises(aioacl.ParameterError, match="lease was already entered"):
            in_thread(lease.__enter__)
        assert device.health.leases == 0


async def test_lease_that_another_task_has_entered_raises_and_names_share(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group, device.lease() as lease:
        with pytest.raises(aioacl.ParameterError, match=r"lease.share\(\) to another task"):
            await Waiting(group, lease.__aenter__).outcome()
        assert lease.held


async def test_lease_that_two_tasks_wait_for_is_granted_to_one_of_them(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        lease = device.lease()

        async def enter() -> None:
            async with lease:
                pass

        resetting = await hung_in("aclrtResetDeviceForce", group, device.force_reset)
        entering = [Waiting(group, enter) for _ in range(2)]
        await until(lambda: len(device._manager.admission.turns._waiting) == 2)
        simulator.release_all()
        await until(lambda: all(one.ended for one in entering))
        assert (await resetting.outcome()).ok
        assert sorted(type(one.error).__name__ for one in entering) == ["NoneType", "ParameterError"]
        assert device.health.leases == 0


async def test_shared_lease_that_is_entered_twice_raises_and_names_share(open_device: OpenDevice) -> None:
    async with open_device() as device, device.lease() as lease:
        shared = lease.share()
        refused = pytest.raises(
            aioacl.ParameterError, match=r"already entered.*Call lease.share\(\) for each task"
        )
        with shared:
            with refused, shared:
                raise AssertionError("the block began")
            with refused:
                async with shared:
                    raise AssertionError("the block began")
            with refused:
                in_thread(shared.__enter__)
            assert len(lease._holders) == 2
        with refused, shared:
            raise AssertionError("the block began")
        assert lease.held
        with lease.share():
            assert len(lease._holders) == 2


async def test_shared_lease_whose_entry_was_refused_may_be_entered_later(open_device: OpenDevice) -> None:
    async with open_device() as device:
        lease = device.lease()
        shared = lease.share()
        with pytest.raises(aioacl.ParameterError, match="no task holds"), shared:
            raise AssertionError("the block began")
        async with lease:
            with shared:
                assert len(lease._holders) == 2


async def test_lease_whose_entry_was_refused_may_be_entered_later(open_device: OpenDevice) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        lease = device.lease(wait=False)
        resetting = await hung_in("aclrtResetDeviceForce", group, device.force_reset)
        await raises(aioacl.DeviceResetting, lease.__aenter__())
        simulator.release_all()
        assert (await resetting.outcome()).ok
        async with lease:
            assert lease.held


# --- arguments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("grace", "timeout"), [(10, 5), (0.2, 0.1), (61, 60.0), (1, 0.05)])
async def test_force_reset_with_grace_above_timeout_raises_and_resets_nothing(
    open_device: OpenDevice, grace: float, timeout: float
) -> None:
    async with open_device() as device:
        with pytest.raises(
            aioacl.ParameterError,
            match=rf"grace must not be above timeout, got grace={grace} and timeout={timeout}. "
            rf"Pass timeout={2 * grace:g}: the grace time is at most half of timeout",
        ):
            device.force_reset(grace=grace, timeout=timeout)
        assert simulator.calls("aclrtResetDeviceForce") == 0


async def test_force_reset_with_a_timeout_below_the_default_grace_resets(open_device: OpenDevice) -> None:
    async with open_device() as device:
        assert (await device.force_reset(timeout=4.0)).ok
        assert (await device.force_reset(grace=4.0, timeout=4.0)).ok


# --- jobs -----------------------------------------------------------------------------------------------------


async def coroutine(number: int = 1) -> int:
    return number


async def generator() -> AsyncIterator[int]:
    yield 1


class Asynchronous:
    async def method(self) -> int:
        return 1

    async def __call__(self) -> int:
        return 1


ASYNC: dict[str, Callable[[], object]] = {
    "function": coroutine,
    "generator": generator,
    "method": Asynchronous().method,
    "object": Asynchronous(),
    "partial": partial(coroutine, 2),
}


@pytest.mark.parametrize("fn", ASYNC.values(), ids=ASYNC)
async def test_job_that_is_async_raises_at_once_with_the_remedy(
    open_device: OpenDevice, fn: Callable[[], object]
) -> None:
    async with open_device() as device:
        for submit in (device.run, device.executor.submit):
            with pytest.raises(
                aioacl.ParameterError, match=r"a function that is not async, got .*Await it on an event loop"
            ):
                submit(fn)


RETURNS_ASYNC: dict[str, Callable[[], object]] = {
    "coroutine": lambda: coroutine(),  # noqa: PLW0108 - the lambda itself must not be async
    "generator": lambda: generator(),  # noqa: PLW0108 - the same
    "nested": lambda: (lambda: Asynchronous().method())(),  # noqa: PLW0108, PLC3002 - the same
}


@pytest.mark.parametrize("fn", RETURNS_ASYNC.values(), ids=RETURNS_ASYNC)
async def test_job_that_returns_a_coroutine_raises_with_the_remedy_and_closes_the_coroutine(
    open_device: OpenDevice, fn: Callable[[], object]
) -> None:
    refused = pytest.raises(
        aioacl.ParameterError, match=r"expected a function that is not async, got .*, which returned a"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # including "was never awaited"
        async with open_device() as device:
            with refused:
                await device.run(fn)
            with refused:
                in_thread(device.executor.submit(fn).result)
            with refused:
                in_thread(lambda: list(device.executor.map(lambda _: fn(), [1])))
            gc.collect()


async def test_coroutine_given_as_a_job_is_closed(open_device: OpenDevice) -> None:
    async with open_device() as device:
        for submit in (device.run, device.executor.submit):
            begun: Any = coroutine()
            with pytest.raises(
                aioacl.ParameterError, match=r"got <coroutine object .*Await it on an event loop"
            ):
                submit(begun)
            assert inspect.getcoroutinestate(begun) == inspect.CORO_CLOSED


async def test_coroutine_returned_by_a_job_while_another_task_runs_it_is_refused_and_continues(
    open_device: OpenDevice,
) -> None:
    async def waits() -> int:
        await anyio.lowlevel.checkpoint()
        return 3

    async with open_device() as device:
        running: Any = waits()
        running.send(None)
        with pytest.raises(aioacl.ParameterError, match="which returned a coroutine"):
            await device.run(lambda: running)
        assert inspect.getcoroutinestate(running) == inspect.CORO_SUSPENDED
        running.close()


async def test_job_that_is_not_a_function_raises_at_once(open_device: OpenDevice) -> None:
    async with open_device() as device:
        nothing: Any = 3
        for submit in (device.run, device.executor.submit):
            with pytest.raises(aioacl.ParameterError, match=r"expected a function, got 3. Pass the function"):
                submit(nothing)


@pytest.mark.parametrize(
    "fn", [int, partial(int, "3"), lambda: 3, "abc".upper], ids=["type", "partial", "lambda", "method"]
)
async def test_job_that_is_any_plain_callable_runs(open_device: OpenDevice, fn: Callable[[], object]) -> None:
    async with open_device() as device:
        assert await device.run(fn) == fn()


def test_async_function_in_run_in_executor_raises_at_once(open_device: OpenDevice) -> None:
    async def main() -> None:
        async with open_device() as device:
            with pytest.raises(aioacl.ParameterError, match="not async"):
                asyncio.get_running_loop().run_in_executor(device.executor, coroutine)

    asyncio.run(main())


# --- attributes -----------------------------------------------------------------------------------------------

HANDLES: dict[str, Callable[[aioacl.Device], aioacl.Opening[Any]]] = {
    "stream": lambda device: device.create_stream(),
    "device buffer": lambda device: device.allocate(64),
    "pinned buffer": lambda device: device.pinned(64),
    "event": lambda device: device.create_event(),
}
LASTING: dict[str, Callable[[aioacl.Device], object]] = {
    "device": lambda device: device,
    "executor": lambda device: device.executor,
    "events": lambda device: device.events(),
    "lease": lambda device: device.lease(),
    "shared lease": lambda device: device.lease().share(),
    "fault": lambda _: simulator.fault("copy", rc=1),
}
RECORDS: dict[str, Callable[[aioacl.Device], object]] = {
    "device info": lambda _: aioacl.list_devices()[0],
    "health": lambda device: device.health,
    "library": lambda _: aioacl.library_info(),
    "memory": lambda device: in_thread(device.memory_info().result),
    "report": lambda device: in_thread(device.force_reset().result),
    "stats": lambda _: simulator.stats(),
    "stuck": lambda _: aioacl.Stuck("aclrtMalloc", 1, 2.0),
}


def must_refuse(thing: Any, *names: str) -> None:
    for name in names:
        with pytest.raises(AttributeError, match=name):
            setattr(thing, name, 1)


@pytest.mark.parametrize("what", LASTING)
async def test_assignment_to_an_unknown_attribute_raises(open_device: OpenDevice, what: str) -> None:
    async with open_device() as device:
        must_refuse(LASTING[what](device), "foo")


@pytest.mark.parametrize("what", HANDLES)
async def test_assignment_to_an_attribute_of_a_handle_or_an_operation_raises(
    open_device: OpenDevice, what: str
) -> None:
    async with open_device() as device:
        opening = HANDLES[what](device)
        must_refuse(opening, "foo", "result")
        async with opening as made:
            must_refuse(made, "foo", "close", "generation")
            closing = made.close()
            must_refuse(closing, "foo", "result")
            await closing


async def test_assignment_to_an_attribute_of_a_ticket_raises(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        ticket = stream.fill(memory, 1)
        must_refuse(ticket, "foo", "position", "done")
        await ticket


@pytest.mark.parametrize("what", RECORDS)
async def test_assignment_to_a_record_raises_and_names_replace(open_device: OpenDevice, what: str) -> None:
    async with open_device() as device:
        record: Any = RECORDS[what](device)
        first = dataclasses.fields(record)[0].name
        for name in (first, "foo"):
            match = rf"cannot change '{name}' of a {type(record).__name__}: .* with dataclasses.replace"
            with pytest.raises(dataclasses.FrozenInstanceError, match=match):
                setattr(record, name, 1)
            with pytest.raises(dataclasses.FrozenInstanceError, match=match):
                delattr(record, name)
        assert dataclasses.replace(record) == record == copy.copy(record)
