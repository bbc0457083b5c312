"""Short programs that use aioacl. The sweep runs each program with many faults, so every program is short.

A scenario may end in any error of aioacl. In each case it leaves only objects that `injection.py` allows.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aioacl import AclError, DeviceFault, DeviceTimeout, lowlevel, open_device, simulator
from aioacl._base.ffi import ffi
from aioacl.lowlevel import on

if TYPE_CHECKING:
    from collections.abc import Awaitable

SIZE: Final = 256
MIB: Final = 1 << 20
TASK_CODE: Final = 507018
SOON_SECONDS: Final = 0.005


async def copy_and_await() -> None:
    """Uploads, fills and downloads. Each step is awaited in a different way."""
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        back = bytearray(SIZE)
        ticket = stream.copy(memory, bytes(SIZE))
        stream.fill(memory, 7, nbytes=16)
        await ticket
        await stream.copy(back, memory)
        await stream.synchronize()
        await device.synchronize()
        assert back[:17] == b"\7" * 16 + b"\0"


async def task_that_fails() -> None:
    """A task fails. The runtime handles the failure only when it is woken. Then the stream is renewed."""
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        simulator.fail_next(stream, TASK_CODE)
        ticket = stream.fill(memory, 1)
        try:
            await ticket
        except DeviceFault as error:
            if error.code != TASK_CODE:
                raise
        await stream.renew()
        await stream.fill(memory, 2)


async def events_across_streams() -> None:
    """A second stream waits for the first one. Both are timed."""
    async with (
        open_device() as device,
        device.create_stream() as first,
        device.create_stream(priority=3) as second,
        device.create_event(timing=True) as begin,
        device.create_event(timing=True) as end,
        device.allocate(SIZE) as memory,
    ):
        begin.record(first)
        first.fill(memory, 1)
        marked = first.record()
        second.wait_event(marked)
        second.fill(memory, 2)
        end.record(second)
        await end
        await marked
        assert end.elapsed_since(begin) >= 0
        await second


async def pinned_memory() -> None:
    """Copies with pinned memory of any size, and with pageable memory through staging memory."""
    async with (
        open_device() as device,
        device.create_stream() as stream,
        device.allocate(2 * MIB) as memory,
        device.pinned(2 * MIB) as pinned,
    ):
        pinned.view[:4] = b"abcd"
        await stream.copy(memory, pinned)
        await stream.upload(memory, bytes(MIB + 1))
        back = bytearray(2 * MIB)
        await stream.download(back, memory)
        await device.memory_info()
        assert back[: MIB + 1] == bytes(MIB + 1)


async def host_functions() -> None:
    """A host function, enqueued by a direct call between work of aioacl."""
    calls: list[int] = []
    function = ffi.callback("void (*)(void *)", lambda _: calls.append(1))
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        acl = on(device)
        stream.fill(memory, 1)
        acl.aclrtLaunchHostFunc(stream, function, ffi.NULL)
        await stream.record()
        assert calls == [1]


async def two_devices() -> None:
    """The same work on two devices at the same time, in one task for each device."""

    async def one(index: int) -> None:
        async with (
            open_device(index) as device,
            device.create_stream() as stream,
            device.allocate(SIZE) as memory,
        ):
            await stream.copy(memory, bytes([index]) * SIZE)

    ended = await asyncio.gather(one(0), one(1), return_exceptions=True)
    for error in ended:
        if isinstance(error, BaseException):
            raise error


async def lease_and_force_reset() -> None:
    """Work under a lease, then a force reset, then new handles."""
    async with open_device() as device:
        async with device.lease(), device.create_stream() as stream, device.allocate(SIZE) as memory:
            await stream.fill(memory, 1)
        await device.force_reset(grace=0, timeout=2)
        async with device.create_stream() as stream, device.allocate(SIZE) as memory:
            await stream.fill(memory, 2)


async def executor() -> None:
    """Functions on the threads of the device's executor."""
    async with open_device() as device:
        assert await device.run(lambda: 1) == 1
        future = device.executor.submit(lambda: 2)
        assert await asyncio.wrap_future(future) == 2


async def timeouts() -> None:
    """Waits whose timeout is too short, and a wait that completes."""
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        with simulator.held(stream):
            ticket = stream.fill(memory, 1)
            for wait in (stream.synchronize, device.synchronize):
                with suppress(DeviceTimeout):
                    await wait(timeout=SOON_SECONDS)
        await ticket


async def cancel_and_abort() -> None:
    """A wait is cancelled, the work is aborted, and the stream remains usable."""
    async with open_device() as device, device.create_stream() as stream, device.allocate(SIZE) as memory:
        with simulator.held(stream):
            ticket = stream.fill(memory, 1)
            task = asyncio.ensure_future(_awaited(ticket))
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await stream.abort()
        await stream.fill(memory, 2)


async def _awaited(thing: Awaitable[Any]) -> None:
    await thing


async def counts_by_hand() -> None:
    """Sets and resets the device by direct calls, as C programs do."""
    lowlevel.set_device(0)
    try:
        lowlevel.set_device(0)
        lowlevel.reset_device(0)
    finally:
        with suppress(AclError):
            lowlevel.reset_device_force(0)
