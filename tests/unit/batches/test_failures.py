"""What the core does after a failure: how many executions there are, and which items get it."""

from __future__ import annotations

from itertools import combinations

import pytest

from aioacl._batches.state import DeviceState, Ending, ModelState, Rules
from tests.unit.batches.decisions import GEARS, Job, World

FAULTS = (Ending.DEVICE, Ending.DEVICE_ALONE)


def batch(bad: dict[int, Ending], size: int = 32, first: int = 0) -> list[Job]:
    return [Job(first + number, bad=bad.get(number)) for number in range(size)]


def run(world: World, jobs: list[Job]) -> tuple[list[int], int]:
    """Returns the names of the items that failed, and the number of executions."""
    before = len(world.log)
    world.arrive(*jobs)
    world.run()
    assert all(job.outcome is not None for job in jobs)
    return [job.name for job in jobs if job.outcome is not Ending.DONE], len(world.log) - before


# --- failed tasks (rule 8) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 7, 16, 31])
def test_70_one_bad_item_of_32_fails_alone_after_11_executions(position: int) -> None:
    world = World()
    assert run(world, batch({position: Ending.TASK})) == ([position], 11)
    assert world.resets == 0


@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, 31])
def test_one_bad_item_of_any_batch_fails_alone_within_the_bound(size: int) -> None:
    for position in range(size):
        failed, executions = run(World(), batch({position: Ending.TASK}, size))
        assert failed == [position]
        assert executions <= 2 * (size - 1).bit_length() + 1


def test_70_two_bad_items_anywhere_fail_alone_within_21_executions() -> None:
    for pair in combinations((0, 1, 5, 15, 16, 17, 30, 31), 2):
        failed, executions = run(World(), batch(dict.fromkeys(pair, Ending.TASK)))
        assert failed == list(pair)
        assert executions <= 21


def test_batch_of_bad_items_uses_its_budget_and_the_third_in_a_row_is_not_divided() -> None:
    world, bad = World(), dict.fromkeys(range(32), Ending.TASK)
    assert [run(world, batch(bad)) for _ in range(4)] == [
        (list(range(32)), count) for count in (21, 21, 1, 1)
    ]


def test_batch_that_succeeds_lets_later_batches_be_divided_again() -> None:
    world, bad = World(), dict.fromkeys(range(32), Ending.TASK)
    for _ in range(3):
        run(world, batch(bad))
    assert run(world, batch({})) == ([], 1)
    assert run(world, batch({3: Ending.TASK})) == ([3], 11)


def test_batch_whose_bad_item_is_found_ends_the_row_of_batches_that_are_not_divided() -> None:
    world, bad = World(), dict.fromkeys(range(32), Ending.TASK)
    run(world, batch(bad))
    run(world, batch({3: Ending.TASK}))
    assert [run(world, batch(bad))[1] for _ in range(3)] == [21, 21, 1]


def test_halves_run_without_other_items_and_other_batches_go_on() -> None:
    world = World()
    world.arrive(*batch({0: Ending.TASK}, 4), *batch({}, 4, first=10))
    (execution,) = world.begin()
    assert len(execution.items) == 8
    world.arrive(*batch({}, 32, first=100))
    world.end(execution)
    assert [len(each.items) for each in world.begin()] == [4, 4]
    while world.begun:
        world.end(world.begun[0])
        world.begin()
    assert world.core.counts.done == 39
    assert world.core.counts.failed == 1


def test_task_timeout_is_not_divided_beyond_the_time_limits_of_items() -> None:
    world = World()
    jobs = batch({0: Ending.TASK_TIMEOUT}, 4)
    jobs[0]._deadline, jobs[1]._deadline = 10.0, 15.0
    world.now = 1.0
    world.arrive(*jobs)
    (execution,) = world.begin()
    world.now = 7.5  # a repeat would end at 14
    assert [job.name for job in world.end(execution)] == [0]
    world.run()
    assert [job.outcome for job in jobs[1:]] == [Ending.DONE] * 3


