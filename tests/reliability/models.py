"""Models: calls with faults, cancellations, time limits and resets. Results are right, and no model or slot is left.

Crowds of 64 coroutines run one after another, on asyncio and on trio, with both strategies of waiting, and some with
plain threads. All members of a crowd share two models: one with gears of batches and two instances, and one with fixed
shapes. Faults fire at random in the executions, the copies and the loads. Resets are a fixed share of the operations.
Now and then a member closes a model and puts a new one in its place while the others call it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl import simulator
from aioacl.testing import snapshot
from tests.kit import until_now
from tests.reliability import crowd, model_calls, setting
from tests.reliability.member import HANGS_SECONDS
from tests.reliability.model_calls import THREAD, Caller, Shared
from tests.reliability.part import Outcome, Scale

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl import Device
    from aioacl._base.options import Strategy

LIMIT_SECONDS: Final[dict[Scale, float]] = {Scale.QUICK: 60, Scale.DEFAULT: 120, Scale.SLOW: 900}
TASKS: Final = 64


@dataclass(frozen=True)
class Shape:
    """The loops and threads that run at once, how they wait, and their share of all calls."""

    kinds: tuple[str, ...]
    waits: Strategy
    share: float

    def __str__(self) -> str:
        kinds = " + ".join(f"{count} {kind}" for kind, count in Counter(self.kinds).items())
        return f"{kinds}, {self.waits}"


SHAPES: Final = (
    Shape(("asyncio",), "watch", 0.25),
    Shape(("trio",), "watch", 0.2),
    Shape(("asyncio",), "thread", 0.15),
    Shape(("trio",), "thread", 0.1),
    Shape(("asyncio", "trio", THREAD, THREAD), "watch", 0.15),
    Shape(("asyncio", "trio", THREAD, THREAD), "thread", 0.15),
)


def _body(kind: str, members: list[Caller]) -> Callable[[], None]:
    """Returns the body of one loop, or of one thread."""
    if kind == THREAD:
        (member,) = members
        return lambda: model_calls.work(member)
    return crowd.loop(kind, *(member.work for member in members))


def _bodies(shape: Shape, shared: Shared, device: Device, seed: int) -> list[Callable[[], None]]:
    loops = sum(kind != THREAD for kind in shape.kinds)
    bodies: list[Callable[[], None]] = []
    for number, kind in enumerate(shape.kinds):
        size = 1 if kind == THREAD else TASKS // loops
        names = range(number * TASKS, number * TASKS + size)
        bodies.append(_body(kind, [Caller(kind, name, shared, device, shape.waits, seed) for name in names]))
    return bodies


def _free_slots(shared: Shared) -> list[str]:
    """Waits until no call uses a slot; returns which models still have slots in use."""

    def used(model: Any) -> int:
        slots = model._life.load.slots
        return int(slots.all - slots.free)

    return [
        f"expected all slots of the model {name} to be free, got {used(model)} in use"
        for name, model in shared.models.items()
        if not until_now(lambda model=model: not used(model), crowd.SETTLES_SECONDS)  # type: ignore[misc]  # mypy infers no type for a lambda with a default
    ]


def _left(device: Device, models: int) -> list[str]:
    """Returns the models that are loaded although all were closed, beyond those that `health` counts as abandoned."""
    allowed = models + device.health.abandoned_models
    until_now(lambda: len(simulator.models()) <= allowed, crowd.SETTLES_SECONDS)
    loaded = len(simulator.models())
    kept = [] if loaded <= allowed else [f"expected at most {allowed} loaded models, got {loaded}"]
    ids = device._manager.models.ids
    return kept + ([f"expected no model of aioacl to be left, got the ids {ids}"] if ids else [])


def _run(shape: Shape, shared: Shared, seed: int, limit: float) -> None:
    """Runs one crowd, from the first open to the last close; its results are in the plan."""
    found, before = shared.plan.findings, snapshot()
    with crowd.collecting_errors(found):
        device = setting.open_device(0, shape.waits).result()
        models = len(simulator.models()) - device.health.abandoned_models
        with ExitStack() as faults:
            shared.load(device)
            for rule in model_calls.RULES:
                faults.enter_context(simulator.fault(rule))
            found += crowd.at_once(_bodies(shape, shared, device, seed), limit)
        if not found:  # a member that hangs uses a slot, and would make a close hang
            device.force_reset(grace=1).result(HANGS_SECONDS)  # ends a device fault
            found += crowd.idle([device])
            found += _free_slots(shared)
            found += crowd.at_once([shared.close], crowd.SETTLES_SECONDS)
            found += _left(device, models)
            found += crowd.at_once([device.close().result], crowd.SETTLES_SECONDS)
            found += crowd.left_since(before, "offline_models")
        found += crowd.violations()


def run(scale: Scale, seed: int) -> Outcome:
    """Runs all crowds, one after another."""
    outcome = Outcome()
    if missing := model_calls.missing():
        return Outcome(not_run=missing)
    os.environ["AIOACL_SIM_DEVICES"] = "1"
    crowd.warmed_up([0])
    calls, resets = scale.pick(300, 1_000, 10_000), scale.pick(6, 20, 200)
    totals, kinds, reset_count, rows = Counter[str](), Counter[str](), 0, list[str]()
    abandoned, replaced, done = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        files = model_calls.files(Path(folder))
        for shape in SHAPES:
            shared = Shared(files, ceil(calls * shape.share), ceil(resets * shape.share))
            began = time.monotonic()
            _run(shape, shared, seed, LIMIT_SECONDS[scale] * 0.9)
            spent = time.monotonic() - began
            plan = shared.plan
            rows.append(
                f"{shape!s:<36} {shared.calls:>6} calls in {spent:6.1f} s, {len(plan.reports):>4} resets"
            )
            totals, kinds, reset_count = (
                totals + plan.outcomes,
                kinds + plan.kinds,
                reset_count + len(plan.reports),
            )
            done, replaced = done + shared.calls, replaced + shared.replaced
            again = f"python -m tests.reliability models --{scale.value} --seed={seed}{setting.AGAIN}"
            outcome.findings += [f"{shape}: {finding}\n  again: {again}" for finding in plan.findings]
            if plan.findings:
                break  # the next crowd would report the leftovers of this one again
    abandoned = len(simulator.models())
    outcome.figures = {
        "calls": done,
        "by kind of loop": dict(kinds),
        "force resets": reset_count,
        "outcomes": dict(totals.most_common()),
        "models closed during calls": replaced,
        "models abandoned": abandoned,
        "crowds": rows,
    }
    outcome.expect(done >= calls, f"expected at least {calls} calls, got {done}")
    outcome.expect(reset_count >= resets, f"expected at least {resets} resets, got {reset_count}")
    return outcome
