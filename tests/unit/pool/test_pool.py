"""`open_pool(path)`: which devices it opens, what it does without one of them, and its end."""

from __future__ import annotations

import inspect
import sys
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import (
    AclError,
    AclWarning,
    DeviceFault,
    DeviceTimeout,
    ParameterError,
    State,
    open_pool,
    simulator,
)
from aioacl._base.ffi import lib
from aioacl._lifecycle.manager import manager_of
from aioacl._models import lifetime
from aioacl._pool import member, opening
from aioacl._pool import pool as pool_module
from aioacl.testing._snapshot import open_devices
from tests.kit import (
    FAULT,
    Clock,
    Raised,
    Waiting,
    clock_in_place,
    elsewhere,
    hanging,
    in_thread,
    raises,
    until,
)
from tests.support import offline
from tests.support.batching import tasks
from tests.unit.batches.test_models import BATCHES, EXECUTE, FIXED, first_ten, is_right, item, run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Generator
    from pathlib import Path

pytestmark = pytest.mark.anyio
SET, LOAD, UNLOAD, RESET = (
    "aclrtSetDevice",
    "aclmdlLoadFromFileWithMem",
    "aclmdlUnload",
    "aclrtResetDevice",
)
BROKEN = 507000  # the code of a call that fails


@pytest.fixture(autouse=True)
def _function() -> Generator[None]:
    with simulator.register_model("digits", first_ten), simulator.register_model("digits_batches", first_ten):
        yield


@pytest.fixture
def clock() -> Generator[Clock]:
    with clock_in_place() as made:
        yield made


def indexes(infer: aioacl.Pool) -> list[int]:
    return [device.index for device in infer.devices]


async def serves(infer: aioacl.Pool, count: int = 8) -> bool:
    """Whether items get the right results."""
    items = [item(number) for number in range(count)]
    return all(map(is_right, await run(infer, items), items))


async def only_other_than(index: int, infer_of: Any, call: str = SET) -> aioacl.Pool:
    """Opens a pool while this call fails on one device. The pool has the other device, and warns once."""
    with simulator.fault(call, device=index, rc=BROKEN), pytest.warns(AclWarning) as warned:
        infer: aioacl.Pool = await infer_of()
    assert [str(index) in str(each.message) for each in warned] == [True]
    assert str(warned[0].message).startswith(
        f"device {index} is not in the pool, and it is tried again after"
    )
    assert warned[0].filename == __file__
    assert indexes(infer) == [1 - index]
    return infer


# --- what it opens --------------------------------------------------------------------------------------------------


async def test_pool_executes_batches_on_all_devices_and_closes_them() -> None:
    async with open_pool(BATCHES, in_flight=1) as infer:
        assert indexes(infer) == [0, 1]
        assert [model._life.manager.index for model in infer.models] == [0, 1]
        assert [device.health.supervisor for device in infer.devices] == ["watching", "watching"]
        assert repr(infer) == "<Pool of 2 of 2 devices, at most 32 rows, 0 rows waiting>"
        assert await serves(infer, 200)
        assert all(each.state.rate > 0 for each in infer._served)
        devices = infer.devices
    assert [device.state for device in devices] == [State.CLOSED, State.CLOSED]
    assert repr(infer) == "<Pool of 2 of 2 devices, at most 32 rows, closed>"
    await infer.close()


async def test_pool_has_the_devices_and_options_that_the_caller_chooses() -> None:
    async with open_pool(
        FIXED.read_bytes(), (1,), context="own", slots=2, warm_up=True, supervise=False, limit=8
    ) as infer:
        assert indexes(infer) == [1]
        assert infer.devices[0].health.supervisor == "none"
        assert manager_of(1).context == "own"
        assert (infer.max_rows, infer.models[0]._life.slots, infer._rules.limit) == (1, 2, 8)
        assert await serves(infer)


