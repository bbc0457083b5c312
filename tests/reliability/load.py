"""Load: all loops and threads use the public API while devices are reset. Results are right, and nothing is left.

Crowds of 64 tasks run one after another. Some run on a single loop, others on several loops and threads at once. Both
strategies of waiting are used. Two devices stay open; each user opens and closes the third. Resets are a fixed share of
the operations.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import anyio

from aioacl import open_device, simulator
from aioacl.testing import snapshot
from tests.reliability import byresult, crowd
from tests.reliability.member import Member, Plan
from tests.reliability.operations import FAILING, RULES, WAITING_FOR_ALL
from tests.reliability.part import Outcome, Scale

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from aioacl import Device
    from aioacl._base.options import Strategy
    from tests.reliability.operations import Operation

    Listener = Callable[[anyio.Event], Coroutine[Any, Any, None]]

LIMIT_SECONDS: Final[dict[Scale, float]] = {Scale.QUICK: 60, Scale.DEFAULT: 240, Scale.SLOW: 1500}
TASKS: Final = 64
DEVICES: Final = 3
KEPT_OPEN: Final = 2
THREAD: Final = "thread"


@dataclass(frozen=True)
class Shape:
    """The loops and threads that run at once, how they wait, and their share of all operations."""

    kinds: tuple[str, ...]
    waits: Strategy
    weights: Mapping[Operation, int]
    share: float

    def __str__(self) -> str:
        kinds = " + ".join(f"{count} {kind}" for kind, count in Counter(self.kinds).items())
        return f"{kinds}, {self.waits}, {'tasks fail' if self.weights is FAILING else 'waits for the whole device'}"


ALL_KINDS: Final = ("asyncio", "asyncio", "asyncio", "trio", THREAD, THREAD)
SHAPES: Final = (
    Shape(("asyncio",), "watch", FAILING, 0.15),
    Shape(("asyncio",), "thread", WAITING_FOR_ALL, 0.10),
    Shape(("uvloop",), "watch", FAILING, 0.05),
    Shape(("trio",), "watch", WAITING_FOR_ALL, 0.25),
    Shape(("trio",), "thread", FAILING, 0.20),
    Shape(ALL_KINDS, "watch", FAILING, 0.06),
    Shape(ALL_KINDS, "watch", WAITING_FOR_ALL, 0.06),
    Shape(ALL_KINDS, "thread", FAILING, 0.06),
    Shape(ALL_KINDS, "thread", WAITING_FOR_ALL, 0.07),
)


def _body(kind: str, members: list[Member], listeners: Sequence[Listener]) -> Callable[[], None]:
    """Returns the body of one loop, or of one thread."""
    if kind == THREAD:
        (member,) = members
        return lambda: byresult.work(member)

    async def all_of_them() -> None:
        over = anyio.Event()
        async with anyio.create_task_group() as outer:
            for listener in listeners:
                outer.start_soon(listener, over)
            async with anyio.create_task_group() as inner:
                for member in members:
                    inner.start_soon(member.work)
            over.set()

    return crowd.loop(kind, all_of_them)


def _bodies(shape: Shape, plan: Plan, devices: list[Device], seed: int) -> list[Callable[[], None]]:
    """Returns all bodies. The tasks are divided among the loops, and each loop listens to the devices."""
    loops = sum(kind != THREAD for kind in shape.kinds)
    bodies: list[Callable[[], None]] = []
    for number, kind in enumerate(shape.kinds):
        size = 1 if kind == THREAD else TASKS // loops
        names = range(number * TASKS, number * TASKS + size)
        members = [Member(kind, name, plan, devices, shape.waits, seed) for name in names]
        listeners = [
            partial(crowd.listen, device.index, shape.waits, found=plan.findings) for device in devices
        ]
        bodies.append(_body(kind, members, listeners))
    return bodies


def _run(shape: Shape, plan: Plan, seed: int, limit: float) -> None:
    """Runs one crowd, from the first open to the last close; its results are in the plan."""
    before = snapshot()
    with crowd.collecting_errors(plan.findings):
        devices = [open_device(index, shape.waits).result() for index in range(KEPT_OPEN)]
        plan.findings += crowd.at_once(_bodies(shape, plan, devices, seed), limit)
        plan.findings += crowd.idle(devices)
        while devices:
            plan.findings += crowd.at_once([devices.pop().close().result], crowd.SETTLES_SECONDS)
        plan.findings += crowd.left_since(before)
        plan.findings += crowd.violations()


def run(scale: Scale, seed: int) -> Outcome:
    """Runs all crowds, one after another."""
    outcome = Outcome()
    os.environ["AIOACL_SIM_DEVICES"] = str(DEVICES)
    crowd.warmed_up(range(DEVICES))
    operations, resets = scale.pick(1_000, 20_000, 200_000), scale.pick(10, 200, 2_000)
    totals, kinds, reset_count, rows = Counter[str](), Counter[str](), 0, list[str]()
    with ExitStack() as faults:
        for rule in RULES:
            faults.enter_context(simulator.fault(rule))
        for shape in SHAPES:
            plan = Plan(round(operations * shape.share), ceil(resets * shape.share), shape.weights)
            began = time.monotonic()
            _run(shape, plan, seed, LIMIT_SECONDS[scale] * 0.9)
            spent = time.monotonic() - began
            done = plan.outcomes.total()
            rows.append(f"{shape!s:<52} {done:>7} in {spent:6.1f} s, {len(plan.reports):>5} resets")
            totals, kinds, reset_count = (
                totals + plan.outcomes,
                kinds + plan.kinds,
                reset_count + len(plan.reports),
            )
            again = f"python -m tests.reliability load --{scale.value} --seed={seed}"
            outcome.findings += [f"{shape}: {finding}\n  again: {again}" for finding in plan.findings]
            if plan.findings:
                break  # the next crowd would report the leftovers of this one again
    outcome.figures = {
        "operations": totals.total(),
        "by kind of loop": dict(kinds),
        "force resets": reset_count,
        "outcomes": dict(totals.most_common()),
        "violations": sum("the usage checker" in finding for finding in outcome.findings),
        "crowds": rows,
    }
    outcome.expect(
        totals.total() >= operations, f"expected at least {operations} operations, got {totals.total()}"
    )
    outcome.expect(reset_count >= resets, f"expected at least {resets} resets, got {reset_count}")
    return outcome
