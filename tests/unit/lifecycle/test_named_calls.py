"""`report.stuck` and `error.call` name the function that blocks or has failed, not the public call that needed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._lifecycle.gate import inside
from tests.kit import Raised, hanging, held_fill, hung_in, in_thread, raises, runs_out_of_time, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
FAULT = 507000

USES: dict[str, Callable[[aioacl.Stream, aioacl.DeviceBuffer], Any]] = {
    "enqueue": lambda stream, memory: stream.fill(memory, 1),
    "query": lambda stream, _: stream.query(),
}


@pytest.mark.parametrize("use", USES)
async def test_call_whose_context_cannot_be_set_fails_with_that_call_named(
    open_device: OpenDevice, use: str
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        held_fill(stream, memory)

        def fails() -> aioacl.AclError:
            simulator.fail_call("aclrtSetCurrentContext", FAULT)
            with pytest.raises(aioacl.AclError) as caught:
                USES[use](stream, memory)
            return caught.value

        error = in_thread(fails)
        assert (error.call, error.code) == ("aclrtSetCurrentContext", FAULT)
        simulator.release(stream)


@pytest.mark.parametrize("failing", ["aclrtQueryEventStatus", "aclrtStreamQuery"])
async def test_query_that_fails_names_the_function_that_failed(open_device: OpenDevice, failing: str) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        held_fill(stream, memory)
        if failing == "aclrtQueryEventStatus":
            event = stream.record()
            assert not event.query()
        simulator.fail_call(failing, FAULT)
        with pytest.raises(aioacl.AclError) as caught:
            stream.query()
        assert (caught.value.call, caught.value.code) == (failing, FAULT)
        simulator.release(stream)


@pytest.mark.parametrize("call", ["aclrtGetCurrentContext", "aclrtSetCurrentContext"])
async def test_thread_blocked_while_it_sets_the_context_is_reported_with_that_call(
    open_device: OpenDevice, call: str
) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await stream.fill(memory, 1)
        blocked = Raised.hung_in(call, lambda: stream.fill(memory, 1))
        report = await runs_out_of_time(device)
        assert call in [stuck.function for stuck in report.stuck]
        assert "aclrtMemsetAsync" not in [stuck.function for stuck in report.stuck]
        simulator.release_all()
        await until(lambda: not blocked.running)
        assert (await device.force_reset()).ok


async def test_thread_blocked_while_it_reads_an_error_text_is_reported_with_that_call(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        simulator.fail_call("aclrtMalloc", 507000)
        making = await hung_in("aclGetRecentErrMsg", group, lambda: device.allocate(64))
        report = await runs_out_of_time(device)
        assert [stuck.function for stuck in report.stuck] == ["aclGetRecentErrMsg"]
        simulator.release_all()
        await raises(aioacl.AclError, making.outcome())
        assert (await device.force_reset()).ok


async def test_control_thread_blocked_while_it_reads_an_error_text_is_named(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device, anyio.create_task_group() as group:
        simulator.fail_call("aclrtResetDeviceForce", 507000)
        resetting = await hung_in("aclGetRecentErrMsg", group, device.force_reset)
        assert [call.function for call in inside(0)] == ["aclGetRecentErrMsg"]
        simulator.release_all()
        assert (await resetting.outcome()).ok


@pytest.mark.thorough
@pytest.mark.parametrize("call", ["aclrtStreamQuery", "aclrtSetCurrentContext"])
async def test_abort_helper_blocked_before_its_abort_is_named(open_device: OpenDevice, call: str) -> None:
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        held_fill(stream, memory)
        simulator.hang_call(call)
        report = await runs_out_of_time(device, hanging(call))
        assert [stuck.function for stuck in report.stuck] == [call]
        simulator.release_all()
        assert (await device.force_reset()).ok
