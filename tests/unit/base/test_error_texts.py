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

GOES_UP = "upload expected a DeviceBuffer as target and host memory as source"
GOES_DOWN = "download expected host memory as target and a DeviceBuffer as source"
EXCHANGED = "The target comes first: exchange the two arguments, or call"
TRANSFERS: dict[str, tuple[Callable[[Any, Any], aioacl.Operation[None]], str]] = {
    "upload between two buffers of the device": (
        lambda stream, memory: stream.upload(memory, memory),
        f"{GOES_UP}, got DeviceBuffer and DeviceBuffer. Use stream.copy(target, source) between two DeviceBuffers.",
    ),
    "download between two buffers of the device": (
        lambda stream, memory: stream.download(memory, memory),
        f"{GOES_DOWN}, got DeviceBuffer and DeviceBuffer. Use stream.copy(target, source) between two DeviceBuffers.",
    ),
    "upload the wrong way round": (
        lambda stream, memory: stream.upload(bytearray(8), memory),
        f"{GOES_UP}, got bytearray and DeviceBuffer. {EXCHANGED} download.",
    ),
    "download the wrong way round": (
        lambda stream, memory: stream.download(memory, bytearray(8)),
        f"{GOES_DOWN}, got DeviceBuffer and bytearray. {EXCHANGED} upload.",
    ),
    "upload to the host": (
        lambda stream, _: stream.upload(bytearray(8), b"12345678"),
        f"{GOES_UP}, got bytearray and bytes. The target comes first. Copy host memory to host memory yourself.",
    ),
}


@pytest.mark.parametrize(("begin", "text"), TRANSFERS.values(), ids=TRANSFERS)
async def test_transfer_between_wrong_ends_raises_error_that_names_both_and_the_remedy(
    open_device: OpenDevice, begin: Callable[[Any, Any], aioacl.Operation[None]], text: str
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(8) as memory:
        with no_call(), pytest.raises(aioacl.ParameterError) as caught:
            await begin(stream, memory)
        assert str(caught.value) == text


LIMITED = " Pass seconds, or omit {} for the default."
ARGUMENTS: dict[str, tuple[Callable[[aioacl.Device, Any], object], object, str]] = {
    "priority": (
        lambda device, value: device.create_stream(priority=value),
        9,
        "priority must be an int from 0 (highest) to 7, got 9. Pass 0 to 7, or omit priority for the highest.",
    ),
    "on_failure": (
        lambda device, value: device.create_stream(on_failure=value),
        "halt",
        'on_failure must be "continue" or "stop", got \'halt\'. Omit on_failure for "continue".',
    ),
    "waits": (
        lambda _, value: aioacl.open_device(waits=value),
        "poll",
        'waits must be "watch" or "thread", got \'poll\'. Omit waits for "watch".',
    ),
    "grace": (
        lambda device, value: device.force_reset(grace=value),
        None,
        "grace must be a finite number of seconds, at least 0, got None." + LIMITED.format("grace"),
    ),
    "timeout of a reset": (
        lambda device, value: device.force_reset(timeout=value),
        -1,
        "timeout must be a finite number of seconds, at least 0.05, got -1." + LIMITED.format("timeout"),
    ),
    "reason": (
        lambda device, value: device.force_reset(reason=value),
        b"why",
        "reason must be a str, got an object of bytes with 3 bytes. Pass a text for the report.",
    ),
}


@pytest.mark.parametrize(("use", "value", "text"), ARGUMENTS.values(), ids=ARGUMENTS)
async def test_wrong_argument_raises_error_with_what_is_expected_what_came_and_what_to_do(
    open_device: OpenDevice, use: Callable[[aioacl.Device, Any], object], value: object, text: str
) -> None:
    async with open_device() as device:
        with no_call(), pytest.raises(aioacl.ParameterError) as caught:
            use(device, value)
        assert str(caught.value) == text


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


async def test_lease_entered_twice_raises_error_that_names_device_lease_and_share(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.lease() as lease:
        with pytest.raises(aioacl.ParameterError) as caught:
            async with lease:
                raise AssertionError("the block began")
        assert str(caught.value) == (
            "device 0: expected a new lease, got one that was already entered. Call device.lease() once for each "
            "block, or pass lease.share() to another task."
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
            f"device 0, generation {device.generation}: expected an open device, got a quarantined one: "
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
    monkeypatch.setattr(limits, "OPEN_SECONDS", 0.05)
    simulator.hang_call("aclrtSetDevice")
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
