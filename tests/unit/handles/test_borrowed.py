"""Borrowed streams: awaits of streams that other code owns and may destroy, abort, reset or capture at any time."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import ffi
from aioacl.lowlevel import handle
from tests.kit import (
    TASK_FAULT,
    Raised,
    Waiting,
    equipped,
    hanging,
    in_thread,
    raises,
    turns,
    until,
    until_now,
    works,
)
from tests.support.other_code import Owner

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio

DESTROYS = 100
ROUNDS = 200
WRONG_CONTEXT = 107003
NO_STREAM = 107017
CAPTURED = 107027


def forget_misuse() -> None:
    """Forgets that the test has passed a wrong handle to the runtime, which is its subject."""
    simulator.forget()


async def test_51_await_of_a_borrowed_stream_covers_the_work_of_its_owner(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, stream, memory):
        borrowed = aioacl.Stream.from_handle(owner.stream, device)
        simulator.hold(owner.address)
        owner.fill(memory, 7)
        ended: list[bool] = []
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                await borrowed
                ended.append(True)

            waiting = Waiting(group, wait)
            await turns()
            assert not ended
            simulator.release(owner.address)
            await waiting.outcome()
        back = bytearray(64)
        await stream.copy(back, memory)
        assert bytes(back) == bytes([7] * 64)
        await borrowed.close()


async def test_borrowed_stream_waits_for_events_of_ours_and_ours_for_its_records(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, stream, memory):
        borrowed = aioacl.Stream.from_handle(owner.address, device)
        simulator.hold(stream)
        stream.fill(memory, 3)
        borrowed.wait_event(stream.record())
        owner.fill(memory, 4)
        recorded = borrowed.record()
        assert not recorded.query()
        simulator.release(stream)
        stream.wait_event(recorded)
        back = bytearray(64)
        await stream.copy(back, memory)
        assert bytes(back) == bytes([4] * 64)
        await borrowed.close()


async def test_stream_waits_for_each_of_many_records_of_a_borrowed_stream(
    open_device: OpenDevice, owner: Owner
) -> None:
    """Native events are used again, but no wait takes an earlier record of an event for the newest one."""
    async with equipped(open_device) as (device, stream, memory):
        borrowed = aioacl.Stream.from_handle(owner.address, device)
        events = simulator.stats().events
        for value in range(1, ROUNDS):
            await borrowed
            simulator.hold(owner.address)
            owner.fill(memory, value % 256)
            stream.wait_event(borrowed.record())
            back = bytearray(64)
            copied = stream.copy(back, memory)
            assert not copied.done
            simulator.release(owner.address)
            await copied
            assert bytes(back) == bytes([value % 256] * 64)
        await until(lambda: simulator.stats().events < events + 80)
        await borrowed.close()


async def test_failed_work_of_the_owner_fails_the_await_and_leaves_the_code_to_the_owner(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, _, memory):
        borrowed = aioacl.Stream.from_handle(owner.stream, device)
        before = simulator.calls("aclrtSynchronizeStreamWithTimeout")
        simulator.fail_next(owner.address, TASK_FAULT)
        owner.fill(memory)
        error = await raises(aioacl.DeviceFault, borrowed)
        assert error.code == TASK_FAULT
        assert simulator.calls("aclrtSynchronizeStreamWithTimeout") == before
        await borrowed.close()
        again = aioacl.Stream.from_handle(owner.stream, device)
        await again
        await again.close()


async def test_wait_for_a_borrowed_stream_times_out_and_is_cancelled(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, _, memory):
        borrowed = aioacl.Stream.from_handle(owner.stream, device)
        simulator.hold(owner.address)
        owner.fill(memory)
        error = await raises(aioacl.DeviceTimeout, borrowed.synchronize(timeout=0.01))
        assert "abort" not in str(error)  # aioacl refuses to abort the stream
        with anyio.move_on_after(0.01) as scope:
            await borrowed
        assert scope.cancelled_caught
        assert not borrowed.query()
        simulator.release(owner.address)
        await borrowed
        await borrowed.close()


async def destroyed_during_a_wait(
    device: aioacl.Device, memory: aioacl.DeviceBuffer, function: str
) -> Exception | None:
    """The owner of a borrowed stream destroys it during a wait. Returns the error of the wait."""
    owner, error = Owner(), None
    borrowed = aioacl.Stream.from_handle(owner.stream, device)
    simulator.hold(owner.address)
    owner.fill(memory)
    async with anyio.create_task_group() as group:
        waiting = Waiting(group, borrowed.synchronize)
        await turns()
        destroying = Raised(partial(owner.destroy, function))
        await anyio.lowlevel.checkpoint()
        simulator.release_all()
        await until(lambda: not destroying.running and waiting.ended)
        destroying.join()
        error = waiting.error
    with pytest.raises(aioacl.StaleHandleError, match="owner"):
        borrowed.record()
    await borrowed.close()
    owner.end()
    return error


@pytest.mark.parametrize("function", ["aclrtDestroyStream", "aclrtDestroyStreamForce"])
async def test_51_owner_that_destroys_the_stream_during_a_wait_ends_the_wait(
    open_device: OpenDevice, function: str
) -> None:
    async with equipped(open_device) as (device, _, memory):
        outcomes = {
            type(await destroyed_during_a_wait(device, memory, function)) for _ in range(DESTROYS // 2)
        }
        assert outcomes <= {type(None), aioacl.StreamAborted}
        assert await works(device)


async def test_destroy_by_the_owner_waits_for_a_record_that_has_begun(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, _, _):
        owner = Owner()
        borrowed = aioacl.Stream.from_handle(owner.stream, device)
        await borrowed
        simulator.hang_call("aclrtRecordEvent")
        recording = Raised(borrowed.record)
        await until(hanging("aclrtRecordEvent"))
        destroying = Raised(owner.destroy)
        assert not until_now(lambda: not destroying.running, 0.2)
        simulator.release_all()
        recording.join()
        destroying.join()
        with pytest.raises(aioacl.StaleHandleError, match="owner"):
            borrowed.record()
        await borrowed.close()
        owner.end()


async def test_work_that_the_owner_has_dropped_names_the_cure(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, _, memory):
        owner = Owner()
        borrowed = aioacl.Stream.from_handle(owner.stream, device)
        simulator.hold(owner.address)
        owner.fill(memory)
        event = borrowed.record()
        owner.destroy("aclrtDestroyStreamForce")
        error = await raises(aioacl.StreamAborted, event)
        assert error.hint == "Borrow the new stream of its owner with Stream.from_handle()."
        await borrowed.close()
        owner.end()


async def test_handle_that_a_new_stream_has_is_not_used_by_the_old_record(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, _, memory):
        owner = Owner()
        old = aioacl.Stream.from_handle(owner.stream, device)
        await old
        owner.destroy()
        again = Owner()
        with pytest.raises(aioacl.StaleHandleError, match="owner"):
            old.record()
        with pytest.raises(aioacl.StaleHandleError, match="owner"):
            old.fill(memory, 1)
        new = aioacl.Stream.from_handle(again.stream, device)
        await new
        await new.close()
        await old.close()
        again.end()
        owner.end()


async def test_abort_by_the_owner_ends_the_wait(open_device: OpenDevice, owner: Owner) -> None:
    """The runtime reports no abort, so the dropped work looks done: a stated limit."""
    async with equipped(open_device) as (device, _, memory):
        borrowed = aioacl.Stream.from_handle(owner.stream, device)
        simulator.hold(owner.address)
        owner.fill(memory)
        recorded = borrowed.record()
        owner.call("aclrtStreamAbort", owner.stream)
        simulator.release_all()
        await recorded
        await borrowed
        await borrowed.close()


async def test_two_records_of_one_handle_are_independent(open_device: OpenDevice, owner: Owner) -> None:
    async with equipped(open_device) as (device, _, memory):
        first = aioacl.Stream.from_handle(owner.stream, device)
        second = aioacl.Stream.from_handle(owner.stream, device)
        await first.close()
        simulator.fail_next(owner.address, TASK_FAULT)
        owner.fill(memory)
        await raises(aioacl.DeviceFault, second)
        with pytest.raises(aioacl.ParameterError, match="closed"):
            first.record()
        await second.close()


async def test_failure_of_the_owner_that_no_await_covers_is_not_warned_of(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, _, memory):
        idle = aioacl.Stream.from_handle(owner.stream, device)
        awaited = aioacl.Stream.from_handle(owner.stream, device)
        simulator.fail_next(owner.address, TASK_FAULT)
        owner.fill(memory)
        await raises(aioacl.DeviceFault, awaited)
        await idle.close()
        await awaited.close()


async def test_failure_of_the_owner_before_a_record_is_warned_of(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, _, memory):
        forgotten = aioacl.Stream.from_handle(owner.stream, device)
        awaited = aioacl.Stream.from_handle(owner.stream, device)
        simulator.fail_next(owner.address, TASK_FAULT)
        owner.fill(memory)
        forgotten.record()
        await raises(aioacl.DeviceFault, awaited)
        with pytest.warns(aioacl.AclWarning, match="its stream was closed") as warned:  # noqa: PT031 - on a thread
            await forgotten.close()
            await until(lambda: len(warned))
        await awaited.close()


async def test_reset_makes_a_borrowed_stream_stale(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, _, _):
        owner = Owner()
        borrowed = aioacl.Stream.from_handle(owner.stream, device)
        await borrowed
        await device.force_reset(grace=0)
        assert borrowed.stale
        with pytest.raises(aioacl.StaleHandleError):
            borrowed.record()
        await borrowed.close()
        assert await works(device)
    owner.end()


async def test_handle_of_aioacl_and_wrong_handles_are_refused(open_device: OpenDevice, owner: Owner) -> None:
    async with equipped(open_device) as (device, stream, _):
        from_handle = aioacl.Stream.from_handle
        with pytest.raises(aioacl.ParameterError, match="one of aioacl"):
            from_handle(handle(stream), device)
        place = ffi.new("aclrtStream *", owner.stream)  # the place of the handle, not the handle
        casts = (ffi.cast("int", -1), ffi.cast("double", 2.5), ffi.cast("_Bool", 1))
        for wrong in (0, ffi.NULL, "stream", None, -1, True, 1.5, 1 << 64, place, ffi.new("char[8]"), *casts):
            with pytest.raises(aioacl.ParameterError, match="expected the address of an aclrtStream, got"):
                from_handle(wrong, device)
        for right in (ffi.cast("uintptr_t", owner.stream), ffi.cast("struct aio_stream *", owner.stream)):
            await from_handle(right, device).close()
        with pytest.raises(aioacl.ParameterError, match="expected the address of an aclrtContext, got"):
            from_handle(owner.stream, device, place)
        with pytest.raises(aioacl.ParameterError, match="expected a Device"):
            from_handle(owner.stream, stream)  # type: ignore[arg-type]
        with pytest.raises(aioacl.AclError) as caught:
            from_handle(0x1234, device)
        assert caught.value.code == NO_STREAM
        assert "borrow a stream that its owner" in caught.value.hint
        with pytest.raises(aioacl.ParameterError, match="the `value` of a pointer of ctypes"):
            from_handle(ctypes.c_void_p(0x1234), device)
        forget_misuse()


def test_error_after_the_first_borrow_of_a_thread_has_its_own_text(owner: Owner) -> None:
    with aioacl.open_device(0, context="own") as device:
        stream, event = device.create_stream().result(), device.create_event(timing=True).result()

        def borrow_and_fail() -> str:
            borrowed = aioacl.Stream.from_handle(owner.stream, device)
            simulator.hold(stream)
            stream.record(event)
            with pytest.raises(aioacl.ParameterError) as caught:
                event.elapsed_since(event)
            simulator.release(stream)
            borrowed.close().result()
            return str(caught.value)

        text = in_thread(borrow_and_fail)
        assert "aclrtEventElapsedTime" in text
        assert "aclrtGetCurrentContext" not in text
        event.close().result()
        stream.close().result()


async def test_events_with_timing_measure_the_work_of_a_borrowed_stream(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, _, memory):
        borrowed = aioacl.Stream.from_handle(owner.stream, device)
        async with device.create_event(timing=True) as start, device.create_event(timing=True) as end:
            borrowed.record(start)
            owner.fill(memory)
            borrowed.record(end)
            await end
            assert end.elapsed_since(start) >= 0
        await borrowed.close()


async def test_handle_of_another_device_or_context_raises_context_error(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with open_device() as device:
        assert owner.stream
        other = Owner(1)
        with pytest.raises(aioacl.ContextError) as caught:
            aioacl.Stream.from_handle(other.stream, device)
        assert caught.value.code == WRONG_CONTEXT
        assert "`context=`" in caught.value.hint
        forget_misuse()
        other.end()


async def test_52_stream_that_captures_is_refused_and_the_capture_survives(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, _, memory):
        borrowed = aioacl.Stream.from_handle(owner.stream, device)
        with owner.capturing():
            for enqueue in (borrowed.record, lambda: borrowed.fill(memory, 1)):
                with pytest.raises(
                    aioacl.ParameterError, match="the owner of the stream captures it"
                ) as caught:
                    enqueue()
                assert caught.value.code == CAPTURED
                assert caught.value.hint == "Repeat the call when the owner has ended the capture."
            with pytest.raises(aioacl.ParameterError):
                aioacl.Stream.from_handle(owner.stream, device)
        await borrowed
        await borrowed.close()


async def test_abort_and_renew_of_a_borrowed_stream_raise_parameter_error(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with open_device() as device:
        borrowed = aioacl.Stream.from_handle(owner.stream, device)
        with pytest.raises(aioacl.ParameterError, match="borrowed"):
            borrowed.abort()
        with pytest.raises(aioacl.ParameterError, match="borrowed"):
            borrowed.renew()
        await borrowed.close()


async def test_close_of_a_borrowed_stream_with_work_leaves_the_native_stream(
    open_device: OpenDevice, owner: Owner
) -> None:
    async with equipped(open_device) as (device, _, memory):
        kept = object()
        borrowed = aioacl.Stream.from_handle(owner.stream, device, owner=kept)
        simulator.hold(owner.address)
        owner.fill(memory)
        recorded = borrowed.record()
        await borrowed.close()
        simulator.release(owner.address)
        await recorded
        owner.fill(memory)
        await works(device)
        owner.finish()
