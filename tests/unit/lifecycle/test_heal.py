"""open_device(heal=True): the first open probes the device, and resets it once if the probe fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from aioacl._lifecycle.manager import manager_of
from tests.kit import FAULT, elsewhere, raises, sets_by_other_code, works

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio
WEDGED = 507018


@pytest.fixture(params=["primary", "own"])
def context(request: pytest.FixtureRequest) -> Any:
    return request.param


def calls_since(call: str) -> Callable[[], int]:
    """Returns a function that returns how many such calls were made since."""
    before = max((entry["seq"] for entry in simulator.journal()), default=-1)
    return lambda: sum(entry["call"] == call and entry["seq"] > before for entry in simulator.journal())


def force_resets() -> Callable[[], int]:
    """Returns a function that returns how many force resets were made since."""
    return calls_since("aclrtResetDeviceForce")


async def test_66_device_that_works_is_probed_and_not_reset(context: Any) -> None:
    resets, copies = force_resets(), calls_since("aclrtMemcpy")
    async with aioacl.open_device(0, context=context, heal=True) as device:
        assert (copies(), resets()) == (2, 0)  # to the device and back
        assert await works(device)


@pytest.mark.parametrize("options", [{}, {"sticky": WEDGED}])
async def test_66_device_whose_probe_fails_is_reset_once_and_probed_again(
    context: Any, options: dict[str, Any]
) -> None:
    resets = force_resets()
    with simulator.fault("aclrtMemcpy", nth=1, rc=WEDGED, **options):
        async with aioacl.open_device(0, context=context, heal=True) as device:
            assert resets() == 1
            assert simulator.retain_count() == (1 if context == "primary" else 0)
            assert device.health.ready
            assert await works(device)
    assert simulator.retain_count() == 0


async def test_66_open_raises_the_failure_of_the_second_probe(context: Any) -> None:
    simulator.fail_call("aclrtMemcpy", FAULT, 10)
    resets = force_resets()
    error = await raises(aioacl.DeviceFault, aioacl.open_device(0, context=context, heal=True))
    assert (error.code, error.call) == (FAULT, "aclrtMemcpy")
    assert error.hint.startswith("heal=True has reset the device, which did not help. ")
    assert (resets(), simulator.retain_count()) == (1, 0)
    assert simulator.stats().contexts == 0
    simulator.clear()
    async with aioacl.open_device(0, context=context, heal=True) as device:
        assert await works(device)


@pytest.mark.parametrize("call", ["aclrtResetDeviceForce", "aclrtSetDevice"])
async def test_66_reset_that_fails_is_raised_and_leaves_no_set(call: str) -> None:
    simulator.fail_call("aclrtMemcpy", FAULT)
    with simulator.fault(call, nth=2 if call == "aclrtSetDevice" else 1, rc=507000):
        error = await raises(aioacl.AclError, aioacl.open_device(0, heal=True))
    assert (error.code, error.call) == (507000, call)
    assert simulator.retain_count() == 0
    simulator.clear()
    async with aioacl.open_device(0) as device:
        assert await works(device)


async def test_66_set_that_fails_says_that_no_reset_is_possible() -> None:
    simulator.fail_call("aclrtSetDevice", FAULT)
    resets = force_resets()
    error = await raises(aioacl.DeviceFault, aioacl.open_device(0, heal=True))
    assert "ACL cannot reset a device that cannot be set" in error.hint
    assert resets() == 0


async def test_66_device_of_other_code_is_not_healed(context: Any) -> None:
    sets_by_other_code(1)
    simulator.fail_call("aclrtMemcpy", FAULT, 10)
    resets = simulator.resets()
    error = await raises(aioacl.DeviceFault, aioacl.open_device(0, context=context, heal=True))
    assert error.hint.startswith("heal=True did not reset the device, because other code has perhaps set it")
    assert (simulator.resets(), simulator.retain_count()) == (resets, 1)
    elsewhere("aclrtResetDevice")


@pytest.mark.parametrize("by", ["environment", "argument"])
async def test_66_policy_forbids_the_reset(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "environment":
        monkeypatch.setenv("AIOACL_RESETS", "never")
    simulator.fail_call("aclrtMemcpy", FAULT)
    resets = force_resets()
    error = await raises(aioacl.DeviceFault, aioacl.open_device(0, resets=by != "argument", heal=True))
    assert "AIOACL_RESETS=never forbids it" in error.hint
    assert resets() == 0


async def test_probe_that_reads_wrong_bytes_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = [("the copied bytes differ", 0), None]
    monkeypatch.setattr("aioacl._lifecycle.procedures.open.probe", lambda *_: found.pop(0))
    async with aioacl.open_device(0, heal=True) as device:
        assert await works(device)
    found += [("the copied bytes differ", 0)] * 2
    error = await raises(aioacl.DeviceFault, aioacl.open_device(0, heal=True))
    assert "the probe failed: the copied bytes differ" in str(error)


async def test_later_open_does_not_probe_the_device() -> None:
    async with aioacl.open_device(0) as device:
        copies = calls_since("aclrtMemcpy")
        async with aioacl.open_device(0, heal=True):
            assert copies() == 0
        await device.close()
    async with aioacl.open_device(0):
        assert not manager_of(0).policy.heal


async def test_wrong_heal_is_refused() -> None:
    with pytest.raises(aioacl.ParameterError, match="heal must be a bool, got 1"):
        aioacl.open_device(0, heal=1)  # type: ignore[arg-type]
