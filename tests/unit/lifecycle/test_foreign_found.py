"""A reset by somebody else of which the runtime tells nothing, as CANN 8.5 for instance: the next call finds it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import aioacl
from aioacl import simulator
from tests.process.child import Child

if TYPE_CHECKING:
    from tests.kit import OpenDevice

CONTEXT_IS_NULL = 107002
UNTOLD = {"AIOACL_SIM_FAULTS": "aclrtRegDeviceStateCallback:after=0:rc=507000"}
PROGRAM = """
from aioacl._base.ffi import lib

async def use(device, stream, memory):
    {use}

async def main():
    async with open_device() as device, device.create_stream() as stream, device.allocate(64) as memory:
        await stream.fill(memory, 1)
        thread = threading.Thread(target=lambda: say(lib.aio_u_aclrtResetDeviceForce(0)))
        thread.start()
        thread.join()
        try:
            say(await use(device, stream, memory))
        except aioacl.AclError as error:
            say(type(error).__name__, error.call, error.device, error.generation)
        async with device.create_stream() as again, device.allocate(64) as more:
            await again.fill(more, 3)
        say(device.generation, simulator.retain_count(), simulator.violations())

start(main)
"""
USES = {
    "what is enqueued": ("stream.fill(memory, 2)", "DeviceReset aclrtMemsetAsync 0 1"),
    "what is made": ("return (await device.create_event(timing=True)).generation", "2"),
    "what is made and need not wait": (
        "await device.create_event(timing=True, wait=False)",
        "DeviceResetting aclrtSetCurrentContext 0 2",
    ),
    "what is destroyed": ("await stream.close()", "None"),
    "what is freed": ("await memory.close()", "None"),
    "a job": ("return await device.run(lambda: device.generation)", "2"),
}


@pytest.mark.process
@pytest.mark.parametrize(("use", "outcome"), USES.values(), ids=USES)
def test_it_is_found_out_by(use: str, outcome: str) -> None:
    with Child(PROGRAM.format(use=use), more=UNTOLD) as child:
        assert child.end() == (0, f"0\n{outcome}\n2 1 []\n", "")


@pytest.mark.anyio
async def test_a_call_without_a_context_on_a_device_that_is_set_is_the_calls_own_error(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        generation = device.generation
        simulator.fail_call("aclrtMalloc", CONTEXT_IS_NULL)
        with pytest.raises(aioacl.ContextError, match="aclrtMalloc"):
            await device.allocate(64)
        async with device.allocate(64) as memory:
            assert memory.generation == device.generation == generation
