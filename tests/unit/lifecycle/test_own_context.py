"""Devices with a context of aioacl's own, beside other code of the process that uses the primary context."""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import ffi, lib
from aioacl._lifecycle.blocks import Block
from aioacl._lifecycle.manager import manager_of
from tests.kit import (
    FAULT,
    TASK_FAULT,
    Raised,
    Waiting,
    elsewhere,
    forget_uses_of_ended_contexts,
    hanging,
    held_fill,
    hung_in,
    next_event,
    raises,
    reset_by_other_code,
    settle_maintenance,
    until,
    wait_for,
    works,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioacl._base.ffi import CData

pytestmark = pytest.mark.anyio

RESETS = 100
BLOCK_BYTES = 1 << 26
COPIED = bytes(range(256))


def own(**options: Any) -> aioacl.Opening[aioacl.Device]:
    return aioacl.open_device(0, context="own", **options)


def must(call: str, *arguments: Any) -> None:
    """Calls an ACL function as other code does, on the thread of the caller."""
    code = getattr(lib, f"aio_u_{call}")(*arguments)
    assert code == 0, (call, code)


class OtherCode:
    """Other code of the process: a thread that works in the primary context of device 0 until `stop`."""

    def __init__(self) -> None:
        self.rounds = 0
        self._stopped = threading.Event()
        self._working = Raised(self._work)

    def _work(self) -> None:
        stream, memory = ffi.new("aclrtStream *"), ffi.new("void **")
        there, back = ffi.new("char[]", COPIED), ffi.new("char[]", len(COPIED))
        up, down = lib.ACL_MEMCPY_HOST_TO_DEVICE, lib.ACL_MEMCPY_DEVICE_TO_HOST
        must("aclrtSetDevice", 0)
        must("aclrtCreateStream", stream)
        must("aclrtMalloc", memory, len(COPIED), lib.ACL_MEM_MALLOC_HUGE_FIRST)
        while not self._stopped.is_set():
            ctypes.memset(int(ffi.cast("uintptr_t", back)), 0, len(COPIED))
            must("aclrtMemcpyAsync", memory[0], len(COPIED), there, len(COPIED), up, stream[0])
            must("aclrtMemcpyAsync", back, len(COPIED), memory[0], len(COPIED), down, stream[0])
            must("aclrtSynchronizeStream", stream[0])
            assert bytes(ffi.buffer(back, len(COPIED))) == COPIED
            self.rounds += 1
        must("aclrtFree", memory[0])
        must("aclrtDestroyStream", stream[0])
        must("aclrtResetDevice", 0)

    def stop(self) -> None:
        """Ends the work. Raises the error of the work, if it has failed."""
        self._stopped.set()
        self._working.join()

    @property
    def running(self) -> bool:
        return self._working.running


@contextmanager
def foreign_context() -> Generator[None]:
    """An explicit context of other code on device 0."""
    made = ffi.new("aclrtContext *")
    Raised(lambda: must("aclrtCreateContext", made, 0)).join()
    try:
        yield
    finally:
        Raised(lambda: must("aclrtDestroyContext", made[0])).join()


def stop_by_other_code() -> CData:
    """Makes a stream with STOP mode in the primary context, as other code does. Needs a device that is set."""
    made = ffi.new("aclrtStream *")

    def make() -> None:
        must("aclrtSetDevice", 0)
        must("aclrtCreateStream", made)
        must("aclrtSetStreamFailureMode", made[0], 1)
        must("aclrtResetDevice", 0)

    Raised(make).join()
    stream: CData = made[0]
    return stream


def device_bytes() -> int:
    return simulator.stats().device_bytes


# --- the context ------------------------------------------------------------------------------------------------------


async def test_own_context_needs_no_set_and_is_destroyed_by_the_close() -> None:
    async with own() as device:
        assert simulator.retain_count() == 0
        assert simulator.stats().contexts == 1
        assert await works(device)
    assert simulator.stats().contexts == 0
    assert device.state is aioacl.State.CLOSED


async def test_later_open_with_another_context_is_refused() -> None:
    async with own():
        with pytest.raises(
            aioacl.ParameterError, match="expected context='own', as in the first open of device 0"
        ):
            await aioacl.open_device(0)
    async with aioacl.open_device(0):
        with pytest.raises(aioacl.ParameterError, match="got context='own'"):
            await own()


@pytest.mark.parametrize(
    "options", [{"context": "mine"}, {"keep": 1}, {"resets": None}, {"context": "own", "keep": True}]
)
async def test_open_with_a_wrong_option_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(aioacl.ParameterError, match="must be"):
        aioacl.open_device(0, **options)


async def test_failed_task_in_an_own_context_needs_a_new_stream_only() -> None:
    async with own() as device, device.allocate(64) as memory, device.create_stream() as other:
        async with device.create_stream() as stream:
            simulator.fail_next(stream, TASK_FAULT)
            with pytest.raises(aioacl.DeviceFault) as caught:
                await stream.fill(memory, 1)
            assert caught.value.action == "new_stream"
        assert device.health.ready
        await other.fill(memory, 2)


async def test_timeout_and_cancellation_in_an_own_context_leave_the_work() -> None:
    async with own() as device, device.allocate(64) as memory, device.create_stream() as stream:
        ticket = held_fill(stream, memory)
        async with anyio.create_task_group() as group:
            with pytest.raises(aioacl.DeviceTimeout):
                await stream.synchronize(timeout=0.01)
            waiting = Waiting(group, lambda: wait_for(ticket))
            await until(lambda: lib.aio_device_waits(0) > 0)
            await waiting.cancel_and_wait()
            simulator.release_all()
        await ticket
        assert await works(device)


async def test_job_in_an_own_context_uses_that_context() -> None:
    def current() -> Any:
        found = ffi.new("aclrtContext *")
        must("aclrtGetCurrentContext", found)
        return found[0]

    async with own() as device:
        before = await device.run(current)
        assert before == await device.run(current)
        await device.force_reset()
        assert before != await device.run(current)


async def test_pinned_memory_and_pageable_copies_survive_a_reset_of_an_own_context() -> None:
    async with own() as device, device.pinned(64) as pinned:
        memoryview(pinned)[:] = bytes(range(64))
        await device.force_reset()
        back = bytearray(64)
        async with device.create_stream() as stream, device.allocate(64) as memory:
            await stream.copy(memory, pinned)
            await stream.download(back, memory)
        assert bytes(back) == bytes(range(64))


# --- resets of an own context -----------------------------------------------------------------------------------------


async def test_43_reset_replaces_the_context_and_no_device_is_reset() -> None:
    async with own() as device:
        stream = await device.create_stream()
        report = await device.force_reset()
        assert (report.ok, report.scope, report.attempts) == (True, "context", 1)
        assert simulator.calls("aclrtResetDeviceForce") == simulator.calls("aclrtResetDevice") == 0
        assert simulator.stats().contexts == 1
        await raises(aioacl.StaleHandleError, stream)
        assert await works(device)


async def test_44_reset_of_an_own_context_frees_its_memory_and_ends_hanging_work() -> None:
    async with own() as device:
        async with anyio.create_task_group() as group:
            stream, memory = await device.create_stream(), await device.allocate(64)
            waiting = Waiting(group, lambda: wait_for(held_fill(stream, memory)))
            await until(lambda: lib.aio_device_waits(0) > 0)
            report = await device.force_reset(grace=0)
            assert (report.ok, report.aborted, report.scope) == (True, 1, "context")
            await raises(aioacl.DeviceReset, waiting.outcome())
            await memory.close()
            await stream.close()
        flat = device_bytes()
        for _ in range(20):
            async with device.allocate(BLOCK_BYTES):
                assert (await device.force_reset()).ok
                assert device_bytes() == flat


@pytest.mark.slow
async def test_43_other_code_keeps_its_work_during_many_resets_of_an_own_context() -> None:
    other = OtherCode()
    await until(lambda: other.rounds > 0)
    async with own() as device:
        flat = None
        for _ in range(RESETS):
            async with anyio.create_task_group() as group:
                stream, memory = await device.create_stream(), await device.allocate(BLOCK_BYTES)
                ticket = held_fill(stream, memory)
                waiting = Waiting(group, lambda t=ticket: wait_for(t))  # type: ignore[misc]
                await until(lambda: lib.aio_device_waits(0) > 0)
                assert (await device.force_reset(grace=0)).scope == "context"
                await raises(aioacl.DeviceReset, waiting.outcome())
                await memory.close()
                await stream.close()
            flat = flat or device_bytes()
            assert device_bytes() == flat
        assert await works(device)
    seen = other.rounds
    await until(lambda: other.rounds > seen)
    assert other.running
    other.stop()
    assert simulator.retain_count() == 0


async def test_context_that_a_failing_call_has_destroyed_is_not_destroyed_again() -> None:
    async with own() as device:
        with simulator.fault("aclrtDestroyContext", rc_after=507899, times=1):
            report = await device.force_reset()
        assert (report.ok, report.scope, report.attempts, report.codes) == (True, "context", 1, ())
        assert await works(device)
        with simulator.fault("aclrtDestroyContext", rc=507899, times=1):
            report = await device.force_reset()
        assert (report.ok, report.scope, report.attempts) == (True, "device", 2)
        assert await works(device)
    assert simulator.violations() == []
    assert simulator.stats().contexts == 0


async def test_device_is_not_reset_while_a_context_of_aioacl_cannot_be_destroyed() -> None:
    async with own() as device:
        with simulator.fault("aclrtDestroyContext", rc=507899, times=-1):
            report = await device.force_reset(scope="device")
        assert (report.ok, report.attempts) == (False, 3)
        assert report.codes == (("aclrtDestroyContext", 507899),) * 3
        assert simulator.calls("aclrtResetDeviceForce") == 0
        assert (await device.force_reset()).ok
        assert await works(device)


async def test_thread_gets_no_own_context_back_that_a_reset_has_destroyed_during_its_call() -> None:
    async with own() as first, aioacl.open_device(1, context="own") as second:
        idle, memory = await first.create_stream(), await first.allocate(64)
        stream, other = await second.create_stream(), await second.allocate(64)
        held_fill(idle, memory)

        def use_both() -> list[bool]:
            answers = [idle.query()]  # the thread had no context, and keeps that of the first device
            gate.wait()
            return [*answers, stream.fill(other, 1).done]

        gate = threading.Event()
        using = Raised(use_both)
        simulator.hold(stream)
        with simulator.fault("aclrtMemsetAsync:dev=1:hang=using"):
            gate.set()
            await until(hanging("aclrtMemsetAsync"))
            assert (await first.force_reset(grace=0)).scope == "context"
            simulator.release_call("using")
            assert using.join() == [False, False]
        simulator.release(stream)
        for made in (idle, memory, stream, other):
            await made.close()
    assert simulator.violations() == []


async def test_open_of_a_faulty_device_resets_it_only_if_no_one_else_uses_it() -> None:
    async def fault() -> None:
        async with (
            aioacl.open_device(0) as device,
            device.create_stream() as stream,
            device.allocate(64) as memory,
        ):
            with simulator.fault("aclrtMemsetAsync", sticky=507010):
                await raises(aioacl.DeviceFault, stream.fill(memory, 1))

    await fault()
    async with own() as device:
        assert await works(device)
    await fault()
    with pytest.raises(aioacl.DeviceFault, match="aclrtCreateContext"):
        await aioacl.open_device(0, context="own", resets=False)
    elsewhere("aclrtSetDevice")
    with pytest.raises(aioacl.DeviceFault, match="aclrtCreateContext"):
        await aioacl.open_device(0, context="own")
    elsewhere("aclrtResetDeviceForce")


@pytest.mark.parametrize("forbids", ["resets", "keep"])
async def test_46_close_after_a_cancelled_open_resets_nothing_that_the_open_has_forbidden(
    forbids: str,
) -> None:
    resets = simulator.resets()
    opens = partial(aioacl.open_device, 0, resets=forbids != "resets", keep=forbids == "keep")
    async with anyio.create_task_group() as group:
        opening = await hung_in("aclrtSetDevice", group, opens)
        await opening.cancel_and_wait()
    simulator.release_call("aclrtSetDevice")
    manager = manager_of(0)
    await until(lambda: manager.procedure is None)
    assert (simulator.resets(), simulator.retain_count()) == (resets, 1)
    lib.aio_u_aclrtResetDevice(0)


async def test_reset_of_an_own_context_that_is_closed_beside_other_code_leaves_no_memory() -> None:
    elsewhere("aclrtSetDevice")
    before = device_bytes()
    async with own() as device:
        memory = await device.allocate(BLOCK_BYTES)
    assert device_bytes() == before
    await memory.close()
    elsewhere("aclrtResetDevice")


async def test_failed_probe_of_a_new_context_leads_to_a_reset_of_the_device() -> None:
    async with own() as device:
        with simulator.fault("aclrtMemcpy", rc=507000, nth=1):
            report = await device.force_reset()
        assert (report.ok, report.scope, report.attempts) == (True, "device", 2)
        assert simulator.calls("aclrtResetDeviceForce") == 1
        assert await works(device)


@pytest.mark.leaves("events")  # during the fault, aclrtDestroyEvent fails too
async def test_fault_of_the_device_leads_to_a_reset_of_the_device() -> None:
    async with own() as device, device.create_stream() as stream, device.allocate(64) as memory:
        with simulator.fault("aclrtMemsetAsync", sticky=FAULT):
            await raises(aioacl.DeviceFault, stream.fill(memory, 1))
        assert not device.health.ready
        report = await device.force_reset(grace=0)
        assert (report.ok, report.scope) == (True, "device")
        assert await works(device)
    forget_uses_of_ended_contexts()


@pytest.mark.parametrize("sets", [1, 3])
async def test_reset_of_the_device_from_an_own_context_makes_the_sets_of_other_code_again(sets: int) -> None:
    elsewhere(*["aclrtSetDevice"] * sets)
    async with own() as device:
        report = await device.force_reset(scope="device")
        assert (report.ok, report.scope, report.foreign_sets) == (True, "device", sets)
        assert simulator.retain_count() == sets
        assert await works(device)
    elsewhere(*["aclrtResetDevice"] * sets)


async def test_scope_of_a_reset_is_checked() -> None:
    async with aioacl.open_device(0) as device:
        with pytest.raises(aioacl.ParameterError, match="uses its primary context"):
            await device.force_reset(scope="context")
        mistakes: list[dict[str, Any]] = [{"scope": "process"}, {"foreign": 1}]
        for wrong in mistakes:
            with pytest.raises(aioacl.ParameterError, match="must be"):
                device.force_reset(**wrong)


# --- other code -------------------------------------------------------------------------------------------------------


async def test_42_foreign_resets_do_not_concern_an_own_context() -> None:
    async with own() as device, device.create_stream() as stream, device.allocate(64) as memory:
        generation = device.generation
        for _ in range(20):
            elsewhere("aclrtSetDevice")
            ticket = held_fill(stream, memory)
            reset_by_other_code()
            simulator.release_all()
            await ticket
            assert (device.generation, device.health.ready) == (generation, True)
        report = await device.force_reset()
        assert (report.ok, report.scope) == (True, "context")


async def test_42_foreign_stop_does_not_concern_an_own_context() -> None:
    elsewhere("aclrtSetDevice")
    async with own() as device, device.allocate(64) as memory:
        stop_by_other_code()
        for _ in range(20):
            async with device.create_stream() as stream:
                simulator.fail_next(stream, TASK_FAULT)
                with pytest.raises(aioacl.DeviceFault) as caught:
                    await stream.fill(memory, 1)
                assert caught.value.action == "new_stream"
        assert device.health.ready
        assert not device.health.foreign_stop
        assert await works(device)
    reset_by_other_code()


async def test_stop_mode_of_other_code_is_known_before_a_failure() -> None:
    async with aioacl.open_device(0) as device:
        for _ in range(3):
            assert not device.health.foreign_stop
            stop_by_other_code()
            await until(lambda: device.health.foreign_stop)
            assert device.health.ready
            assert await works(device)
            assert (await device.force_reset()).ok


@pytest.mark.parametrize("mode", [0, 1])
async def test_modes_of_other_contexts_and_continue_mode_are_no_foreign_stop(mode: int) -> None:
    made, stream = ffi.new("aclrtContext *"), ffi.new("aclrtStream *")

    def make() -> None:
        must("aclrtSetDevice", 0)
        if mode:
            must("aclrtCreateContext", made, 0)
        must("aclrtCreateStream", stream)
        must("aclrtSetStreamFailureMode", stream[0], mode)

    def end() -> None:
        must("aclrtSetDevice", 0)
        if mode:
            must("aclrtDestroyContext", made[0])
        else:
            must("aclrtDestroyStream", stream[0])
        for _ in range(2):
            must("aclrtResetDevice", 0)

    async with aioacl.open_device(0) as device:
        Raised(make).join()
        read = simulator.calls("aclrtGetStreamAttribute")
        assert not device.health.foreign_stop
        settle_maintenance()
        assert mode or simulator.calls("aclrtGetStreamAttribute") > read
        assert not device.health.foreign_stop
        Raised(end).join()


async def test_stop_mode_of_aioacl_itself_is_no_foreign_stop() -> None:
    async with aioacl.open_device(0) as device, device.create_stream(on_failure="stop"):
        assert not device.health.foreign_stop
        settle_maintenance()
        assert not device.health.foreign_stop


@pytest.mark.leaves("events")  # events of an ended context are not destroyed, because that crashes
async def test_own_context_that_other_code_destroys_is_made_again() -> None:
    async with own() as device:
        generation, context = device.generation, manager_of(0).own_context._made[0]
        lost = await device.allocate(BLOCK_BYTES)
        Raised(lambda: must("aclrtDestroyContext", context)).join()
        async with device.create_stream() as stream, device.allocate(64) as memory:
            await stream.fill(memory, 1)
        assert device.generation > generation
        await lost.close()
        assert device.state is aioacl.State.OPEN
    assert simulator.stats().contexts == 0
    forget_uses_of_ended_contexts()


@pytest.mark.leaves("events")  # events of an ended context are not destroyed, because that crashes
async def test_own_context_that_other_code_destroys_during_the_probe_is_made_again() -> None:
    async with own() as device, anyio.create_task_group() as group:
        resetting = await hung_in("aclrtMemcpy", group, device.force_reset)  # the copy of the probe
        context, frees = manager_of(0).own_context._made[-1], simulator.calls("aclrtFree")
        Raised(lambda: must("aclrtDestroyContext", context)).join()
        simulator.release_all()
        report = await resetting.outcome()
        assert (report.ok, report.attempts) == (True, 2)
        assert report.codes == (("end of the context during the probe", 0),)
        assert simulator.calls("aclrtFree") == frees + 1  # the block of the second probe
        assert await works(device)
    assert simulator.stats().contexts == 0
    forget_uses_of_ended_contexts()


@pytest.mark.parametrize("beside", [foreign_context, None], ids=["foreign context", "alone"])
async def test_44_reset_of_a_device_that_a_foreign_context_keeps_loses_no_memory(
    beside: Callable[[], Any] | None,
) -> None:
    async with aioacl.open_device(0) as device:
        with beside() if beside else nullcontext():
            flat = device_bytes()
            for _ in range(20):
                async with device.allocate(BLOCK_BYTES):
                    report = await device.force_reset()
                    assert (report.ok, report.device_kept) == (True, beside is not None)
                    assert device_bytes() == flat


async def test_block_that_is_counted_after_the_reset_that_freed_it_is_not_freed_again() -> None:
    async with aioacl.open_device(0) as device:
        blocks, memory = manager_of(0).blocks, await device.allocate(BLOCK_BYTES)
        taken = blocks.take(memory.address)
        assert taken == Block(BLOCK_BYTES, blocks.setups)
        assert (await device.force_reset()).ok
        blocks.put_back(
            memory.address, taken
        )  # the maintenance thread was between the allocation and the count
        assert (await device.force_reset()).ok
        await memory.close()
    assert simulator.violations() == []


async def test_44_foreign_reset_of_a_device_that_a_foreign_context_keeps_loses_no_memory() -> None:
    async with aioacl.open_device(0) as device:
        with foreign_context():
            flat = device_bytes()
            for _ in range(20):
                async with device.allocate(BLOCK_BYTES):
                    reset_by_other_code()
                    assert await works(device)  # waits until the device is set again
                    await device.empty_cache()
                    assert device_bytes() == flat


async def test_44_close_of_a_device_that_other_code_uses_frees_the_memory_of_open_buffers() -> None:
    elsewhere("aclrtSetDevice")
    before = device_bytes()
    async with aioacl.open_device(0) as device:
        memory = await device.allocate(BLOCK_BYTES)
    assert device_bytes() == before
    await memory.close()
    elsewhere("aclrtResetDevice")


async def test_failure_blames_only_other_code_if_its_stop_mode_is_known() -> None:
    async with (
        aioacl.open_device(0) as device,
        device.allocate(64) as memory,
        device.create_stream() as stream,
    ):
        stop_by_other_code()
        await until(lambda: device.health.foreign_stop)
        simulator.fail_next(stream, TASK_FAULT)
        with pytest.raises(aioacl.DeviceFault, match=r"\. Other code has set STOP mode on a stream"):
            await stream.fill(memory, 1)
        await device.force_reset(grace=0)


async def test_device_whose_queries_return_the_code_of_a_task_is_not_taken_for_stop_mode() -> None:
    async with (
        aioacl.open_device(0) as device,
        device.allocate(64) as memory,
        device.create_stream() as stream,
    ):
        events = device.events()
        with (
            simulator.fault("aclrtMemsetAsync", nth=1, async_error=TASK_FAULT, sticky=TASK_FAULT),
            pytest.raises(aioacl.DeviceFault) as caught,
        ):
            await stream.fill(memory, 1)
        assert caught.value.action == "reset"
        reported = (await next_event(events, "fault")).text
        for text in (str(caught.value), reported, device.health.last_fault):
            assert "either the device has failed, or other code has set STOP mode" in text
        await device.force_reset(grace=0)


async def test_47_foreign_stop_in_the_primary_context_is_noticed_and_ended_by_a_reset() -> None:
    async with aioacl.open_device(0) as device:
        for _ in range(20):
            stop_by_other_code()
            async with device.allocate(64) as memory, device.create_stream() as stream:
                events = device.events()
                simulator.fail_next(stream, TASK_FAULT)
                with pytest.raises(aioacl.DeviceFault, match=r"[Oo]ther code has set STOP mode") as caught:
                    await stream.fill(memory, 1)
                assert caught.value.action == "reset"
                async for event in events:
                    if event.kind == "fault":
                        assert "ther code has set STOP mode" in event.text
                        break
                assert (device.health.ready, device.health.foreign_stop) == (False, True)
            assert (await device.force_reset(grace=0)).ok
            assert (device.health.ready, device.health.foreign_stop) == (True, False)
            assert await works(device)


# --- sets of other code -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("after", [0, 2])
async def test_45_reset_of_the_device_makes_the_sets_of_other_code_again(before: int, after: int) -> None:
    elsewhere(*["aclrtSetDevice"] * before)
    async with aioacl.open_device(0) as device:
        elsewhere(*["aclrtSetDevice"] * after)
        for _ in range(2):
            report = await device.force_reset()
            assert (report.ok, report.foreign_sets) == (True, before + after)
            assert simulator.retain_count() == before + after + 1
    assert simulator.retain_count() == before + after
    elsewhere(*["aclrtResetDevice"] * (before + after))


async def test_set_of_other_code_is_known_although_other_code_reset_the_device_while_it_was_closed() -> None:
    async with aioacl.open_device(0):
        pass
    elsewhere("aclrtSetDevice", "aclrtResetDevice", "aclrtSetDevice")
    async with aioacl.open_device(0):
        assert manager_of(0).counts.was_set
    elsewhere("aclrtResetDevice")


async def test_counted_reset_that_fails_is_repeated_and_no_set_is_lost() -> None:
    elsewhere("aclrtSetDevice", "aclrtSetDevice")
    async with aioacl.open_device(0) as device:
        with simulator.fault("aclrtResetDevice", rc=507000, nth=2):
            report = await device.force_reset()
        assert (report.ok, report.attempts, report.foreign_sets) == (True, 2, 2)
        assert simulator.retain_count() == 3
    elsewhere("aclrtResetDevice", "aclrtResetDevice")


@pytest.mark.leaves("events")  # during the fault, aclrtDestroyEvent fails too
@pytest.mark.parametrize("kind", ["sticky", "lost"])
async def test_reset_of_a_faulty_device_beside_other_code_forces_it(kind: str) -> None:
    elsewhere("aclrtSetDevice", "aclrtSetDevice")
    async with aioacl.open_device(0) as device:
        elsewhere("aclrtSetDevice", "aclrtSetDevice", "aclrtSetDevice")
        async with device.create_stream() as stream, device.allocate(64) as memory:
            faults = {"sticky": simulator.fault("aclrtMemsetAsync", sticky=FAULT)}
            faults["lost"] = simulator.fault("aclrtMemsetAsync", lost=FAULT)
            with faults[kind]:
                await raises(aioacl.DeviceFault, stream.fill(memory, 1))
        report = await device.force_reset(grace=0)
        assert (report.ok, report.foreign_sets) == (True, 5)
        assert simulator.retain_count() == report.foreign_sets + 1
        assert await works(device)
    elsewhere(*["aclrtResetDevice"] * report.foreign_sets)


async def test_46_reset_without_the_consent_of_other_code_is_refused() -> None:
    elsewhere("aclrtSetDevice")
    async with aioacl.open_device(0) as device:
        generation = device.generation
        with pytest.raises(aioacl.ParameterError, match="other code of the process has perhaps set it"):
            await device.force_reset(foreign=False)
        assert (device.generation, simulator.retain_count()) == (generation, 2)
        assert (await device.force_reset()).ok
    elsewhere("aclrtResetDevice")


async def test_reset_without_the_consent_of_other_code_is_made_if_there_is_none() -> None:
    async with aioacl.open_device(0) as device:
        assert (await device.force_reset(foreign=False)).ok


async def test_own_context_is_not_widened_without_the_consent_of_other_code() -> None:
    elsewhere("aclrtSetDevice")
    async with own() as device:
        with simulator.fault("aclrtMemcpy", rc=507000, times=3):
            report = await device.force_reset(foreign=False)
        assert (report.ok, report.scope, report.attempts) == (False, "context", 3)
        assert simulator.calls("aclrtResetDevice") == simulator.calls("aclrtResetDeviceForce") == 0
        assert (await device.force_reset(foreign=False)).ok
    elsewhere("aclrtResetDevice")


# --- the policy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["argument", "environment"])
async def test_46_device_is_not_reset_where_the_policy_forbids_it(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "environment":
        monkeypatch.setenv("AIOACL_RESETS", "never")
    other = OtherCode()
    await until(lambda: other.rounds > 0)
    resets = simulator.resets()
    async with aioacl.open_device(0, resets=way != "argument") as device:
        with pytest.raises(aioacl.ParameterError, match="other code of the process has perhaps set it"):
            await device.force_reset()  # as a supervisor or the guard of a service does
        assert await works(device)
    assert simulator.retain_count() == 2
    assert simulator.resets() == resets
    other.stop()
    elsewhere("aclrtResetDevice")


async def test_46_supervisor_does_not_reset_a_device_of_other_code_where_the_policy_forbids_it() -> None:
    elsewhere("aclrtSetDevice")
    resets, refused = simulator.resets(), list[str]()
    async with aioacl.open_device(0, resets=False) as device, device.allocate(64) as memory:
        events = device.events()
        async with device.create_stream() as stream:
            with simulator.fault("aclrtMemsetAsync", sticky=FAULT):
                await raises(aioacl.DeviceFault, stream.fill(memory, 1))
        while device.health.ready or not refused:  # a supervisor acts on each event
            event = await anext(events)
            if event.kind == "fault":
                with pytest.raises(
                    aioacl.ParameterError, match="other code of the process has perhaps set it"
                ) as caught:
                    await device.force_reset(reason=event.text)
                refused.append(str(caught.value))
        assert (simulator.resets(), simulator.retain_count()) == (resets, 2)
        assert (await device.force_reset(foreign=True)).ok  # a caller may ask for it all the same
        assert simulator.resets() > resets
    elsewhere("aclrtResetDevice", "aclrtResetDevice")


@pytest.mark.leaves("events")  # a foreign reset may come while aioacl makes events
async def test_46_foreign_reset_leads_to_no_reset_by_aioacl_where_the_policy_forbids_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIOACL_RESETS", "never")
    elsewhere("aclrtSetDevice")
    resets = simulator.resets()
    async with aioacl.open_device(0) as device:
        for number in range(1, 4):
            generation = device.generation
            reset_by_other_code()
            elsewhere("aclrtSetDevice")
            await until(lambda g=generation: device.generation > g and device.state is aioacl.State.OPEN)  # type: ignore[misc]
            assert await works(device)
            assert simulator.resets() == resets + number  # those of other code
    assert (simulator.resets(), simulator.retain_count()) == (resets + 3, 2)
    elsewhere("aclrtResetDevice", "aclrtResetDevice")


async def test_policy_permits_resets_of_an_own_context() -> None:
    elsewhere("aclrtSetDevice")
    async with own(resets=False) as device:
        assert (await device.force_reset()).scope == "context"
    assert simulator.retain_count() == 1
    elsewhere("aclrtResetDevice")


async def test_unknown_policy_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOACL_RESETS", "sometimes")
    with pytest.raises(aioacl.ParameterError, match="AIOACL_RESETS must be 'allowed' or 'never'"):
        aioacl.open_device(0)
