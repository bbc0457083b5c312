"""A process of the truth part: runs scenarios on several pairs of devices in one mode. Its last line is the tally."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.append(sys.path.pop(0))  # `python -m` puts the checkout first on the path

import asyncio
import json
import os
import random
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._library import detection
from aioacl.lowlevel import ffi, functions, on
from tests.reliability.truth_bench import KERNEL, MODEL_NAME, Bench, first_numbers
from tests.reliability.truth_scenario import Scenario
from tests.reliability.truth_tally import STRATEGIES, Mode, Tally

PAIRS: Final = 6
THREADS: Final = 8
TIMEOUT_SHARE: Final = 0.08
BUSY: Final = "copy:p=0.03:late-complete=0.5"
MODES: Final = {
    mode.name: mode
    for mode in (
        Mode("acl", lib.AIO_EXACT_ACL, other=False),
        Mode("runtime", lib.AIO_EXACT_RUNTIME, other=False),
        Mode("acl, other", lib.AIO_EXACT_ACL, other=True),
        Mode("runtime, other", lib.AIO_EXACT_RUNTIME, other=True),
        Mode("confirmed", 0, other=False),
    )
}


class Other(threading.Thread):
    """Acts as another library of the process: synchronizes the devices, and so takes the codes of failed tasks."""

    def __init__(self, benches: list[Bench], seed: str) -> None:
        super().__init__(name="other-library", daemon=True)
        self._rng = random.Random(seed)
        self._contexts: list[Any] = []
        self._over = threading.Event()
        self.taken = 0
        for bench in benches:
            for board in bench.boards:
                context = ffi.new("aclrtContext *")
                on(board.device).aclrtGetCurrentContext(context)
                self._contexts.append(context[0])

    def run(self) -> None:
        """Synchronizes until the thread is stopped."""
        while not self._over.wait(self._rng.random() * 0.001):
            functions.aclrtSetCurrentContext(self._rng.choice(self._contexts))
            try:
                functions.aclrtSynchronizeDevice()
            except aioacl.AclError:
                self.taken += 1

    def stop(self) -> None:
        """Stops the thread, and waits for its end."""
        self._over.set()
        self.join()


class Campaign:
    """Runs scenarios until every kind of await has the required rounds."""

    def __init__(self, mode: Mode, rounds: int, seed: int, seconds: float) -> None:
        self.tally = Tally(mode, rounds)
        self._seed = seed
        self._end = time.monotonic() + seconds
        self._benches = [Bench(number, STRATEGIES[number % 2]) for number in range(PAIRS)]
        self._warned: list[str] = []
        self.scenarios = 0

    async def run(self) -> None:
        """Runs the scenarios of all benches."""
        warnings.simplefilter("always")
        warnings.showwarning = self._collect_warning  # type: ignore[assignment]  # it ignores the place of a warning
        with ThreadPoolExecutor(THREADS) as pool:
            for bench in self._benches:
                await bench.open()
            other = Other(self._benches, f"{self._seed}") if self.tally.mode.other else None
            if other is not None:
                other.start()
            await asyncio.gather(*(self._run_scenarios(bench, pool) for bench in self._benches))
            if other is not None:
                await asyncio.to_thread(other.stop)
                self.tally.reported["codes taken by the other library"] = other.taken
            for bench in self._benches:
                await bench.close()

    def _collect_warning(self, message: Warning | str, category: type[Warning], *_: object) -> None:
        if issubclass(category, aioacl.AclWarning):
            self._warned.append(str(message))
        else:
            self.tally.find(f"{category.__name__}: {message}")

    async def _run_scenarios(self, bench: Bench, pool: ThreadPoolExecutor) -> None:
        number = 0
        while self.tally.next_kind(bench.strategy) is not None and not self.tally.found:
            number += 1
            self.scenarios += 1
            name = f"{self.tally.mode.name}/{bench.number}.{number}"
            rng = random.Random(f"{self._seed}/{name}")
            slow = self.tally.mode.timeouts and rng.random() < TIMEOUT_SHARE
            scenario = Scenario(name, bench, self.tally, rng, pool, self._warned, slow)
            try:
                await scenario.run()
            except Exception as error:
                self.tally.find(f"expected scenario {name} to end, got {error!r}")
            if time.monotonic() > self._end and not self.tally.found:
                self.tally.find(f"expected all rounds to end in time, got {dict(self.tally.begun)}")


def main(name: str, rounds: int, seed: int, seconds: float) -> None:
    """Runs one mode, and prints its tally."""
    os.environ["AIOACL_SIM_DEVICES"] = str(2 * PAIRS)
    mode = MODES[name]
    detection.allow(mode.ways)
    aioacl.use_library("simulator")
    campaign = Campaign(mode, rounds, seed, seconds)
    with (
        simulator.register_kernel(KERNEL, lambda _: None),
        simulator.register_model(MODEL_NAME, first_numbers),
        simulator.fault(BUSY),
    ):
        asyncio.run(campaign.run())
    tally = campaign.tally
    exact = aioacl.library_info().failure_detection == "exact"
    if exact != mode.exact:
        tally.find(
            f"expected failure detection with exact={mode.exact}, got {aioacl.library_info().failure_detection}"
        )
    found = [f"violation: {text}" for text in simulator.violations()]
    result = {
        "counts": tally.counts,
        "injected": tally.injected,
        "reported": tally.reported,
        "work": tally.work,
        "findings": tally.findings + found,
        "found": tally.found + len(found),
        "scenarios": campaign.scenarios,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
