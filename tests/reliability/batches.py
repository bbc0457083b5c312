"""Batches: items with random cancellations, time limits, failures, hangs and resets. Each one has one outcome.

Tasks of an asyncio loop, tasks of a trio run and plain threads share one batcher over a model on two devices of the
simulator. A Python function stands in for the model. Some items always fail their task, and a few always break their
device. At random, an execution breaks its device or hangs for a while. Supervisors reset the devices that have failed,
and a thread resets devices that work.
"""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from aioacl import DeviceFault, DeviceReset, DeviceTimeout, QueueFull, open_batcher, simulator
from aioacl._base.paths import DATA
from aioacl._batches.items import BatchItem
from aioacl.testing import snapshot
from tests.kit import FAULT, TASK_FAULT, until_now
from tests.reliability import crowd, model_calls, setting
from tests.reliability.member import HANGS_SECONDS
from tests.reliability.part import Outcome, Scale

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioacl import Device, Model
    from aioacl.simulator import Execution

LIMIT_SECONDS: Final[dict[Scale, float]] = {Scale.QUICK: 60, Scale.DEFAULT: 120, Scale.SLOW: 900}
TASKS: Final = 100
THREADS: Final = 2
DEVICES: Final = (0, 1)
LIMIT: Final = 64  # rows; fewer than the callers, so that some items wait for room or are refused
MODEL: Final = "digits_batches"
INPUTS: Final = 64
OUTPUTS: Final = 10
BAD_TASK: Final = 401  # each item whose number is a multiple of this one fails its task
BAD_DEVICE: Final = 4003
HANG_SECONDS: Final = 0.02
PATIENCE_SECONDS: Final = 60.0
GRACES: Final = (0.0, 0.01, 1.0)  # of the resets that a caller asks for


class World:
    """What happens to the executions and the devices at random."""

    def __init__(self, resets: int, seed: int) -> None:
        self.faults = self.asked = 0
        self._resets = resets
        self._chance = random.Random(seed)

    def execute(self, execution: Execution) -> int:
        """Returns the first numbers of each row, or a code."""
        import numpy as np

        source = np.frombuffer(execution.inputs[0].memory, np.float32).reshape(-1, INPUTS)
        target = np.frombuffer(execution.outputs[0].memory, np.float32).reshape(-1, OUTPUTS)
        numbers, luck = [int(number) for number in source[:, 0] if number], self._chance.random()
        if luck < 0.01 or any(number % BAD_DEVICE == 0 for number in numbers):
            self.faults += 1
            return FAULT
        if luck < 0.02:
            time.sleep(HANG_SECONDS)
        if any(number % BAD_TASK == 0 for number in numbers):
            return TASK_FAULT
        target[: len(source)] = source[:, :OUTPUTS]
        return 0

    def reset(self, devices: list[Device], share: Callable[[], float], over: threading.Event) -> None:
        """Resets devices that work, as often as fits the share of the items that have begun."""
        while not over.wait(0.002):
            if self.asked < share() * self._resets:
                self.asked += 1
                device = self._chance.choice(devices)
                device.force_reset(grace=self._chance.choice(GRACES)).result(HANGS_SECONDS)


def row(number: int) -> Any:
    """Returns the array of an item."""
    import numpy as np

    return np.full((1, INPUTS), number, np.float32)


class Crowd:
    """The callers, and the outcomes of their items."""

    def __init__(self, infer: Any, items: int, seed: int) -> None:
        self.infer = infer
        self.outcomes: Counter[str] = Counter()
        self.findings: list[str] = []
        self._seed = seed
        self._items = items
        self._begun = 0
        self._lock = threading.Lock()

    def next(self) -> int | None:
        """Returns the number of the next item, from 1."""
        with self._lock:
            if self._begun == self._items:
                return None
            self._begun += 1
            return self._begun

    def share(self) -> float:
        """Returns the share of the items that have begun."""
        return self._begun / self._items

    def options(self, chance: random.Random) -> dict[str, Any]:
        """Returns the options of an item."""
        options: dict[str, Any] = {"key": chance.randrange(8)}
        if chance.random() < 0.1:
            options["timeout"] = chance.choice((0.001, 0.01, 5.0))
        if chance.random() < 0.1:
            options["wait"] = False
        return options

    def note(self, number: int, options: dict[str, Any], value: Any, error: Exception | None) -> None:
        """Notes an outcome, and a finding if the documentation does not name it."""
        kind = "right" if error is None else type(error).__name__
        bad = number % BAD_TASK == 0 or number % BAD_DEVICE == 0
        fits = {
            "right": not bad and value is not None and value.tolist() == [[number] * OUTPUTS],
            "DeviceFault": bad or (isinstance(error, DeviceFault) and error.code == FAULT),
            "DeviceReset": True,
            "DeviceTimeout": "timeout" in options,
            "QueueFull": "wait" in options,
        }
        with self._lock:
            self.outcomes[kind] += 1
            if not fits.get(kind):
                self.findings.append(
                    f"item {number} with {options}: expected its result, got {value!r}, {error!r}"
                )

    async def task(self, name: int) -> None:
        """One task: awaits items one after another."""
        chance = random.Random(f"{self._seed} {name}")
        while (number := self.next()) is not None:
            options = self.options(chance)
            with anyio.CancelScope() as scope:
                if chance.random() < 0.1:
                    scope.deadline = anyio.current_time() + chance.choice((0.0, 0.001, 0.01))
                await self._one(number, options)
            if scope.cancelled_caught:
                with self._lock:
                    self.outcomes["cancelled"] += 1

    async def _one(self, number: int, options: dict[str, Any]) -> None:
        try:
            value = await self.infer(row(number), **options)
        except (DeviceFault, DeviceReset, DeviceTimeout, QueueFull) as error:
            self.note(number, options, None, error)
        else:
            self.note(number, options, value, None)

    def thread(self, name: int) -> None:
        """One plain thread."""
        chance = random.Random(f"{self._seed} thread {name}")
        while (number := self.next()) is not None:
            options = self.options(chance)
            try:
                value = self.infer(row(number), **options).result()
            except (DeviceFault, DeviceReset, DeviceTimeout, QueueFull) as error:
                self.note(number, options, None, error)
            else:
                self.note(number, options, value, None)


