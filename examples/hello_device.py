"""A first await: a greeting goes to the device and comes back."""

import asyncio

import aioacl

GREETING = b"Hello from the device!"


async def main() -> None:
    async with (
        aioacl.open_device(0) as device,
        device.create_stream() as stream,
        device.allocate(len(GREETING)) as buffer,
    ):
        answer = bytearray(len(GREETING))
        stream.copy(buffer, GREETING)  # enqueued: a plain call that never waits
        await stream.copy(answer, buffer)  # enqueued after the first copy, and awaited
        print(device)
        print(answer.decode())


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
