"""The checks of a batcher, 20 times each: on each event loop, and on a second loop of its kind on another thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

from tests.kit import in_thread
from tests.unit.batches import test_checks as checks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Check = Callable[[], Coroutine[Any, Any, None]]

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
TIMES: Final = 20


def one_row_too_few() -> Coroutine[Any, Any, None]:
    return checks.test_67_wrong_number_of_results_fails_that_batch_only(3)


async def end_leaves_no_caller_hanging() -> None:
    await checks.test_67_close_executes_what_waits_and_then_refuses()
    await checks.test_67_close_fails_what_is_left_after_its_grace_time()


def cancelled_error_raised_by_the_work() -> Coroutine[Any, Any, None]:
    return checks.test_67_exception_that_would_end_a_task_reaches_callers_as_an_error(asyncio.CancelledError)


CHECKS: Final[tuple[Check, ...]] = (
    checks.test_67_each_item_has_one_outcome_under_random_cancellations,
    checks.test_70_one_bad_item_fails_alone,
    checks.test_wrong_shape_raises_in_the_call_and_other_shapes_run_apart,
    checks.test_67_callers_of_a_failed_batch_get_an_exception_object_each,
    checks.test_68_item_that_is_cancelled_while_it_waits_never_runs,
    checks.test_68_item_that_is_cancelled_while_it_runs_harms_no_neighbour,
    checks.test_68_time_limit_ends_an_item_behind_an_execution_that_never_ends,
    checks.test_69_overload_is_refused_or_waits_as_the_caller_asks,
    end_leaves_no_caller_hanging,
    one_row_too_few,
    cancelled_error_raised_by_the_work,
    checks.test_large_items_run_one_in_a_batch,
    checks.test_73_loop_that_blocks_delays_no_other_loop_and_its_items_are_dropped_when_it_is_closed,
    checks.test_69_second_key_is_served_after_one_batch_of_the_first_which_fills_the_limit,
)


@pytest.mark.parametrize("check", CHECKS)
async def test_check_holds_20_times_on_this_loop(check: Check) -> None:
    for _ in range(TIMES):
        await check()


@pytest.mark.parametrize("check", CHECKS)
async def test_check_holds_20_times_on_a_loop_of_another_thread_at_the_same_time(
    check: Check, anyio_backend: tuple[str, dict[str, Any]]
) -> None:
    kind, options = anyio_backend

    async def often() -> None:
        for _ in range(TIMES):
            await check()

    async with anyio.create_task_group() as group:
        group.start_soon(
            anyio.to_thread.run_sync,
            lambda: in_thread(lambda: anyio.run(often, backend=kind, backend_options=options)),
        )
        await often()
