"""Devices in a fault state: what calls return, what ends the state, and resets that fail or falsely succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import ffi, lib
from tests.kit import Raised, until_now
from tests.simulator.rawacl import (
    DEVICE,
    device,
    fill,
    good,
    is_waiting,
    malloc,
    new_event,
    new_memory,
    new_pinned,
    new_stream,
    rc,
)

if TYPE_CHECKING:
    from tests.kit import OpenDevice

STICKY = 507013
ECHO = 507899


def enter_fault_state(memory: Any, stream: Any, effect: str = f"sticky={STICKY}") -> None:
    """Puts the device into a fault state by a call that enqueues a task. The call itself succeeds."""
    with simulator.fault(f"copy:nth=1:{effect}") as fault:
        assert fill(memory, stream) == 0
        assert fault.hits == 1


def reset_by_force() -> None:
    """Ends the fault state as a program does: by a force reset."""
    good("aclrtResetDeviceForce", DEVICE)
    good("aclrtSetDevice", DEVICE)


def test_first_wait_in_a_fault_state_returns_the_code_and_later_waits_time_out() -> None:
    with device():
        memory, stream, event = new_memory(), new_stream(), new_event()
        enter_fault_state(memory, stream)
        assert rc("aclrtSynchronizeStream", stream) == STICKY
        assert rc("aclrtSynchronizeStream", stream) == 507046
        assert rc("aclrtSynchronizeDevice") == 507046
        assert rc("aclrtSynchronizeEvent", event) == 507047
        assert rc("aclrtStreamQuery", stream, ffi.new("aclrtStreamStatus *")) == STICKY
        assert rc("aclrtDestroyEvent", event) == ECHO


def test_calls_in_a_fault_state_destroy_objects_and_create_and_enqueue_nothing() -> None:
    with device():
        memory, stream, event, host = new_memory(), new_stream(), new_event(), new_pinned()
        before = simulator.stats()
        enter_fault_state(memory, stream)
        assert malloc() == ECHO
        assert rc("aclrtCreateStream", ffi.new("aclrtStream *")) == ECHO
        assert fill(memory, stream) == ECHO
        assert rc("aclrtRecordEvent", event, stream) == ECHO
        for function, thing in {
            "aclrtDestroyEvent": event,
            "aclrtFreeHost": host,
            "aclrtDestroyStream": stream,
            "aclrtFree": memory,
        }.items():
            assert rc(function, thing) == ECHO
        now = simulator.stats()
        assert (now.events, now.host_blocks) == (before.events - 1, before.host_blocks - 1)
        assert (now.streams, now.device_blocks) == (before.streams - 1, before.device_blocks - 1)


def test_sticky_rule_on_a_call_that_enqueues_nothing_returns_the_code() -> None:
    with device():
        with simulator.fault("aclrtMalloc", nth=1, sticky=STICKY):
            assert malloc() == STICKY
        assert malloc() == ECHO


def test_work_of_a_device_in_a_fault_state_does_not_run() -> None:
    with device():
        memory, stream = new_memory(), new_stream()
        good("aclrtSynchronizeStream", stream)
        tasks = simulator.stats().tasks
        enter_fault_state(memory, stream)
        assert simulator.stats().tasks == tasks


def test_fault_state_of_one_device_does_not_affect_another() -> None:
    with device():
        enter_fault_state(new_memory(), new_stream())
        with device(0):
            assert malloc() == 0


def test_fault_state_ends_with_a_force_reset_and_not_with_a_plain_one() -> None:
    with device():
        enter_fault_state(new_memory(), new_stream())
        good("aclrtResetDevice", DEVICE)
        good("aclrtSetDevice", DEVICE)
        assert malloc() == ECHO
        reset_by_force()
        assert malloc() == 0


def test_clear_ends_every_fault_state_and_work_goes_on() -> None:
    with device():
        memory, stream = new_memory(), new_stream()
        enter_fault_state(memory, stream)
        assert malloc() == ECHO
        simulator.clear()
        assert malloc() == 0
        good("aclrtSynchronizeStream", stream)


def test_lost_device_cannot_be_set_and_its_first_resets_fail() -> None:
    with device():
        enter_fault_state(new_memory(), new_stream(), "lost=507010:reset-fail=2")
        assert rc("aclrtSetDevice", DEVICE) == 507010
        assert [rc("aclrtResetDeviceForce", DEVICE) for _ in range(3)] == [507010, 507010, 0]
        good("aclrtSetDevice", DEVICE)
        assert malloc() == 0


def test_lost_device_can_be_set_after_its_release_and_stays_faulty() -> None:
    with device():
        enter_fault_state(new_memory(), new_stream(), "lost=507010")
        assert [rc("aclrtResetDevice", DEVICE) for _ in range(2)] == [507010, 0]
        good("aclrtSetDevice", DEVICE)
        assert malloc() == ECHO
        reset_by_force()
        assert malloc() == 0


def test_device_status_in_a_fault_state_reports_whether_the_device_is_reachable() -> None:
    def status() -> int:
        place = ffi.new("aclrtDeviceStatus *")
        good("aclrtQueryDeviceStatus", DEVICE, place)
        return int(place[0])

    with device():
        assert status() == lib.ACL_RT_DEVICE_STATUS_NORMAL
        enter_fault_state(new_memory(), new_stream())
        assert status() == lib.ACL_RT_DEVICE_STATUS_NORMAL
        reset_by_force()
        enter_fault_state(new_memory(), new_stream(), "lost=507010")
        assert status() == lib.ACL_RT_DEVICE_STATUS_ABNORMAL
        while rc("aclrtResetDeviceForce", DEVICE):
            pass
        good("aclrtSetDevice", DEVICE)
        assert status() == lib.ACL_RT_DEVICE_STATUS_NORMAL


def test_reset_that_fails_is_undone() -> None:
    with device():
        memory, stream = new_memory(), new_stream()
        with simulator.fault("reset", reset_fail=2, rc=507901) as fault:
            assert [rc("aclrtResetDeviceForce", DEVICE), rc("aclrtResetDevice", DEVICE)] == [507901, 507901]
            assert simulator.retain_count(DEVICE) == 1
            assert fill(memory, stream) == 0
            good("aclrtSynchronizeStream", stream)
            assert fault.hits == 2


def test_a_call_that_undoes_one_set_of_several_is_no_reset() -> None:
    with device():
        good("aclrtSetDevice", DEVICE)
        with simulator.fault("reset", reset_fail=1, rc=507901) as fault:
            assert [rc("aclrtResetDevice", DEVICE), rc("aclrtResetDevice", DEVICE)] == [0, 507901]
            assert fault.hits == 1
        good("aclrtSetDevice", DEVICE)
        with simulator.fault("reset", reset_lies=True, times=1) as fault:
            assert [rc("aclrtResetDevice", DEVICE), fault.hits] == [0, 0]
            good("aclrtResetDevice", DEVICE)
        good("aclrtSetDevice", DEVICE)
        assert malloc() == ECHO
        reset_by_force()


def test_reset_that_falsely_succeeds_leaves_the_device_in_a_fault_state() -> None:
    with device():
        with simulator.fault("reset", reset_lies=True, nth=1):
            reset_by_force()
        assert malloc() == ECHO
        reset_by_force()
        assert malloc() == 0


def test_false_drain_in_a_fault_state_returns_success() -> None:
    with device():
        enter_fault_state(new_memory(), new_stream())
        with simulator.fault("aclrtSynchronizeDevice", false_drain=True):
            good("aclrtSynchronizeDevice")
        assert rc("aclrtSynchronizeDevice") == STICKY


def test_slow_teardown_holds_the_stream_lock() -> None:
    simulator.set_virtual_clock(True)
    try:
        with device():
            stream = new_stream()
            context = ffi.new("aclrtContext *")
            good("aclrtGetCurrentContext", context)

            def in_context(function: str, *arguments: object) -> int:
                good("aclrtSetCurrentContext", context[0])
                return rc(function, *arguments)

            with simulator.fault("aclrtDestroyStream", slow_teardown=306):
                destroy = Raised(lambda: in_context("aclrtDestroyStream", stream))
                assert until_now(lambda: is_waiting("aclrtDestroyStream"))
                create = Raised(lambda: in_context("aclrtCreateStream", ffi.new("aclrtStream *")))
                assert until_now(lambda: is_waiting("aclrtCreateStream"))
                simulator.advance_clock(306)
                assert (destroy.join(), create.join()) == (0, 0)
    finally:
        simulator.set_virtual_clock(False)


# --- in the public API --------------------------------------------------------------------------------------


@pytest.mark.uncached
@pytest.mark.thorough
@pytest.mark.anyio
async def test_call_during_a_foreign_reset_is_repeated(open_device: OpenDevice) -> None:
    async with open_device() as one:
        generation = one.generation
        with simulator.fault("aclrtMalloc", ext_reset=True, nth=1) as fault:
            async with one.allocate(64) as memory:
                assert fault.hits == 1
                assert memory.generation == one.generation == generation + 1
        with simulator.fault("aclrtMalloc", ext_reset=True, nth=1), pytest.raises(aioacl.AclError):
            await one.allocate(64, wait=False)
