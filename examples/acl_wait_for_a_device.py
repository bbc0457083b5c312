"""Wait for a device: all its streams are done, also those of other libraries in the process."""

import asyncio
from contextlib import AsyncExitStack

import aioacl

SIZE = 1 << 16
STREAMS = 8


async def main() -> None:
    async with aioacl.open_device(0) as device, AsyncExitStack() as stack:
        pages = [await stack.enter_async_context(device.allocate(SIZE)) for _ in range(STREAMS)]
        streams = [await stack.enter_async_context(device.create_stream()) for _ in range(STREAMS)]
        for number, (stream, page) in enumerate(zip(streams, pages, strict=True)):
            stream.fill(page, number)  #      aclrtMemsetAsync
        await device.synchronize()  #         aclrtSynchronizeDeviceWithTimeout, in short waits
        print(f"{sum(stream.query() for stream in streams)} of {STREAMS} streams are done")


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
