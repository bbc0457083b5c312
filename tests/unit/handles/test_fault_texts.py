"""Error messages for sizes, timeouts and failed tasks: they name the subject and the remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aioacl
from aioacl import simulator
from aioacl._lifecycle import failures
from tests.kit import FAULT, TASK_FAULT, failing_fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

NAME = f"{TASK_FAULT} ACL_ERROR_RT_AICORE_EXCEPTION"
CHECK = "Check the addresses and sizes that the task uses; then make a new stream, or `await stream.renew()`."


WAITS: dict[str, Callable[[aioacl.Stream, aioacl.Ticket], object]] = {
    "synchronize": lambda stream, _: stream.synchronize(timeout=0).result(),
    "result": lambda stream, _: stream.result(timeout=0),
    "ticket": lambda _, ticket: ticket.result(timeout=0),
    "renew": lambda stream, _: stream.renew(timeout=0).result(),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_timeout_of_a_wait_for_a_stream_names_the_stream_and_the_position(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, wait: Callable[..., object]
) -> None:
    with simulator.held(stream):
        ticket = stream.fill(memory, 1)
        with pytest.raises(aioacl.DeviceTimeout) as caught:
            wait(stream, ticket)
    number, generation = stream._core.number, stream.generation
    assert str(caught.value).startswith(
        f"device 0, generation {generation}: the work of stream {number} up to position {ticket.position} was "
        "not done in time. "
    )


TASKS: dict[str, Callable[[aioacl.Stream, aioacl.DeviceBuffer], aioacl.Ticket]] = {
    "a fill": lambda stream, memory: stream.fill(memory, 1),
    "a copy": lambda stream, memory: stream.copy(memory, bytes(64)),
}


def place(ticket: aioacl.Ticket) -> str:
    return (
        f"position {ticket.position} of stream {ticket._core.number} on device {ticket._core.manager.index}"
    )


def error_of(ticket: aioacl.Ticket) -> aioacl.DeviceFault:
    with pytest.raises(aioacl.DeviceFault) as caught:
        ticket.result()
    return caught.value


@pytest.mark.parametrize("kind", TASKS)
def test_failed_task_is_described_if_it_is_the_one_awaited_and_not_if_it_is_earlier(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer, kind: str
) -> None:
    with simulator.held(stream):
        simulator.fail_next(stream, TASK_FAULT)
        first, second = TASKS[kind](stream, memory), stream.fill(memory, 2)
    start = f"aclrtSynchronizeStream on device 0, generation {stream.generation}: {NAME}"
    assert str(error_of(first)) == f"{start}: the task at {place(first)}, {kind}, failed. {CHECK}"
    assert str(error_of(second)) == f"{start}: the task at {place(first)} failed. {CHECK}"


@pytest.mark.parametrize("code", [TASK_FAULT, FAULT])
def test_failure_raised_after_a_reset_does_not_advise_to_renew_or_reset(
    device: aioacl.Device, code: int
) -> None:
    stream, memory = device.create_stream().result(), device.allocate(64).result()
    ticket = failing_fill(stream, memory, code)
    error_of(ticket)
    assert device.force_reset().result().ok
    hint = "The device was reset or closed after the failure: repeat the work with new handles."
    assert error_of(ticket).hint == hint


def test_failure_raised_after_a_renewal_does_not_advise_to_renew(
    stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    ticket = failing_fill(stream, memory)
    error_of(ticket)
    stream.renew().result()
    assert error_of(ticket).hint == (
        "The stream was renewed or closed after it failed: repeat the work on a stream that has not failed."
    )


def test_inherited_failure_names_both_streams_and_which_one_to_renew(
    device: aioacl.Device, stream: aioacl.Stream, memory: aioacl.DeviceBuffer
) -> None:
    with device.create_stream() as other:
        with simulator.held(other):
            failed = failing_fill(other, memory)
            stream.wait_event(other.record())
            ticket = stream.fill(memory, 2)
        error = error_of(ticket)
        mine, its = f"stream {stream._core.number} on device 0", other._core.number
        assert f"the work of {mine} depends on the task at {place(failed)}, which failed" in str(error)
        assert error.hint == (
            f"Make a new stream, or renew {mine}: `await stream.renew()`. Renewing only "
            f"stream {its} on device 0, where the task failed, does not help."
        )
        other.renew().result()
        error_of(ticket)
        stream.renew().result()
        stream.fill(memory, 3).result()


def test_failure_inherited_from_another_device_names_both_devices(
    open_device: OpenDevice, stream: aioacl.Stream
) -> None:
    with open_device(1) as second, second.create_stream() as other, second.allocate(64) as memory:
        with simulator.held(other):
            failed = failing_fill(other, memory)
            ticket = stream.wait_event(other.record())
        error = error_of(ticket)
        mine = f"stream {stream._core.number} on device 0"
        assert f"the work of {mine} depends on the task at {place(failed)}, which failed" in str(error)
        assert f"renew {mine}: `await stream.renew()`" in error.hint


def test_each_function_that_enqueues_work_has_a_name_for_it_in_errors() -> None:
    native = Path(__file__).parents[3] / "aioacl" / "_native"  # an installed package has no sources in C
    text = "".join((native / name).read_text(encoding="utf-8") for name in ("enqueue.c", "staged.c"))
    functions = set(re.findall(r"aio_enqueue_begin\(.*AIO_FN_(\w+)\)", text))
    assert functions - {"aclrtRecordEvent"} == set(failures.TASKS)  # a record cannot fail