def _bodies(members: Crowd) -> list[Callable[[], object]]:
    loops = [
        crowd.loop(kind, *(partial(members.task, at * TASKS + name) for name in range(TASKS)))
        for at, kind in enumerate(("asyncio", "trio"))
    ]
    return [*loops, *(partial(members.thread, name) for name in range(THREADS))]


def _left(infer: Any) -> list[str]:
    """Returns what the batcher still has after all callers have ended."""
    core = infer._runner.core
    until_now(lambda: core.empty, PATIENCE_SECONDS)
    gc.collect()
    items = sum(isinstance(each, BatchItem) for each in gc.get_objects())
    used = {f"slots of device {model._life.manager.index} in use": model for model in infer.models}
    found = {
        "rows that wait": infer.waiting,
        "executions": infer.stats().running,
        "items that were put back": len(core.left()),
        "counts of items that were put back": len(core._tries),
        "queues": len(core.waiting.queues),
        "items in memory": max(0, items - TASKS),  # a task may keep its last item in a frame
        **{what: model.busy for what, model in used.items() if not until_now(lambda m=model: not m.busy)},  # type: ignore[misc]  # mypy infers no type for a lambda with a default
    }
    return [f"expected no {what} at the end, got {count}" for what, count in found.items() if count]


def _run(scale: Scale, world: World, items: int, seed: int, outcome: Outcome) -> Counter[str]:
    """Runs the crowd, from the open of the devices to their close. Returns the items by outcome."""
    found, before, over = outcome.findings, snapshot(), threading.Event()
    with crowd.collecting_errors(found), ExitStack() as steps:
        stand_in = steps.enter_context(simulator.register_model(MODEL, world.execute))
        devices = [setting.open_device(index).result() for index in DEVICES]
        for device in devices:
            steps.enter_context(device.supervise(pauses=(0.01,) * 3, at_most=10**6))
        models = [device.load_model(DATA / f"{MODEL}.om").result(HANGS_SECONDS) for device in devices]
        infer = open_batcher(*models, limit=LIMIT).result(HANGS_SECONDS)
        members = Crowd(infer, items, seed)
        resets = threading.Thread(target=world.reset, args=(devices, members.share, over))
        resets.start()
        try:
            found += crowd.at_once(_bodies(members), LIMIT_SECONDS[scale] * 0.9)
        finally:
            over.set()
            resets.join()
        found += members.findings[:10] or _left(infer)
        found += [f"an execution raised {error!r}" for error in stand_in.errors[:3]]
        stats = infer.stats()
        found += crowd.at_once([infer.close().result], crowd.SETTLES_SECONDS)
        outcome.figures["executions"] = stats.executions
        outcome.figures["repeats of items"] = stats.repeats
        counted = stats.done + stats.failed + stats.cancelled + stats.expired + stats.refused
        outcome.expect(counted <= items, f"expected stats of at most {items} items, got {counted}")
        outcome.figures["resets"] = sum(device.generation - 1 for device in devices)
        opened: tuple[Model | Device, ...] = (*models, *devices)
        for each in opened:
            found += crowd.at_once([each.close().result], crowd.SETTLES_SECONDS)
    if not found:
        found += crowd.left_since(before, "offline_models") + crowd.violations()
    return members.outcomes


def run(scale: Scale, seed: int) -> Outcome:
    """Runs the crowd."""
    if missing := model_calls.missing():
        return Outcome(not_run=missing)
    os.environ["AIOACL_SIM_DEVICES"] = str(len(DEVICES))
    crowd.warmed_up(DEVICES)
    outcome, items, resets = Outcome(), scale.pick(2_000, 5_000, 100_000), scale.pick(6, 20, 300)
    world = World(resets, seed)
    outcomes = _run(scale, world, items, seed, outcome)
    ended = sum(outcomes.values())
    outcome.expect(ended == items, f"expected {items} outcomes, got {ended}")
    outcome.expect(outcomes["QueueFull"] > 0, "expected items that were refused, got none")
    outcome.expect(world.asked >= resets, f"expected {resets} resets of working devices, got {world.asked}")
    outcome.figures["items by outcome"] = dict(outcomes)
    outcome.figures["executions that broke a device"] = world.faults
    return outcome
