"""Back-to-back resets with more and more tasks: no task hangs, and no task waits for more than two resets.

One thread resets the device repeatedly, without a pause. Half of the tasks hold a lease during a whole cycle (memory,
a stream, verified copies), so no reset may interrupt a cycle. Each of the other tasks uses a stream until a reset makes
the stream stale, and then creates another one. The figure is the number of resets for which a task waited at the gate.
The count begins when the gate has registered the task, because before that, its thread may be waiting for a processor.

A drain waits at most a second for the waiters whose turn it is. If this machine does not run some of these waiters in
time, the drain ends without them. In a run with such a drain, a wait for more than two resets is not a finding.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from aioacl import ResetError, open_device
from aioacl._lifecycle.turns import TURN_SECONDS
from aioacl._wait.current import current_holder
from aioacl.testing import snapshot
from tests.reliability import crowd
from tests.reliability.operations import copied
from tests.reliability.part import Outcome, Scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioacl import Device, ResetReport, Stream
    from aioacl._lifecycle.turns import Waiter

LIMIT_SECONDS: Final[dict[Scale, float]] = {Scale.QUICK: 60, Scale.DEFAULT: 240, Scale.SLOW: 2400}
TASKS: Final = (1, 8, 64, 256, 1024)
MOST_RESETS: Final = 2
GRACE_SECONDS: Final = 30.0
SENT: Final = bytes(range(256))


@dataclass
class Point:
    """The measurements of one point of the curve."""

    device: Device
    tasks: int
    resets: int
    over: bool = False
    # For each waiter, the generation in which its wait began.
    waiting_since: dict[object, int] = field(default_factory=dict[object, int])
    waited: list[int] = field(default_factory=list[int])  # resets per wait at the gate
    waited_ms: list[float] = field(default_factory=list[float])
    cycles: list[int] = field(default_factory=list[int])  # cycles that each task has completed
    interrupted: int = 0
    reset_ms: list[float] = field(default_factory=list[float])
    reports: list[ResetReport] = field(default_factory=list["ResetReport"])
    findings: list[str] = field(default_factory=list[str])

    # --- the tasks -----------------------------------------------------------------------------------------------

    async def leased(self, number: int) -> None:
        """Runs cycles that no reset may interrupt."""
        while not self.over:
            began = time.monotonic()
            async with self.device.lease():
                self._admitted(self.device.generation, began)
                async with self.device.create_stream() as stream:
                    await self._copy(stream)
            self.cycles[number] += 1

    async def without_lease(self, number: int) -> None:
        """Runs cycles that a reset may interrupt anywhere."""
        while not self.over:
            began = time.monotonic()
            async with self.device.create_stream() as stream:
                self._admitted(stream._generation, began)
                try:
                    while not self.over:
                        await self._copy(stream)
                        self.cycles[number] += 1
                except ResetError:
                    self.interrupted += 1

    def watch_the_gate(self) -> None:
        """Records, from now on, the generation in which each waiter begins to wait."""
        turns = self.device._manager.admission.turns
        wait = turns.wait

        def recorded_wait(place: Waiter) -> None:
            if not place.taken:
                self.waiting_since[current_holder()] = self.device.generation
            wait(place)

        turns.wait = recorded_wait  # type: ignore[method-assign]  # replaced for this device only

    def _admitted(self, generation: int, began: float) -> None:
        self.waited.append(generation - self.waiting_since.pop(current_holder(), generation))
        self.waited_ms.append((time.monotonic() - began) * 1000)

    async def _copy(self, stream: Stream) -> None:
        answer = bytearray(len(SENT))
        async with self.device.allocate(len(SENT), wait=False) as memory:
            await copied(stream, memory, SENT)
            await (await copied(stream, answer, memory))
        if answer != SENT:
            self.findings.append(
                f"expected copies to return the {len(SENT)} bytes that were sent, got other bytes"
            )

    # --- the resets ----------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """The body of the thread: resets the device repeatedly."""
        try:
            for _ in range(self.resets):
                began = time.monotonic()
                self.reports.append(self.device.force_reset(grace=GRACE_SECONDS).result())
                self.reset_ms.append((time.monotonic() - began) * 1000)
        finally:
            self.over = True

    # --- results -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Adds each violated limit to the findings."""
        self.findings += [
            f"expected a reset to succeed, got {report}" for report in self.reports if not report.ok
        ]
        given_up = any(report.stages["turns"] >= TURN_SECONDS * 1000 for report in self.reports)
        if max(self.waited) > MOST_RESETS and not given_up:
            self.findings.append(
                f"expected a task to wait for at most {MOST_RESETS} resets, got {max(self.waited)}"
            )
        starved = self.cycles[::2].count(0)  # only tasks with leases are counted
        if starved:
            self.findings.append(
                f"expected each task with a lease to complete a cycle in {len(self.reports)} resets, "
                f"got {starved} tasks that completed none"
            )

    def rows(self) -> list[str]:
        """The rows of the table: milliseconds of each stage, and of the waits at the gate."""
        stages = {name: [report.stages[name] for report in self.reports] for name in self.reports[0].stages}
        given_up = sum(spent >= TURN_SECONDS * 1000 for spent in stages["turns"])
        table = {"whole reset": self.reset_ms, **stages, "at the gate": self.waited_ms}
        return [
            f"{len(self.reports)} resets; {sum(self.cycles)} cycles, at least {min(self.cycles[::2])} for a task "
            f"with a lease, {self.interrupted} interrupted; waited at the gate for at most {max(self.waited)} resets"
            + (f"; {given_up} drains did not wait for all turns" if given_up else ""),
            *(f"{name:<12} {_quantiles(values)}" for name, values in table.items()),
        ]


def _quantiles(values: Sequence[float]) -> str:
    ordered = sorted(values)
    middle, late = ordered[len(ordered) // 2], ordered[(len(ordered) * 99 - 1) // 100]
    return f"p50 {middle:8.2f}  p99 {late:8.2f}  max {ordered[-1]:8.2f} ms"


def _measure(tasks: int, resets: int, limit: float) -> Point:
    before = snapshot()
    device = open_device().result()
    point = Point(device, tasks, resets, cycles=[0] * tasks)
    point.watch_the_gate()
    with crowd.collecting_errors(point.findings):
        bodies = [
            partial(point.without_lease if number % 2 else point.leased, number) for number in range(tasks)
        ]
        loop = crowd.loop("asyncio", *bodies)
        point.findings += crowd.at_once([loop, point.reset], limit)
        point.findings += crowd.idle([device])
        point.findings += crowd.at_once([device.close().result], crowd.SETTLES_SECONDS)
        point.findings += crowd.left_since(before)
        point.findings += crowd.violations()
    return point


def run(scale: Scale, seed: int) -> Outcome:
    """Measures all points; the seed has no effect here."""
    outcome = Outcome()
    os.environ["AIOACL_SIM_DEVICES"] = "1"
    crowd.warmed_up([0])
    for tasks in TASKS[: scale.pick(2, 4, 5)]:
        point = _measure(tasks, scale.pick(5, 20, 200), LIMIT_SECONDS[scale] * 0.9)
        again = f"python -m tests.reliability curve --{scale.value} --seed={seed}"
        if not point.findings:
            point.check()
        outcome.findings += [f"{tasks} tasks: {finding}\n  again: {again}" for finding in point.findings]
        if point.reports:
            outcome.figures[f"{tasks} tasks"] = point.rows()
        if point.findings:
            break
    return outcome
