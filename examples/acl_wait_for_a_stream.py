"""Wait for a stream: everything enqueued on it so far is done."""

import asyncio
import os

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
    aioacl.use_library(os.environ.get("AIOACL_LIBRARY", "simulator"))
    asyncio.run(main())
