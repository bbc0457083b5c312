"""Wait between streams: the second continues when the first has reached an event. The host does not wait."""

import asyncio

import aioacl

SIZE = 1 << 20


async def main() -> None:
    async with (
        aioacl.open_device(0) as device,
        device.create_stream() as first,
        device.create_stream() as second,
        device.create_event() as event,
        device.allocate(SIZE) as memory,
    ):
        result = bytearray(SIZE)
        first.fill(memory, 7)  #           aclrtMemsetAsync
        event.record(first)  #             aclrtRecordEvent
        second.wait_event(event)  #        aclrtStreamWaitEvent
        second.copy(result, memory)  #     aclrtMemcpyAsync
        await second  #                    aclrtSynchronizeStream
        print(f"the copy came after the fill: {result == bytes([7]) * SIZE}")


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
