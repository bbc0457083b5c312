"""Phases in which an await waits for the device itself: at the gate, or for an event, an open, a close or a job."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anyio

from aioacl import State, simulator
from aioacl._lifecycle.gate import counts
from aioacl._lifecycle.manager import manager_of
from aioacl._lifecycle.procedures.open import OpenProcedure
from tests.kit import Waiting, until, until_now
from tests.reliability import setting
from tests.reliability.cancel_bench import JOBS_AT_ONCE, SPARE
from tests.reliability.cancel_phases import Setup, leased, make, phase, release_call, resetting

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from aioacl import Device
    from tests.reliability.cancel_bench import Bench


# --- at the gate --------------------------------------------------------------------------------------------------


def _at_the_gate(begin: Callable[[Device, int], Awaitable[Any]], *, turns: bool = True) -> Callable[..., Any]:
    """An await that begins while the device is reset."""

    async def enter(bench: Bench, _: int) -> AsyncGenerator[Setup]:
        device, manager = bench.device, bench.device._manager
        async with resetting(bench, device):

            def reached(count: int) -> bool:
                subscribed = len(manager.admission._subscribers) == count + 1  # one more: the reset's caller
                return subscribed and (len(manager.admission.turns._waiting) == count or not turns)

            def given_up(_: int, left: int) -> str:
                waiting = len(manager.admission.turns._waiting), len(manager.admission._subscribers) - 1
                return (
                    ""
                    if waiting in ((left, left), (0, left))
                    else f"expected {left} or 0 waiting turns, and {left} subscribed awaits, got {waiting}"
                )

            yield Setup(
                lambda number: begin(device, number),
                reached,
                finish=lambda: release_call(setting.RESETS),
                check=given_up,
            )

    return enter


phase("at the gate: to create an object")(_at_the_gate(make))
phase("at the gate: for a lease")(_at_the_gate(lambda device, _: leased(device)))
phase("at the gate: to open the device once more")(
    _at_the_gate(lambda device, _: setting.open_device(device.index), turns=False)
)
phase("at the gate: to run a job")(_at_the_gate(lambda device, _: device.run(int), turns=False))


@phase("waiting for the next device event")
async def _events(bench: Bench, _: int) -> AsyncGenerator[Setup]:
    device, manager = bench.device, bench.device._manager
    listeners = len(manager.admission.listeners._all)

    async def begin(_: int) -> str:
        async for event in device.events():
            return event.kind
        return "the end"

    async def finish() -> None:
        bench.expect((await device.force_reset()).ok, "expected a reset to succeed, but it failed")

    def gone(_: int, left: int) -> str:
        subscribed = len(manager.admission._subscribers)
        return "" if subscribed == left else f"expected {left} subscribed awaits, got {subscribed}"

    yield Setup(
        begin,
        lambda count: (
            len(manager.admission._subscribers) == count == len(manager.admission.listeners._all) - listeners
        ),
        finish=finish,
        check=gone,
    )


# --- the first open and the last close ----------------------------------------------------------------------------


@phase("in the first open")
async def _first_open(bench: Bench, _: int) -> AsyncGenerator[Setup]:
    index = SPARE[0]
    manager = manager_of(index)
    bench.touched = [0, index]
    simulator.hang_call(setting.OPENS)

    def counted(_: int, left: int) -> str:
        return (
            ""
            if manager.admission.opens == left
            else f"expected {left} counted opens, got {manager.admission.opens}"
        )

    yield Setup(
        lambda _: setting.open_device(index),
        lambda count: (
            isinstance(manager.procedure, OpenProcedure)
            and simulator.hung(setting.OPENS) == 1
            and manager.admission.opens == count == len(manager.admission._subscribers)
        ),
        finish=lambda: release_call(setting.OPENS),
        check=counted,
    )
    simulator.release_call(setting.OPENS)
    await until(lambda: manager.procedure is None and manager.admission.state is State.CLOSED)
    bench.expect(
        simulator.retain_count(index) == 0,
        "expected the device not to be set after a cancelled open, but it is set",
    )


@phase("in the last close", most=len(SPARE))
async def _last_close(bench: Bench, count: int) -> AsyncGenerator[Setup]:
    devices = [await setting.open_device(index, cache=False) for index in SPARE[:count]]
    bench.touched = list(SPARE[:count])

    async def finish() -> None:
        simulator.release_call("cancel")

    with simulator.fault(setting.CLOSES, hang="cancel", times=count):
        yield Setup(
            lambda number: devices[number].close(),
            lambda count: (
                simulator.hung(setting.CLOSES) == count
                and all(len(device._manager.admission._subscribers) == 1 for device in devices)
            ),
            finish=finish,
        )
        simulator.release_call("cancel")
    await until(lambda: all(device.state is State.CLOSED for device in devices))
    retained = [simulator.retain_count(device.index) for device in devices]
    bench.expect(
        not any(retained),
        f"expected devices not to be set after cancelled closes, got the set counts {retained}",
    )


# --- jobs ---------------------------------------------------------------------------------------------------------


@phase("a job of device.run, queued")
async def _job_queued(bench: Bench, _: int) -> AsyncGenerator[Setup]:
    device = bench.narrow
    bench.touched = [device.index]
    go_on, called = threading.Event(), list[int]()

    def only_uncancelled_jobs_ran(_: int, left: int) -> str:
        return "" if len(called) == left else f"expected {left} jobs to run, got {len(called)}"

    async def finish() -> None:
        go_on.set()

    async with anyio.create_task_group() as group:
        blocking = Waiting(group, lambda: device.run(go_on.wait))
        await until(lambda: counts(device.index)[2] == 1)
        yield Setup(
            lambda number: device.run(called.append, number),
            lambda count: len(device.executor._items) == count,
            finish=finish,
            done=only_uncancelled_jobs_ran,
        )
        go_on.set()
        await blocking.outcome()


@phase("a job of device.run, running", most=JOBS_AT_ONCE)
async def _job_running(bench: Bench, _: int) -> AsyncGenerator[Setup]:
    device = bench.wide
    bench.touched = [device.index]
    go_on, begun, ended = threading.Event(), list[int](), list[int]()

    def job(number: int) -> None:
        begun.append(number)
        go_on.wait()
        ended.append(number)

    def still_running(all_: int, _: int) -> str:
        inside = counts(device.index)[2]
        return (
            ""
            if inside == all_ and not ended
            else f"expected {all_} running jobs and no ended job, got {inside} and {len(ended)}"
        )

    def all_ended(all_: int, _: int) -> str:
        until_now(lambda: len(ended) == all_)
        return "" if len(ended) == all_ else f"expected {all_} jobs to end, got {len(ended)}"

    async def finish() -> None:
        go_on.set()

    yield Setup(
        lambda number: device.run(job, number),
        lambda count: len(begun) == count == counts(device.index)[2],
        finish=finish,
        check=still_running,
        done=all_ended,
    )
    go_on.set()
