"""Launch blocks: work of other code on a stream of aioacl, and the ticket that covers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

import aioacl
from aioacl import lowlevel, simulator
from aioacl._base.ffi import lib
from aioacl.lowlevel import ffi, functions
from tests import kit
from tests.kit import (
    GRACE_SECONDS,
    TASK_FAULT,
    Raised,
    Stop,
    Waiting,
    draining,
    elsewhere,
    equipped,
    fill_queue,
    held_fill,
    in_thread,
    live_streams,
    raises,
    runs_out_of_time,
    settle_maintenance,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice
    from tests.support.other_code import Owner

pytestmark = pytest.mark.anyio
MOST = 2044
CAPTURED = 107027
TIMED_OUT = 507001  # only a wait for an event that times out has this code


def enqueue(work: aioacl.Launch, memory: aioacl.DeviceBuffer, value: int = 1, times: int = 1) -> None:
    """Fills the memory as other code does: by the raw handle, without the gate."""
    native = ffi.cast("aclrtStream", work.handle)
    for _ in range(times):
        functions.aclrtMemsetAsync(lowlevel.handle(memory), memory.nbytes, value, memory.nbytes, native)


async def bytes_of(stream: aioacl.Stream, memory: aioacl.DeviceBuffer) -> bytes:
    back = bytearray(memory.nbytes)
    await stream.copy(back, memory)
    return bytes(back)


def capture(work: aioacl.Launch, mode: int = lib.ACL_MODEL_RI_CAPTURE_MODE_RELAXED) -> None:
    functions.aclmdlRICaptureBegin(ffi.cast("aclrtStream", work.handle), mode)


def end_capture(work: aioacl.Launch) -> Any:
    """Ends the capture, which must be intact, and returns the graph."""
    graph = ffi.new("aclmdlRI *")
    functions.aclmdlRICaptureEnd(ffi.cast("aclrtStream", work.handle), graph)
    return graph[0]


# --- the ticket -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reported", [False, True])
async def test_48_ticket_of_a_block_covers_the_work_of_other_code(
    open_device: OpenDevice, reported: bool
) -> None:
    async with equipped(open_device) as (_, stream, memory):
        with stream.launch(reported=reported) as work:
            simulator.hold(stream)
            enqueue(work, memory, 7, times=3)
        before = work.ticket.done, stream.query()
        assert before == (False, False)
        simulator.release(stream)
        await work.ticket
        assert work.ticket.done
        assert await bytes_of(stream, memory) == bytes([7] * 64)
        await stream


@pytest.mark.parametrize("reported", [False, True])
async def test_48_failed_task_in_a_block_fails_its_ticket_and_the_stream(
    open_device: OpenDevice, reported: bool
) -> None:
    async with equipped(open_device) as (_, stream, memory):
        before = stream.fill(memory, 1)
        with stream.launch(reported=reported) as work:
            enqueue(work, memory)
            simulator.fail_next(stream, TASK_FAULT)
            enqueue(work, memory)
            enqueue(work, memory)
        error = await raises(aioacl.DeviceFault, work.ticket)
        assert error.code == TASK_FAULT
        await before
        assert stream.error is not None
        with pytest.raises(aioacl.DeviceFault):
            stream.launch().__enter__()
        await stream.renew()
        with stream.launch() as work:
            enqueue(work, memory, 9)
        await work.ticket


async def test_failed_task_that_another_thread_enqueues_fails_the_ticket(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory):
        with stream.launch(reported=True) as work:
            simulator.fail_next(stream, TASK_FAULT)
            native = ffi.cast("aclrtStream", work.handle)
            in_thread(lambda: lowlevel.on(device).aclrtMemsetAsync(memory, 64, 1, 64, native))
        await raises(aioacl.DeviceFault, work.ticket)


async def test_wait_for_the_ticket_times_out_and_succeeds_later(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        simulator.hold(stream)
        with stream.launch() as work:
            enqueue(work, memory)
        with pytest.raises(TimeoutError):
            with anyio.fail_after(0.01):
                await work.ticket
        await raises(aioacl.DeviceTimeout, stream.synchronize(timeout=0.01))
        simulator.release(stream)
        await work.ticket


async def test_cancelled_wait_for_the_ticket_leaves_the_work(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory), anyio.create_task_group() as group:
        simulator.hold(stream)
        with stream.launch() as work:
            enqueue(work, memory, 5)
        ticket = work.ticket

        async def wait() -> None:
            await ticket

        waiting = Waiting(group, wait)
        await anyio.lowlevel.checkpoint()
        await waiting.cancel_and_wait()
        assert waiting.cancelled
        simulator.release(stream)
        await ticket
        assert await bytes_of(stream, memory) == bytes([5] * 64)


async def test_48_time_out_of_an_event_wait_in_a_block_fails_its_ticket(open_device: OpenDevice) -> None:
    """The runtime does not report it, so only a synchronize finds it."""
    async with equipped(open_device) as (device, stream, memory), device.create_stream() as source:
        before = stream.fill(memory, 1)
        with simulator.held(source):
            event = source.record()
            with stream.launch() as work:
                native = ffi.cast("aclrtStream", work.handle)
                with simulator.fault("aclrtStreamWaitEvent", nth=1, async_error=TIMED_OUT):
                    functions.aclrtStreamWaitEvent(native, lowlevel.handle(event))
        error = await raises(aioacl.DeviceFault, work.ticket)
        assert (error.code, stream.error is not None) == (TIMED_OUT, True)
        await before
        await event


async def test_48_failure_in_an_open_block_whose_code_a_wait_for_the_device_takes_fails_its_ticket(
    open_device: OpenDevice,
) -> None:
    """A failed write of a value is not reported. Only the first call that synchronizes returns its code."""
    async with equipped(open_device) as (device, stream, memory):
        before = stream.fill(memory, 1)
        await before
        with stream.launch() as work:
            with simulator.fault("aclrtValueWrite", nth=1, async_error=TASK_FAULT):
                native = ffi.cast("aclrtStream", work.handle)
                functions.aclrtValueWrite(lowlevel.handle(memory), 1, 0, native)
            with pytest.raises(aioacl.DeviceFault):
                in_thread(lambda: device.synchronize().result())
        await raises(aioacl.DeviceFault, work.ticket)
        await before


async def test_reported_block_has_no_failure_of_another_stream_that_a_wait_for_the_device_takes(
    open_device: OpenDevice,
) -> None:
    async with equipped(open_device) as (device, stream, memory), device.create_stream() as other:
        with stream.launch(reported=True) as work:
            enqueue(work, memory)
            simulator.fail_next(other, TASK_FAULT)
            lowlevel.on(device).aclrtMemsetAsync(memory, 64, 1, 64, other)
            with pytest.raises(aioacl.DeviceFault):
                in_thread(lambda: device.synchronize().result())
        await work.ticket
        assert other.error is not None


async def test_only_a_block_that_is_not_reported_is_synchronized(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory):
        sync = "aclrtSynchronizeStreamWithTimeout"
        before = simulator.calls(sync)
        with stream.launch() as work:
            enqueue(work, memory)
        await work.ticket
        assert simulator.calls(sync) == before + 1
        with stream.launch(reported=True) as work:
            enqueue(work, memory)
        await work.ticket
        exact = aioacl.library_info().failure_detection == "exact"
        assert simulator.calls(sync) == before + (1 if exact else 2)
        assert device.health.ready


async def test_empty_block_has_a_ticket(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        with stream.launch() as work:
            pass
        await work.ticket
        last = stream.fill(memory, 1)
        with stream.launch() as work:
            pass
        await work.ticket
        assert work.ticket.position in (last.position + 1, last.position + 2)  # a mark may come before it


async def test_await_of_earlier_work_ends_although_a_block_adds_work(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        stop = Stop()
        ticket = held_fill(stream, memory)

        def other_code() -> aioacl.Ticket:
            with stream.launch() as work:
                stop()
                enqueue(work, memory, times=2)
            return work.ticket

        raised = Raised(other_code)
        assert stop.begun.wait(10)
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                await ticket

            waiting = Waiting(group, wait)
            await anyio.lowlevel.checkpoint()
            simulator.release(stream)
            await waiting.outcome()
        stop.go_on.set()
        await raised.join()


# --- while a block is open ------------------------------------------------------------------------------------------


async def test_49_enqueue_of_the_blocks_thread_raises_parameter_error(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory), device.create_event() as event:
        async with device.create_stream() as other:
            recorded = other.record()
            with stream.launch():
                enqueues: list[Callable[[], object]] = [
                    lambda: stream.fill(memory, 1),
                    lambda: stream.copy(memory, b"abc"),
                    lambda: stream.record(event),
                    lambda: stream.wait_event(recorded),
                    lambda: stream.launch().__enter__(),
                ]
                for each in enqueues:
                    with pytest.raises(aioacl.ParameterError, match="launch block"):
                        each()
                other.fill(memory, 3)
            await other
        stream.fill(memory, 1)
        await stream


async def test_49_await_of_the_blocks_thread_raises_parameter_error(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        ticket = held_fill(stream, memory)
        with stream.launch():
            for awaitable in (ticket, stream, stream.synchronize(), stream.ready(), stream.renew()):
                error = await raises(aioacl.ParameterError, awaitable)
                assert "launch block" in error.message
        simulator.release(stream)
        await ticket
        with stream.launch():  # all work is done, but a renewal waits for resets, which wait for the block
            await raises(aioacl.ParameterError, stream.renew())
        await stream.renew()


async def test_49_enqueue_of_another_thread_raises_queue_full_until_the_block_ends(
    open_device: OpenDevice,
) -> None:
    async with equipped(open_device) as (_, stream, memory):
        stop = Stop()

        def other_code() -> None:
            with stream.launch():
                stop()

        raised = Raised(other_code)
        assert stop.begun.wait(10)
        with pytest.raises(aioacl.QueueFull, match="launch block"):
            stream.fill(memory, 1)
        with pytest.raises(aioacl.QueueFull, match="launch block"):
            stream.launch().__enter__()
        async with anyio.create_task_group() as group:
            ready = Waiting(group, stream.ready)
            upload = Waiting(group, lambda: stream.upload(memory, bytes([4] * 64)))
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            assert not ready.ended
            assert not upload.ended
            stop.go_on.set()
            await ready.outcome()
            await upload.outcome()
        raised.join()
        assert await bytes_of(stream, memory) == bytes([4] * 64)


def test_block_makes_the_context_current_and_restores_another_one(stream: aioacl.Stream) -> None:
    current = ffi.new("aclrtContext *")

    def context() -> Any:
        functions.aclrtGetCurrentContext(current)
        return current[0]

    def other_code() -> tuple[Any, Any, Any]:
        theirs = ffi.new("aclrtContext *")
        functions.aclrtCreateContext(theirs, 0)
        before = context()
        with stream.launch():
            inside = context()
        after = context()
        functions.aclrtDestroyContext(theirs[0])
        return before, inside, after

    before, inside, after = in_thread(other_code)
    assert before == after
    assert inside not in (before, ffi.NULL)


# --- room -----------------------------------------------------------------------------------------------------------


def test_tasks_and_reported_that_do_not_fit_raise_parameter_error(stream: aioacl.Stream) -> None:
    wrong: list[dict[str, Any]] = [
        {"tasks": 0},
        {"tasks": MOST + 1},
        {"tasks": -1},
        {"tasks": 1 << 70},
        {"tasks": "many"},
        {"tasks": 1.5},
        {"reported": 1},
        {"reported": None},
    ]
    for arguments in wrong:
        with pytest.raises(aioacl.ParameterError):
            stream.launch(**arguments)
    with stream.launch(tasks=MOST):
        pass


def test_block_is_refused_when_the_queue_lacks_room_for_its_tasks(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    held_fill(stream, memory)
    with pytest.raises(aioacl.QueueFull):
        stream.launch(tasks=MOST).__enter__()
    with stream.launch(tasks=1000) as work:
        enqueue(work, memory, times=1000)
    with pytest.raises(aioacl.QueueFull):
        stream.launch(tasks=1100).__enter__()
    fill_queue(stream, memory)
    assert work.ticket.position >= 1000
    simulator.release(stream)
    stream.result()
    with stream.launch(tasks=MOST):
        pass


def test_tasks_of_a_block_leave_no_room_in_the_queue_until_they_are_done(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    held_fill(stream, memory)
    whole = lib.aio_stream_room(stream._core.handle)
    with stream.launch(tasks=500) as work:
        enqueue(work, memory, times=500)
    room = lib.aio_stream_room(stream._core.handle)
    assert whole - room == pytest.approx(502, abs=2)
    simulator.release(stream)
    stream.result()


def test_block_that_exceeds_its_promise_is_counted_and_covered(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    stream.fill(memory, 1)
    simulator.hold(stream)
    with stream.launch(tasks=1) as work:
        enqueue(work, memory, times=50)
        simulator.fail_next(stream, TASK_FAULT)
        enqueue(work, memory)
    simulator.release(stream)
    with pytest.raises(aioacl.DeviceFault):
        work.ticket.result()
    assert work.ticket.position > 1


# --- how a block is left --------------------------------------------------------------------------------------------


def test_block_that_raises_has_a_ticket_for_what_it_enqueued(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    simulator.hold(stream)
    work = stream.launch()

    def body() -> None:
        with work:
            enqueue(work, memory)
            raise KeyError

    with pytest.raises(KeyError):
        body()
    assert not work.ticket.done
    simulator.release(stream)
    work.ticket.result()


async def test_block_that_is_left_by_a_cancellation_has_a_ticket(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        works: list[aioacl.Launch] = []

        async def launch() -> None:
            with stream.launch() as work:
                works.append(work)
                enqueue(work, memory, 6)
                await anyio.sleep_forever()

        async with anyio.create_task_group() as group:
            waiting = Waiting(group, launch)
            await until(lambda: works)
            await waiting.cancel_and_wait()
        await works[0].ticket
        assert await bytes_of(stream, memory) == bytes([6] * 64)


async def test_block_that_closes_the_stream_keeps_it_until_its_end(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        stream = await device.create_stream()
        before = live_streams()
        with stream.launch() as work:
            await stream.close()
            settle_maintenance()
            assert live_streams() == before
            enqueue(work, memory, 8)
        await work.ticket
        await until(lambda: live_streams() == before - 1)
        with pytest.raises(aioacl.ParameterError):
            stream.launch().__enter__()


def test_block_that_another_thread_leaves_has_a_ticket(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    work = stream.launch()
    work.__enter__()
    enqueue(work, memory)
    in_thread(lambda: work.__exit__(None, None, None))
    work.ticket.result()
    stream.fill(memory, 1).result()


def test_block_that_is_entered_twice_raises_parameter_error(stream: aioacl.Stream) -> None:
    work = stream.launch()
    for what in ("handle", "ticket"):
        with pytest.raises(aioacl.ParameterError):
            getattr(work, what)
    with work:
        with pytest.raises(aioacl.ParameterError, match="already entered"):
            work.__enter__()
        with pytest.raises(aioacl.ParameterError, match="after the block"):
            work.ticket  # noqa: B018 - the access is the test
        assert ", open" in repr(work)
    ticket = work.ticket
    work.__exit__(None, None, None)
    assert work.ticket is ticket
    with pytest.raises(aioacl.ParameterError, match="already entered"):
        work.__enter__()
    ticket.result()


async def test_async_with_on_a_block_raises_type_error(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, _):
        with pytest.raises(TypeError, match="expected `with`"):
            async with stream.launch():  # type: ignore[attr-defined]
                pass


def test_block_that_is_dropped_while_open_ends_with_a_warning(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    works = [stream.launch().__enter__()]
    with pytest.warns(ResourceWarning, match="launch block"):
        works.clear()
    stream.fill(memory, 1).result()


def test_record_that_fails_at_the_end_of_a_block_raises_its_error(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    work = stream.launch()
    work.__enter__()
    enqueue(work, memory)
    simulator.fail_call("aclrtRecordEvent", 207001)
    with pytest.raises(aioacl.AclError) as caught:
        work.__exit__(None, None, None)
    assert caught.value.code == 207001
    with pytest.raises(aioacl.ParameterError, match="raised the reason when it was left"):
        work.ticket  # noqa: B018 - the access is the test
    stream.fill(memory, 1).result()


# --- resets and aborts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reported", [False, True])
async def test_capture_that_is_open_at_the_end_of_a_block_raises_and_stays_intact(
    open_device: OpenDevice, reported: bool
) -> None:
    async with equipped(open_device) as (_, stream, memory):
        stream.fill(memory, 1)
        with pytest.raises(aioacl.ParameterError) as caught, stream.launch(reported=reported) as work:  # noqa: PT012
            capture(work)
            enqueue(work, memory, 7)
        assert caught.value.code == CAPTURED
        assert caught.value.hint.startswith("End the capture in the block.")
        with pytest.raises(aioacl.ParameterError, match="was not recorded"):
            work.ticket  # noqa: B018
        functions.aclmdlRIDestroy(end_capture(work))
        assert await bytes_of(stream, memory) == bytes([1] * 64)
        with stream.launch(reported=reported) as later:
            enqueue(later, memory, 3)
        await later.ticket
        assert await bytes_of(stream, memory) == bytes([3] * 64)


async def test_capture_within_a_block_is_not_changed_by_awaits_of_earlier_work(
    open_device: OpenDevice,
) -> None:
    async with equipped(open_device) as (_, stream, memory):
        ticket = held_fill(stream, memory)
        with stream.launch() as work:
            capture(work)
            enqueue(work, memory, 7)
            waiting = Raised(lambda: ticket.result(timeout=30))
            simulator.release(stream)
            waiting.join()
            functions.aclmdlRIDestroy(end_capture(work))
        await work.ticket


async def test_50_reset_waits_for_an_open_block(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory), anyio.create_task_group() as group:
        with stream.launch(reported=True) as work:
            resetting = await draining(group, device)
            enqueue(work, memory)
            assert not resetting.ended
        report = await resetting.outcome()
        assert report.ok
        await work.ticket  # done before the reset


async def test_50_reset_aborts_the_work_of_an_open_block_and_its_ticket_raises_device_reset(
    open_device: OpenDevice,
) -> None:
    async with equipped(open_device) as (device, stream, memory), anyio.create_task_group() as group:
        with stream.launch() as work:
            simulator.hold(stream)
            enqueue(work, memory)
            resetting = Waiting(group, lambda: device.force_reset(grace=0))
            await until(lambda: device.state is aioacl.State.RESETTING)
            await until(lambda: simulator.calls("aclrtStreamAbort"))
        report = await resetting.outcome()
        assert report.ok
        assert report.aborted == 1
        await raises(aioacl.DeviceReset, work.ticket)
        simulator.release_all()


async def test_reset_that_a_block_holds_up_names_the_block(open_device: OpenDevice) -> None:

    async with equipped(open_device) as (device, stream, _):
        with stream.launch():
            report = await runs_out_of_time(device)
            assert [call.function for call in report.stuck] == ["a launch block"]
        assert (await device.force_reset(grace=0)).ok


async def test_foreign_reset_during_a_block_fails_its_ticket(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, _):
        generation = device.generation
        with stream.launch() as work:
            raised = Raised(lambda: elsewhere("aclrtSetDevice", "aclrtResetDeviceForce"))
            await until(lambda: device.generation != generation or not raised.running)
        raised.join()
        if device.generation != generation:  # an own context survives the reset
            await raises(aioacl.DeviceReset, work.ticket)
        else:
            await work.ticket


async def test_abort_during_a_block_drops_its_work(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (_, stream, memory):
        simulator.hold(stream)
        with stream.launch() as work:
            enqueue(work, memory)
            await stream.abort()
        simulator.release(stream)
        await raises(aioacl.StreamAborted, work.ticket)
        stream.fill(memory, 1)
        await stream


async def test_block_is_refused_while_the_device_drains_except_to_a_lease_holder(
    open_device: OpenDevice,
) -> None:
    async with equipped(open_device) as (device, stream, memory), anyio.create_task_group() as group:
        async with device.lease():
            resetting = Waiting(group, lambda: device.force_reset(grace=GRACE_SECONDS))
            await until(lambda: device.state is aioacl.State.DRAINING)
            with stream.launch() as work:
                enqueue(work, memory)
            await work.ticket

            async def without() -> None:
                with stream.launch():
                    pass

            refused = Waiting(group, without)
            with pytest.raises(aioacl.DeviceResetting):
                await refused.outcome()
        await resetting.outcome()


def test_block_on_a_stale_or_closed_stream_is_refused(device: aioacl.Device) -> None:
    stream = device.create_stream().result()
    block = stream.launch()
    device.force_reset(grace=0).result()
    with pytest.raises(aioacl.StaleHandleError):
        block.__enter__()
    fresh = device.create_stream().result()
    fresh.close().result()
    with pytest.raises(aioacl.ParameterError, match="closed"):
        fresh.launch().__enter__()


async def test_jobs_may_open_blocks(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory):

        def job() -> aioacl.Ticket:
            with stream.launch() as work:
                enqueue(work, memory, 2)
            return work.ticket

        await (await device.run(job))
        assert await bytes_of(stream, memory) == bytes([2] * 64)


# --- contexts -------------------------------------------------------------------------------------------------------


def current_context() -> Any:
    current = ffi.new("aclrtContext *")
    functions.aclrtGetCurrentContext(current)
    return current[0]


def test_context_of_a_block_stays_current_after_calls_for_another_device(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    with aioacl.open_device(1, context=kit.context) as other, other.allocate(64) as theirs:
        second = other.create_stream().result()
        with stream.launch() as work:
            inside = current_context()
            second.fill(theirs, 1)
            assert current_context() == inside
            with second.launch() as inner:
                assert current_context() != inside
            assert current_context() == inside
            enqueue(work, memory, 1)
        work.ticket.result()
        inner.ticket.result()
        second.fill(theirs, 1).result()
        if (
            kit.context == "own"
        ):  # the thread had no context, so it does not get that of the first device back
            assert current_context() != inside
        second.close().result()


@pytest.mark.parametrize("context", ["none", "foreign"])
def test_block_on_a_borrowed_stream_makes_the_context_of_the_stream_current(
    device: aioacl.Device, memory: aioacl.DeviceBuffer, owner: Owner, context: str
) -> None:
    borrowed = aioacl.Stream.from_handle(owner.stream, device)

    def other_code() -> None:
        theirs = ffi.new("aclrtContext *")
        if context == "foreign":
            functions.aclrtCreateContext(theirs, 0)
        with borrowed.launch() as work:
            enqueue(work, memory, 1)
            of_block = current_context()
        work.ticket.result()
        if context == "foreign":
            assert current_context() == theirs[0]
            functions.aclrtDestroyContext(theirs[0])
        elif kit.context == "own":
            assert current_context() != of_block

    in_thread(other_code)
    borrowed.close().result()


def test_block_without_a_stream_raises_and_does_not_crash() -> None:
    work = aioacl.Launch.__new__(aioacl.Launch)
    with pytest.raises(AttributeError):
        work.__enter__()
    work.__exit__(None, None, None)
