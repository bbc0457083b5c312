"""Blocking code that uses a device: `device.executor` is a concurrent.futures.Executor like any other.

The device's context is current on its threads, so calls of other libraries use the device. A force reset waits for
running jobs. Jobs that are submitted during a reset begin after the reset.
"""

import asyncio
import hashlib
import threading

import aioacl

BLOCKS = [bytes([number]) * (1 << 20) for number in range(8)]


def digest(block: bytes) -> str:
    """A blocking job. Hashing releases the GIL, so other Python threads can run during the job."""
    return hashlib.sha256(block).hexdigest()


def where() -> str:
    """Returns the name of the thread that runs the job."""
    return threading.current_thread().name


async def main() -> None:
    loop = asyncio.get_running_loop()
    async with aioacl.open_device(0) as device:
        # The executor works with loop.run_in_executor, like any executor.
        jobs = [loop.run_in_executor(device.executor, digest, block) for block in BLOCKS]
        found = await asyncio.gather(*jobs)
        print(f"{len(set(found))} digests from loop.run_in_executor")

        # device.run is the short form. It works on trio too.
        print(f"device.run agrees: {await device.run(digest, BLOCKS[0]) == found[0]}")
        print(f"on a thread named {await device.run(where)}")

        # A thread without an event loop can use the executor directly.
        print(f"executor.map agrees: {await asyncio.to_thread(without_asyncio, device) == found}")


def without_asyncio(device: aioacl.Device) -> list[str]:
    """Runs the same jobs without asyncio."""
    return list(device.executor.map(digest, BLOCKS))


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
