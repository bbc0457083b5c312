"""A short run of the state machine of `python -m tests.reliability machine`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.reliability.machine_devices import Devices
from tests.reliability.machine_work import Work

EXAMPLES = 8
STEPS_AN_EXAMPLE = 40


class Lifecycle(Devices, Work):
    """All rules."""


# After a foreign reset, or a reset that follows a fault, aioacl leaves native events to the runtime.
def test_every_call_does_what_the_model_predicts_and_nothing_is_left() -> None:
    shape = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS_AN_EXAMPLE,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(Lifecycle, settings=shape)
    assert Lifecycle.steps.total() >= EXAMPLES
