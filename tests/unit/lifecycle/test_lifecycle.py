"""A short walk of the machine that `python -m tests.reliability machine` walks for long."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.reliability.machine_devices import Devices
from tests.reliability.machine_work import Work

EXAMPLES = 8
STEPS_AN_EXAMPLE = 40


class Lifecycle(Devices, Work):
    """All rules."""


# Where somebody else has reset a device, or a fault came before the reset, native events are left to the runtime.
def test_every_call_does_what_the_model_says_and_nothing_is_left() -> None:
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
