"""The effects of rules on calls and tasks. All times refer to a virtual clock that the tests advance."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from aioacl import simulator
from aioacl._base.ffi import ffi, lib, text_of
from tests.kit import Raised, until_now
from tests.simulator.rawacl import (
    TO_DEVICE,
    device,
    fill,
    good,
    is_waiting,
    malloc,
    new_event,
    new_memory,
    new_pinned,
    new_stream,
    query,
    rc,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

COUNT = "aclrtGetDeviceCount"
FAULT = 507015


@pytest.fixture
def virtual_clock() -> Generator[None]:
    simulator.set_virtual_clock(True)
    yield
    simulator.set_virtual_clock(False)


# --- codes --------------------------------------------------------------------------------------------------------


def test_rc_returns_the_code_and_does_no_work() -> None:
    with device(), simulator.fault("aclrtMalloc", rc=FAULT):
        place = ffi.new("void **")
        blocks = simulator.stats().device_blocks
        assert rc("aclrtMalloc", place, 64, 0) == FAULT
        assert (place[0], simulator.stats().device_blocks) == (ffi.NULL, blocks)


def test_rc_0_returns_success_and_does_no_work() -> None:
    with device(), simulator.fault("aclrtMalloc", rc=0) as fault:
        place = ffi.new("void **")
        assert (rc("aclrtMalloc", place, 64, 0), place[0], fault.hits) == (0, ffi.NULL, 1)


def test_rc_after_returns_the_code_and_does_the_work() -> None:
    with device():
        place = ffi.new("void **")
        blocks = simulator.stats().device_blocks
        with simulator.fault("aclrtMalloc", rc_after=FAULT):
            assert rc("aclrtMalloc", place, 64, 0) == FAULT
        assert simulator.stats().device_blocks == blocks + 1
        good("aclrtFree", place[0])


def test_rc_after_on_a_failing_call_keeps_its_code() -> None:
    with simulator.fault("aclrtFree", rc_after=FAULT):
        assert rc("aclrtFree", ffi.NULL) == 100000


@pytest.mark.parametrize(
    ("function", "place", "more", "code"),
    [
        ("aclrtMalloc", "void **", (64, 0), 207001),
        ("aclrtMallocHost", "void **", (64,), 207001),
        ("aclrtCreateStream", "aclrtStream *", (), 207008),
        ("aclrtCreateEvent", "aclrtEvent *", (), 207007),
        ("aclrtCreateNotify", "aclrtNotify *", (0,), 207009),
    ],
)
def test_oom_returns_the_code_of_exhaustion_of_the_function(
    function: str, place: str, more: tuple[int, ...], code: int
) -> None:
    with device(), simulator.fault(function, oom=True):
        assert rc(function, ffi.new(place), *more) == code


def test_failed_call_sets_the_last_error() -> None:
    with device(), simulator.fault("aclrtMalloc", rc=FAULT):
        malloc()
        assert rc("aclrtGetLastError", 0) == FAULT


def test_several_rules_with_a_code_return_the_code_of_the_first_rule() -> None:
    with simulator.fault(COUNT, rc=507000) as first, simulator.fault(COUNT, rc=507001) as second:
        assert query() == 507000
        assert (first.hits, second.hits) == (1, 1)


def test_limits_are_reached_and_can_be_removed() -> None:
    with device():
        simulator.set_limits("stream=2,notify=0")
        streams = [new_stream(), new_stream()]
        assert rc("aclrtCreateStream", ffi.new("aclrtStream *")) == 207008
        assert rc("aclrtCreateNotify", ffi.new("aclrtNotify *"), 0) == 207009
        good("aclrtDestroyStream", streams.pop())
        streams.append(new_stream())
        simulator.set_limits()
        streams.append(new_stream())


def test_limit_of_host_memory_is_reached() -> None:
    with device():
        place = ffi.new("void **")
        simulator.set_limits("host=1M")
        assert rc("aclrtMallocHost", place, (1 << 20) + 1) == 207001
        assert rc("aclrtMemAllocManaged", place, 1 << 21, 1) == 207001
        good("aclrtMallocHost", place, 1 << 20)
        assert rc("aclrtMallocHost", ffi.new("void **"), 1) == 207001
        good("aclrtFreeHost", place[0])
        good("aclrtMallocHost", place, 1)
        good("aclrtFreeHost", place[0])
        simulator.set_limits()


# --- time ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("virtual_clock")
@pytest.mark.parametrize("at", ["before", "during", "after"])
def test_latency_holds_a_call_until_the_clock_advances(at: str) -> None:
    with simulator.fault(f"{COUNT}:latency=60000:at={at}:nth=1:rc=507000"):
        slow = Raised(query)
        assert until_now(lambda: is_waiting(COUNT))
        simulator.advance_clock(59)
        assert slow.running
        simulator.advance_clock(1)
        assert slow.join() == 507000


@pytest.mark.usefixtures("virtual_clock")
def test_latencies_of_several_rules_add_up_and_release_all_ends_them() -> None:
    with simulator.fault(COUNT, latency=1), simulator.fault(COUNT, latency=1):
        slow = Raised(query)
        assert until_now(lambda: is_waiting(COUNT))
        simulator.advance_clock(1.5)
        assert slow.running
        simulator.release_all()
        assert slow.join() == 0


@pytest.mark.usefixtures("virtual_clock")
def test_latency_during_a_task_does_not_block_the_caller() -> None:
    with device():
        memory, stream = new_memory(), new_stream()
        with simulator.fault("copy", latency=5, at="during"):
            assert fill(memory, stream) == 0
        other = new_stream()
        assert fill(memory, other) == 0
        good("aclrtSynchronizeStream", other)
        assert simulator.stats().tasks >= 1
        waiter = Raised(lambda: rc("aclrtSynchronizeStream", stream))
        status = ffi.new("aclrtStreamStatus *")
        good("aclrtStreamQuery", stream, status)
        simulator.advance_clock(5)
        assert waiter.join() in (0, 107002)
        good("aclrtSynchronizeStream", stream)


@pytest.mark.usefixtures("virtual_clock")
def test_time_outs_follow_the_clock() -> None:
    with device():
        memory, stream = new_memory(), new_stream()
        context = ffi.new("aclrtContext *")
        good("aclrtGetCurrentContext", context)
        with simulator.fault("copy", late_complete=3600):
            assert fill(memory, stream) == 0

        def wait() -> int:
            good("aclrtSetCurrentContext", context[0])
            return rc("aclrtSynchronizeStreamWithTimeout", stream, 1_000_000)

        waiter = Raised(wait)
        assert until_now(lambda: is_waiting("aclrtSynchronizeStreamWithTimeout"))
        simulator.advance_clock(999)
        assert waiter.running
        simulator.advance_clock(1)
        assert waiter.join() == 507046
        simulator.advance_clock(3600)
        good("aclrtSynchronizeStream", stream)


# --- hanging ------------------------------------------------------------------------------------------------------


def test_hung_call_goes_on_when_its_key_is_released() -> None:
    with simulator.fault(COUNT, hang="gate", nth=1), simulator.fault(COUNT, hang="door", nth=2):
        first = Raised(query)
        assert until_now(lambda: simulator.hung(COUNT) == 1)
        second = Raised(query)
        assert until_now(lambda: simulator.hung(COUNT) == 2)
        simulator.release_call("door")
        assert second.join() == 0
        assert (first.running, simulator.hung(COUNT)) == (True, 1)
        simulator.release_call("gate")
        assert first.join() == 0


def test_hang_without_a_key_has_the_function_as_its_key() -> None:
    with simulator.fault(COUNT, hang=True):
        hung = Raised(query)
        assert until_now(lambda: simulator.hung(COUNT) == 1)
        simulator.release_call(COUNT)
        assert hung.join() == 0


def test_hung_wait_with_a_time_out_times_out() -> None:
    with device(), simulator.fault("sync", hang=True):
        event = new_event()
        assert rc("aclrtSynchronizeStreamWithTimeout", ffi.NULL, 1) == 507046
        assert rc("aclrtSynchronizeDeviceWithTimeout", 1) == 507046
        assert rc("aclrtSynchronizeEventWithTimeout", event, 1) == 507047
        good("aclrtDestroyEvent", event)


def test_reset_ends_hung_waits_but_not_other_hung_calls() -> None:
    def inside(function: str, *arguments: object) -> Raised:
        def call() -> int:
            good("aclrtSetDevice", 1)
            return rc(function, *arguments)

        return Raised(call)

    with simulator.fault("aclrtSynchronizeStream|aclrtGetMemInfo", hang="gate"):
        with device():
            wait = inside("aclrtSynchronizeStream", ffi.NULL)
            other = inside("aclrtGetMemInfo", 1, ffi.new("size_t *"), ffi.new("size_t *"))
            assert until_now(
                lambda: simulator.hung("aclrtSynchronizeStream") + simulator.hung("aclrtGetMemInfo") == 2
            )
        assert wait.join() == 107002
        assert other.running
        simulator.release_call("gate")
        assert other.join() == 107002
    simulator.forget()  # as expected, the usage checker has reported a reset during a call


@pytest.mark.leaves("events")
@pytest.mark.parametrize("primary", [True, False])
def test_reset_during_a_call_is_reported_only_if_the_call_uses_the_primary_context(primary: bool) -> None:
    def record() -> int:
        context = ffi.new("aclrtContext *")
        good("aclrtSetDevice", 1)
        if not primary:
            good("aclrtCreateContext", context, 1)
        stream, event = new_stream(), new_event()
        code = rc("aclrtRecordEvent", event, stream)
        if not primary:
            good("aclrtDestroyContext", context[0])
        return code

    with simulator.fault("aclrtRecordEvent", hang="gate"):
        recording = Raised(record)
        assert until_now(lambda: simulator.hung("aclrtRecordEvent") == 1)
        good("aclrtResetDeviceForce", 1)
        simulator.release_call("gate")
        assert (recording.join() == 0) is not primary
    reported = [text for text in simulator.violations() if "while thread" in text]
    assert len(reported) == primary
    simulator.forget()


@pytest.mark.parametrize("name", ["events", "aclrtRecordEvent"])
def test_hang_holds_a_record_until_its_key_or_function_is_released(name: str) -> None:
    with device():
        stream, event = new_stream(), new_event()
        context = ffi.new("aclrtContext *")
        good("aclrtGetCurrentContext", context)

        def record() -> int:
            good("aclrtSetCurrentContext", context[0])
            return rc("aclrtRecordEvent", event, stream)

        with simulator.fault("aclrtRecordEvent*", hang="events"):
            blocked = Raised(record)
            assert until_now(lambda: simulator.hung("aclrtRecordEvent") == 1)
            simulator.release_call(name)
            assert blocked.join() == 0
        good("aclrtSynchronizeStream", stream)
        good("aclrtDestroyEvent", event)


# --- tasks --------------------------------------------------------------------------------------------------------


def test_async_error_is_returned_by_the_next_wait_once() -> None:
    with device():
        memory, stream = new_memory(), new_stream()
        with simulator.fault("copy", async_error=507014, nth=1) as fault:
            assert fill(memory, stream) == 0
            assert fault.hits == 1
        assert rc("aclrtSynchronizeStream", stream) == 507014
        assert rc("aclrtSynchronizeStream", stream) == 0


def wait_until_reached() -> None:
    """Waits until the device has reached the first task of each stream: it takes streams in the order of their work."""
    memory, stream = new_memory(), new_stream()
    assert fill(memory, stream) == 0
    good("aclrtSynchronizeStream", stream)


@pytest.mark.usefixtures("virtual_clock")
@pytest.mark.parametrize(("late", "moved"), [("late_complete", True), ("late_copy", False)])
def test_late_copy_reads_its_source_when_it_ends(late: str, moved: bool) -> None:
    with device(), ExitStack() as stack:
        host, memory, stream = new_pinned(), new_memory(), new_stream()
        stack.callback(good, "aclrtFreeHost", host)
        ffi.buffer(host, 64)[:] = b"a" * 64
        with simulator.fault(f"copy:{late.replace('_', '-')}=1000"):
            good("aclrtMemcpyAsync", memory, 64, host, 64, TO_DEVICE, stream)
        end = ffi.buffer(memory, 64)
        if moved:
            assert until_now(lambda: bytes(end) == b"a" * 64)
        ffi.buffer(host, 64)[:] = b"b" * 64
        assert simulator.pending(stream) == 1
        wait_until_reached()
        simulator.advance_clock(1)
        good("aclrtSynchronizeStream", stream)
        assert bytes(end) == (b"a" if moved else b"b") * 64


# --- texts and foreign resets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("null", lambda text: text == ""),
        ("long", lambda text: text.startswith("EE9999") and 1000 < len(text) <= 8192),
        ("non-utf8", lambda text: text.startswith("EE9999: ")),
        ("stale", lambda text: "EH0008" in text and "injected fault" not in text),
    ],
)
def test_errmsg_replaces_the_next_error_text_only(kind: Any, expected: Callable[[str], bool]) -> None:
    with device():
        assert rc("aclrtGetDeviceCount", ffi.NULL) == 100000  # leaves the error text EH0008
        with simulator.fault(COUNT, nth=1, rc=507000, errmsg=kind):
            assert query() == 507000
        assert expected(text_of(lib.aio_error_text()))


def test_ext_reset_resets_the_device_while_a_call_is_inside() -> None:
    with device():
        resets = simulator.resets(1)
        with simulator.fault("aclrtMalloc", ext_reset=True) as fault:
            assert malloc() == 107002
            assert fault.hits == 1
        assert simulator.resets(1) == resets + 1
        assert simulator.violations() == []
        good("aclrtSetDevice", 1)
        assert malloc() == 0


@pytest.mark.usefixtures("virtual_clock")
def test_late_task_of_a_queue_begins_when_the_task_before_it_ends() -> None:
    with device():
        memory, stream = new_memory(), new_stream()
        with simulator.fault("copy:late-complete=1000"):
            assert [fill(memory, stream) for _ in range(3)] == [0, 0, 0]
        wait_until_reached()
        simulator.advance_clock(2)
        assert until_now(lambda: simulator.pending(stream) == 1)
        simulator.advance_clock(1)
        good("aclrtSynchronizeStream", stream)


@pytest.mark.usefixtures("virtual_clock")
def test_late_task_of_a_held_stream_begins_at_its_release() -> None:
    with device():
        memory, stream = new_memory(), new_stream()
        simulator.hold(stream)
        with simulator.fault("copy:late-complete=1000"):
            assert fill(memory, stream) == 0
        simulator.advance_clock(5)
        simulator.release(stream)
        wait_until_reached()
        assert simulator.pending(stream) == 1
        simulator.advance_clock(1)
        good("aclrtSynchronizeStream", stream)
