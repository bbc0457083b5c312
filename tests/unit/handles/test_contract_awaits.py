"""docs/contract.md from promise 25 on: awaits and failures. Each test has the number of its promise."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._library import detection
from aioacl.lowlevel import ffi, on
from tests.kit import (
    FAULT,
    TASK_FAULT,
    Raised,
    Waiting,
    equipped,
    failing_fill,
    next_event,
    no_call_of_mine,
    streams,
    turns,
    until,
    wait_for,
)
from tests.process.child import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.kit import OpenDevice

anyio_test = pytest.mark.anyio
pytestmark = pytest.mark.every_loop_in_ci
CHUNK = 1 << 20


async def raises(awaited: Any, code: int = TASK_FAULT) -> aioacl.AclError:
    """Awaits and returns the error that was raised."""
    with pytest.raises(aioacl.AclError) as caught:
        await awaited
    assert caught.value.code == code
    return caught.value


# --- 25: success ----------------------------------------------------------------------------------------------------


@anyio_test
async def test_25_await_that_covers_or_depends_on_a_failed_task_raises(open_device: OpenDevice) -> None:
    async with (
        open_device(0) as device,
        open_device(1) as other,
        streams(device, 2) as (first, second),
        other.create_stream() as third,
        device.allocate(64) as memory,
        other.allocate(64) as beside,
    ):
        simulator.hold(first)
        failing_fill(first, memory)
        recorded = first.record()
        second.wait_event(recorded)
        third.wait_event(second.record())
        ticket = third.fill(beside, 2)
        own = await other.create_event()
        own.record(third)
        waits: list[Callable[[], Awaitable[None]]] = [
            partial(wait_for, ticket),
            partial(wait_for, own),
            partial(wait_for, recorded),
            partial(wait_for, third),
            own.synchronize,
            third.synchronize,
            other.synchronize,
        ]
        threads = [Raised(result) for result in (ticket.result, own.result, third.result)]
        async with anyio.create_task_group() as group:
            awaits = [Waiting(group, wait) for wait in waits]
            await turns()
            simulator.release(first)
            for one in awaits:
                await raises(one.outcome())
        for thread in threads:
            with pytest.raises(aioacl.DeviceFault):
                thread.join()


@anyio_test
@pytest.mark.parametrize("up", [True, False])
async def test_25_upload_or_download_with_a_failed_chunk_raises(open_device: OpenDevice, up: bool) -> None:
    host = bytearray(5 * CHUNK)
    async with equipped(open_device, len(host)) as (_, stream, memory):
        with simulator.fault("copy", nth=3, async_error=TASK_FAULT):
            await raises(stream.upload(memory, host) if up else stream.download(host, memory))


@anyio_test
async def test_25_await_returns_if_the_work_that_it_depends_on_was_done_and_awaited(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, streams(device, 2) as (source, stream), device.allocate(64) as memory:
        source.fill(memory, 1)
        stream.wait_event(source.record())
        ticket = stream.fill(memory, 2)
        await until(stream.query)  # done, but not yet confirmed: the source has not been queried
        await source
        with anyio.fail_after(20):
            await ticket


# --- 26: which failure ----------------------------------------------------------------------------------------------


@anyio_test
async def test_26_failure_is_raised_by_late_and_repeated_awaits_and_after_later_work(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        streams(device, 2) as (stream, another),
        device.allocate(64) as memory,
    ):
        simulator.hold(stream)
        ticket = failing_fill(stream, memory)
        for byte in range(10):
            stream.fill(memory, byte)
        simulator.release(stream)
        await raises(stream)
        for byte in range(10):
            await another.fill(memory, byte)
        errors = [await raises(ticket) for _ in range(3)]
        assert len({id(error) for error in errors}) == 3
    assert (await raises(ticket)).code == TASK_FAULT  # also after the stream and the device are closed


@anyio_test
async def test_26_await_raises_the_failure_of_its_own_stream_before_failures_of_other_streams(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        streams(device, 3) as (source, late, stream),
        device.allocate(64) as memory,
    ):
        for each in (source, late, stream):
            simulator.hold(each)
        failing_fill(source, memory, 507011)
        failing_fill(late, memory, 507014)
        stream.wait_event(source.record())
        depends = stream.fill(memory, 1)
        stream.wait_event(late.record())
        both = stream.fill(memory, 1)
        own = failing_fill(stream, memory, TASK_FAULT)
        failing_fill(stream, memory, 507018)
        for each in (late, source, stream):
            simulator.release(each)
        await raises(own)
        await raises(stream)
        await raises(both, 507011)
        await raises(depends, 507011)
        for each in (source, late):
            assert each.error is not None


# --- 27: work that is not affected ---------------------------------------------------------------------------------


@anyio_test
async def test_27_work_before_or_independent_of_a_failed_task_succeeds(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        streams(device, 3) as (stream, before, beside),
        device.allocate(64) as memory,
    ):
        simulator.hold(stream)
        first = stream.fill(memory, 1)
        event = stream.record()
        failed = failing_fill(stream, memory)
        before.wait_event(event)
        depends_on_the_first = before.fill(memory, 2)
        independent = beside.fill(memory, 3)
        simulator.release(stream)
        await raises(failed)
        for fine in (first, event, depends_on_the_first, before, independent, beside):
            await wait_for(fine)
        assert (before.error, beside.error) == (None, None)


@anyio_test
async def test_27_lost_device_fails_all_unfinished_work_and_nothing_finished(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, streams(device, 2) as (stream, beside), device.allocate(64) as memory:
        done = beside.fill(memory, 1)
        await done
        simulator.hold(beside)
        unfinished = beside.fill(memory, 2)
        await raises(failing_fill(stream, memory, 507010), 507010)
        await raises(unfinished, 507010)  # although this work never ends
        await done
        assert (await device.force_reset(grace=0)).ok


# --- 28: a failed stream --------------------------------------------------------------------------------------------


@anyio_test
async def test_28_failed_stream_refuses_work_before_c(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await raises(failing_fill(stream, memory))
        event = await device.create_event()
        enqueues: list[Callable[[], object]] = [
            partial(stream.fill, memory, 1),
            partial(stream.copy, memory, bytes(64)),
            stream.record,
            partial(event.record, stream),
        ]
        functions = ("aclrtMemsetAsync", "aclrtMemcpyAsync", "aclrtRecordEvent")
        before = [simulator.calls(function) for function in functions]
        for enqueue in enqueues:
            with pytest.raises(aioacl.DeviceFault) as caught:
                enqueue()
            assert caught.value.code == TASK_FAULT
        await raises(stream.upload(memory, bytes(64)))
        assert [simulator.calls(function) for function in functions] == before


@anyio_test
async def test_28_stream_that_waits_for_failed_work_is_failed_from_that_wait_on(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, streams(device, 2) as (source, stream), device.allocate(64) as memory:
        simulator.hold(source)
        failing_fill(source, memory)
        before = stream.fill(memory, 1)
        stream.wait_event(source.record())
        simulator.release(source)
        await raises(stream)
        await before
        with pytest.raises(aioacl.DeviceFault):
            stream.fill(memory, 2)


@anyio_test
async def test_28_wait_event_on_a_known_failure_raises_and_leaves_the_stream_usable(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, streams(device, 2) as (source, stream), device.allocate(64) as memory:
        simulator.hold(source)
        failing_fill(source, memory)
        event = source.record()
        simulator.release(source)
        await raises(event)
        with pytest.raises(aioacl.DeviceFault) as caught:
            stream.wait_event(event)
        assert caught.value.code == TASK_FAULT
        assert stream.error is None
        await stream.fill(memory, 1)


async def says(stream: aioacl.Stream, memory: aioacl.DeviceBuffer, code: int) -> None:
    """Asserts that `error`, an enqueue and `upload()` name the failure with this code."""
    assert stream.error is not None
    assert stream.error.code == code
    with pytest.raises(aioacl.AclError) as caught:
        stream.fill(memory, 1)
    assert caught.value.code == code
    await raises(stream.upload(memory, bytes(64)), code)


@anyio_test
@pytest.mark.parametrize("place", ["before", "behind"])
async def test_28_own_failure_that_is_found_later_replaces_the_failure_of_a_wait_event(
    open_device: OpenDevice, place: str
) -> None:
    async with open_device() as device, streams(device, 2) as (source, stream), device.allocate(64) as memory:
        simulator.hold(source)
        simulator.hold(stream)
        failing_fill(source, memory, 507011)
        own = failing_fill(stream, memory) if place == "before" else None
        stream.wait_event(source.record())
        depends = stream.fill(memory, 1)
        own = own or failing_fill(stream, memory)
        simulator.release(source)
        await raises(source, 507011)
        await says(stream, memory, 507011)
        simulator.release(stream)
        await raises(own)
        await raises(stream)
        await says(stream, memory, TASK_FAULT)
        await raises(depends, TASK_FAULT if place == "before" else 507011)


@anyio_test
async def test_28_failure_of_an_earlier_wait_event_that_is_found_later_replaces_that_of_a_later_one(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device() as device,
        streams(device, 3) as (slow, source, stream),
        device.allocate(64) as memory,
    ):
        simulator.hold(slow)
        simulator.hold(source)
        failing_fill(slow, memory, 507014)
        failing_fill(source, memory, 507011)
        stream.wait_event(slow.record())
        first = stream.fill(memory, 1)
        stream.wait_event(source.record())
        last = stream.fill(memory, 1)
        simulator.release(source)
        await raises(source, 507011)
        await says(stream, memory, 507011)
        simulator.release(slow)
        for each in (first, last, stream):
            await raises(each, 507014)
        await says(stream, memory, 507014)


# --- 29: the remedy -------------------------------------------------------------------------------------------------


@anyio_test
async def test_29_renewed_stream_works_and_older_tickets_keep_their_outcome(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        good = stream.fill(memory, 1)
        bad = failing_fill(stream, memory)
        await raises(bad)
        await stream.renew()
        assert stream.error is None
        await stream.fill(memory, 2)
        await good
        await raises(bad)
        await device.synchronize()
        await stream.renew()  # a stream that has not failed is renewed too
        await stream.fill(memory, 3)


@anyio_test
async def test_29_renew_waits_for_work_or_drops_it(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        simulator.hold(stream)
        ticket = stream.fill(memory, 1)
        with pytest.raises(aioacl.DeviceTimeout):
            await stream.renew(timeout=0)
        assert not ticket.done
        await stream.renew(abort=True)
        with pytest.raises(aioacl.StreamAborted, match="dropped by an abort of its stream"):
            await ticket
        await stream.fill(memory, 2)


# --- 30: task failures and device failures --------------------------------------------------------------------------


def is_ready(device: aioacl.Device) -> bool:
    return device.health.ready


@anyio_test
async def test_30_task_failure_leaves_the_device_ready_and_device_failure_does_not(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        async with device.create_stream() as stream:
            assert (await raises(failing_fill(stream, memory))).action == "new_stream"
            assert is_ready(device)
            assert device.health.last_fault == ""
        async with device.create_stream() as stream:
            error = await raises(failing_fill(stream, memory, 107020), 107020)
            assert isinstance(error, aioacl.TaskTimeout)
            assert not isinstance(error, TimeoutError)
            assert is_ready(device)
        async with device.create_stream() as stream:
            assert (await raises(failing_fill(stream, memory, FAULT), FAULT)).action == "reset"
            assert not is_ready(device)
        assert str(FAULT) in device.health.last_fault
        assert (await device.force_reset()).ok
        assert is_ready(device)
        assert device.health.last_fault == ""


# --- 31: what does not fail a stream ----------------------------------------------------------------------------------


@anyio_test
async def test_31_timeouts_cancellations_and_aborts_leave_the_stream_usable(open_device: OpenDevice) -> None:
    async with equipped(open_device) as (device, stream, memory), anyio.create_task_group() as group:
        failures = device.health.failed_tasks
        simulator.hold(stream)
        ticket = stream.fill(memory, 1)
        with pytest.raises(aioacl.DeviceTimeout):
            await stream.synchronize(timeout=0)
        cancelled = Waiting(group, partial(wait_for, ticket))
        await turns()
        await cancelled.cancel_and_wait()
        assert stream.error is None
        await stream.abort()
        with pytest.raises(aioacl.StreamAborted, match="dropped by an abort of its stream"):
            await ticket
        assert stream.error is None
        simulator.release(stream)
        await stream.fill(memory, 2)
        assert device.health.failed_tasks == failures


@anyio_test
async def test_31_work_that_depends_on_aborted_work_raises_and_its_stream_is_failed(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, streams(device, 2) as (source, stream), device.allocate(64) as memory:
        simulator.hold(source)
        source.fill(memory, 1)
        stream.wait_event(source.record())
        ticket = stream.fill(memory, 2)
        await source.abort()
        simulator.release(source)
        with pytest.raises(aioacl.StreamAborted, match=r"depends on .* dropped by an abort.*renew"):
            await ticket
        assert isinstance(stream.error, aioacl.StreamAborted)
        with pytest.raises(aioacl.StreamAborted):
            stream.fill(memory, 3)
        await stream.renew()
        await stream.fill(memory, 3)


@anyio_test
async def test_31_work_that_depends_on_a_device_that_is_reset_raises_device_reset(
    open_device: OpenDevice,
) -> None:
    async with (
        open_device(0) as device,
        open_device(1) as other,
        device.create_stream() as source,
        other.create_stream() as stream,
        device.allocate(64) as memory,
        other.allocate(64) as beside,
    ):
        simulator.hold(source)
        source.fill(memory, 1)
        stream.wait_event(source.record())
        ticket = stream.fill(beside, 2)
        assert (await device.force_reset(grace=0)).ok
        with pytest.raises(aioacl.DeviceReset, match="on device 0, which was dropped by a reset") as caught:
            await ticket
        assert caught.value.device == 1
        assert isinstance(stream.error, aioacl.DeviceReset)
        await stream.renew()
        await stream.fill(beside, 3)
        assert other.health.ready


# --- 32: failures that nothing awaits -------------------------------------------------------------------------------


@anyio_test
async def test_32_failure_that_nothing_awaits_is_sent_to_listeners_and_counted(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        events, before = device.events(), device.health.failed_tasks
        ticket = failing_fill(stream, memory)
        event = await next_event(events, "fault")
        assert (event.position, event.code, event.state) == (ticket.position, TASK_FAULT, aioacl.State.OPEN)
        assert event.stream >= 0
        assert "ACL_ERROR_RT_AICORE_EXCEPTION" in event.text
        health = device.health
        assert (health.failed_tasks, health.ready) == (before + 1, True)
        assert str(TASK_FAULT) in health.last_failure
        assert stream.error is not None  # reading the error collects it, so the close does not warn


@anyio_test
async def test_32_runtime_is_woken_for_work_that_nothing_awaits_during_predicted_waits(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, streams(device, 2) as (awaited, other), device.allocate(64) as memory:
        with simulator.fault("aclrtMemsetAsync", stream=awaited, late_complete=0.02):
            for _ in range(5):  # the later waits are predicted
                await awaited.fill(memory, 1)
            simulator.hold(other)
            other.fill(memory, 2)
            before = simulator.calls("aclrtQueryEvent")  # the watcher wakes the runtime by this call
            for _ in range(20):  # longer than the limit of 200 ms, but each wait is as long as usual
                await awaited.fill(memory, 1)
            assert simulator.calls("aclrtQueryEvent") > before
        simulator.release(other)
        await other


@anyio_test
async def test_32_close_of_a_stream_with_an_uncollected_failure_warns_once(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        events = device.events()
        stream = await device.create_stream()
        failing_fill(stream, memory)
        await next_event(events, "fault")
        with pytest.warns(aioacl.AclWarning, match=rf"its stream was closed: {TASK_FAULT}") as warned:
            await stream.close()
        assert len(warned) == 1


@anyio_test
async def test_32_close_of_a_stream_whose_work_fails_afterwards_warns(open_device: OpenDevice) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        stream = await device.create_stream()
        simulator.hold(stream)
        failing_fill(stream, memory)
        await stream.close()
        with pytest.warns(aioacl.AclWarning, match=rf"its stream was closed: {TASK_FAULT}"):  # noqa: PT031 - on a thread
            simulator.release(stream)
            await until(lambda: simulator.calls("aclrtDestroyStream") >= 1)
            await device.memory_info()  # returns after the maintenance thread has destroyed the stream


@anyio_test
@pytest.mark.leaves("streams")  # the close of the device has released this stream
async def test_32_close_of_a_device_with_an_uncollected_failure_warns(open_device: OpenDevice) -> None:
    device = await open_device()
    memory, stream = await device.allocate(64), await device.create_stream()
    events = device.events()
    failing_fill(stream, memory)
    await memory.close()
    with pytest.warns(aioacl.AclWarning, match=rf"its device was closed: {TASK_FAULT}"):
        await device.close()
    assert [event.code for event in [event async for event in events] if event.kind == "fault"] == [
        TASK_FAULT
    ]
    await stream.close()


@anyio_test
async def test_32_failure_at_the_close_of_a_device_is_not_reported_after_the_next_open(
    open_device: OpenDevice,
) -> None:
    device = await open_device()
    memory, stream = await device.allocate(64), await device.create_stream()
    failing_fill(stream, memory)
    await memory.close()
    with pytest.warns(aioacl.AclWarning):
        await device.close()
    await stream.close()
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        events = device.events()
        failing_fill(stream, memory, 507011)
        assert (await next_event(events, "fault")).code == 507011
        assert stream.error is not None


COLLECTS: dict[str, Callable[[aioacl.Stream, aioacl.DeviceBuffer], object]] = {
    "error": lambda stream, _: stream.error,
    "enqueue": lambda stream, memory: stream.fill(memory, 1),
    "record": lambda stream, _: stream.record(),
}


@anyio_test
@pytest.mark.parametrize("way", COLLECTS)
async def test_32_failure_that_was_collected_does_not_warn(open_device: OpenDevice, way: str) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        events = device.events()
        async with device.create_stream() as stream:
            failing_fill(stream, memory)
            await next_event(events, "fault")
            try:
                COLLECTS[way](stream, memory)
            except aioacl.DeviceFault:
                assert way != "error"
    # The configuration of pytest turns a warning into an error.


@anyio_test
async def test_32_block_that_raises_with_an_uncollected_failure_warns_and_keeps_its_error(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.allocate(64) as memory:
        events = device.events()

        async def body() -> None:
            async with device.lease(), device.create_stream() as stream:
                failing_fill(stream, memory)
                await next_event(events, "fault")
                raise KeyError

        with pytest.warns(aioacl.AclWarning), pytest.raises(KeyError):
            await body()


# --- 33: queries ----------------------------------------------------------------------------------------------------


@anyio_test
async def test_33_query_and_done_report_finished_work_and_error_makes_no_call(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        with no_call_of_mine():
            assert [stream.error] == [None]
        ticket = failing_fill(stream, memory)
        await raises(ticket)
        assert stream.query()
        assert ticket.done
        with no_call_of_mine():
            first, second = stream.error, stream.error
        assert first is not None
        assert second is not None
        assert first is not second
        assert (first.code, first.action) == (TASK_FAULT, "new_stream")


# --- 34: how failures are found -------------------------------------------------------------------------------------


def test_34_simulator_reports_each_failed_task() -> None:
    assert aioacl.library_info().failure_detection == "exact"


@pytest.mark.parametrize(
    ("soc", "keeps"),
    [
        ("Ascend910B1", True),
        ("Ascend910B4", True),
        ("Ascend910_9392", True),
        ("Ascend310B4", True),
        ("Ascend910", False),
        ("Ascend910A", False),
        ("Ascend910B", False),
        ("Ascend310", False),
        ("Ascend310P3", False),
        ("", False),
    ],
)
def test_34_reports_are_used_only_on_chips_that_keep_the_order(soc: str, keeps: bool) -> None:
    assert detection.keeps_order(soc) == keeps


CONFIRMED = """
import warnings
from aioacl._library import detection
detection.allow(0)
async def main():
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2):
            async with open_device(0, os.environ["TEST_WAITS"]):
                pass
    say([(each.category.__name__, "by synchronizing" in str(each.message)) for each in warned])
    say(aioacl.library_info().failure_detection)
    async with open_device(0, os.environ["TEST_WAITS"]) as device, device.allocate(64) as memory:
        async with device.create_stream() as stream:
            good = stream.fill(memory, 1)
            await good
            simulator.fail_next(stream, 507015)
            bad = stream.fill(memory, 2)
            for thing in (good, bad, stream):
                try:
                    await thing
                    say("fine")
                except aioacl.DeviceFault as error:
                    say(error.code)
