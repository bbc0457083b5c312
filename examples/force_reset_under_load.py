"""A device is force-reset repeatedly while workers use it. The workers lose handles, but no data.

A reset makes all older handles stale. A worker that is interrupted makes new handles and begins again. Making a
handle waits until the device is open again.
"""

import asyncio

import aioacl

WORKERS = 16
RESETS = 5
SIZE = 64 << 10


class Tally:
    """The counts of all workers together."""

    def __init__(self) -> None:
        self.over = False
        self.copies = self.wrong = self.interrupted = 0


async def exchange(device: aioacl.Device, payload: bytes, tally: Tally) -> None:
    """Copies the payload to the device and back, until `tally.over` is set or a reset interrupts the copies."""
    async with device.create_stream() as stream, device.allocate(SIZE) as buffer:
        while not tally.over:
            answer = bytearray(SIZE)
            stream.copy(buffer, payload)
            await stream.copy(answer, buffer)
            tally.copies += 1
            tally.wrong += answer != payload


async def worker(device: aioacl.Device, number: int, tally: Tally) -> None:
    """Exchanges data, and begins again after each reset."""
    while not tally.over:
        try:
            await exchange(device, bytes([number]) * SIZE, tally)
        except aioacl.ResetError:
            tally.interrupted += 1


async def main() -> None:
    tally = Tally()
    async with aioacl.open_device(0) as device, asyncio.TaskGroup() as tasks:
        for number in range(WORKERS):
            tasks.create_task(worker(device, number, tally))
        for _ in range(RESETS):
            await asyncio.sleep(0.05)  # some load between the resets
            report = await device.force_reset(grace=1.0, reason="a test under load")
            print(report.summary())
        tally.over = True

    print(f"{tally.copies} copies, {tally.wrong} wrong; {tally.interrupted} times a worker began again")


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
