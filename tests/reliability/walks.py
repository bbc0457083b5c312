"""Random walks of set, reset and force reset: the rules, the simulator and aioacl.lowlevel agree at every step."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.reliability.part import Outcome, Scale

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT_SECONDS: Final = {Scale.QUICK: 60.0, Scale.DEFAULT: 180.0, Scale.SLOW: 1200.0}
LONGEST_WALK: Final = 50_000
RULE_OF_THREE: Final = 3  # if n tries have no failure, the rate is below 3/n with 95 % confidence


@dataclass
class Walked:
    """The results of some walks."""

    steps: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter[str])
    divergence: str = ""


def walked(seeds: Sequence[str], steps: int) -> Walked:
    """Runs walks in a process that has not loaded a library. Ends at the first divergence."""
    import aioacl
    from tests.reliability.walk import DEVICES, Divergence, Walk

    os.environ["AIOACL_SIM_DEVICES"] = str(DEVICES)
    aioacl.use_library("simulator")
    aioacl.library_info()
    all_of_them, began = Walked(), time.perf_counter()
    for seed in seeds:
        walk = Walk(seed, steps)
        try:
            walk.run()
        except Divergence as divergence:
            all_of_them.divergence = f"walk {seed!r}, step {walk.done}: {divergence}"
        except Exception:
            all_of_them.divergence = f"walk {seed!r}, step {walk.done}:\n{traceback.format_exc()}"
        all_of_them.steps += walk.done
        all_of_them.kinds += walk.kinds
        if all_of_them.divergence:
            break
    all_of_them.seconds = time.perf_counter() - began
    return all_of_them


def in_processes(seeds: Sequence[str], steps: int, processes: int) -> list[Walked]:
    """Runs the walks, divided among that many processes."""
    if processes == 1:
        return [walked(seeds, steps)]
    shares = [seeds[first::processes] for first in range(processes)]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(walked, shares, [steps] * processes))


def run(scale: Scale, seed: int) -> Outcome:
    """Runs walks of at most 50,000 steps each. They begin and end with no device set."""
    total = scale.pick(20_000, 500_000, 5_000_000)
    steps = min(total, LONGEST_WALK)
    seeds = [f"{seed}:{number}" for number in range(total // steps)]
    all_of_them = in_processes(seeds, steps, processes=scale.pick(1, 1, 2))
    kinds = sum((each.kinds for each in all_of_them), Counter[str]())
    done = sum(each.steps for each in all_of_them)
    outcome = Outcome()
    for each in all_of_them:
        again = f"python -m tests.reliability walks --{scale.value} --seed={seed}"
        outcome.expect(not each.divergence, f"{each.divergence}\nagain: {again}")
    outcome.expect(done == total or outcome.findings, f"expected {total} steps, got {done}")
    outcome.figures = {
        "steps": done,
        "divergences": len(outcome.findings),
        "steps per second, in each process": [round(each.steps / each.seconds) for each in all_of_them],
        "steps of each kind": [f"{count:>9,} {kind}" for kind, count in kinds.most_common()],
    }
    if not outcome.findings:
        outcome.figures["95 % bound on divergences per step"] = f"{RULE_OF_THREE / done:.1e}"
    return outcome