async def test_thread_uses_a_pool_with_a_plain_block() -> None:
    def work() -> None:
        with open_pool(BATCHES) as infer:
            assert is_right(infer(item(3)).result(), item(3))
            assert len(infer.devices) == 2

    await anyio.to_thread.run_sync(work)
    assert not open_devices()


async def test_defaults_are_those_of_the_functions_it_calls() -> None:
    ours = inspect.signature(open_pool).parameters
    others = (aioacl.open_device, aioacl.Device.load_model, aioacl.Device.supervise, aioacl.open_batcher)
    for function in others:
        for name, other in inspect.signature(function).parameters.items():
            if name in ours and name not in ("timeout", "model"):
                assert ours[name].default == other.default, name


@pytest.mark.leaves("offline_models")  # a device that has failed keeps its model
async def test_items_go_on_through_a_fault_and_the_reset_of_a_supervisor() -> None:
    async with open_pool(BATCHES) as infer:
        before = [device.generation for device in infer.devices]
        with simulator.fault(EXECUTE, device=1, async_error=FAULT, nth=1):
            while simulator.calls(EXECUTE) < 20 or infer.devices[1].generation == before[1]:
                assert await serves(infer, 64)
        await until(lambda: infer.devices[1].health.ready)
        assert infer.devices[0].generation == before[0]
        assert infer.stats().failed == 0


@pytest.mark.leaves("offline_models")  # as above
async def test_items_pass_two_pools_in_order_through_a_fault_and_the_reset() -> None:
    items = [item(number) for number in range(300)]

    async def widened(results: AsyncIterable[Any]) -> AsyncGenerator[Any]:
        number = 0
        async for y in results:
            yield np.pad(y, ((0, 0), (0, 54)))
            number += 1
            if number == 100:
                faults.enter_context(simulator.fault(EXECUTE, async_error=FAULT, nth=1))

    async with open_pool(BATCHES) as first, open_pool(BATCHES, supervise=False) as second:
        before = [device.generation for device in first.devices]
        with ExitStack() as faults:
            async with first.map(items) as between, second.map(widened(between)) as results:
                found = [y async for y in results]
        await until(lambda: all(device.health.ready for device in first.devices))
        assert [device.generation for device in first.devices] != before
        assert [is_right(y, x) for y, x in zip(found, items, strict=True)] == [True] * 300


# --- a device that does not open ------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [SET, LOAD, EXECUTE])
async def test_74_device_that_does_not_open_is_tried_again_and_joins(clock: Clock, call: str) -> None:
    infer = await only_other_than(0, lambda: open_pool(BATCHES), call)
    try:
        assert await serves(infer)
        clock.advance(1.0)
        await until(lambda: len(infer.devices) == 2)
        assert indexes(infer) == [0, 1]
        assert len(infer.models) == 2
        before = len(infer._served[1].state.running)
        assert before == 0
        while not all(each.state.rate for each in infer._served):
            assert await serves(infer, 64)
    finally:
        await infer.close()


async def test_74_device_that_does_not_open_after_the_pauses_is_given_up() -> None:
    with simulator.fault(SET, device=0, rc=BROKEN) as fault:
        with pytest.warns(AclWarning) as warned:
            infer = await open_pool(BATCHES, pauses=(0.0, 0.001))
        await until(infer._members[0].over.done)
    assert (len(warned), indexes(infer), fault.hits) == (1, [1], 3)
    assert await serves(infer)
    await infer.close()


async def test_74_device_is_not_tried_again_without_pauses() -> None:
    with simulator.fault(SET, device=0, rc=BROKEN), pytest.warns(AclWarning, match="it is not tried again"):
        infer = await open_pool(BATCHES, pauses=())
    await until(infer._members[0].over.done)
    await infer.close()


async def test_74_error_of_the_first_device_is_raised_if_none_opens() -> None:
    with simulator.fault(SET, device=0, rc=507000), simulator.fault(SET, device=1, rc=507001):
        error = await raises(AclError, open_pool(BATCHES))
    assert (error.code, error.device) == (507000, 0)
    await until(lambda: not open_devices())


