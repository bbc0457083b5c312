"""One stream writes a buffer, another reads it, and events keep them in step.

The whole exchange is enqueued before anything is awaited: it is the device that waits, not the program.
"""

import asyncio

import aioacl

SIZE = 4096
ROUNDS = 5


async def main() -> None:
    async with (
        aioacl.open_device(0) as device,
        device.create_stream() as writer,
        device.create_stream() as reader,
        device.allocate(SIZE) as buffer,
    ):
        pages = [bytearray(SIZE) for _ in range(ROUNDS)]
        for number, page in enumerate(pages):
            writer.fill(buffer, number)
            reader.wait_event(writer.record())  # no reading before it is written
            reader.copy(page, buffer)
            writer.wait_event(reader.record())  # no writing before it is read

        await reader
        for number, page in enumerate(pages):
            print(f"page {number}: {'as written' if page == bytes([number]) * SIZE else 'torn'}")


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; without one it raises, and the error names the remedy
    asyncio.run(main())
