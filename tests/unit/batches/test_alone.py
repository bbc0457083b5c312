"""An item is charged with a failure of the device only if it is known that nothing else has run on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import DeviceFault, simulator
from aioacl._batches.alone import Alone
from tests.kit import FAULT, elsewhere, raises, until
from tests.support.batching import ZEROS, ByHand, View, batching, tasks
from tests.unit.batches.test_models import BATCHES, first_ten, item

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _function() -> Generator[None]:
    with simulator.register_model("digits_batches", first_ten):
        yield


@pytest.fixture
async def device() -> AsyncGenerator[aioacl.Device]:
    async with aioacl.open_device() as made:
        yield made


@pytest.fixture
async def model(device: aioacl.Device) -> AsyncGenerator[aioacl.Model]:
    async with device.load_model(BATCHES) as made:
        await made(item(0))
        yield made


async def test_one_call_is_known_to_be_alone(device: aioacl.Device, model: aioacl.Model) -> None:
    async with device.create_stream() as stream, device.allocate(4) as memory:
        await stream.fill(memory, 1)
        await device.synchronize()  # after this, no work is in doubt
        alone = Alone(model._life)
        assert not alone.is_known()  # the call has not begun
        await model(item(0))
        assert alone.is_known()


async def test_call_beside_work_that_begins_meanwhile_is_not_alone(
    device: aioacl.Device, model: aioacl.Model
) -> None:
    async with device.create_stream() as stream, device.allocate(4) as memory:
        alone = Alone(model._life)
        await model(item(0))
        await stream.fill(memory, 1)
        assert not alone.is_known()


async def test_call_beside_work_that_has_begun_before_is_not_alone(
    device: aioacl.Device, model: aioacl.Model
) -> None:
    async with device.create_stream() as stream, device.allocate(4) as memory:
        with simulator.held(stream):
            ticket = stream.fill(memory, 1)
            alone = Alone(model._life)
            await model(item(0))
            assert not alone.is_known()
        await ticket


async def test_call_beside_a_stream_that_came_meanwhile_is_not_alone(
    device: aioacl.Device, model: aioacl.Model
) -> None:
    alone = Alone(model._life)
    async with device.create_stream():
        await model(item(0))
        assert not alone.is_known()


async def test_two_calls_of_a_model_are_not_alone(model: aioacl.Model) -> None:
    alone = Alone(model._life)
    await model(item(0))
    await model(item(1))
    assert not alone.is_known()


async def test_call_beside_jobs_is_not_alone(device: aioacl.Device, model: aioacl.Model) -> None:
    await device.run(simulator.stats)
    alone = Alone(model._life)
    await model(item(0))
    assert not alone.is_known()


async def test_call_on_a_device_that_other_code_has_set_is_not_alone(model: aioacl.Model) -> None:
    alone = Alone(model._life)
    elsewhere("aclrtSetDevice")
    await model(item(0))
    assert not alone.is_known()
    elsewhere("aclrtResetDevice")


@pytest.mark.parametrize("is_alone", [True, False])
async def test_71_suspect_that_fails_alone_is_charged_and_another_uses_an_attempt(is_alone: bool) -> None:
    def fault() -> DeviceFault:
        return DeviceFault("the device has failed", code=FAULT, action="reset")

    hand, view = ByHand(), View()
    hand.is_alone, view.returns = is_alone, True

    def fail() -> None:
        view.failed = True
        hand.end(fault())
        view.reset()

    with batching(hand, view=view, attempts=3) as infer:
        async with tasks() as group:
            call = raises(DeviceFault, infer(1))
            group.start_soon(ended, call)
            for _ in range(2 if is_alone else 3):
                await until(lambda: hand.begun == [[1]])
                fail()
                await until(lambda: hand.begun or infer.stats().failed)
                if hand.begun == [[ZEROS]]:  # the check of the device, after the first failure
                    hand.end()
        assert hand.log.count([1]) == (2 if is_alone else 3)


async def ended(call: Any) -> None:
    await call
