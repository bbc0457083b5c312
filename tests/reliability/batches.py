"""Batches: items with random cancellations, time limits, failures and resets. Each one has one outcome.

Tasks of an asyncio loop, tasks of a trio run and plain threads share one batcher on two devices. The executions are
Python functions. Some items always fail their task, and a few always break their device. At random, a device fails, is
reset at the request of a caller, or hangs for a while. A thread resets the devices that have failed.
"""

from __future__ import annotations

import gc
import random
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from aioacl import DeviceFault, DeviceReset, DeviceTimeout, QueueFull
from aioacl._batches.items import BatchItem
from tests.kit import FAULT, TASK_FAULT, until_now
from tests.reliability import crowd
from tests.reliability.part import Outcome, Scale
from tests.support.batching import ZEROS, OnThread, View, batching

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_SECONDS: Final[dict[Scale, float]] = {Scale.QUICK: 60, Scale.DEFAULT: 120, Scale.SLOW: 900}
TASKS: Final = 100
THREADS: Final = 2
BAD_TASK: Final = 401  # each item whose number is a multiple of this one fails its task
BAD_DEVICE: Final = 4003
HANG_SECONDS: Final = 0.02
PATIENCE_SECONDS: Final = 60.0


class Device(View):
    """A device that fails and hangs at random, with its executor."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.returns = True
        self.faults = self.resets = 0
        self._chance = random.Random(seed)
        self._broken = threading.Event()
        self.executor = OnThread(self.execute)

    def execute(self, calls: list[Any]) -> list[Any]:
        """Returns the calls, or raises."""
        generation, numbers = self.generation, [call for call in calls if call != ZEROS]
        luck = self._chance.random()
        if luck < 0.002 or any(number % BAD_DEVICE == 0 for number in numbers):
            self.faults += 1
            self.failed = True
            self._broken.set()
            raise DeviceFault("the device has failed", code=FAULT)
        if luck < 0.004:
            time.sleep(HANG_SECONDS)
        if any(number % BAD_TASK == 0 for number in numbers):
            raise DeviceFault("a task has failed", code=TASK_FAULT, action="new_stream")
        if self.generation != generation:
            raise DeviceReset("a reset has ended the work")
        return list(calls)

    def repair(self, over: threading.Event) -> None:
        """Resets the device after each failure, and now and then without one."""
        while not over.is_set():
            asked = not self._broken.wait(0.05)
            self._broken.clear()
            if not asked or self._chance.random() < 0.2:
                self.is_open = False
                self.tell()
                self.resets += 1
                self.reset()


class Crowd:
    """The callers, and the outcomes of their items."""

    def __init__(self, infer: Any, items: int, seed: int) -> None:
        self.infer = infer
        self.outcomes: Counter[str] = Counter()
        self.findings: list[str] = []
        self._seed = seed
        self._numbers = iter(range(1, items + 1))
        self._lock = threading.Lock()

    def next(self) -> int | None:
        """Returns the number of the next item."""
        with self._lock:
            return next(self._numbers, None)

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
            "right": value == number and not bad,
            "DeviceFault": True,
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
            value = await self.infer(number, **options)
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
                value = self.infer(number, **options).result()
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
    found = {
        "rows that wait": infer.waiting,
        "executions": infer.stats().running,
        "items that were put back": len(core.left()),
        "counts of items that were put back": len(core._tries),
        "queues": len(core.waiting.queues),
        "items in memory": max(0, items - TASKS),  # a task may keep its last item in a frame
    }
    return [f"expected no {what} at the end, got {count}" for what, count in found.items() if count]


def run(scale: Scale, seed: int) -> Outcome:
    """Runs the crowd."""
    outcome = Outcome()
    items = scale.pick(2_000, 5_000, 100_000)
    devices, over = [Device(seed), Device(seed + 1)], threading.Event()
    repairs = [threading.Thread(target=device.repair, args=(over,)) for device in devices]
    with batching(*((device.executor, device) for device in devices), limit=256) as infer:
        members = Crowd(infer, items, seed)
        for thread in repairs:
            thread.start()
        try:
            outcome.findings += crowd.at_once(_bodies(members), LIMIT_SECONDS[scale] * 0.9)
            outcome.findings += members.findings[:10]
            if not outcome.findings:
                outcome.findings += _left(infer)
        finally:
            over.set()
            for thread in repairs:
                thread.join()
        stats = infer.stats()
    ended = sum(members.outcomes.values())
    outcome.expect(ended == items, f"expected {items} outcomes, got {ended}")
    counted = stats.done + stats.failed + stats.cancelled + stats.expired + stats.refused
    outcome.expect(counted <= items, f"expected stats of at most {items} items, got {counted}")
    outcome.figures["items by outcome"] = dict(members.outcomes)
    outcome.figures["executions"] = stats.executions
    outcome.figures["repeats of items"] = stats.repeats
    outcome.figures["failures of devices"] = sum(device.faults for device in devices)
    outcome.figures["resets"] = sum(device.resets for device in devices)
    return outcome
