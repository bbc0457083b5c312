"""What users of other libraries complained about: each test names the issue, and shows that it cannot happen here."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aioacl import DeviceFault, DeviceQuarantined, DeviceTimeout, QueueFull, State, open_batcher
from aioacl._base.health import Health
from aioacl._batches.batcher import Batcher
from aioacl._batches.executor import Watched
from aioacl._batches.state import Rules
from tests.kit import Waiting, raises, turns, until
from tests.support import offline
from tests.support.batching import ByHand, OnThread, View, batching, check, tasks
from tests.support.offline import needs_onnxruntime
from tests.unit.batches.test_checks import all_of, task_fault

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop_in_ci]


def waiting(group: TaskGroup, infer: Any, *items: Any, **options: Any) -> list[Waiting]:
    """Awaits each item in a task."""
    return [Waiting(group, lambda x=x: infer(x, **options)) for x in items]  # type: ignore[misc]  # mypy infers no type for a lambda with a default


def rows_of(calls: list[Any]) -> int:
    return sum(call[1] if isinstance(call, tuple) else 1 for call in calls)


# --- Ray Serve ------------------------------------------------------------------------------------------------------


async def test_ray_66140_error_while_the_size_of_an_item_is_read_concerns_only_this_item() -> None:
    def sized(x: Any) -> tuple[Any, int, Any]:
        return x, len(x), None

    batcher = Batcher._make(Rules((1, 2, 4, 8)), sized, lambda *_: [(OnThread(), Watched(View()))])
    with pytest.raises(TypeError):
        batcher(None)
    assert await batcher("ok") == "ok"
    await batcher.close()


async def test_ray_41057_items_whose_callers_gave_up_do_not_harm_later_ones() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1) as infer:
        async with tasks() as group:
            first = waiting(group, infer, 0)
            await until(lambda: hand.begun)
            found = await all_of(infer, range(100), timeout=0.001)
            assert {type(each) for each in found} == {DeviceTimeout}
            hand.end()
            await until(lambda: first[0].ended)
            later = waiting(group, infer, *range(32))
            await until(lambda: hand.begun)
            hand.end()
    assert [call.value for call in later] == list(range(32))


async def test_ray_41199_result_for_a_caller_that_has_gone_does_not_end_the_batcher() -> None:
    hand = ByHand()
    with batching(hand) as infer:
        async with tasks() as group:
            calls = waiting(group, infer, 0, 1, 2)
            await until(lambda: hand.begun)
            await calls[0].cancel_and_wait()
            hand.end()
            await until(lambda: calls[2].ended)
            calls += waiting(group, infer, 3)
            await until(lambda: hand.begun)
            hand.end()
    assert [call.value for call in calls] == [None, 1, 2, 3]


async def test_ray_50046_cancellations_in_a_stream_of_items_leave_the_batcher_working() -> None:
    with batching(OnThread(), in_flight=1) as infer:
        for _ in range(50):
            async with tasks() as group:
                calls = waiting(group, infer, *range(8))
                await turns(2)
                for call in calls[::2]:
                    call.cancel()
        assert await all_of(infer, range(8)) == list(range(8))


async def test_ray_50054_batch_whose_items_were_all_cancelled_never_runs() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1) as infer:
        async with tasks() as group:
            waiting(group, infer, 0)
            await until(lambda: hand.begun)
            calls = waiting(group, infer, 1, 2)
            await until(lambda: infer.waiting == 2)
            for call in calls:
                await call.cancel_and_wait()
            hand.end()
        assert hand.log == [[0]]


# --- LitServe -------------------------------------------------------------------------------------------------------


async def test_litserve_340_one_bad_item_does_not_fail_its_batch() -> None:
    def execute(calls: list[Any]) -> list[Any]:
        if "bad" in calls:
            raise task_fault()
        return list(calls)

    with batching(OnThread(execute)) as infer:
        found = await all_of(infer, ["a", "bad", "b", "c"])
    assert (found[0], type(found[1]), found[2:]) == ("a", DeviceFault, ["b", "c"])


async def test_litserve_165_item_of_a_client_that_has_gone_is_not_executed() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1) as infer:
        async with tasks() as group:
            waiting(group, infer, 0)
            await until(lambda: hand.begun)
            (gone,) = waiting(group, infer, "gone")
            waiting(group, infer, "here")
            await until(lambda: infer.waiting == 2)
            await gone.cancel_and_wait()
            hand.end()
            await until(lambda: hand.begun)
            hand.end()
        assert hand.log == [[0], ["here"]]


async def test_litserve_660_health_of_a_device_that_has_failed_does_not_say_that_it_is_healthy() -> None:
    health = Health("poisoned", State.OPEN, 1, "507013", 0.0, 0, 0)
    assert not health.ready
    with pytest.raises(DeviceFault):
        health.check()


async def test_litserve_664_batcher_without_a_working_device_refuses_at_once() -> None:
    view = View()
    view.is_open = False
    with batching(OnThread(), view=view) as infer:
        infer._runner.look()
        await raises(DeviceQuarantined, infer(0))


# --- Triton ---------------------------------------------------------------------------------------------------------


async def test_triton_4618_item_that_times_out_in_the_queue_does_not_delay_the_next() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1, most=1) as infer:
        async with tasks() as group:
            waiting(group, infer, 0)
            await until(lambda: hand.begun)
            await raises(DeviceTimeout, infer(1, timeout=0.001))
            waiting(group, infer, 2)
            await until(lambda: infer.waiting == 1)
            hand.end()
            await until(lambda: hand.begun)
            hand.end()
        assert hand.log == [[0], [2]]


async def test_triton_7532_item_that_times_out_leaves_the_queue() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1) as infer:
        async with tasks() as group:
            waiting(group, infer, 0)
            await until(lambda: hand.begun)
            await raises(DeviceTimeout, infer((1, 8, None), timeout=0.001))
            assert infer.waiting == 0
            hand.end()
        assert hand.log == [[0]]


async def test_triton_7512_time_limit_ends_an_item_while_the_model_is_busy() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1) as infer:
        async with tasks() as group:
            (running,) = waiting(group, infer, 0)
            await until(lambda: hand.begun)
            await raises(DeviceTimeout, infer(1, timeout=0.001))
            assert not running.ended  # the execution has not ended, and yet the item has
            hand.end()


async def test_triton_5783_exactly_as_many_rows_wait_as_the_limit_says() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1, limit=32) as infer:
        async with tasks() as group:
            waiting(group, infer, 0)
            await until(lambda: hand.begun)
            calls = waiting(group, infer, *range(40), wait=False)
            await until(lambda: sum(call.ended for call in calls) == 8)
            assert [type(call.error) for call in calls if call.ended] == [QueueFull] * 8
            assert infer.waiting == 32
            for _ in range(2):
                await until(lambda: hand.begun)
                hand.end()


async def test_triton_6796_limit_holds_for_items_that_arrive_one_after_another() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1, limit=32) as infer:
        async with tasks() as group:
            waiting(group, infer, 0)
            await until(lambda: hand.begun)
            for count in range(1, 33):
                waiting(group, infer, count, wait=False)
                await until(lambda count=count: infer.waiting == count)  # type: ignore[misc]  # as above
            await raises(QueueFull, infer(33, wait=False))
            for _ in range(2):
                await until(lambda: hand.begun)
                hand.end()
        assert hand.log == [[0], [*range(1, 33)]]


async def test_triton_8870_no_count_drifts_after_many_time_limits() -> None:
    hand = ByHand()
    with batching(hand, in_flight=2) as infer:
        async with tasks() as group:
            for number in range(20):
                calls = waiting(group, infer, (number, 32, None), (number, 32, None))
                await until(lambda: len(hand.begun) == 2)
                found = await all_of(infer, range(20), timeout=0.001)
                assert {type(each) for each in found} == {DeviceTimeout}
                hand.end()
                hand.end()
                await until(lambda calls=calls: all(call.ended for call in calls))  # type: ignore[misc]  # as above
            stats = infer.stats()
            assert (stats.waiting, stats.running, stats.expired, stats.done) == (0, 0, 400, 40)
            calls = waiting(group, infer, (0, 32, None), (1, 32, None))
            await until(lambda: len(hand.begun) == 2)  # as many executions as before
            hand.end()
            hand.end()


async def test_triton_7124_batch_of_a_model_with_a_fixed_batch_size_is_padded() -> None:
    hand = ByHand()
    infer = Batcher._make(Rules((8,)), check, lambda *_: [(hand, Watched(View()))])
    async with tasks() as group:
        calls = waiting(group, infer, 0, 1, 2)
        await until(lambda: hand.begun)
        hand.end()
    assert [call.value for call in calls] == [0, 1, 2]
    assert (infer.stats().rows, infer.stats().padded_rows) == (3, 5)
    await infer.close()


async def test_triton_3395_items_of_different_shapes_are_not_joined() -> None:
    hand = ByHand()
    with batching(hand) as infer:
        async with tasks() as group:
            waiting(group, infer, (0, 1, "wide"), (1, 1, "high"), (2, 1, "wide"), (3, 1, "high"))
            for _ in range(2):
                await until(lambda: hand.begun)
                hand.end()
        assert sorted(sorted(call[0] for call in calls) for calls in hand.log) == [[0, 2], [1, 3]]


async def test_triton_6937_items_of_alternating_shapes_still_share_executions() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1) as infer:
        async with tasks() as group:
            waiting(group, infer, 99)
            await until(lambda: hand.begun)
            waiting(group, infer, *((number, 1, number % 2) for number in range(32)))
            await until(lambda: infer.waiting == 32)
            for _ in range(3):
                await until(lambda: hand.begun)
                hand.end()
        assert [len(calls) for calls in hand.log] == [1, 16, 16]


# --- BentoML --------------------------------------------------------------------------------------------------------


async def test_bentoml_3859_item_of_many_rows_fills_a_batch() -> None:
    hand = ByHand()
    with batching(hand) as infer:
        async with tasks() as group:
            waiting(group, infer, *((number, 32, None) for number in range(4)))
            for _ in range(4):
                await until(lambda: hand.begun)
                hand.end()
        assert [rows_of(calls) for calls in hand.log] == [32] * 4


async def test_bentoml_3710_rows_of_a_batch_do_not_exceed_its_size() -> None:
    hand = ByHand()
    with batching(hand, most=10, in_flight=1) as infer:
        async with tasks() as group:
            waiting(group, infer, *((number, 3, None) for number in range(20)))
            for _ in range(7):
                await until(lambda: hand.begun)
                hand.end()
        assert [rows_of(calls) for calls in hand.log] == [9] * 6 + [6]


async def test_bentoml_4856_batches_may_have_one_row() -> None:
    hand = ByHand()
    with batching(hand, most=1, limit=8, in_flight=1) as infer:
        async with tasks() as group:
            calls = waiting(group, infer, 0, 1)
            for _ in range(2):
                await until(lambda: hand.begun)
                hand.end()
    assert [call.value for call in calls] == [0, 1]
    assert [len(calls) for calls in hand.log] == [1, 1]


async def test_bentoml_1530_latency_that_a_caller_asks_for_is_kept() -> None:
    hand = ByHand()
    with batching(hand) as infer:
        async with tasks() as group:
            (call,) = waiting(group, infer, 0, timeout=0.05)
            await until(lambda: call.ended)  # although the execution takes longer, or has not begun
            assert isinstance(call.error, DeviceTimeout)
            for _ in hand.begun:
                hand.end()


async def test_bentoml_3200_slow_executions_refuse_no_item() -> None:
    hand = ByHand()
    with batching(hand, in_flight=1) as infer:
        infer._runner.core.models[0].rate = 1e-6  # the model takes days for a row
        async with tasks() as group:
            calls = waiting(group, infer, *range(64))
            for _ in range(2):
                await until(lambda: hand.begun)
                hand.end()
    assert [call.value for call in calls] == list(range(64))


async def test_bentoml_5348_end_of_the_hold_executes_an_item_and_does_not_cancel_it() -> None:
    with batching(OnThread(), hold=0.001) as infer:
        assert await infer(1) == 1
        assert infer.stats().cancelled == 0


# --- OpenVINO -------------------------------------------------------------------------------------------------------


async def test_openvino_36554_array_that_its_caller_drops_lives_until_the_execution_has_ended() -> None:
    hand = ByHand()
    with batching(hand) as infer:
        async with tasks() as group:
            given = [np.arange(4)]
            alive = weakref.ref(given[0])
            call = Waiting(group, lambda: infer(given.pop()))  # nothing else refers to the array
            await until(lambda: hand.begun)
            gc.collect()
            assert alive() is not None
            assert np.array_equal(hand.begun[0][0], np.arange(4))
            hand.log.clear()
            hand.end([1])
    assert call.value == 1
    gc.collect()
    assert alive() is None


@needs_onnxruntime
async def test_openvino_36554_rows_of_an_array_that_its_caller_drops_before_the_copy_are_right(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product("2,4"), slots=1) as model,
        open_batcher(model, in_flight=1) as infer,
        tasks() as group,
    ):
        offline.hold(model)
        Waiting(group, lambda: model(offline.rows(1)))
        await until(lambda: model.busy == 1)
        given = [offline.rows(2)]
        call = Waiting(group, lambda: infer(given.pop()))
        await until(lambda: model.waiting == 1)  # the only slot is in use, so the rows were not copied
        gc.collect()
        poison = [np.full_like(offline.rows(), np.nan) for _ in range(1000)]
        offline.release(model)
    assert np.array_equal(call.value, offline.rows(2) @ offline.WEIGHTS)
    assert len(poison) == 1000