async def test_74_error_that_no_later_try_can_change_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="expected a device index from 0 to 1, got 2"):
        await open_pool(BATCHES, (0, 2))
    with pytest.raises(ParameterError, match="cannot be read"):
        await open_pool(tmp_path / "none.om")
    async with aioacl.open_device(1) as device, device.supervise():
        with pytest.raises(
            ParameterError, match=r"has a supervisor already.*for a second pool .* supervise=False"
        ):
            await open_pool(BATCHES)
        async with open_pool(BATCHES, supervise=False) as infer:
            assert await serves(infer)
    with pytest.raises(ParameterError, match="limit must be an int, at least 32"):
        await open_pool(BATCHES, limit=8)
    assert not open_devices()


async def test_warning_that_is_an_error_closes_all_devices() -> None:
    with simulator.fault(SET, device=0, rc=BROKEN), warnings.catch_warnings():
        warnings.simplefilter("error")
        await raises(AclWarning, open_pool(BATCHES))
    assert not open_devices()


async def test_late_device_gets_the_model_that_has_replaced_the_first(clock: Clock) -> None:
    infer = await only_other_than(0, lambda: open_pool(BATCHES))
    new = await infer.devices[0].load_model(BATCHES, label="new")
    before = infer.models
    await infer.replace(new)
    clock.advance(1.0)
    await until(lambda: len(infer.devices) == 2)
    assert infer.models[0] is new
    assert infer.models[1]._life.source is new._life.source is not before[0]._life.source
    await infer.close()
    await new.close()


async def test_model_that_is_replaced_during_the_load_of_a_late_device_is_loaded_again(clock: Clock) -> None:
    infer = await only_other_than(0, lambda: open_pool(BATCHES))
    new = await infer.devices[0].load_model(BATCHES)
    simulator.hang_call(EXECUTE)
    clock.advance(1.0)
    await until(hanging(EXECUTE))  # the first execution of the late device
    await infer.replace(new)
    loads = simulator.calls(LOAD)
    simulator.release_call(EXECUTE)
    await until(lambda: len(infer.devices) == 2)
    assert simulator.calls(LOAD) == loads + 1
    assert infer.models[1]._life.source is new._life.source
    assert await serves(infer)
    await infer.close()
    await new.close()


# --- limits and cancellation of the opening -------------------------------------------------------------------------


@pytest.mark.parametrize("call", [SET, LOAD, EXECUTE])
async def test_75_cancelled_opening_leaves_nothing_open(call: str) -> None:
    async with tasks() as group:
        simulator.hang_call(call)
        caller = Waiting(group, lambda: open_pool(BATCHES))
        await until(hanging(call))
        await caller.cancel_and_wait()
        simulator.release_call(call)
    assert caller.cancelled
    await until(lambda: not open_devices())


async def test_75_opening_that_times_out_leaves_nothing_open() -> None:
    simulator.hang_call(SET)
    with pytest.raises(DeviceTimeout, match="not open in time"):
        in_thread(lambda: open_pool(BATCHES).result(0.01))
    simulator.clear()
    simulator.release_all()
    await until(lambda: not open_devices())


