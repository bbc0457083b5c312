"""Phases in which an await waits for a reset to drain or to end, or for its turn after a reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from aioacl import State, simulator
from aioacl._lifecycle.procedures.reset import ResetProcedure
from tests.kit import Waiting, until, until_now
from tests.reliability import setting
from tests.reliability.cancel_bench import WATCHED
from tests.reliability.cancel_phases import (
    GRACE_SECONDS,
    Setup,
    ThreadsReset,
    leased,
    make,
    phase,
    queued,
    release,
    release_call,
    resetting,
    waits,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from aioacl._lifecycle.manager import Manager
    from tests.reliability.cancel_bench import Bench


# --- turns --------------------------------------------------------------------------------------------------------


def _no_turn_is_due(manager: Manager) -> Callable[[int, int], str]:
    def check(_: int, left: int) -> str:
        due = len(manager.admission.turns._due)
        return "" if due <= left else f"expected at most {left} due turns, got {due}"

    return check


@phase("a turn, waiter not yet notified", at_once=True)
async def _turn(bench: Bench, _: int) -> AsyncGenerator[Setup]:
    device, manager = bench.device, bench.device._manager
    second: list[ThreadsReset] = []

    def next_reset_waits() -> bool:
        return isinstance(manager.procedure, ResetProcedure) and manager.admission.state is State.OPEN

    def arrive() -> None:
        simulator.release_call(setting.RESETS)
        until_now(lambda: manager.admission.state is State.OPEN and manager.procedure is None)
        second.append(ThreadsReset(device))
        until_now(next_reset_waits)

    async with resetting(bench, device):
        yield Setup(
            lambda number: make(device, number),
            lambda count: next_reset_waits() and len(manager.admission.turns._due) == count,
            gathered=lambda count: len(manager.admission.turns._waiting) == count,
            arrive=arrive,
            check=_no_turn_is_due(manager),
        )
    await until(lambda: not second[0].is_alive())
    report = second[0].report
    bench.expect(report and report.ok, f"expected the reset after the turns to succeed, got {report}")


@phase("a turn that is being taken", at_once=True)
async def _turn_taken(bench: Bench, _: int) -> AsyncGenerator[Setup]:
    device, manager = bench.device, bench.device._manager
    second: list[ThreadsReset] = []

    def in_their_turn(count: int) -> bool:
        on_maintenance = simulator.hung("aclrtMallocHost") == 1 and queued(manager) == count - 1
        return (
            on_maintenance
            and len(manager.admission.turns._due) == count
            and manager.admission.state is State.OPEN
        )

    opened: list[bool] = []

    def gathered(count: int) -> bool:
        if len(manager.admission.turns._waiting) == count and not opened:
            opened.append(True)
            simulator.release_call(setting.RESETS)
        return in_their_turn(count)

    def arrive() -> None:
        second.append(ThreadsReset(device))
        until_now(lambda: isinstance(manager.procedure, ResetProcedure))

    async def finish() -> None:
        simulator.release_call("turn")

    # The device may allocate staging memory at any time. Staging memory is larger than the size limit of the fault.
    hang = simulator.fault("aclrtMallocHost", size_max=64, hang="turn", times=1)
    async with resetting(bench, device):
        with hang:
            yield Setup(
                lambda _: device.pinned(64),
                in_their_turn,
                gathered=gathered,
                arrive=arrive,
                finish=finish,
                check=_no_turn_is_due(manager),
            )
            simulator.release_call("turn")
    await until(lambda: not second[0].is_alive())
    report = second[0].report
    bench.expect(report and report.ok, f"expected the reset after the turns to succeed, got {report}")


# --- resets -------------------------------------------------------------------------------------------------------


@phase("draining: the holder of a lease")
async def _holder(bench: Bench, count: int) -> AsyncGenerator[Setup]:
    device, manager = bench.device, bench.device._manager
    async with device.allocate(64) as memory, device.create_stream() as stream:
        simulator.hold(stream)
        tickets = [stream.fill(memory, 1) for _ in range(count)]

        async def begin(number: int) -> None:
            async with device.lease():
                await tickets[number]

        def leases_end(_: int, left: int) -> str:
            held = len(manager.admission.leases)
            return "" if held == left else f"expected {left} held leases, got {held}"

        async with anyio.create_task_group() as group:
            resets: list[Waiting] = []

            def gathered(count: int) -> bool:
                if len(manager.admission.leases) == count and not resets:
                    resets.append(Waiting(group, lambda: device.force_reset(grace=GRACE_SECONDS)))
                return manager.admission.state is State.DRAINING

            yield Setup(
                begin,
                lambda count: (
                    manager.admission.state is State.DRAINING
                    and len(manager.admission.leases) == count == waits(device)
                ),
                gathered=gathered,
                finish=lambda: release(stream),
                check=leases_end,
            )
            report = await resets[0].outcome()
            bench.expect(
                report.ok and not report.aborted, f"expected a successful reset without aborts, got {report}"
            )
        tickets.clear()


@phase("draining: an await without a lease")
async def _outsider(bench: Bench, _: int) -> AsyncGenerator[Setup]:
    device, manager = bench.device, bench.device._manager
    async with device.allocate(64) as memory, device.create_stream() as stream:
        simulator.hold(stream)
        stream.fill(memory, 1)
        async with anyio.create_task_group() as group:
            resetting = Waiting(group, lambda: device.force_reset(grace=GRACE_SECONDS))
            await until(lambda: manager.admission.state is State.DRAINING)
            yield Setup(
                lambda number: leased(device) if number % 2 else device.allocate(64),
                lambda count: (
                    manager.admission.state is State.DRAINING
                    and len(manager.admission.turns._waiting)
                    == count
                    == len(manager.admission._subscribers) - 1
                ),
                finish=lambda: release(stream),
            )
            report = await resetting.outcome()
            bench.expect(
                report.ok and not report.aborted, f"expected a successful reset without aborts, got {report}"
            )


@phase("in the reset: its caller", most=WATCHED)
async def _caller(bench: Bench, count: int) -> AsyncGenerator[Setup]:
    devices = bench.devices[:count]
    bench.touched = list(range(count))
    before = [device.generation for device in devices]

    async def finish() -> None:
        simulator.release_call("cancel")

    def reset_continues(_: int, __: int) -> str:
        states = [device.state.name for device in devices if device.state is not State.RESETTING]
        return (
            f"expected resets to continue without their callers, got the device states {states}"
            if states
            else ""
        )

    with simulator.fault(setting.RESETS, hang="cancel", times=count):
        yield Setup(
            lambda number: devices[number].force_reset(),
            lambda count: (
                simulator.hung(setting.RESETS) == count
                and all(len(device._manager.admission._subscribers) == 1 for device in devices)
            ),
            finish=finish,
            check=reset_continues,
        )
        simulator.release_call("cancel")
    await until(lambda: all(device.state is State.OPEN for device in devices))
    raised = [device.generation - generation for device, generation in zip(devices, before, strict=True)]
    bench.expect(
        set(raised) == {1},
        f"expected resets with cancelled callers to raise each generation by 1, got {raised}",
    )


@phase("in the reset: a caller that joined it")
async def _joined(bench: Bench, _: int) -> AsyncGenerator[Setup]:
    device, manager = bench.device, bench.device._manager
    async with resetting(bench, device) as caller:
        procedure = manager.procedure
        assert isinstance(procedure, ResetProcedure)

        async def begin(_: int) -> None:
            report = await device.force_reset()
            bench.expect(
                report is procedure.report,
                "expected the report of the joined reset, got the report of another reset",
            )

        yield Setup(
            begin,
            lambda count: procedure.joined == count + 1 == len(manager.admission._subscribers),
            finish=lambda: release_call(setting.RESETS),
        )
        bench.expect(
            await caller.outcome() is procedure.report,
            "expected the report of the caller's reset, got the report of another reset",
        )
