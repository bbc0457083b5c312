"""Upload, work and download overlap: events order three streams, and results keep the order of the items.

If a task fails, the await of its result raises the error. The program then makes new streams and continues with the
first item that has no result.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

import aioacl

SIZE, IN_FLIGHT = 256 << 10, 4
ITEMS = [number.to_bytes(4, "big") * (SIZE // 4) for number in range(40)]


class Slot(NamedTuple):
    """The memory of one item in flight: pinned for source and result, on the device for the work."""

    source: aioacl.PinnedBuffer
    input: aioacl.DeviceBuffer
    output: aioacl.DeviceBuffer
    result: aioacl.PinnedBuffer


async def overlapped(device: aioacl.Device, items: Sequence[bytes]) -> AsyncIterator[bytes]:
    """The result of each item, in the order of the items."""
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(device.create_stream()) for _ in range(3)]
        slots = [await new_slot(device, stack) for _ in range(IN_FLIGHT)]
        in_flight: deque[aioacl.Event] = deque()
        for number in range(len(items) + IN_FLIGHT):
            slot = slots[number % IN_FLIGHT]
            if number >= IN_FLIGHT:
                await in_flight.popleft()  # covers all stages: each waits for the previous one
                yield bytes(slot.result)
            if number < len(items):
                in_flight.append(launch(slot, items[number], streams))


async def new_slot(device: aioacl.Device, stack: AsyncExitStack) -> Slot:
    """Allocates the memory for one more item in flight. The stack closes the memory."""
    source, result = [await stack.enter_async_context(device.pinned(SIZE)) for _ in range(2)]
    before, after = [await stack.enter_async_context(device.allocate(SIZE)) for _ in range(2)]
    return Slot(source, before, after, result)


def launch(slot: Slot, item: bytes, streams: list[aioacl.Stream]) -> aioacl.Event:
    """Enqueues all three stages and waits for none. The event is done when the result has arrived."""
    up, work, down = streams
    slot.source.view[:] = item
    up.copy(slot.input, slot.source)
    work.wait_event(up.record())
    work.copy(slot.output, slot.input)  # replace this copy by your kernel or model
    down.wait_event(work.record())
    down.copy(slot.result, slot.output)
    return down.record()


async def main() -> None:
    results: list[bytes] = []
    async with aioacl.open_device(0) as device:
        for attempt in range(3):
            try:
                async for result in overlapped(device, ITEMS[len(results) :]):
                    results.append(result)  # noqa: PERF401 - results from before a failure are kept
                break
            except aioacl.DeviceFault as error:
                if error.action != "new_stream" or attempt == 2:  # a device that failed needs a reset
                    raise
                print(f"begins again at item {len(results)}: {error.name}")
    print(f"{len(results)} results, {'in order' if results == ITEMS else 'NOT in order'}")


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, the error names the remedy
    asyncio.run(main())
