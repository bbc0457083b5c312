"""One stream writes a buffer, another reads it, and events order the two.

The program enqueues the whole exchange, and then awaits it. The device waits for the events; the program does not.
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
            reader.wait_event(writer.record())  # the reader starts after the write
            reader.copy(page, buffer)
            writer.wait_event(reader.record())  # the next write starts after the read

        await reader
        for number, page in enumerate(pages):
            print(f"page {number}: {'as written' if page == bytes([number]) * SIZE else 'torn'}")


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
