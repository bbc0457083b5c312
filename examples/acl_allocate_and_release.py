"""Resources of the runtime: allocate and release them. The comment on a line names the ACL function.

C programs must release resources in the opposite order, before every return. Here the end of the block releases them.
"""

import asyncio

import aioacl


async def main() -> None:
    async with (  #                                      aclInit, once
        aioacl.open_device(0) as device,  #              aclrtSetDevice
        device.create_stream() as stream,  #             aclrtCreateStream
        device.create_event() as event,  #               aclrtCreateEventExWithFlag
        device.allocate(1 << 20) as memory,  #           aclrtMalloc
        device.pinned(1 << 20) as pinned,  #             aclrtMallocHost
    ):
        print(f"{len(aioacl.list_devices())} devices, this is number {device.index}")
        for thing in (stream, event, memory, pinned):
            print(thing)
    # aclrtFreeHost, aclrtFree, aclrtDestroyEvent, aclrtDestroyStream, aclrtResetDevice
    print(device)


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
