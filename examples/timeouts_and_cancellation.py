"""A device that makes no progress: three ways to stop waiting. None of them stops the work.

A timeout or a cancellation ends the await, not the copy. Only `stream.abort()` or a reset stops work on the device.
The example holds a stream of the simulator, so it runs on the simulator only.
"""

import asyncio

import aioacl
from aioacl import simulator

MESSAGE = b"The copy has arrived."


async def arrival(ticket: aioacl.Ticket) -> None:
    """Waits for a copy; it runs as a task."""
    await ticket


async def main() -> None:
    async with (
        aioacl.open_device(0) as device,
        device.create_stream() as stream,
        device.allocate(len(MESSAGE)) as buffer,
    ):
        answer = bytearray(len(MESSAGE))
        with simulator.held(stream):
            stream.copy(buffer, MESSAGE)
            ticket = stream.copy(answer, buffer)

            try:
                await stream.synchronize(timeout=0.05)
            except aioacl.DeviceTimeout as error:
                print(f"timeout=: {type(error).__name__}")

            try:
                async with asyncio.timeout(0.05):
                    await ticket
            except TimeoutError:
                print("asyncio.timeout: TimeoutError")

            task = asyncio.create_task(arrival(ticket))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            print(f"cancel: the task {'was cancelled' if task.cancelled() else 'went on'}")
            print(f"the copy is {'done' if ticket.done else 'still in the queue'}")

        await ticket
        print(answer.decode())


if __name__ == "__main__":
    aioacl.use_library("simulator")
    asyncio.run(main())
