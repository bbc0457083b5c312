"""Awaits of work that a reset or a close dropped: each await raises the same error, which names the cause."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base.ffi import lib
from aioacl._lifecycle.failures import CALL
from tests.kit import Waiting, hung_in, no_call_of_mine, raises, reset_by_other_code, until, wait_for

if TYPE_CHECKING:
    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
AGAIN = "Make new handles from the device and repeat the work."
OPEN_AGAIN = "Open the device again, make new handles and repeat the work."


def text(generation: int, what: str, hint: str) -> str:
    where = f"aclrtSynchronizeStream on device 0, generation {generation}"
    return f"{where}: the device was {what} before the work was done. {hint}"


async def held_fill(device: aioacl.Device) -> tuple[aioacl.Ticket, int, object]:
    """A held fill, its generation, and its handles. The caller keeps the handles until the device is closed."""
    stream, memory = await device.create_stream(), await device.allocate(64)
    simulator.hold(stream)
    return stream.fill(memory, 1), device.generation, (stream, memory)


async def error_of_await(ticket: aioacl.Ticket) -> aioacl.DeviceReset:
    with no_call_of_mine(), pytest.raises(aioacl.DeviceReset) as caught:
        await ticket
    return caught.value


async def test_ticket_whose_work_a_reset_drops_raises_the_same_error_at_each_await(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        ticket, generation, _kept = await held_fill(device)
        waiting = Waiting(group, partial(wait_for, ticket))
        await until(lambda: lib.aio_device_waits(0))
        report = await device.force_reset(grace=0)
        with pytest.raises(aioacl.DeviceReset) as caught:
            await waiting.outcome()
        for error in (caught.value, await error_of_await(ticket), await error_of_await(ticket)):
            assert str(error) == text(generation, "reset", AGAIN)
            assert error.report is report
        assert (await device.force_reset()).ok
        later = await error_of_await(ticket)
        assert str(later) == text(generation, "reset", AGAIN)
        assert later.report is None  # the report of the later reset is not about this work


async def test_ticket_whose_work_a_foreign_reset_drops_names_the_reset(open_device: OpenDevice) -> None:
    async with open_device() as device:
        ticket, generation, _kept = await held_fill(device)
        reset_by_other_code()
        await until(lambda: device.state is aioacl.State.OPEN and device.generation > generation)
        assert str(await error_of_await(ticket)) == text(generation, "reset", AGAIN)


async def test_cause_that_drops_work_is_named_before_the_generation_ends(open_device: OpenDevice) -> None:
    """Some waits end when a reset or the last close begins, so the cause must be known from then on."""
    device = await open_device()
    manager, generation = device._manager, device.generation
    assert str(manager.admission.was_ended(generation, CALL)) == text(generation, "reset", AGAIN)
    async with anyio.create_task_group() as group:
        closing = await hung_in("aclrtResetDevice", group, device.close)
        assert manager.generation == generation
        assert str(manager.admission.was_ended(generation, CALL)) == text(generation, "closed", OPEN_AGAIN)
        simulator.release_call("aclrtResetDevice")
        await closing.outcome()


async def test_ticket_whose_work_a_close_drops_names_the_close(open_device: OpenDevice) -> None:
    async with anyio.create_task_group() as group:
        async with open_device() as device:
            ticket, generation, _kept = await held_fill(device)
            waiting = Waiting(group, partial(wait_for, ticket))
            await until(lambda: lib.aio_device_waits(0))
        error = await raises(aioacl.DeviceReset, waiting.outcome())
        assert str(error) == text(generation, "closed", OPEN_AGAIN)
        assert str(await error_of_await(ticket)) == text(generation, "closed", OPEN_AGAIN)
        async with open_device():
            assert str(await error_of_await(ticket)) == text(generation, "closed", OPEN_AGAIN)
        # The work was dropped two closes ago, so the text no longer names one cause.
        assert str(await error_of_await(ticket)) == text(generation, "reset or closed", OPEN_AGAIN)