def test_70_item_whose_time_limit_has_just_ended_does_not_get_the_failure_of_another() -> None:
    world = World()
    jobs = batch({0: Ending.TASK}, 4)
    jobs[3]._deadline = 5.0
    world.arrive(*jobs)
    (execution,) = world.begin()
    world.now = 6.0  # the loop of the item has not noticed its deadline yet
    assert world.end(execution) == []
    world.run()
    assert [job.name for job in jobs if job.outcome is not Ending.DONE] == [0]


def test_70_last_item_of_a_batch_does_not_get_the_failure_of_one_whose_caller_has_gone() -> None:
    world = World()
    jobs = batch({0: Ending.TASK}, 2)
    world.arrive(*jobs)
    (execution,) = world.begin()
    world.core.cancel(jobs[0])
    assert world.end(execution) == []
    world.run()
    assert jobs[1].outcome is Ending.DONE


def test_failed_task_with_one_attempt_fails_the_whole_batch() -> None:
    world = World(Rules(GEARS, attempts=1))
    assert run(world, batch({3: Ending.TASK})) == (list(range(32)), 1)


# --- failures of the device (rule 9) ------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("position", [0, 15, 31])
def test_71_item_that_breaks_the_device_fails_alone_after_2_resets_and_34_executions(
    position: int, fault: Ending
) -> None:
    world = World()
    assert run(world, batch({position: fault})) == ([position], 34)
    assert world.resets == 2


def test_suspects_run_alone_after_an_execution_with_zeros() -> None:
    world = World()
    world.arrive(*batch({0: Ending.DEVICE_ALONE}, 4))
    world.end(world.begin()[0])
    world.arrive(*batch({}, 32, first=10))
    alone = [world.begin() for _ in range(2)]
    assert [[job.name for job in each.items] for each in alone[0]] == [[]]
    assert alone[1] == []
    world.end(alone[0][0])
    for name in range(4):
        (execution,) = world.begin()
        assert [job.name for job in execution.items] == [name]
        world.end(execution)
    assert [len(execution.items) for execution in world.begin()] == [32]


def test_device_that_fails_every_execution_charges_no_item_and_other_devices_go_on() -> None:
    world = World(devices=2)
    sick, well = world.models
    world.ends = lambda execution: Ending.DEVICE_ALONE if execution.model is sick else Ending.DONE
    jobs = batch({}, 320)
    for start in range(0, 320, 32):
        world.arrive(*jobs[start : start + 32])
    world.begin()
    for _ in range(200):
        if not world.begun:
            break
        world.end(world.begun[0])
        if world.resets == 8:  # its supervisor gives up
            world.comes_back = False
            world.core.tell(sick.device, is_open=False, coming=False, generation=9)
        world.begin()
    assert {job.outcome for job in jobs} == {Ending.DONE}
    assert well.device.faulty == -1


def test_items_of_other_executions_on_the_device_become_suspects() -> None:
    world = World(Rules(GEARS, in_flight=2), comes_back=False)
    jobs = batch({}, 64)
    world.arrive(*jobs)
    first, second = world.begin()
    assert world.end(first, Ending.DEVICE) == []
    assert world.end(second, Ending.RESET) == []
    assert world.begin() == []
    device = world.models[0].device
    world.core.tell(device, is_open=True, coming=False, generation=1)
    world.comes_back = True
    world.run()
    assert [len(names) for names in world.log] == [32, 32, 0] + [1] * 64
    assert {job.outcome for job in jobs} == {Ending.DONE}


def test_suspect_that_fails_beside_other_work_uses_an_attempt() -> None:
    world = World(Rules(GEARS, attempts=3))
    jobs = batch({1: Ending.DEVICE}, 2)
    world.arrive(*jobs)
    world.run()
    assert [job.outcome for job in jobs] == [Ending.DONE, Ending.DEVICE]
    assert (world.resets, world.log.count([1])) == (3, 2)


def test_failed_device_with_one_attempt_fails_the_whole_batch() -> None:
    world = World(Rules(GEARS, attempts=1))
    jobs = batch({3: Ending.DEVICE_ALONE})
    world.arrive(*jobs)
    world.run()
    assert {job.outcome for job in jobs} == {Ending.DEVICE_ALONE}
    assert world.log == [list(range(32))]