start(main)
"""


@pytest.mark.process
@pytest.mark.parametrize("waits", ["watch", "thread"])
def test_34_without_reports_failures_are_confirmed_and_the_first_open_warns(waits: str) -> None:
    output = "[('AclWarning', True)]\nconfirmed\nfine\n507015\n507015\n"
    assert run(CONFIRMED, waits=waits) == (0, output, "")


IN_A_BLOCK = """
import threading, warnings
from aioacl._library import detection
from aioacl.lowlevel import ffi, functions, handle
detection.allow(0)
warnings.simplefilter("ignore", aioacl.AclWarning)

def wait_for_the_device(device):
    try:
        device.synchronize().result()
    except aioacl.DeviceFault as error:
        say(error.code)

async def main():
    async with open_device(0, os.environ["TEST_WAITS"]) as device, device.allocate(64) as memory:
        async with device.create_stream() as stream:
            await stream.fill(memory, 1)
            with stream.launch(reported=True) as work:
                simulator.fail_next(stream, 507015)
                functions.aclrtMemsetAsync(handle(memory), 64, 2, 64, ffi.cast("aclrtStream", work.handle))
                thread = threading.Thread(target=wait_for_the_device, args=(device,))
                thread.start()
                thread.join()
            try:
                await work.ticket
                say("fine")
            except aioacl.DeviceFault as error:
                say(error.code)
start(main)
"""


@pytest.mark.process
@pytest.mark.parametrize("waits", ["watch", "thread"])
def test_48_without_reports_failure_whose_code_a_wait_for_the_device_takes_fails_the_open_block(
    waits: str,
) -> None:
    assert run(IN_A_BLOCK, waits=waits) == (0, "507015\n507015\n", "")


# --- work that was enqueued by hand ---------------------------------------------------------------------------------


@anyio_test
async def test_27_failure_of_work_enqueued_by_hand_fails_the_next_position(open_device: OpenDevice) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        before = stream.fill(memory, 1)
        pointer = ffi.cast("void *", memory.address)
        with simulator.fault("aclrtValueWrite", async_error=TASK_FAULT):  # the runtime does not report it
            on(device).aclrtValueWrite(pointer, 1, 0, stream)
        behind = stream.fill(memory, 2)
        await raises(behind)
        await before
