"""A hypothesis state machine of the public API: each call has the result that a model predicts, and nothing is left."""

from __future__ import annotations

import os
import traceback
from typing import Final

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.reliability.part import Outcome, Scale

# Long, because hypothesis takes minutes to shrink a failure.
LIMIT_SECONDS: Final = {Scale.QUICK: 420.0, Scale.DEFAULT: 600.0, Scale.SLOW: 1800.0}
STEPS_AN_EXAMPLE: Final = 50
RULE_OF_THREE: Final = 3
SIMULATOR: Final = {"AIOACL_SIM_DEVICES": "2", "AIOACL_SIM_RESET_DROP_MS": "1"}


def run(scale: Scale, seed: int) -> Outcome:
    """Runs examples of up to 50 steps each, until the scale's number of steps is reached."""
    os.environ.update(SIMULATOR)
    import aioacl
    from tests.reliability import setting
    from tests.reliability.machine_devices import Devices
    from tests.reliability.machine_work import Work

    class Lifecycle(Devices, Work):
        """All rules."""

    aioacl.use_library("simulator")
    aioacl.library_info()
    outcome = Outcome()
    total, rounds, tally = scale.pick(300, 4_000, 40_000), 0, Lifecycle.steps
    shape = settings(
        max_examples=scale.pick(10, 50, 200),
        stateful_step_count=STEPS_AN_EXAMPLE,
        database=None,
        deadline=None,
        derandomize=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        phases=(Phase.generate, Phase.shrink),
    )
    while tally.total() < total and not outcome.findings:
        rounds += 1
        machine = type("Lifecycle", (Lifecycle,), {})
        try:
            run_state_machine_as_test(hypothesis.seed(f"{seed}:{rounds}")(machine), settings=shape)
        except Exception:
            again = f"again: python -m tests.reliability machine --{scale.value} --seed={seed}{setting.AGAIN}"
            outcome.findings.append(f"{traceback.format_exc()[-6000:]}\n{again}")
    outcome.figures = {
        "steps": tally.total(),
        "rounds": rounds,
        "steps of each kind": [
            f"{count:>7,} {kind.replace('_', ' ')}" for kind, count in tally.most_common()
        ],
    }
    if not outcome.findings:
        outcome.figures["95 % bound on failures per step"] = f"{RULE_OF_THREE / tally.total():.1e}"
    return outcome
