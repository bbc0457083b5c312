"""Upload, work and download overlap: three streams tied by events, several items in flight, results in order.

An item in flight owns a slot: pinned memory at both ends and device memory between. When its last event is done, so
is everything before it, and the slot takes the next item.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from typing import NamedTuple

import aioacl

SIZE = 256 << 10
IN_FLIGHT = 4
ITEMS = [number.to_bytes(4, "big") * (SIZE // 4) for number in range(40)]


class Slot(NamedTuple):
    """The memory of one item in flight."""

    source: aioacl.PinnedBuffer
    input: aioacl.DeviceBuffer
    output: aioacl.DeviceBuffer
    result: aioacl.PinnedBuffer


async def overlapped(device: aioacl.Device, items: Iterable[bytes]) -> AsyncIterator[bytes]:
    """The result of each item, in the order of the items."""
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(device.create_stream()) for _ in range(3)]
        free = [await new_slot(device, stack) for _ in range(IN_FLIGHT)]
        flying: deque[tuple[Slot, aioacl.Event]] = deque()
        for item in items:
            if not free:
                slot, landed = flying.popleft()
                await landed
                yield bytes(slot.result)
                free.append(slot)
            slot = free.pop()
            flying.append((slot, launch(slot, item, *streams)))
        for slot, landed in flying:
            await landed
            yield bytes(slot.result)


async def new_slot(device: aioacl.Device, stack: AsyncExitStack) -> Slot:
    """Memory for one more item in flight; the stack gives it back."""
    source, result = [await stack.enter_async_context(device.pinned(SIZE)) for _ in range(2)]
    before, after = [await stack.enter_async_context(device.allocate(SIZE)) for _ in range(2)]
    return Slot(source, before, after, result)


def launch(
    slot: Slot, item: bytes, upload: aioacl.Stream, work: aioacl.Stream, download: aioacl.Stream
) -> aioacl.Event:
    """Enqueues all three stages and waits for none; the event is done when the result is there."""
    slot.source.view[:] = item
    upload.copy(slot.input, slot.source)
    work.wait_event(upload.record())
    work.copy(slot.output, slot.input)  # your kernel or model goes here
    download.wait_event(work.record())
    download.copy(slot.result, slot.output)
    return download.record()


async def main() -> None:
    async with aioacl.open_device(0) as device:
        results = [result async for result in overlapped(device, ITEMS)]
    print(f"{len(results)} results, {'in order' if results == ITEMS else 'NOT in order'}")


if __name__ == "__main__":
    aioacl.use_library(os.environ.get("AIOACL_LIBRARY", "simulator"))
    asyncio.run(main())
