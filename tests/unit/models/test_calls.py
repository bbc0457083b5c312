"""`await model(x)` and `.result()`: success, a failed execution, a timeout, a cancellation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._models.calls import FAILED_HINT, TIMED_OUT_HINT
from tests.kit import Raised, Waiting, in_thread, raises, until, until_now
from tests.support import offline
from tests.support.offline import WEIGHTS, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import OpenDevice

FAILED = 507011  # an execution failed


def is_product(y: Any, x: Any) -> bool:
    """Whether the model has returned the product that NumPy computes."""
    return y.dtype == np.float32 and np.array_equal(y, x @ WEIGHTS)


def waits() -> bool:
    """Whether something waits for the device."""
    return bool(lib.aio_device_waits(0))


async def outcomes(model: aioacl.Model, count: int) -> list[Any]:
    """Runs calls concurrently. Returns the result or the error of each."""

    async def call(number: int) -> None:
        try:
            found[number] = await model(rows(number))
        except aioacl.AclError as error:
            found[number] = error

    found: dict[int, Any] = {}
    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(call, number)
    return [found[number] for number in range(count)]


@pytest.mark.anyio
@pytest.mark.every_loop_in_ci
class TestOnALoop:
    async def test_call_returns_the_values_of_the_model(self, open_device: OpenDevice, path: Path) -> None:
        async with open_device() as device, device.load_model(path) as model:
            for number in range(10):
                x = rows(number)
                assert is_product(await model(x), x)

    async def test_concurrent_calls_return_their_own_values(self, open_device: OpenDevice) -> None:
        async with open_device() as device, device.load_model(offline.product(), instances=2) as model:
            for number, y in enumerate(await outcomes(model, 40)):
                assert is_product(y, rows(number))

    async def test_repr_shows_what_the_last_await_has_come_to(self, open_device: OpenDevice) -> None:
        async with open_device() as device, device.load_model(offline.product()) as model:
            call = model(rows(1))
            assert repr(call).endswith("not started>")
            await call
            assert repr(call).endswith("done>")
            with simulator.fault("model", async_error=FAILED):
                await raises(aioacl.DeviceFault, call)
            assert repr(call).endswith("raised DeviceFault>")
            await until(lambda: offline.all_free(model))  # the stream of the failed slot was renewed
            offline.hold(model)
            async with anyio.create_task_group() as group:
                waiting = Waiting(group, lambda: call)
                await until(lambda: offline.load_of(model).slots.busy == 1)
                assert repr(call).endswith("started>")
                await waiting.cancel_and_wait()
            assert re.search("raised Cancelled(Error)?>$", repr(call))
            offline.release(model)

    async def test_failed_execution_fails_only_its_own_call(self, open_device: OpenDevice) -> None:
        async with open_device() as device, device.load_model(offline.product(), slots=3) as model:
            failed, unknown = device.health.failed_tasks, device.health.unknown_failures
            with simulator.fault("model", nth=2, async_error=FAILED) as fault:
                found = await outcomes(model, 6)
            assert fault.hits == 1
            (error,) = [each for each in found if isinstance(each, aioacl.AclError)]
            assert type(error) is aioacl.DeviceFault
            assert (error.code, error.device, error.hint) == (FAILED, 0, FAILED_HINT)
            for number, y in enumerate(found):
                assert y is error or is_product(y, rows(number))
            await until(lambda: device.health.failed_tasks > failed)
            health = device.health
            assert (health.failed_tasks, health.unknown_failures) == (failed + 1, unknown)
            assert (health.status, health.last_fault) == ("ok", "")

    async def test_slot_of_a_failed_execution_is_used_again(self, open_device: OpenDevice) -> None:
        async with open_device() as device, device.load_model(offline.product(), slots=1) as model:
            for number in range(3):
                out = np.full((2, 4), -1, np.float32)
                with simulator.fault("model", async_error=FAILED), pytest.raises(aioacl.DeviceFault):
                    await model(rows(), out=out)
                assert np.all(out == -1)
                x = rows(number)
                assert is_product(await model(x), x)

    async def test_timeout_of_the_call_raises_device_timeout_and_the_slot_comes_back(
        self, open_device: OpenDevice
    ) -> None:
        async with open_device() as device, device.load_model(offline.product(), slots=1) as model:
            offline.hold(model)
            out = np.full((2, 4), -1, np.float32)
            hints: list[str] = []
            for limit in offline.short_limits():
                error = await raises(aioacl.DeviceTimeout, model(rows(), out=out, timeout=limit))
                hints.append(error.hint)
            assert TIMED_OUT_HINT in hints
            await raises(aioacl.QueueFull, model(rows(), wait=False))
            offline.release(model)
            await until(lambda: offline.all_free(model))
            assert np.all(out == -1)
            assert is_product(await model(rows(1)), rows(1))

    async def test_cancelled_call_returns_at_once_and_never_writes_to_out(
        self, open_device: OpenDevice
    ) -> None:
        async with open_device() as device, device.load_model(offline.product(), slots=1) as model:
            offline.hold(model)
            out = np.full((2, 4), -1, np.float32)
            async with anyio.create_task_group() as group:
                waiting = Waiting(group, lambda: model(rows(), out=out))
                await until(waits)
                await waiting.cancel_and_wait()
                assert waiting.cancelled
            assert not offline.all_free(model)
            offline.release(model)
            await until(lambda: offline.all_free(model))
            assert np.all(out == -1)
            assert is_product(await model(rows(1)), rows(1))

    async def test_call_cancelled_before_its_job_began_gives_the_slot_back_without_an_execution(
        self, open_device: OpenDevice
    ) -> None:
        async with open_device() as device, device.load_model(offline.product(), slots=3) as model:
            offline.hold(model)
            async with anyio.create_task_group() as group:
                first = Waiting(group, lambda: model(rows(1)))
                await until(waits)
                second = Waiting(group, lambda: model(rows(2)))  # its job waits for the first execution
                await until(lambda: offline.load_of(model).slots.free == 1)
                third = Waiting(group, lambda: model(rows(3)))  # its job has not begun
                await until(lambda: offline.load_of(model).slots.free == 0)
                third.cancel()
                await until(lambda: third.cancelled)
                assert offline.load_of(model).slots.free == 1
                offline.release(model)
                assert is_product(await first.outcome(), rows(1))
                assert is_product(await second.outcome(), rows(2))
            assert offline.executions() == 2

    async def test_failure_of_a_cancelled_call_is_warned_of_and_harms_no_later_call(
        self, open_device: OpenDevice
    ) -> None:
        async with open_device() as device, device.load_model(offline.product(), slots=1) as model:
            failed, unknown = device.health.failed_tasks, device.health.unknown_failures
            offline.hold(model)
            with simulator.fault("model", nth=1, async_error=FAILED):
                async with anyio.create_task_group() as group:
                    call = Waiting(group, lambda: model(rows()))
                    await until(offline.enqueued)
                    call.cancel()
                offline.release(model)
                with pytest.warns(
                    aioacl.AclWarning, match="no await raised the error, and its stream was renewed"
                ):
                    await until(lambda: device.health.failed_tasks > failed and offline.all_free(model))
            assert is_product(await model(rows(1)), rows(1))
            assert device.health.unknown_failures == unknown

    async def test_call_may_be_awaited_after_its_arguments_were_replaced(
        self, open_device: OpenDevice
    ) -> None:
        async with open_device() as device, device.load_model(offline.product()) as model:
            operation = model(rows(7))  # only the operation refers to the array
            assert is_product(await operation, rows(7))


class TestOnAPlainThread:
    def test_blocks_close_the_model(self, device: aioacl.Device) -> None:
        with device.load_model(offline.product()) as model:
            assert is_product(model(rows()).result(), rows())
        assert simulator.models() == ()

    def test_calls_of_many_threads_return_their_own_values(self, model: aioacl.Model) -> None:
        def call(number: int) -> bool:
            return all(is_product(model(rows(number + i)).result(), rows(number + i)) for i in range(5))

        threads = [Raised(lambda number=number: call(100 * number)) for number in range(8)]  # type: ignore[misc]
        assert all(thread.join() for thread in threads)

    def test_operation_that_is_dropped_warns(self, model: aioacl.Model) -> None:
        with pytest.warns(RuntimeWarning, match=r"^model\(\) was never awaited, so nothing was done"):
            model(rows())

    def test_job_of_the_device_may_call_a_model(self, device: aioacl.Device, model: aioacl.Model) -> None:
        y = device.run(lambda: model(rows(4)).result()).result()
        assert is_product(y, rows(4))

    def test_call_of_a_thread_and_of_another_thread_share_the_slots(self, model: aioacl.Model) -> None:
        assert is_product(in_thread(lambda: model(rows(1)).result()), rows(1))
        assert is_product(model(rows(2)).result(), rows(2))


def test_virtual_cost_of_an_execution_ends_a_timed_call(device: aioacl.Device) -> None:
    """The execution may begin after the clock was advanced, so the test advances the clock again."""

    def ends(model: aioacl.Model) -> bool:
        simulator.advance_clock(1001)
        return offline.all_free(model)

    simulator.set_model_cost(base=1000)
    try:
        with device.load_model(offline.product(), slots=1) as model:
            for limit in offline.short_limits():
                with pytest.raises(aioacl.DeviceTimeout):
                    model(rows(), timeout=limit).result()
            simulator.set_virtual_clock(True)
            assert until_now(lambda: ends(model))
    finally:
        simulator.set_virtual_clock(False)
        simulator.set_model_cost()
