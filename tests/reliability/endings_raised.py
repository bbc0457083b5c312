"""Ends of a process by its threads, by exit handlers, and by exceptions in tasks and jobs."""

from __future__ import annotations

from typing import Final

from tests.reliability.endings_child import Case

THREADS: Final = (
    Case(
        "daemon threads in result()",
        """
async def main():
    copies = forever(await Copies().__aenter__())
    for waiting in (copies.ticket, copies.stream, copies.device.synchronize()):
        daemon(waiting.result)
    await until(lambda: waits() == 3)
run(main)
leave(7)
""",
        status=7,
        strict=False,
    ),
    Case(
        "threads that end later",
        """
copies = Copies()
async def main():
    await copies.__aenter__()
def last():
    copies.ticket.result()
    say("waited")
    copies.stream.close().result(), copies.memory.close().result(), copies.device.close().result()
def release():
    threading.main_thread().join()
    say("released")
    simulator.release(copies.stream)
    leaving()
run(main)
threading.Thread(target=last).start()
until_now(waits)
threading.Thread(target=release).start()
sys.exit(7)
""",
        status=7,
        output="released, waited",
    ),
    Case(
        "sys.exit in a thread",
        """
async def main():
    async with open_device(0) as device:
        def leaves():
            verified_here(device)
            sys.exit(5)
        thread = threading.Thread(target=leaves)
        thread.start()
        await until(lambda: not thread.is_alive())
        await verified(device)
run(main)
leaving()
""",
        output="verified, verified",
    ),
    Case(
        "atexit handlers registered before and after the library was loaded",
        """
kept = []
def first():
    leaving()
    for device in kept:
        device.close().result()
    say("closed", simulator.retain_count(0))
def last():
    verified_here(kept[0])
atexit.register(first)
use_library("simulator")
atexit.register(last)
async def main():
    kept.append(await open_device(0))
run(main)
sys.exit(7)
""",
        status=7,
        output="verified, closed 0",
    ),
    Case(
        "ACL was initialised by other code",
        """
use_library("simulator")
lowlevel.functions.aclInit(lowlevel.ffi.NULL)
async def main():
    async with open_device(0) as device:
        await verified(device)
run(main)
say("finalized", simulator.calls("aclFinalize"), simulator.calls("aclFinalizeReference"))
leaving()
""",
        output="verified, finalized 0 0",
    ),
)

RAISED: Final = (
    Case(
        "sys.exit in a task",
        """
async def leaver():
    leave(5)
async def main():
    async with Copies() as copies:
        waiting = asyncio.create_task(wait_until_closed(copies.ticket))
        await asyncio.create_task(leaver())
run(main)
""",
        trio="""
async def leaver():
    leave(5)
async def main():
    async with Copies() as copies, trio.open_nursery() as nursery:
        nursery.start_soon(leaver)
        await copies.ticket
try:
    run(main)
except BaseExceptionGroup as group:
    (end,) = group.exceptions
    raise end from None
""",
        status=5,
    ),
    Case(
        "sys.exit in a job",
        """
async def main():
    async with Copies() as copies:
        await copies.device.run(leave, 5)
run(main)
""",
        status=5,
    ),
    Case(
        "an exception in a task",
        """
async def fails(copies):
    await copies.device.run(int)
    raise ValueError("mine")
async def main():
    async with Copies() as copies:
        waiting = asyncio.create_task(wait_until_closed(copies.ticket))
        leaving()
        await asyncio.create_task(fails(copies))
run(main)
""",
        trio="""
async def fails(copies):
    await copies.device.run(int)
    raise ValueError("mine")
async def main():
    async with Copies() as copies, trio.open_nursery() as nursery:
        leaving()
        nursery.start_soon(fails, copies)
        await copies.ticket
try:
    run(main)
except BaseExceptionGroup as group:
    (end,) = group.exceptions
    raise end from None
""",
        status=1,
        stderr="ValueError: mine",
    ),
    Case(
        "an exception in a job",
        """
def fails():
    raise ValueError("mine")
async def main():
    async with Copies() as copies:
        leaving()
        await copies.device.run(fails)
run(main)
""",
        status=1,
        stderr="ValueError: mine",
    ),
)
