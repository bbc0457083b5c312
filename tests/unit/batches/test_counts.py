"""What bad items and a sick device cost, on simulated devices: executions, resets, and the items that get the failure.

A Python function stands in for the model. It fails if one of its rows begins with the number of a bad item.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aioacl
from aioacl import DeviceFault, open_batcher, open_pool, simulator
from tests.kit import FAULT, TASK_FAULT
from tests.unit.batches.test_models import BATCHES, first_ten, is_right, item, run

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioacl.simulator import Execution
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
SIZE = 32
ITEMS = [item(number) for number in range(1, SIZE + 1)]


@contextmanager
def failing(bad: set[int], code: int) -> Generator[None]:
    """Executions with one of these items fail with the code."""

    def execute(execution: Execution) -> int:
        rows = np.frombuffer(execution.inputs[0].memory, np.float32).reshape(-1, 64)
        if bad.intersection(rows[:, 0].astype(int)):
            return code
        first_ten(execution)
        return 0

    with simulator.register_model("digits_batches", execute):
        yield


async def failed_of(infer: Any, batches: int = 1) -> set[int]:
    """Runs the items. Returns the numbers of those that failed; the others have the right result."""
    xs = ITEMS * batches
    results = await run(infer, xs)
    failed = {int(x[0, 0]) for result, x in zip(results, xs, strict=True) if isinstance(result, DeviceFault)}
    assert all(is_right(result, x) or x[0, 0] in failed for result, x in zip(results, xs, strict=True))
    return failed


@pytest.mark.leaves("offline_models")  # a model is not unloaded after a fault of its device
@pytest.mark.parametrize(
    ("bad", "code", "executions", "resets"),
    [
        ({14}, TASK_FAULT, 11, 0),
        ({14}, FAULT, 34, 2),
        ({3, 30}, TASK_FAULT, 21, 0),
        ({*range(1, SIZE + 1)}, TASK_FAULT, 21, 0),
    ],
    ids=["one, task", "one, device", "two, task", "all, task"],
)
async def test_bad_items_of_32_fail_alone_within_the_counts(
    open_device: OpenDevice, bad: set[int], code: int, executions: int, resets: int
) -> None:
    with failing(bad, code):
        async with (
            open_device() as device,
            device.supervise(),
            device.load_model(BATCHES) as model,
            open_batcher(model) as infer,
        ):
            before = device.generation
            assert await failed_of(infer) == bad
            stats, count = infer.stats(), device.generation - before
    assert (stats.done, stats.failed) == (SIZE - len(bad), len(bad))
    assert stats.executions <= executions
    assert count <= resets


async def test_third_batch_in_a_row_of_bad_items_is_one_execution(open_device: OpenDevice) -> None:
    bad, counts = set(range(1, SIZE + 1)), list[int]()
    with failing(bad, TASK_FAULT):
        async with open_device() as device, device.load_model(BATCHES) as model, open_batcher(model) as infer:
            for _ in range(3):
                before = infer.stats().executions
                assert await failed_of(infer) == bad
                counts.append(infer.stats().executions - before)
    assert counts[2] == 1
    assert max(counts) <= 21


@pytest.mark.leaves("offline_models")  # as above
async def test_sick_device_charges_no_item_and_the_pool_goes_on() -> None:
    sick = 1

    def execute(execution: Execution) -> int:
        first_ten(execution)
        return FAULT if execution.device == sick else 0

    with failing(set(), 0):
        infer = await open_pool(BATCHES)
    with simulator.register_model("digits_batches", execute):
        device = infer.devices[sick]
        while device.health.supervisor != "given up":
            assert await failed_of(infer, batches=10) == set()
        assert device.state is aioacl.State.QUARANTINED
        assert await failed_of(infer, batches=10) == set()
        assert infer.stats().failed == 0
        await infer.close()
