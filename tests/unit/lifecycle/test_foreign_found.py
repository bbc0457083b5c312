"""A foreign reset without a callback, as with CANN 8.5: the next call finds that its context is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import aioacl
from aioacl import simulator
from tests.process.child import Child

if TYPE_CHECKING:
    from tests.kit import OpenDevice

CONTEXT_IS_NULL = 107002
NO_CALLBACK = {"AIOACL_SIM_FAULTS": "aclrtRegDeviceStateCallback:after=0:rc=507000"}
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
    "enqueue": ("stream.fill(memory, 2)", "DeviceReset aclrtMemsetAsync 0 1"),
    "create": ("return (await device.create_event(timing=True)).generation", "2"),
    "create without waiting": (
        "await device.create_event(timing=True, wait=False)",
        "DeviceResetting aclrtSetCurrentContext 0 2",
    ),
    "destroy": ("await stream.close()", "None"),
    "free": ("await memory.close()", "None"),
    "job": ("return await device.run(lambda: device.generation)", "2"),
}


@pytest.mark.process
@pytest.mark.parametrize(("use", "outcome"), USES.values(), ids=USES)
def test_foreign_reset_without_a_callback_is_found_by_the_next_call(use: str, outcome: str) -> None:
    with Child(PROGRAM.format(use=use), more=NO_CALLBACK) as child:
        assert child.end() == (0, f"0\n{outcome}\n2 1 []\n", "")


CRASHING = """
import contextlib
from aioacl._base.ffi import lib

def other_code(*calls):
    thread = threading.Thread(target=lambda: [getattr(lib, "aio_u_" + call)(0) for call in calls])
    thread.start()
    thread.join()

async def use(device, stream, memory, event, earlier, ticket):
    {use}

async def found(device, generation):
    "The watcher looks at the work, although no caller awaits it."
    while device.generation == generation:
        await anyio.sleep(0.001)

async def main():
    simulator.set_reset_crash(True)
    async with open_device(0, os.environ["TEST_WAITS"]) as device:
        for _ in range(3):
            async with device.create_stream() as stream, device.allocate(64) as memory:
                earlier, event = await device.create_event(timing=True), await device.create_event(timing=True)
                await stream.fill(memory, 1)
                stream.record(earlier)
                stream.record(event)
                await stream.synchronize()
                simulator.hold(stream)
                ticket = stream.fill(memory, 1)
                stream.record(await device.create_event())
                other_code({calls})
                with contextlib.suppress(aioacl.AclError):
                    await use(device, stream, memory, event, earlier, ticket)
                say((await device.force_reset(grace=0)).ok)

start(main)
"""
CRASHING_USES = {
    "none": "pass",
    "watcher": "await found(device, event.generation)",
    "query": "event.query()",
    "elapsed": "event.elapsed_since(earlier)",
    "wait": "await ticket",
    "enqueue": "stream.fill(memory, 2)",
    "record": "stream.record(event)",
    "wait of another stream": "(await device.create_stream()).wait_event(event)",
    "close": "await event.close()",
    "stream query": "stream.query()",
}


RESET, RESET_AND_SET = '"aclrtResetDeviceForce"', '"aclrtResetDeviceForce", "aclrtSetDevice"'
RESETS_BY_OTHER_CODE = {
    "9.1": RESET,
    "8.1": RESET,
    "master": RESET_AND_SET,
}  # 8.1 accepts a context that has ended


@pytest.mark.process
@pytest.mark.parametrize("cann", RESETS_BY_OTHER_CODE)
@pytest.mark.parametrize("waits", ["watch", "thread"])
@pytest.mark.parametrize("use", CRASHING_USES)
def test_no_event_is_used_after_a_foreign_reset_without_a_callback(use: str, waits: str, cann: str) -> None:
    calls = RESETS_BY_OTHER_CODE[cann]
    if use == "watcher" and calls == RESET_AND_SET:
        pytest.skip("no call shows the reset: queries of events answer as before it")
    program = CRASHING.format(use=CRASHING_USES[use], calls=calls)
    more = {**NO_CALLBACK, "AIOACL_SIM_CANN": cann}
    with Child(program, waits=waits, more=more, strict=False) as child:
        status, output, errors = child.end()
    assert (status, output) == (0, "True\n" * 3), errors


@pytest.mark.anyio
async def test_missing_context_on_a_device_that_is_set_is_an_error_of_the_call(
    open_device: OpenDevice,
) -> None:
    async with open_device() as device:
        generation = device.generation
        simulator.fail_call("aclrtMalloc", CONTEXT_IS_NULL)
        with pytest.raises(aioacl.ContextError, match="aclrtMalloc"):
            await device.allocate(64)
        async with device.allocate(64) as memory:
            assert memory.generation == device.generation == generation