def test_zeros_that_fail_without_the_device_let_suspects_run() -> None:
    world = World()
    endings = iter([Ending.DEVICE_ALONE, Ending.TASK])
    world.ends = lambda _: next(endings, Ending.DONE)
    assert run(world, batch({}, 2)) == ([], 4)


def test_suspects_run_on_an_idle_device_while_theirs_is_reset() -> None:
    world = World(devices=2, comes_back=False)
    jobs = batch({}, 2)
    world.arrive(*jobs)
    (execution,) = world.begin()
    other = next(model for model in world.models if model is not execution.model)
    world.end(execution, Ending.DEVICE)
    world.core.tell(execution.model.device, is_open=False, coming=True, generation=0)
    (first,) = world.begin()
    assert first.model is other
    assert first.alone
    assert world.begin() == []
    world.run()
    assert {job.outcome for job in jobs} == {Ending.DONE}


def test_suspects_of_a_model_that_is_replaced_during_the_reset_run_on_the_new_one() -> None:
    world = World(comes_back=False)
    jobs = batch({}, 2)
    world.arrive(*jobs)
    (execution,) = world.begin()
    world.end(execution, Ending.DEVICE)
    world.core.tell(execution.model.device, is_open=False, coming=True, generation=0)
    new = ModelState[Job](DeviceState())
    world.core.add_model(new)
    world.core.drain_model(execution.model)
    assert world.core.models == [new]
    assert world.core.left() == jobs
    world.run()
    assert {job.outcome for job in jobs} == {Ending.DONE}
    assert world.log == [[0, 1], [0], [1]]


def test_suspect_that_is_cancelled_does_not_run_again() -> None:
    world = World()
    jobs = batch({0: Ending.DEVICE}, 3)
    world.arrive(*jobs)
    world.end(world.begin()[0])
    assert world.core.waiting.rows == 3
    assert world.core.cancel(jobs[0])
    assert world.core.waiting.rows == 2
    world.run()
    assert world.log == [[0, 1, 2], [], [1], [2]]


# --- resets (rule 10) and lost devices (rule 11) --------------------------------------------------------------------


def test_batch_runs_again_as_it_was_after_a_reset() -> None:
    world = World()
    jobs = batch({}, 5)
    world.arrive(*jobs)
    assert world.end(world.begin()[0], Ending.RESET) == []
    world.arrive(Job(50))
    world.run()
    assert world.log == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [50]]
    assert world.core._tries == {}


def test_71_item_is_put_back_at_most_8_times() -> None:
    world = World(ends=lambda _: Ending.RESET)
    jobs = batch({}, 2)
    world.arrive(*jobs)
    world.run()
    assert len(world.log) == 9
    assert {job.outcome for job in jobs} == {Ending.RESET}


def test_half_that_a_reset_ends_stays_part_of_its_division() -> None:
    world = World()
    endings = iter([Ending.TASK, Ending.RESET])
    world.ends = lambda execution: next(endings, Ending.TASK if execution.items[0].name == 0 else Ending.DONE)
    failed, executions = run(world, batch({}))
    assert failed == [0]
    assert executions == 12
    assert world.models[0].streak.divides


def test_waiting_items_end_if_no_device_will_come_back() -> None:
    world = World(comes_back=False)
    jobs = batch({}, 40)
    world.arrive(*jobs)
    first = world.begin()[0]
    assert world.core.hopeless() == []
    world.end(first, Ending.DEVICE)
    device = world.models[0].device
    world.core.tell(device, is_open=True, coming=True, generation=0)
    assert world.core.hopeless() == []
    world.core.tell(device, is_open=True, coming=False, generation=0)
    assert world.core.hopeless() == [*jobs[:32], *jobs[32:]]
    assert world.core.waiting.rows == 0
    assert world.core.empty


def test_abort_ends_all_items_and_drops_later_outcomes() -> None:
    world = World(comes_back=False)
    jobs = batch({}, 80)
    world.arrive(*jobs)
    first, second = world.begin()
    world.end(second, Ending.RESET)
    world.core.closing = True
    assert {job.name for job in world.core.abort()} == set(range(80))
    assert world.core.abort() == []
    assert world.end(first) == []
    assert world.core.empty
