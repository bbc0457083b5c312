"""The complete text of errors: what was expected, what came, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import aioacl
import aioacl.lowlevel
from aioacl import simulator
from aioacl._lifecycle.procedures import limits
from tests.kit import no_call, no_call_of_mine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio

LIMITED = " Pass seconds, or omit {} for the default."
ARGUMENTS: dict[str, tuple[Callable[[aioacl.Device, Any], object], tuple[object, ...], str]] = {
    "index": (
        lambda _, value: aioacl.open_device(value),
        (-1, 64, 1.0, "0", None, True),
        "expected a device index from 0 to 63, got {!r}. list_devices() returns the visible devices.",
    ),
    "priority": (
        lambda device, value: device.create_stream(priority=value),
        (-1, 8, 1.5, "0", None, True),
        "priority must be an int from 0 (highest) to 7, got {!r}. Pass 0 to 7, or omit priority for the highest.",
    ),
    "on_failure": (
        lambda device, value: device.create_stream(on_failure=value),
        ("", "abort", None, 1),
        'on_failure must be "continue" or "stop", got {!r}. Omit on_failure for "continue".',
    ),
    "waits": (
        lambda _, value: aioacl.open_device(waits=value),
        ("", "poll", None, 1, "WATCH"),
        'waits must be "watch" or "thread", got {!r}. Omit waits for "watch".',
    ),
    "grace": (
        lambda device, value: device.force_reset(grace=value),
        (-1, float("nan"), float("inf"), "1", None, True),
        "grace must be a finite number of seconds, at least 0, got {!r}." + LIMITED.format("grace"),
    ),
    "timeout of a reset": (
        lambda device, value: device.force_reset(timeout=value),
        (-1, float("nan"), float("inf"), "1", None, True),
        "timeout must be a finite number of seconds, at least 0.05, got {!r}." + LIMITED.format("timeout"),
    ),
    "reason": (
        lambda device, value: device.force_reset(reason=value),
        (None, 1),
        "reason must be a str, got {!r}. Pass a text for the report.",
    ),
}


@pytest.mark.parametrize(("use", "values", "text"), ARGUMENTS.values(), ids=ARGUMENTS)
async def test_wrong_argument_raises_error_with_what_is_expected_what_came_and_what_to_do(
    open_device: OpenDevice,
    use: Callable[[aioacl.Device, Any], object],
    values: tuple[object, ...],
    text: str,
) -> None:
    async with open_device() as device:
        for value in values:
            with no_call(), pytest.raises(aioacl.ParameterError) as caught:
                use(device, value)
            assert str(caught.value) == text.format(value)


async def test_timeout_that_is_not_a_number_raises_error_with_what_is_expected(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream:
        wrong: Any = "1"
        with no_call(), pytest.raises(aioacl.ParameterError) as caught:
            await stream.synchronize(wrong)
        assert str(caught.value) == (
            "timeout must be a number of seconds, at least 0, or None, got '1'. Pass None, or omit timeout, to wait "
            "without a limit."
        )


async def test_stale_handle_raises_error_that_names_both_generations(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        old = device.generation
        assert (await device.force_reset()).ok
        with no_call_of_mine(), pytest.raises(aioacl.StaleHandleError) as caught:
            stream.query()
        assert str(caught.value) == (
            f"stream on device 0, generation {old}: expected a handle of generation {device.generation}, the current "
            f"one, got one of generation {old}. Make a new handle from the device, then repeat the operation with it."
        )


async def test_share_of_a_lease_that_was_left_raises_error_that_names_when_to_enter_it(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        async with device.lease() as lease:
            shared = lease.share()
        with pytest.raises(aioacl.ParameterError) as caught, shared:
            raise AssertionError("the block began")
        assert str(caught.value) == (
            "expected a lease that a task holds, got one that no task holds. Enter lease.share() while the owner of "
            "the lease is inside its block."
        )


USES: dict[str, Callable[[aioacl.Device], Awaitable[object]]] = {
    "stream": lambda device: device.create_stream(),
    "memory": lambda device: device.allocate(8),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
async def test_quarantined_device_raises_error_that_names_the_failed_call_once_and_the_remedy(
    open_device: OpenDevice, use: Callable[[aioacl.Device], Awaitable[object]]
) -> None:
    async with open_device() as device:
        simulator.fail_call("aclrtResetDeviceForce", 507899, 3)
        report = await device.force_reset()
        assert report.problem == "the reset failed in all 3 attempts: aclrtResetDeviceForce returned 507899"
        with no_call_of_mine(), pytest.raises(aioacl.DeviceQuarantined) as caught:
            await use(device)
        assert str(caught.value) == (
            f"device 0, generation {device.generation}: the device is quarantined: "
            f"{report.problem}. Call `force_reset()` again; if `error.report.stuck` names a call, first wait until "
            "that call has returned. If that does not help, end the process."
        )
        assert (await device.force_reset()).ok


OPEN_FAILED = (
    "Open the device again. If that does not help, end all processes that use the card, and reset the card with "
    "npu-smi."
)
BY_HAND = "Reset the device with `lowlevel.reset_device_force(index)`."
WITHOUT_A_DEVICE: dict[str, tuple[str, Callable[[], object], str]] = {
    "open": ("aclrtSetDevice", lambda: aioacl.open_device(0).result(), OPEN_FAILED),
    "list": (
        "aclrtGetDeviceCount",
        aioacl.list_devices,
        "Check with npu-smi whether the cards and their driver work.",
    ),
    "set": ("aclrtSetDevice", lambda: aioacl.lowlevel.set_device(0), BY_HAND),
    "call": ("aclrtSetOpWaitTimeout", lambda: aioacl.lowlevel.functions.aclrtSetOpWaitTimeout(9), BY_HAND),
}


@pytest.mark.parametrize(("function", "call", "hint"), WITHOUT_A_DEVICE.values(), ids=WITHOUT_A_DEVICE)
def test_fault_that_a_caller_without_a_device_meets_names_no_method_of_a_device(
    function: str, call: Callable[[], object], hint: str
) -> None:
    simulator.fail_call(function, 507914, -1)
    with pytest.raises(aioacl.DeviceFault) as caught:
        call()
    assert (caught.value.action, caught.value.hint) == ("reset", hint)


@pytest.mark.thorough
def test_open_that_is_given_up_names_no_method_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    simulator.hang_call("aclrtSetDevice")
    with monkeypatch.context() as patch:
        patch.setattr(limits, "OPEN_SECONDS", 0.05)
        with pytest.raises(aioacl.DeviceQuarantined) as caught:
            aioacl.open_device(0).result()
    simulator.release_all()
    assert caught.value.hint == OPEN_FAILED
    aioacl.open_device(0).result().close().result()


async def test_copy_before_staging_memory_is_allocated_raises_queue_full_and_the_remedy_works(
    open_device: OpenDevice,
) -> None:
    simulator.fail_call("aclrtMallocHost", 207001, -1)  # the allocation also fails during a foreign reset
    async with open_device() as device, device.create_stream() as stream, device.allocate(8) as memory:
        with pytest.raises(aioacl.QueueFull) as caught:
            stream.copy(memory, b"12345678")
        simulator.clear()
        assert caught.value.message == (
            "expected free staging memory, got none: all is in flight, or none is allocated yet after an open or reset"
        )
        assert caught.value.hint == (
            "`await stream.ready()` waits for staging memory; copies of `device.pinned(n)` memory need none."
        )
        await stream.ready()
        await stream.copy(memory, b"12345678")
