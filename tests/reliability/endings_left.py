"""Ends of a process that does not clean up: open devices, running copies, loops with unfinished waits."""

from __future__ import annotations

from typing import Final

from tests.reliability.endings_child import Case

CONTROL: Final = Case("a process that does nothing", "leaving()", destructors_run=False)

LEFT: Final = (
    Case(
        "everything closed",
        """
async def main():
    async with open_device(0) as device:
        await verified(device)
run(main)
leaving()
""",
        output="verified",
    ),
    Case(
        "everything left open",
        """
kept = []
async def main():
    device, other = await open_device(0), await open_device(1)
    stream, memory, pinned = await device.create_stream(), await device.allocate(64), await device.pinned(64)
    await stream.copy(memory, pinned)
    kept.extend((device, other, stream, memory, pinned, stream.record(), pinned.view, await other.create_event()))
run(main)
leave(7)
""",
        status=7,
        strict=False,
    ),
    Case(
        "handles dropped just before the end",
        """
async def main():
    device = await open_device(0)
    for _ in range(20):
        stream, memory, pinned = await device.create_stream(), await device.allocate(64), await device.pinned(64)
        stream.copy(memory, pinned)
        cycle = [stream, memory, pinned]
        cycle.append(cycle)
gc.disable()
run(main)
gc.collect()
leave(7)
""",
        status=7,
        strict=False,
    ),
    Case(
        "a copy that the device is running",
        """
async def main():
    copies = forever(await Copies().__aenter__())
    with anyio.move_on_after(0.01):
        await copies.stream
run(main)
leave(7)
""",
        status=7,
        strict=False,
        environ={"AIOACL_SIM_COPY_LATENCY_US": "60000000"},
    ),
    Case(
        "a device in quarantine",
        """
async def main():
    device = forever(await open_device(0))
    simulator.fail_call("aclrtResetDeviceForce", 507011, -1)
    say((await device.force_reset()).ok)
run(main)
leave(7)
""",
        status=7,
        output="False",
        strict=False,
    ),
    Case(
        "os._exit",
        """
async def main():
    async with Copies():
        leaving()
        os._exit(4)
run(main)
""",
        status=4,
        destructors_run=False,
    ),
)

LOOPS: Final = (
    Case(
        "the loop closed during waits",
        """
use_library("simulator")
copies, loop = Copies(), new_loop()
loop.run_until_complete(copies.__aenter__())
tasks = [loop.create_task(wait(copies.ticket)) for _ in range(5)]
loop.run_until_complete(until(lambda: waits() == 5))
forever(tasks)
loop.close()
simulator.release(copies.stream)
until_now(lambda: not waits())
copies.stream.close().result(), copies.memory.close().result(), copies.device.close().result()
leaving()
""",
        trio="""
copies = Copies()
async def main():
    await copies.__aenter__()
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(wait, copies.ticket)
        await until(lambda: waits() == 5)
        nursery.cancel_scope.cancel()
run(main)
simulator.release(copies.stream)
until_now(lambda: not waits())
copies.stream.close().result(), copies.memory.close().result(), copies.device.close().result()
leaving()
""",
    ),
    Case(
        "the loop stopped during a call, and continued",
        """
use_library("simulator")
device, loop = open_device(0).result(), new_loop()
async def allocate():
    return await device.allocate(64)
def stop():
    until_now(lambda: simulator.hung("aclrtMalloc"))
    loop.call_soon_threadsafe(loop.stop)
simulator.hang_call("aclrtMalloc")
task = loop.create_task(allocate())
daemon(stop)
loop.run_forever()
say("stopped", task.done())
simulator.release_call("aclrtMalloc")
memory = loop.run_until_complete(task)
loop.close()
memory.close().result(), device.close().result()
leaving()
""",
        trio="""
use_library("simulator")
device, turns, end = open_device(0).result(), queue.SimpleQueue(), []
async def allocate():
    return await device.allocate(64)
simulator.hang_call("aclrtMalloc")
trio.lowlevel.start_guest_run(allocate, run_sync_soon_threadsafe=turns.put, done_callback=end.append)
pump(turns, lambda: simulator.hung("aclrtMalloc"))
say("stopped", bool(end))
simulator.release_call("aclrtMalloc")
pump(turns, lambda: end)
memory = end[0].unwrap()
memory.close().result(), device.close().result()
leaving()
""",
        output="stopped False",
    ),
    Case(
        "the loop stopped during a call, and not continued",
        """
use_library("simulator")
device, loop = open_device(0).result(), new_loop()
async def allocate():
    return await device.allocate(64)
def stop():
    until_now(lambda: simulator.hung("aclrtMalloc"))
    loop.call_soon_threadsafe(loop.stop)
simulator.hang_call("aclrtMalloc")
forever(loop.create_task(allocate()))
forever(loop)
daemon(stop)
loop.run_forever()
leave(3)
""",
        trio="""
use_library("simulator")
device, turns, end = open_device(0).result(), queue.SimpleQueue(), []
async def allocate():
    return await device.allocate(64)
simulator.hang_call("aclrtMalloc")
forever(turns)
trio.lowlevel.start_guest_run(allocate, run_sync_soon_threadsafe=turns.put, done_callback=end.append)
pump(turns, lambda: simulator.hung("aclrtMalloc"))
leave(3)
""",
        status=3,
        destructors_run=False,
        strict=False,
    ),
    Case(
        "the run cancelled",
        """
async def main():
    async with Copies() as copies:
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
        await copies.ticket
try:
    run(main)
except asyncio.CancelledError:
    say("cancelled")
leaving()
""",
        trio="""
async def main():
    with trio.CancelScope() as scope:
        async with open_device(0) as device, device.create_stream() as stream, device.allocate(64) as memory:
            simulator.hold(stream)
            trio.lowlevel.current_trio_token().run_sync_soon(scope.cancel)
            await stream.fill(memory, 1)
    if scope.cancelled_caught:
        say("cancelled")
run(main)
leaving()
""",
        output="cancelled",
    ),
    Case(
        "three loops on threads, each in a wait",
        """
use_library("simulator")
async def main():
    copies = forever(await Copies().__aenter__())
    await copies.ticket
for _ in range(3):
    daemon(run, main)
until_now(lambda: waits() == 3)
leave(7)
""",
        status=7,
        strict=False,
    ),
    Case(
        "three loops on threads, each to its end",
        """
async def main():
    async with open_device(0) as device:
        await verified(device)
threads = [threading.Thread(target=run, args=(main,)) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
leaving()
""",
        output="verified, verified, verified",
    ),
)
