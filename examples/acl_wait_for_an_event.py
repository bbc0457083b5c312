"""Wait for an event: the work before it is done. Work that was enqueued after it may still run."""

import asyncio

import aioacl

SIZE = 1 << 20


async def main() -> None:
    async with (
        aioacl.open_device(0) as device,
        device.create_stream() as stream,
        device.create_event() as event,
        device.allocate(SIZE) as memory,
    ):
        stream.fill(memory, 1)  #     aclrtMemsetAsync
        event.record(stream)  #       aclrtRecordEvent
        stream.fill(memory, 2)
        await event  #                aclrtSynchronizeEvent
        print(f"the first fill is done: {event.query()}")
        await stream


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
