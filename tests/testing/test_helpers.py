"""Waiting for a condition, and recovery of devices after a test."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import aioacl
from aioacl import simulator
from aioacl.testing import force_close, recover_device, release_everything, wait_until, wait_until_blocking
from tests.kit import FAULT, Raised, hanging, held_fill

if TYPE_CHECKING:
    from tests.kit import OpenDevice


@pytest.mark.anyio
async def test_wait_until_returns_when_the_condition_holds(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        with simulator.held(stream):
            stream.fill(memory, 1)
            await wait_until(lambda: simulator.pending(stream) == 1)
        await wait_until(lambda: simulator.pending(stream) == 0)


@pytest.mark.anyio
async def test_wait_until_names_the_condition_when_it_times_out() -> None:
    never = False
    with pytest.raises(TimeoutError, match=r"did not become true within 0.01 s: .*lambda: never"):
        await wait_until(lambda: never, timeout=0.01)


async def always() -> bool:
    return True


@pytest.mark.anyio
async def test_wait_until_with_an_async_condition_raises_and_names_the_remedy() -> None:
    refused = pytest.raises(
        aioacl.ParameterError, match=r"not async, got .*coroutine. Pass a condition that is"
    )
    with refused:
        await wait_until(always)
    with refused:
        wait_until_blocking(lambda: always())  # noqa: PLW0108 - the lambda itself is not async, but its result is


def test_wait_until_blocking_returns_or_times_out() -> None:
    gone = threading.Event()
    thread = threading.Thread(target=gone.set)
    thread.start()
    wait_until_blocking(gone.is_set)
    thread.join()
    with pytest.raises(TimeoutError, match=r"within 0.01 s: .*thread\.ident"):
        wait_until_blocking(lambda: thread.ident is None, timeout=0.01)


def test_release_everything_ends_all_holds_and_hangs_and_injected_faults(open_device: OpenDevice) -> None:
    device = open_device().result()
    stream, memory = device.create_stream().result(), device.allocate(64).result()
    ticket = held_fill(stream, memory)
    simulator.hang_call("aclrtMemsetAsync")
    hung = Raised(lambda: stream.fill(memory, 2))
    wait_until_blocking(hanging("aclrtMemsetAsync"))
    simulator.fail_call("aclrtMalloc", 207001)
    release_everything()
    hung.join()
    ticket.result()
    for thing in (device.allocate(64).result(), memory, stream, device):
        thing.close().result()


def test_force_close_closes_all_devices_but_the_named_ones(open_device: OpenDevice) -> None:
    first, second = open_device(0).result(), open_device(1).result()
    again = open_device(0).result()
    assert force_close(but=[1]) == ()
    assert (first.state, again.state, second.state) == (
        aioacl.State.CLOSED,
        aioacl.State.CLOSED,
        aioacl.State.OPEN,
    )
    assert force_close() == ()
    assert second.state is aioacl.State.CLOSED


def test_recover_device_does_not_reset_a_device_that_works(open_device: OpenDevice) -> None:
    assert recover_device(0) == ""
    device = open_device(0).result()
    assert recover_device(0) == ""
    assert simulator.calls("aclrtResetDeviceForce") == 0
    device.close().result()


def test_recover_device_resets_a_poisoned_device(open_device: OpenDevice) -> None:
    device = open_device().result()
    stream, memory = device.create_stream().result(), device.allocate(64).result()
    simulator.fail_next(stream, FAULT)
    with pytest.raises(aioacl.DeviceFault):
        stream.fill(memory, 1).result()
    poisoned = device.health.status
    assert "device 0 is poisoned" in (report := recover_device(0))
    assert "open at generation" in report
    assert (poisoned, device.health.status) == ("poisoned", "ok")
    device.close().result()


def test_recover_device_resets_a_device_that_fails_its_test(open_device: OpenDevice) -> None:
    device = open_device().result()
    simulator.fail_call("aclrtMemcpy", FAULT)
    assert f"fails a test: aclrtMemcpy returned {FAULT}" in recover_device(0)
    assert simulator.calls("aclrtResetDeviceForce") == 1
    device.close().result()


def test_recover_device_reports_a_device_that_cannot_be_opened() -> None:
    simulator.fail_call("aclrtSetDevice", FAULT)
    assert "device 0 cannot be opened" in recover_device(0)
    assert recover_device(0) == ""