@pytest.mark.parametrize("call", [SET, LOAD, EXECUTE])
async def test_device_that_is_not_ready_in_time_counts_as_not_open(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "CLOSE_SECONDS", 0.0)
    simulator.hang_call(call)
    await raises(DeviceTimeout, open_pool(BATCHES, (0,), timeout=0.01, pauses=()))
    simulator.clear()  # the time limit was perhaps over before the call
    simulator.release_all()
    await until(lambda: not open_devices())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"devices": ()}, "expected the indexes of one or more different devices, got"),
    ({"devices": (0, 0)}, "one or more different devices"),
    ({"devices": (0, "1")}, "one or more different devices"),
    ({"devices": 1}, "expected the indexes of devices, got 1"),
    ({"waits": "poll"}, "waits must be"),
    ({"context": "other"}, "context must be"),
    ({"resets": 1}, "resets must be a bool"),
    ({"heal": 1}, "heal must be a bool"),
    ({"warm_up": 1}, "warm_up must be a bool"),
    ({"supervise": 1}, "supervise must be a bool"),
    ({"foreign": 1}, "foreign must be a bool"),
    ({"slots": 0}, "slots must be"),
    ({"instances": 0}, "instances must be"),
    ({"pauses": 1}, "pauses must be some seconds"),
    ({"pauses": (-1,)}, "each of pauses must be"),
    ({"in_flight": 4}, "in_flight must be at most 3"),
    ({"max_rows": 0}, "max_rows must be an int, at least 1"),
    ({"limit": 0}, "limit must be an int, at least 1"),
    ({"hold": -1}, "hold must be"),
    ({"attempts": 0}, "attempts must be an int, at least 1"),
    ({"timeout": "1"}, "timeout must be"),
]


@pytest.mark.parametrize(("options", "text"), WRONG)
async def test_wrong_argument_raises_in_the_call(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ParameterError, match=text) as caught:
        open_pool(BATCHES, **options)
    assert caught.value.hint


# --- the end --------------------------------------------------------------------------------------------------------


async def test_75_end_closes_the_batcher_the_models_the_supervisors_and_the_devices() -> None:
    infer = await open_pool(BATCHES)
    calls: list[Waiting] = []
    simulator.hang_call(EXECUTE)
    async with tasks() as group:
        calls.append(Waiting(group, lambda: infer(item(0))))
        await until(hanging(EXECUTE))
        closing = Waiting(group, infer.close)
        await until(lambda: infer._runner.refusal is not None)
        assert (simulator.calls(UNLOAD), len(open_devices())) == (0, 2)
        simulator.release_call(EXECUTE)
        await until(lambda: closing.ended)
    assert is_right(calls[0].value, item(0))
    ends = [entry["call"] for entry in simulator.journal() if entry["call"] in (UNLOAD, RESET)]
    assert sorted(ends) == [UNLOAD, UNLOAD, RESET, RESET]
    assert not open_devices()


@pytest.mark.parametrize("call", [UNLOAD, RESET])
async def test_75_device_that_cannot_be_closed_does_not_keep_the_others_open(call: str) -> None:
    infer = await open_pool(BATCHES)
    with simulator.fault(call, device=0, rc=BROKEN), warnings.catch_warnings():
        warnings.simplefilter("ignore", AclWarning)
        await closed(infer)
    assert manager_of(1).admission.state is State.CLOSED
    await infer.close()
    if call == RESET:
        elsewhere(RESET)


async def closed(infer: aioacl.Pool) -> None:
    try:
        await infer.close()
    except AclError as error:
        assert error.device == 0  # noqa: PT017 - a close may also emit a warning instead


async def test_end_of_a_cancelled_block_closes_the_devices_and_leaves_no_caller_hanging() -> None:
    calls = list[Waiting]()
    async with tasks() as group:
        with anyio.CancelScope() as scope:
            async with open_pool(BATCHES) as infer:
                simulator.hang_call(EXECUTE)
                calls.append(Waiting(group, lambda: infer(item(0))))
                await until(hanging(EXECUTE))
                group.start_soon(release_when, infer)
                scope.cancel()
                await anyio.sleep_forever()
        assert not open_devices()
        await until(lambda: calls[0].ended)
    assert isinstance(calls[0].error, ParameterError)


async def release_when(infer: aioacl.Pool) -> None:
    await until(lambda: infer._runner.aborted)
    simulator.release_call(EXECUTE)


