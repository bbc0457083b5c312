"""Wait for a stream: everything enqueued on it so far is done."""

import asyncio

import aioacl

SIZE = 1 << 20


async def main() -> None:
    async with (
        aioacl.open_device(0) as device,
        device.create_stream() as stream,
        device.allocate(SIZE) as memory,
    ):
        result = bytearray(SIZE)
        stream.fill(memory, 7)  #          aclrtMemsetAsync
        stream.copy(result, memory)  #     aclrtMemcpyAsync
        await stream  #                    aclrtSynchronizeStream
        print(f"every byte is 7: {result == bytes([7]) * SIZE}")


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
