"""Closing handles while the device cannot free them: no close waits forever, and each handle is freed later."""

from __future__ import annotations

import sys
import warnings
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base import sync
from aioacl._base.ffi import lib
from aioacl._lifecycle.procedures import limits
from aioacl.lowlevel import handle
from tests.kit import (
    FewThreads,
    Waiting,
    hanging,
    hung_in,
    in_thread,
    no_call_of_mine,
    raises,
    runs_out_of_time,
    turns,
    until,
    works,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from tests.kit import OpenDevice

pytestmark = [pytest.mark.anyio, pytest.mark.uncached]

MAKE: dict[str, Callable[[aioacl.Device], aioacl.Opening[Any]]] = {
    "aclrtDestroyStream": lambda device: device.create_stream(),
    "aclrtFree": lambda device: device.allocate(64),
    "aclrtFreeHost": lambda device: device.pinned(64),
}
each_kind = pytest.mark.parametrize("function", MAKE)


@asynccontextmanager
async def stuck_maintenance(device: aioacl.Device) -> AsyncGenerator[Waiting]:
    """In the block, the maintenance thread hangs in an allocation. At the end, the new buffer is closed."""
    async with anyio.create_task_group() as group:
        making = await hung_in("aclrtMalloc", group, lambda: device.allocate(64))
        yield making
        simulator.release_call("aclrtMalloc")
        await until(lambda: making.ended)
        if making.error is None:
            await making.value.close()


def queued(device: aioacl.Device) -> int:
    return len(device._manager.maintenance._calls)


@each_kind
async def test_cancelled_block_does_not_wait_for_a_maintenance_thread_that_hangs(
    open_device: OpenDevice, function: str
) -> None:
    inside = anyio.Event()

    async def block() -> None:
        async with MAKE[function](device):
            inside.set()
            await anyio.sleep_forever()

    async with open_device() as device, anyio.create_task_group() as group:
        waiting = Waiting(group, block)
        await inside.wait()
        before = simulator.calls(function)
        async with stuck_maintenance(device):
            await waiting.cancel_and_wait()
            assert (waiting.cancelled, simulator.calls(function)) == (True, before)
        await until(lambda: simulator.calls(function) > before)


@each_kind
async def test_cancelled_close_ends_and_its_handle_is_freed_later(
    open_device: OpenDevice, function: str
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        thing = await MAKE[function](device)
        before = simulator.calls(function)
        async with stuck_maintenance(device):
            closing = Waiting(group, thing.close)
            await until(lambda: queued(device) == 1)
            await closing.cancel_and_wait()
            assert simulator.calls(function) == before
        await until(lambda: simulator.calls(function) > before)


@each_kind
async def test_quarantine_ends_a_waiting_close_and_later_closes_do_not_wait(
    open_device: OpenDevice, function: str
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        first, second = await MAKE[function](device), await MAKE[function](device)
        async with stuck_maintenance(device):
            closing = Waiting(group, first.close)
            await until(lambda: queued(device) == 1)
            await runs_out_of_time(device)
            await closing.outcome()
            await second.close()
        assert (await device.force_reset()).ok
        assert await works(device)
    assert simulator.stats().host_bytes == 0  # host memory was freed after the reset


async def test_last_close_of_a_quarantined_device_does_not_wait_again_for_the_stuck_thread(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLOSE_SECONDS", 1000)
    monkeypatch.setattr(limits, "HOPELESS_SECONDS", 0.1)
    device = await open_device()
    events = device.events()
    async with stuck_maintenance(device) as making:
        await runs_out_of_time(device)
        assert "aclrtMalloc" in device.health.problem
        with pytest.warns(aioacl.AclWarning, match="aclrtMalloc on thread"):
            await device.close()
        assert [event.text async for event in events][-1] == device.health.problem
        with pytest.raises(aioacl.DeviceQuarantined, match="aclrtMalloc on thread"):
            await making.outcome()
        monkeypatch.setattr(limits, "CLOSE_SECONDS", 0.1)

        async def open_is_refused() -> None:
            with pytest.raises(
                aioacl.DeviceQuarantined, match=r"aclrtMalloc on thread.*Open the device again"
            ):
                await open_device()
            await until(lambda: device._manager.procedure is None)

        with pytest.warns(aioacl.AclWarning, match="aclrtMalloc on thread"):
            await open_is_refused()
        monkeypatch.setattr(limits, "CLOSE_SECONDS", 5.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(device._manager, "start_procedure", lambda _: None)
            with pytest.raises(aioacl.DeviceQuarantined, match="Open the device again"):
                await open_device(wait=False)
    async with open_device() as device:
        assert device.health.problem == ""
        assert await works(device)


async def test_open_that_waits_for_the_stuck_thread_is_not_refused_by_another_change_of_the_device(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HOPELESS_SECONDS", 0.05)
    monkeypatch.setattr(limits, "CLOSE_SECONDS", 1000)
    device = await open_device()
    admission = device._manager.admission
    async with anyio.create_task_group() as group:
        async with stuck_maintenance(device) as making:
            await runs_out_of_time(device)
            with pytest.warns(aioacl.AclWarning, match="aclrtMalloc on thread"):
                await device.close()
            await raises(aioacl.DeviceQuarantined, making.outcome())
            opening = Waiting(group, open_device)
            await until(lambda: device._manager.procedure is not None)
            with admission.changed:
                admission.announce()  # as every event does, "recovered" for instance
            await turns()
            assert not opening.ended
        opened = await opening.outcome()
        assert await works(opened)
        await opened.close()


@pytest.mark.parametrize("grace", [0, 1000])
async def test_reset_ends_early_if_the_last_close_waits_for_it(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, grace: float
) -> None:
    monkeypatch.setattr(limits, "BARRIER_SECONDS", 1000)
    monkeypatch.setattr(limits, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(limits, "CLOSE_SECONDS", 0.1)
    # The close waits only this long for the thread, because the reset has already waited for it.
    monkeypatch.setattr(limits, "HOPELESS_SECONDS", 0.05)
    device = await open_device()
    async with anyio.create_task_group() as group, stuck_maintenance(device) as making:
        resetting = Waiting(group, lambda: device.force_reset(grace=grace, timeout=5000))
        await until(lambda: device.state is (aioacl.State.DRAINING if grace else aioacl.State.RESETTING))
        with pytest.warns(aioacl.AclWarning, match="aclrtMalloc on thread"):
            await device.close()
        assert not (await resetting.outcome()).ok
        monkeypatch.undo()  # the next open and its close need the normal limits
        await raises(aioacl.DeviceQuarantined, making.outcome())
    async with open_device() as device:
        assert await works(device)


async def test_abort_of_a_stream_of_a_quarantined_device_fails_at_once(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream:
        async with stuck_maintenance(device):
            await runs_out_of_time(device)
            await raises(aioacl.DeviceQuarantined, stream.abort())
        assert (await device.force_reset()).ok


async def test_calls_that_wait_for_the_maintenance_thread_end_when_the_last_close_gives_up(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = await open_device()
    memory = await device.allocate(64)
    async with anyio.create_task_group() as group, stuck_maintenance(device) as making:
        closing = Waiting(group, memory.close)
        await until(lambda: queued(device) == 1)
        with monkeypatch.context() as patch:
            patch.setattr(limits, "CLOSE_SECONDS", 0.2)
            with pytest.warns(aioacl.AclWarning, match="aclrtMalloc"):
                await device.close()
        await closing.outcome()
        await raises(aioacl.DeviceQuarantined, making.outcome())
    async with open_device() as device:  # the open first completes the close
        assert await works(device)


async def test_handle_closed_while_the_last_close_stops_the_maintenance_thread_is_freed_by_that_thread(
    open_device: OpenDevice,
) -> None:
    device = await open_device()
    first, second = await device.allocate(64), await device.allocate(64)
    simulator.hang_call("aclrtFree")
    async with anyio.create_task_group() as group:
        closing = [Waiting(group, first.close)]
        await until(hanging("aclrtFree"))
        closing.append(Waiting(group, device.close))
        await until(lambda: device._manager.maintenance._stopping)
        with no_call_of_mine():
            closing.append(Waiting(group, second.close))
            await until(lambda: queued(device) == 1)
            simulator.release_call("aclrtFree")
            for one in closing:
                await one.outcome()
    assert simulator.calls("aclrtFree") == 2


@pytest.mark.parametrize("threads", [1, 0])
async def test_pinned_memory_that_outlives_its_device_is_freed_by_another_thread_if_one_can_start(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    async with open_device() as device:
        pinned = await device.pinned(64)
    before = simulator.calls("aclrtFreeHost")
    if threads:
        with no_call_of_mine():
            await pinned.close()
    else:
        monkeypatch.setattr(sync, "backend", FewThreads(0))
        await pinned.close()  # no other thread can start, so the loop's thread frees the memory
    assert simulator.calls("aclrtFreeHost") == before + 1


@pytest.mark.leaves("device_bytes", "device_blocks")  # the memory that could not be freed
async def test_clean_up_that_raises_after_its_close_was_cancelled_is_reported(
    open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    async with open_device() as device, anyio.create_task_group() as group:
        memory = await device.allocate(64)
        with warnings.catch_warnings(), simulator.fault("aclrtFree", rc=107000, nth=1):
            warnings.simplefilter("error")
            async with stuck_maintenance(device):
                closing = Waiting(group, memory.close)
                await until(lambda: queued(device) == 1)
                await closing.cancel_and_wait()
                simulator.release_call("aclrtMalloc")
                await until(lambda: reported)
        assert reported[0].exc_type is aioacl.AclWarning
        assert await works(device)


async def test_block_of_a_device_in_a_cancelled_scope_waits_for_the_close(open_device: OpenDevice) -> None:
    async def release() -> None:
        await until(hanging("aclrtResetDevice"))
        simulator.release_call("aclrtResetDevice")

    opened: list[aioacl.Device] = []
    async with anyio.create_task_group() as group:
        group.start_soon(release)
        with anyio.CancelScope() as scope:
            async with open_device() as device:
                opened.append(device)
                simulator.hang_call("aclrtResetDevice")
                scope.cancel()
                await anyio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert [one.state for one in opened] == [aioacl.State.CLOSED]


@pytest.mark.leaves(
    "events"
)  # the event that a thread waits for in C; after the reset it must not be destroyed
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_memory_is_freed_at_the_close_although_the_wait_for_its_copy_is_inside_c() -> None:
    """Nothing reads the port of the maintenance thread after the close, so the late end of the wait has no effect."""
    async with aioacl.open_device(waits="thread", cache=False) as device:
        stream, memory = await device.create_stream(), await device.allocate(64)
        pinned = await device.pinned(64)
        simulator.hang_call("aclrtSynchronizeEventWithTimeout")
        simulator.hold(stream)
        stream.copy(memory, pinned)
        await pinned.close()
        await until(hanging("aclrtSynchronizeEventWithTimeout"))
        before = simulator.calls("aclrtFreeHost")
    assert simulator.stats().host_blocks == 0
    freed = simulator.calls("aclrtFreeHost")
    assert freed > before
    simulator.release_call("aclrtSynchronizeEventWithTimeout")
    async with aioacl.open_device(cache=False) as device:
        assert await works(device)
    assert simulator.violations() == []


async def test_wait_that_a_close_interrupts_ends_only_after_its_work_was_dropped(
    open_device: OpenDevice,
) -> None:
    for _ in range(4):
        device = await open_device()
        stream, memory, pinned = (
            await device.create_stream(),
            await device.allocate(64),
            await device.pinned(64),
        )
        simulator.hang_call("aclrtResetDevice")
        simulator.hold(stream)
        ticket = stream.copy(pinned, memory)
        async with anyio.create_task_group() as group:
            waiting = Waiting(group, partial(lambda ticket: ticket, ticket))
            closing = Waiting(group, device.close)
            await until(hanging("aclrtResetDevice"))
            assert not waiting.ended
            simulator.release_call("aclrtResetDevice")
            await closing.outcome()
            await raises(aioacl.DeviceReset, waiting.outcome())
        await pinned.close()


@pytest.fixture(
    params=[
        "aclrtResetDevice returned 507899",
        "other code has set it too",
        pytest.param("it was opened with keep=True or without resets", marks=pytest.mark.primary_only),
    ]
)
def why_not_reset(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Makes the next last close of device 0 tear nothing down. At the end of the test, everything is released."""
    if request.param.startswith("aclrtResetDevice"):
        simulator.fail_call("aclrtResetDevice", 507899)
    elif request.param.startswith("it was opened"):
        monkeypatch.setenv("AIOACL_RESETS", "never")
    else:
        assert in_thread(lambda: lib.aio_u_aclrtSetDevice(0)) == 0
    yield str(request.param)
    assert in_thread(lambda: lib.aio_u_aclrtSetDevice(0)) == 0
    assert in_thread(lambda: lib.aio_u_aclrtResetDeviceForce(0)) == 0


@pytest.mark.leaves("events")  # they cannot be destroyed after the forced reset
async def test_last_close_ends_work_before_it_frees_memory_although_its_reset_frees_nothing(
    open_device: OpenDevice, why_not_reset: str
) -> None:
    device = await open_device()
    stream, memory, pinned = await device.create_stream(), await device.allocate(64), await device.pinned(64)
    native = handle(stream)
    with simulator.held(stream):
        stream.copy(memory, pinned)
        stream.copy(memory, bytes(64))
        await pinned.close()
        fails = why_not_reset.startswith("aclrtResetDevice")
        with pytest.warns(aioacl.AclWarning, match=why_not_reset) if fails else nullcontext():
            await device.close()
        assert (simulator.stats().host_blocks, simulator.pending(native)) == (0, 0)


@pytest.mark.leaves("events")  # they cannot be destroyed after the forced reset
async def test_last_close_frees_no_memory_if_its_reset_frees_nothing_and_work_cannot_be_aborted(
    open_device: OpenDevice, why_not_reset: str
) -> None:
    simulator.set_abort_supported(False)
    device = await open_device()
    stream, memory, pinned = await device.create_stream(), await device.allocate(64), await device.pinned(64)
    native = handle(stream)
    with simulator.held(native):
        stream.copy(memory, pinned)
        await pinned.close()
        freed = simulator.calls("aclrtFreeHost")
        with pytest.warns(aioacl.AclWarning, match=f"{why_not_reset}, and work still runs; open it again"):
            await device.close()
        assert simulator.pending(native) > 0
        assert simulator.calls("aclrtFreeHost") == freed
    await until(lambda: simulator.pending(native) == 0)
    async with open_device() as device:  # the open first completes the close
        assert simulator.calls("aclrtFreeHost") > freed
        assert await works(device)
    assert simulator.stats().host_blocks == 0


@pytest.mark.leaves(
    "events"
)  # the event that a thread waits for in C; after the reset it must not be destroyed
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_wait_of_an_earlier_open_that_is_inside_c_delays_neither_a_reset_nor_a_close() -> None:
    async with aioacl.open_device(waits="thread") as device, anyio.create_task_group() as group:
        stream, memory = await device.create_stream(), await device.allocate(64)
        simulator.hang_call("aclrtSynchronizeEventWithTimeout")
        simulator.hold(stream)
        waiting = Waiting(group, partial(lambda ticket: ticket, stream.fill(memory, 1)))
        await until(hanging("aclrtSynchronizeEventWithTimeout"))
        waiting.cancel()
    async with aioacl.open_device(waits="watch") as device:
        assert (await device.force_reset(grace=0)).ok
        assert await works(device)
    assert device.state is aioacl.State.CLOSED
    simulator.release_call("aclrtSynchronizeEventWithTimeout")


async def test_close_does_all_of_its_clean_up_although_some_of_it_raises(open_device: OpenDevice) -> None:
    done: list[int] = []

    def fail() -> None:
        raise aioacl.AclWarning("a clean-up failed")

    device = await open_device()
    leftovers = device._manager.deferred.leftovers
    leftovers.extend([partial(done.append, 1), fail, partial(done.append, 2), fail, partial(done.append, 3)])
    with pytest.raises(aioacl.AclWarning, match="a clean-up failed"):
        await device.close()
    assert (done, device.state) == ([1, 2, 3], aioacl.State.CLOSED)
