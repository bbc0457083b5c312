"""The procedures of a device with a call stuck in C: resets that fail, and a later reset that succeeds."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import anyio

import aioacl
from aioacl import DeviceQuarantined, DeviceReset, State, simulator
from tests.kit import Waiting, until
from tests.reliability.stuck_cases import Setup
from tests.reliability.stuck_crowd import Callers, Crowd

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup

    from aioacl import Device, ResetReport
    from aioacl._base.options import Strategy
    from tests.reliability.stuck_cases import Caller, Case

GRACE_SECONDS: Final = 0.02
# `grace` as a share of a reset's `timeout`. The drain takes all of `grace`. If the next stage then started the whole
# timeout again, the report would be late by this share.
DRAIN_SHARE: Final = 0.7
AMPLE_TIMES: Final = 3
AGAIN_SECONDS: Final = 0.05
AMPLE_SECONDS: Final = 20.0
LEAVING: Final = (
    "aclrtSynchronizeStreamWithTimeout",
    "aclrtSynchronizeEventWithTimeout",
    "aclrtStreamQuery",
    "aclrtStreamAbort",
)
SENT: Final = bytes(range(256))


class Bench:
    """The backend, strategy and case of a run, its findings, and the time limit of a reset."""

    def __init__(self, backend: str, waits: Strategy, timeout: float) -> None:
        self.name = f"{backend}, waits={waits}"
        self.waits: Strategy = waits
        self.timeout = timeout
        self.title = ""
        self.findings: list[str] = []

    def expect(self, holds: object, finding: str) -> None:
        """Notes a finding unless the condition holds."""
        if not holds:
            self.findings.append(f"{self.name}, {self.title}: {finding}")

    async def expect_soon(self, condition: Callable[[], object], finding: Callable[[], str]) -> None:
        """Notes a finding unless the condition holds before a time limit."""
        with suppress(TimeoutError):
            await until(condition)
        if not condition():
            self.expect(None, finding())


class Control:
    """A plain thread that waits as long as a reset may take, to measure how late waits end on this machine."""

    def __init__(self, seconds: float) -> None:
        self._spent = 0.0
        self._thread = threading.Thread(target=self._run, args=(seconds,), daemon=True)
        self._thread.start()

    def _run(self, seconds: float) -> None:
        began = time.monotonic()
        threading.Event().wait(seconds)
        self._spent = time.monotonic() - began

    def late(self, spent: float) -> float:
        """Returns the seconds by which `spent` exceeds the thread's wait."""
        self._thread.join()
        return spent - self._spent


# --- a call is stuck ----------------------------------------------------------------------------------------------


async def quarantine_and_recover(bench: Bench, case: Case) -> float:
    """Runs a case: resets fail while a call is stuck, and a later reset succeeds. Returns the first report's delay."""
    async with aioacl.open_device(0, bench.waits, cache=False) as device:  # so that each request is a call
        held, spare = await device.create_stream(), await device.create_stream()
        setup = Setup(device, held, spare, (await device.allocate(64), await device.allocate(64)))
        procedures = Procedures(bench, case, setup)
        simulator.hold(held)
        try:
            async with anyio.create_task_group() as group:
                await procedures.run(group)
                group.cancel_scope.cancel()  # a wait that has not ended is already a finding
        finally:
            simulator.clear()
            simulator.release_all()
            simulator.set_abort_supported(supported=True)
            setup.go_on.set()
        for thing in (setup.memory, setup.spare_memory, spare, held):
            await thing.close()
    return procedures.late


