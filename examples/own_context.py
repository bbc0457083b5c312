"""Other code uses the device too: aioacl works in a context of its own, and its reset leaves the other code alone.

The other code is a thread that calls ACL by hand, as torch_npu does inside. Its stream is in the device's primary
context. The reset replaces aioacl's own context only.
"""

import asyncio
import threading

import aioacl
from aioacl import lowlevel
from aioacl.lowlevel import ffi
from aioacl.lowlevel import functions as acl
from aioacl.lowlevel.constants import ACL_MEM_MALLOC_HUGE_FIRST

ROUNDS = 3


class OtherCode(threading.Thread):
    """Fills memory again and again, on a stream in the primary context."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds, self.stopped = threading.Semaphore(0), threading.Event()

    def run(self) -> None:
        """Runs on the thread."""
        lowlevel.set_device(0)
        made, memory = ffi.new("aclrtStream *"), ffi.new("void **")
        acl.aclrtCreateStream(made)
        acl.aclrtMalloc(memory, 64, ACL_MEM_MALLOC_HUGE_FIRST)
        while not self.stopped.wait(0.001):
            acl.aclrtMemsetAsync(memory[0], 64, 1, 64, made[0])
            acl.aclrtSynchronizeStream(made[0])  # raises if the stream is gone
            self.rounds.release()
        acl.aclrtFree(memory[0])
        acl.aclrtDestroyStream(made[0])
        lowlevel.reset_device(0)

    def wait_for_a_round(self) -> None:
        """Waits until the thread has done another round."""
        while self.rounds.acquire(blocking=False):
            continue
        self.rounds.acquire(timeout=10)


async def main() -> None:
    other = OtherCode()
    other.start()
    await asyncio.to_thread(other.wait_for_a_round)
    async with aioacl.open_device(0, context="own") as device:
        for _ in range(ROUNDS):
            stream = await device.create_stream()
            report = await device.force_reset(grace=0)
            print(f"replaced: the {report.scope}; our old stream is stale: {stream.stale}")
            await asyncio.to_thread(other.wait_for_a_round)
        print(f"the other code works on: {other.is_alive()}")
    other.stopped.set()
    other.join()


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
