"""Ends of a process while a call or a job does not return, and while a device is reset."""

from __future__ import annotations

from typing import Final

from tests.reliability.endings_child import Case

STUCK: Final = (
    Case(
        "a call hung in aclrtMalloc",
        """
async def main():
    device = await open_device(0)
    forever(device)
    simulator.hang_call("aclrtMalloc")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(wait, device.allocate(64))
            await until(lambda: simulator.hung("aclrtMalloc"))
            scope.cancel()
run(main)
leave(9)
""",
        status=9,
        destructors_run=False,
        strict=False,
    ),
    Case(
        "a thread in aclrtSynchronizeEventWithTimeout",
        """
async def main():
    copies = Copies()
    await copies.__aenter__()
    forever(copies)
    simulator.hang_call("aclrtSynchronizeEventWithTimeout")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(wait, copies.stream)
            await until(lambda: simulator.hung("aclrtSynchronizeEventWithTimeout"))
            scope.cancel()
run(main)
leave(9)
""",
        status=9,
        destructors_run=False,
        strict=False,
        waits="thread",
    ),
    Case(
        "a job that does not end",
        """
began = threading.Event()
def job():
    began.set()
    threading.Event().wait()
async def main():
    device = await open_device(0)
    forever(device)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(wait, device.run(job))
            await until(began.is_set)
            scope.cancel()
run(main)
leave(9)
""",
        status=9,
        destructors_run=False,
        strict=False,
    ),
    Case(
        "a reset hung in C",
        """
async def main():
    device = await open_device(0)
    forever(device)
    simulator.hang_call("aclrtResetDeviceForce")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(wait, device.force_reset(grace=0))
            await until(lambda: simulator.hung("aclrtResetDeviceForce"))
            scope.cancel()
run(main)
leave(9)
""",
        status=9,
        destructors_run=False,
        strict=False,
    ),
    Case(
        "an open hung in aclrtSetDevice",
        """
async def main():
    simulator.hang_call("aclrtSetDevice")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(wait, open_device(0))
            await until(lambda: simulator.hung("aclrtSetDevice"))
            scope.cancel()
run(main)
leave(9)
""",
        status=9,
        destructors_run=False,
        strict=False,
    ),
    Case(
        "a reset that drains",
        """
async def main():
    copies = Copies()
    await copies.__aenter__()
    forever(copies)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(wait, copies.device.force_reset(grace=60))
            await until(lambda: copies.device.state is aioacl.State.DRAINING)
            scope.cancel()
run(main)
leave(7)
""",
        status=7,
        strict=False,
    ),
    Case(
        "a foreign reset, beside a job",
        """
began, other = threading.Event(), ctypes.CDLL(os.environ["TEST_LIBRARY"])
def job():
    began.set()
    threading.Event().wait()
async def main():
    device = await open_device(0)
    forever(device)
    device.executor.submit(job)
    await until(began.is_set)
    generation = device.generation
    daemon(other.aclrtResetDeviceForce, 0)
    await until(lambda: device.generation != generation)
run(main)
leave(7)
""",
        status=7,
        destructors_run=False,
        strict=False,
    ),
    Case(
        "a foreign reset, and a set after it that hangs",
        """
other = ctypes.CDLL(os.environ["TEST_LIBRARY"])
async def main():
    device = await open_device(0)
    forever(device)
    simulator.hang_call("aclrtSetDevice")
    daemon(other.aclrtResetDeviceForce, 0)
    await until(lambda: simulator.hung("aclrtSetDevice"))
run(main)
leave(7)
""",
        status=7,
        destructors_run=False,
        strict=False,
    ),
)