async def test_cancelled_close_goes_on() -> None:
    infer = await open_pool(BATCHES)
    async with tasks() as group:
        simulator.hang_call(UNLOAD)
        closing = Waiting(group, infer.close)
        await until(hanging(UNLOAD))
        await closing.cancel_and_wait()
        simulator.release_call(UNLOAD)
    await until(lambda: not open_devices())
    await infer.close()


async def test_close_that_waits_for_a_call_in_c_warns_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "CLOSE_SECONDS", 0.0)
    infer = await open_pool(BATCHES)
    simulator.hang_call(UNLOAD)
    with pytest.warns(AclWarning, match="device [01] of the pool is not closed after 0 s"):
        await infer.close()
    await until(hanging(UNLOAD))
    simulator.release_call(UNLOAD)
    await until(lambda: not open_devices())


async def test_75_close_drops_the_work_that_has_not_ended_after_the_grace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(member, "MODEL_SECONDS", 0.0)
    infer = await open_pool(BATCHES, (0,))
    async with tasks() as group:
        offline.hold(infer.models[0])
        call = Waiting(group, lambda: infer(item(0)))
        await until(lambda: simulator.stats().tasks)
        await infer.close(grace=0)
        assert not open_devices()
        await raises(ParameterError, call.outcome())


@pytest.mark.leaves("offline_models")  # the failed device keeps its model
async def test_91_close_on_a_failed_device_waits_for_no_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "FAULTY_SECONDS", 0.0)
    infer = await open_pool(BATCHES, (0,), supervise=False)
    with simulator.fault(EXECUTE, sticky=FAULT, nth=1):
        await raises(DeviceFault, infer(item(0)))
    await infer.close()
    assert not open_devices()


async def test_close_that_is_too_late_for_its_caller_raises() -> None:
    infer = await open_pool(BATCHES)

    def close() -> None:
        infer.close().result(0.01)

    raised = Raised.hung_in(UNLOAD, close)
    with pytest.raises(DeviceTimeout, match="the pool was not closed in time"):
        raised.join()
    simulator.release_call(UNLOAD)
    await infer.close()
    assert not open_devices()


async def test_pool_that_is_dropped_warns_and_closes_its_devices() -> None:
    pools = [await open_pool(BATCHES)]
    assert await serves(pools[0])
    with pytest.warns(ResourceWarning, match="a pool was not closed"):
        pools.clear()
    await until(lambda: not open_devices())


async def test_pool_that_is_dropped_closes_its_devices_also_if_warnings_are_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: raised.append(found.exc_type))
    pools = [await open_pool(BATCHES)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pools.clear()
    assert raised == [ResourceWarning]
    await until(lambda: not open_devices())


# --- resets that are forbidden --------------------------------------------------------------------------------------


@pytest.mark.leaves("offline_models")  # the failed device keeps its model until the close
@pytest.mark.parametrize("by", ["environment", "argument", "other code"])
async def test_76_device_that_may_not_be_reset_is_not_reset_and_the_others_go_on(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "environment":
        monkeypatch.setenv("AIOACL_RESETS", "never")
    if by == "other code":
        elsewhere(SET)
    infer = await open_pool(BATCHES, resets=by != "argument", heal=True, foreign=by != "other code")
    device, forced = infer.devices[0], simulator.calls("aclrtResetDeviceForce")
    with simulator.fault(EXECUTE, device=0, async_error=FAULT, nth=1):
        while device.health.supervisor != "forbidden" or device.health.status == "ok":
            assert await serves(infer, 64)
        assert await serves(infer)
    assert simulator.calls("aclrtResetDeviceForce") == forced
    assert (await device.force_reset(foreign=True)).ok
    assert await serves(infer, 64)
    await infer.close()
    if by == "other code":
        elsewhere(RESET)
    else:  # each close has left one set
        for index in (0, 1):
            in_thread(lambda index=index: lib.aio_u_aclrtResetDevice(index))  # type: ignore[misc]  # as above
