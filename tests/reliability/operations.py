"""What the tasks of a crowd do: the public API of aioacl, each operation short, and its bytes verified.

An operation succeeds, or ends in an error that its device or its caller caused meanwhile. It raises Wrong if it got an
impossible result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio

import aioacl
from aioacl import Event, LeaseHeldError, QueueFull, open_device

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioacl import Device, Stream, Ticket
    from tests.reliability.hand import Hand

    Operation = Callable[[Hand, Device], Awaitable[object]]

LARGE_BYTES: Final = 3 << 19  # more than one copy stages
INJECTED_BYTES: Final = 54321  # no other buffer has that size, so the rules below match no other call
OUT_OF_MEMORY: Final = 207001
TASK_FAILS: Final = 107020
RULES: Final = (
    f"aclrtMemsetAsync:size>={INJECTED_BYTES}:size<={INJECTED_BYTES}:async-error={TASK_FAILS}",
    f"aclrtMalloc:size>={INJECTED_BYTES + 1}:size<={INJECTED_BYTES + 1}:rc={OUT_OF_MEMORY}",
    "copy:p=0.03:at=during:latency=1+-1",  # so that resets interrupt work
)


class Wrong(Exception):
    """aioacl returned an impossible result."""


def must(holds: object, what: str) -> None:
    """Raises Wrong unless the condition holds."""
    if not holds:
        raise Wrong(what)


# --- copies --------------------------------------------------------------------------------------------------------


async def copied(stream: Stream, target: Any, source: Any, *, nbytes: int | None = None) -> Ticket:
    """Enqueues a copy, as soon as there is staging memory for it."""
    while True:
        try:
            return stream.copy(target, source, nbytes=nbytes)
        except QueueFull:
            await stream.ready()


def _compare(here: Any, there: bytes, what: str) -> None:
    must(bytes(here) == there, f"{what}: {len(there)} bytes came back changed")


async def there_and_back(hand: Hand, device: Device) -> None:
    """Uploads and downloads through staging memory."""
    tools, sent = await hand.tools(device), hand.bytes()
    answer = bytearray(len(sent))
    await copied(tools.stream, tools.memory, sent)
    await (await copied(tools.stream, answer, tools.memory, nbytes=len(sent)))
    _compare(answer, sent, "a copy")


async def there_and_back_pinned(hand: Hand, device: Device) -> None:
    """Uploads and downloads through pinned memory, without staging."""
    tools, sent = await hand.tools(device), hand.bytes()
    size = len(sent)
    await tools.stream  # a cancelled operation may have left a running copy
    tools.pinned.view[:size] = sent
    up = tools.stream.copy(tools.memory, tools.pinned, nbytes=size)
    await up
    must(up.done, "a ticket that was awaited is not done")
    tools.pinned.view[:size] = bytes(size)
    tools.stream.copy(tools.pinned, tools.memory, nbytes=size)
    await tools.stream
    _compare(tools.pinned.view[:size], sent, "a pinned copy")


async def fill(hand: Hand, device: Device) -> None:
    """A fill, and a check of the bytes."""
    tools, byte = await hand.tools(device), hand.random.randrange(256)
    answer = bytearray(64)
    tools.stream.fill(tools.memory, byte)
    await (await copied(tools.stream, answer, tools.memory, nbytes=64))
    _compare(answer, bytes([byte]) * 64, "a fill")


async def pump(hand: Hand, device: Device) -> None:
    """A copy that takes several chunks of staging memory."""
    sent, answer = hand.random.randbytes(LARGE_BYTES), bytearray(LARGE_BYTES)
    stream = (await hand.tools(device)).stream
    async with device.allocate(LARGE_BYTES, **hand.demands()) as memory:
        await stream.upload(memory, sent)
        await stream.download(answer, memory)
    _compare(answer, sent, "a pumped copy")


async def across_streams(hand: Hand, device: Device) -> None:
    """One stream waits for an event of another."""
    tools, sent = await hand.tools(device), hand.bytes()
    answer = bytearray(len(sent))
    async with device.create_stream(**hand.demands()) as other:
        await copied(tools.stream, tools.memory, sent)
        other.wait_event(tools.stream.record())
        await (await copied(other, answer, tools.memory, nbytes=len(sent)))
        await tools.stream  # a failed upload is reported here only
    _compare(answer, sent, "a copy behind an event")


# --- waiting and querying --------------------------------------------------------------------------------------------


async def tickets(hand: Hand, device: Device) -> None:
    """Several positions: one dropped, one awaited late, one queried."""
    tools = await hand.tools(device)
    first, _, last = (tools.stream.fill(tools.memory, byte, nbytes=64) for byte in range(3))
    await last
    await first
    must(first.done, "the work before a ticket that has ended is not done")


async def events(hand: Hand, device: Device) -> None:
    """Events created by the task, recorded twice, timed and queried."""
    tools = await hand.tools(device)
    async with device.create_event(timing=True, **hand.demands()) as begin, _timed(hand, device) as end:
        begin.record(tools.stream)
        tools.stream.fill(tools.memory, 1)
        end.record(tools.stream)
        end.record(tools.stream)
        await end.synchronize(hand.timeout())
        must(end.query(), "an event that was awaited is not done")
        must(end.elapsed_since(begin) >= 0, "time went backwards between two events")


def _timed(hand: Hand, device: Device) -> aioacl.Opening[Event]:
    return device.create_event(timing=True, **hand.demands())


async def query(hand: Hand, device: Device) -> None:
    """Queries, and waits with a time limit."""
    tools = await hand.tools(device)
    tools.stream.fill(tools.memory, 9)
    mark = tools.stream.record()
    tools.stream.query()
    await tools.stream.synchronize(hand.timeout())
    must(mark.query(), "an event is not done although its stream was")


async def ready(hand: Hand, device: Device) -> None:
    """Waits for room."""
    await (await hand.tools(device)).stream.ready()


async def synchronize(hand: Hand, device: Device) -> None:
    """Waits for all work of the device."""
    await device.synchronize(hand.timeout())


async def look(_: Hand, device: Device) -> None:
    """Facts."""
    found = await device.memory_info()
    must(0 <= found.free <= found.total, f"{found} cannot be")
    must(device.health.leases >= 0, "expected at least 0 leases, got fewer")


async def listen(hand: Hand, device: Device) -> None:
    """A listener that leaves; it is meant to be cancelled."""
    with anyio.move_on_after(hand.random.random() * 0.005):
        async for event in device.events():
            must(event.device == device.index, f"an event of device {event.device} came to {device.index}")


# --- making ----------------------------------------------------------------------------------------------------------


async def memory(hand: Hand, device: Device) -> None:
    """Allocates and frees device memory."""
    size = hand.random.choice((1, 64, 4096, 1 << 16))
    async with device.allocate(size, **hand.demands()) as made:
        must(made.size == size, f"{made.size} bytes instead of {size}")


async def pinned(hand: Hand, device: Device) -> None:
    """Allocates and frees pinned memory."""
    async with device.pinned(4096, **hand.demands()) as made:
        made.view[:4] = b"here"


async def stream(hand: Hand, device: Device) -> None:
    """A stream and memory that are closed with work under way."""
    priority = hand.random.choice((0, 0, 3))
    async with (
        device.allocate(64) as target,
        device.create_stream(priority=priority, **hand.demands()) as made,
    ):
        made.fill(target, 5)


async def job(hand: Hand, device: Device) -> None:
    """A blocking job."""
    base = hand.random.randrange(1 << 20)
    must(await device.run(divmod, base, 7) == divmod(base, 7), "a job's result is another's")


async def another_open(hand: Hand, device: Device) -> None:
    """The device, opened once more, and closed."""
    async with open_device(device.index, hand.waits, **hand.demands()) as again:
        must(again.index == device.index, "another device was opened")


# --- leases ----------------------------------------------------------------------------------------------------------


async def leased(hand: Hand, device: Device) -> None:
    """Steps that no reset may separate."""
    async with device.lease(**hand.demands()) as lease:
        generation = device.generation
        await there_and_back(hand, device)
        await fill(hand, device)
        must(device.generation == generation or not lease.held, "a reset ran between the steps of a lease")


async def leased_and_resetting(hand: Hand, device: Device) -> None:
    """The holder of a lease cannot reset the device."""
    async with device.lease(**hand.demands()) as lease:
        try:
            await device.force_reset()
        except LeaseHeldError:
            return
        must(not lease.held, "the holder of a lease has reset its device")


async def shared_lease(hand: Hand, device: Device) -> None:
    """A lease with a second holder."""
    tools = await hand.tools(device)

    async def second(shared: aioacl.SharedLease) -> None:
        with shared:
            await tools.stream.fill(tools.memory, 3)

    async with device.lease(**hand.demands()) as lease, anyio.create_task_group() as group:
        group.start_soon(second, lease.share())
        await device.memory_info()


# --- what fails on purpose -------------------------------------------------------------------------------------------


async def injected(hand: Hand, device: Device) -> None:
    """A task that fails: a rule fires for fills of that size."""
    async with device.create_stream() as made, device.allocate(INJECTED_BYTES) as target:
        hand.expects(TASK_FAILS)
        await made.fill(target, 1)
        raise Wrong("the await of a failed task raised nothing")


async def refused(hand: Hand, device: Device) -> None:
    """An allocation that fails: a rule fires for allocations of that size."""
    hand.expects(OUT_OF_MEMORY)
    async with device.allocate(INJECTED_BYTES + 1):
        raise Wrong("an allocation succeeded although a fault was injected")


async def reset(hand: Hand, device: Device) -> None:
    """A force reset, some with hardly any grace."""
    grace = hand.random.choice((0.0, 0.001, 0.02, 5.0))
    hand.landed(await device.force_reset(grace=grace, reason=f"hand {hand.name}"))


# --- how often -------------------------------------------------------------------------------------------------------

WEIGHTS: Final[dict[Operation, int]] = {
    there_and_back: 14,
    there_and_back_pinned: 8,
    fill: 8,
    pump: 1,
    across_streams: 6,
    tickets: 10,
    events: 6,
    query: 8,
    ready: 2,
    look: 3,
    listen: 3,
    memory: 8,
    pinned: 3,
    stream: 5,
    job: 4,
    another_open: 4,
    leased: 5,
    leased_and_resetting: 1,
    shared_lease: 3,
}
# A wait for the whole device cannot attribute a failure, so all work in progress then raises it. Therefore a crowd in
# which every failure must be explained has failing tasks or waits for the whole device, not both.
FAILING: Final[dict[Operation, int]] = {**WEIGHTS, injected: 3, refused: 2}
WAITING_FOR_ALL: Final[dict[Operation, int]] = {**WEIGHTS, synchronize: 1, refused: 2}