class Procedures:
    """A case on a device: from the stuck call until the device works again."""

    def __init__(self, bench: Bench, case: Case, setup: Setup) -> None:
        self.late = 0.0  # the seconds by which the first report was late
        self._bench = bench
        self._case = case
        self._setup = setup
        self._device = setup.device
        self._crowd = Crowd(setup, bench.waits)
        self._stuck_caller: Caller | None = None
        self._generation = self._device.generation

    async def run(self, group: TaskGroup) -> None:
        """Resets the device three times. The call is stuck in the first two resets, and returns before the third."""
        self._stuck_caller = await self._case.hang(self._setup, group)
        group.start_soon(self._crowd.listen)
        self._setup.held.fill(self._setup.memory, 1)
        if self._case.waits:
            await self._crowd.start_waiters(group, maintenance=self._case.maintenance)
        report = await self._reset(group)
        self._bench.expect(
            not report.ok and self._device.state is State.QUARANTINED,
            f"expected a failed reset and a quarantine, got {report}",
        )
        self._check_problem(report)
        self._check_calls(self._case.resets)
        for step in (self._all_callers_raise, self._all_calls_are_refused, self._fails_again, self._recovers):
            if not self._bench.findings:
                await step()

    async def _reset(self, group: TaskGroup) -> ResetReport:
        """Resets the device and measures the time. Two callers reset in one turn of the loop and share the report."""
        device, timeout = self._device, self._bench.timeout
        grace = timeout * DRAIN_SHARE
        if self._case.begin is None:  # the procedure needs time to reach the call that hangs
            grace, timeout = GRACE_SECONDS, timeout * AMPLE_TIMES

        async def request() -> tuple[ResetReport, float]:
            began = time.monotonic()
            report = await device.force_reset(grace=grace, timeout=timeout)
            return report, time.monotonic() - began

        control, requests = Control(timeout), [Waiting(group, request) for _ in range(2)]
        await until(lambda: device.state is not State.OPEN)
        self._crowd.start_at_the_gate(group)
        report: ResetReport
        (report, spent), (shared, _) = [await one.outcome() for one in requests]
        self._bench.expect(shared is report, "expected the report of the joined reset, got another report")
        self.late = control.late(spent)
        return report

    def _check_problem(self, report: ResetReport) -> None:
        case = self._case
        self._bench.expect(
            case.name in report.problem, f"expected a problem that names {case.name}, got {report.problem}"
        )
        if case.begin is not None:
            stuck = [it for it in report.stuck if it.function not in LEAVING]
            # Each function in LEAVING waits, or ends a wait. Calls of it may return late or never, so they are left
            # out.
            fine = [(it.function, it.thread > 0, it.seconds > 0) for it in stuck] == [(case.name, True, True)]
            self._bench.expect(fine, f"expected {case.name} as the only stuck call, got {report.stuck}")

    def _check_calls(self, resets: int) -> None:
        """Checks the number of resets. The journal has only finished calls; the count also has calls in progress."""
        for function, most in (("aclrtResetDeviceForce", resets), ("aclrtResetDevice", 0)):
            journal = [entry for entry in simulator.journal() if entry["call"] == function]
            called = max(simulator.calls(function), len(journal))
            self._bench.expect(called == most, f"expected {most} calls of {function}, got {called}")

    async def _all_callers_raise(self) -> None:
        bench, crowd, case, stuck_caller = self._bench, self._crowd, self._case, self._stuck_caller
        await all_end_in(bench, crowd.others, DeviceQuarantined)
        if case.aborts or bench.waits == "watch":
            await all_end_in(bench, crowd.in_waits, DeviceQuarantined)
        if stuck_caller is not None and case.maintenance:
            end = NoneType if case.closes else DeviceQuarantined
            await all_end_in(bench, Callers({"the caller of the stuck call": stuck_caller}), end)
        await bench.expect_soon(
            lambda: crowd.kinds[-1:] == ["quarantined"],
            lambda: f'expected a last event "quarantined", got {crowd.kinds}',
        )

    async def _all_calls_are_refused(self) -> None:
        for name, call in self._setup.refused().items():
            await self._refused(name, call)

    async def _refused(self, name: str, call: Callable[[], Any]) -> None:
        try:
            with anyio.fail_after(AMPLE_SECONDS):
                made = await call()
        except (DeviceQuarantined, TimeoutError) as error:
            self._bench.expect(
                isinstance(error, DeviceQuarantined),
                f"expected {name} to raise DeviceQuarantined, but it hangs",
            )
        else:
            self._bench.expect(None, f"expected {name} to raise DeviceQuarantined, got {made!r}")

    async def _fails_again(self) -> None:
        again = await self._device.force_reset(grace=0, timeout=AGAIN_SECONDS)
        self._bench.expect(not again.ok, "expected a reset to fail while the call is stuck, but it succeeded")
        self._check_calls(self._case.resets)

    async def _recovers(self) -> None:
        bench, case, device, stuck_caller = self._bench, self._case, self._device, self._stuck_caller
        case.release(self._setup)
        if stuck_caller is not None:
            await bench.expect_soon(
                lambda: stuck_caller.ended,
                lambda: "expected the caller of the stuck call to end after the call returned, but it waits",
            )
            bench.expect(
                case.maintenance or stuck_caller.error is None,
                f"expected a result for the caller of the stuck call, got {stuck_caller.error!r}",
            )
        report = await device.force_reset(grace=1.0, timeout=AMPLE_SECONDS)
        bench.expect(report.ok, f"expected a reset to succeed after the stuck call returned, got {report}")
        bench.expect(
            device.generation == self._generation + 1,
            f"expected generation {self._generation + 1}, got {device.generation}",
        )
        self._check_calls(case.resets + 1)
        await all_end_in(bench, self._crowd.in_waits, DeviceQuarantined, DeviceReset)
        await _works(bench, device)


async def all_end_in(bench: Bench, callers: Callers, *errors: type[Exception | None]) -> None:
    """Notes each caller that does not end in one of these errors."""
    await bench.expect_soon(
        lambda: not callers.hanging(),
        lambda: f"expected each caller to end, got callers that wait: {callers.hanging()}",
    )
    bench.expect(
        not (unexpected := callers.unexpected(errors)),
        f"expected the callers to end in {errors}, got {unexpected}",
    )


async def _works(bench: Bench, device: Device) -> None:
    back = bytearray(len(SENT))
    async with device.create_stream() as stream, device.allocate(len(SENT)) as memory:
        stream.copy(memory, SENT)
        await stream.copy(back, memory)
    bench.expect(back == SENT, "expected a copy to return the bytes that were sent, got other bytes")


# --- waits in threads of their own ----------------------------------------------------------------------------------


async def end_waits_without_abort(bench: Bench) -> float:
    """Checks that a reset succeeds although waits in threads cannot be aborted, and that the reset ends these waits."""
    simulator.set_abort_supported(supported=False)
    try:
        await _end_waits(bench)
    finally:
        simulator.set_abort_supported(supported=True)
    return 0.0


async def _end_waits(bench: Bench) -> None:
    async with (
        aioacl.open_device(0, bench.waits) as device,
        device.create_stream() as held,
        device.create_stream() as spare,
        device.allocate(64) as memory,
        device.allocate(64) as other,
    ):
        simulator.hold(held)
        generation = device.generation
        async with anyio.create_task_group() as group:
            crowd = Crowd(Setup(device, held, spare, (memory, other)), bench.waits)
            await crowd.start_waiters(group, maintenance=False)
            report = await device.force_reset(grace=GRACE_SECONDS, timeout=AMPLE_SECONDS)
            bench.expect(
                report.ok and report.not_aborted,
                f"expected success and waits that were not aborted, got {report}",
            )
            bench.expect(
                device.generation == generation + 1,
                f"expected generation {generation + 1}, got {device.generation}",
            )
            await all_end_in(bench, crowd.in_waits, DeviceReset)
            group.cancel_scope.cancel()
        await _works(bench, device)
