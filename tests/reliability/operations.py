"""The operations of a crowd's tasks: short uses of the public API that verify their results.

An operation succeeds, or ends in an error that has a cause: a reset of its device, a time limit, a cancellation or an
injected fault. It raises Wrong if aioacl returned an impossible result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio

import aioacl
from aioacl import Event, LeaseHeldError, QueueFull
from tests.reliability import setting

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioacl import Device, Stream, Ticket
    from tests.reliability.member import Member

    Operation = Callable[[Member, Device], Awaitable[object]]

LARGE_BYTES: Final = 3 << 19  # larger than the staging memory of one copy
INJECTED_BYTES: Final = 54321  # no other buffer has that size, so the first rule below matches no other call
REFUSED_BYTES: Final = 61440  # a whole size class of the cache, and no other buffer is of that class
OUT_OF_MEMORY: Final = 207001
TASK_FAILS: Final = 107020
RULES: Final = (
    f"aclrtMemsetAsync:size>={INJECTED_BYTES}:size<={INJECTED_BYTES}:async-error={TASK_FAILS}",
    f"aclrtMalloc:size>={REFUSED_BYTES}:size<={REFUSED_BYTES}:rc={OUT_OF_MEMORY}",
    "copy:p=0.03:at=during:latency=1+-1",  # makes some copies slow, so that resets interrupt them
)


class Wrong(Exception):
    """aioacl returned an impossible result."""


def must(holds: object, what: str) -> None:
    """Raises Wrong unless the condition holds."""
    if not holds:
        raise Wrong(what)


# --- copies --------------------------------------------------------------------------------------------------------


async def copied(stream: Stream, target: Any, source: Any, *, nbytes: int | None = None) -> Ticket:
    """Enqueues a copy. If there is no room for it, waits for room and tries again."""
    while True:
        try:
            return stream.copy(target, source, nbytes=nbytes)
        except QueueFull:
            await stream.ready()


def _compare(here: Any, there: bytes, what: str) -> None:
    must(
        bytes(here) == there,
        f"expected {what} to return the {len(there)} bytes that were sent, got other bytes",
    )


async def there_and_back(member: Member, device: Device) -> None:
    """Uploads and downloads through staging memory."""
    tools, sent = await member.tools(device), member.bytes()
    answer = bytearray(len(sent))
    await copied(tools.stream, tools.memory, sent)
    await (await copied(tools.stream, answer, tools.memory, nbytes=len(sent)))
    _compare(answer, sent, "a copy")


async def there_and_back_pinned(member: Member, device: Device) -> None:
    """Uploads and downloads through pinned memory, without staging."""
    tools, sent = await member.tools(device), member.bytes()
    size = len(sent)
    await tools.stream  # a cancelled operation may have left a running copy
    tools.pinned.view[:size] = sent
    up = tools.stream.copy(tools.memory, tools.pinned, nbytes=size)
    await up
    must(up.done, "expected a ticket to be done after its await, but it is not")
    tools.pinned.view[:size] = bytes(size)
    tools.stream.copy(tools.pinned, tools.memory, nbytes=size)
    await tools.stream
    _compare(tools.pinned.view[:size], sent, "a pinned copy")


async def fill(member: Member, device: Device) -> None:
    """Fills memory, and checks the bytes."""
    tools, byte = await member.tools(device), member.random.randrange(256)
    answer = bytearray(64)
    tools.stream.fill(tools.memory, byte)
    await (await copied(tools.stream, answer, tools.memory, nbytes=64))
    _compare(answer, bytes([byte]) * 64, "a fill")


async def pump(member: Member, device: Device) -> None:
    """Copies that take several chunks of staging memory."""
    sent, answer = member.random.randbytes(LARGE_BYTES), bytearray(LARGE_BYTES)
    stream = (await member.tools(device)).stream
    async with device.allocate(LARGE_BYTES, **member.open_options()) as memory:
        await stream.upload(memory, sent)
        await stream.download(answer, memory)
    _compare(answer, sent, "an upload and download in chunks")


async def across_streams(member: Member, device: Device) -> None:
    """Makes one stream wait for an event of another."""
    tools, sent = await member.tools(device), member.bytes()
    answer = bytearray(len(sent))
    async with device.create_stream(**member.open_options()) as other:
        await copied(tools.stream, tools.memory, sent)
        other.wait_event(tools.stream.record())
        await (await copied(other, answer, tools.memory, nbytes=len(sent)))
        await tools.stream  # only this await reports a failed upload
    _compare(answer, sent, "a copy after an event")


# --- waiting and querying --------------------------------------------------------------------------------------------


async def tickets(member: Member, device: Device) -> None:
    """Uses three tickets: the second is dropped, and the first is awaited after the last."""
    tools = await member.tools(device)
    first, _, last = (tools.stream.fill(tools.memory, byte, nbytes=64) for byte in range(3))
    await last
    await first
    must(first.done, "expected a ticket to be done after its await, but it is not")


async def events(member: Member, device: Device) -> None:
    """Uses events that the task creates: records one twice, measures time and queries."""
    tools = await member.tools(device)
    async with (
        device.create_event(timing=True, **member.open_options()) as begin,
        _timed(member, device) as end,
    ):
        begin.record(tools.stream)
        tools.stream.fill(tools.memory, 1)
        end.record(tools.stream)
        end.record(tools.stream)
        await end.synchronize(member.timeout())
        must(end.query(), "expected an event to be complete after its await, but it is not")
        must(
            end.elapsed_since(begin) >= 0, "expected a time of at least 0 between events, got a negative time"
        )


def _timed(member: Member, device: Device) -> aioacl.Opening[Event]:
    return device.create_event(timing=True, **member.open_options())


async def query(member: Member, device: Device) -> None:
    """Queries, and waits with a time limit."""
    tools = await member.tools(device)
    tools.stream.fill(tools.memory, 9)
    mark = tools.stream.record()
    tools.stream.query()
    await tools.stream.synchronize(member.timeout())
    must(mark.query(), "expected the last event of a finished stream to be complete, but it is not")


async def ready(member: Member, device: Device) -> None:
    """Waits for room in the queue of a stream."""
    await (await member.tools(device)).stream.ready()


async def synchronize(member: Member, device: Device) -> None:
    """Waits for all work of the device."""
    await device.synchronize(member.timeout())


async def look(_: Member, device: Device) -> None:
    """Queries the memory and the health of the device."""
    found = await device.memory_info()
    must(0 <= found.free <= found.total, f"expected 0 <= free <= total, got {found}")
    must(device.health.leases >= 0, "expected at least 0 leases, got fewer")


async def listen(member: Member, device: Device) -> None:
    """Listens for events until it is cancelled."""
    with anyio.move_on_after(member.random.random() * 0.005):
        async for event in device.events():
            must(
                event.device == device.index,
                f"expected an event of device {device.index}, got an event of device {event.device}",
            )


# --- creating --------------------------------------------------------------------------------------------------------


async def memory(member: Member, device: Device) -> None:
    """Allocates and frees device memory."""
    size = member.random.choice((1, 64, 4096, 1 << 16))
    async with device.allocate(size, **member.open_options()) as made:
        must(made.size == size, f"expected {size} bytes, got {made.size}")


async def pinned(member: Member, device: Device) -> None:
    """Allocates and frees pinned memory."""
    async with device.pinned(4096, **member.open_options()) as made:
        made.view[:4] = b"here"


async def stream(member: Member, device: Device) -> None:
    """Closes a stream and memory while their work is running."""
    priority = member.random.choice((0, 0, 3))
    async with (
        device.allocate(64) as target,
        device.create_stream(priority=priority, **member.open_options()) as made,
    ):
        made.fill(target, 5)


async def job(member: Member, device: Device) -> None:
    """Runs a job, and checks its result."""
    base = member.random.randrange(1 << 20)
    must(
        await device.run(divmod, base, 7) == divmod(base, 7),
        "expected the result of this job, got another result",
    )


async def another_open(member: Member, device: Device) -> None:
    """Opens the device once more, and closes it."""
    async with setting.open_device(device.index, member.waits, **member.open_options()) as again:
        must(again.index == device.index, f"expected to open device {device.index}, got device {again.index}")


# --- leases ----------------------------------------------------------------------------------------------------------


async def leased(member: Member, device: Device) -> None:
    """Steps under a lease: no reset may run between them."""
    async with device.lease(**member.open_options()) as lease:
        generation = device.generation
        await there_and_back(member, device)
        await fill(member, device)
        must(
            device.generation == generation or not lease.held,
            "expected no reset between the steps of a lease, got one",
        )


async def leased_and_resetting(member: Member, device: Device) -> None:
    """Checks that the holder of a lease cannot reset the device."""
    async with device.lease(**member.open_options()) as lease:
        try:
            await device.force_reset()
        except LeaseHeldError:
            return
        must(not lease.held, "expected a reset by the holder of a lease to be refused, but it was made")


async def shared_lease(member: Member, device: Device) -> None:
    """Shares a lease with a second holder."""
    tools = await member.tools(device)

    async def second(shared: aioacl.SharedLease) -> None:
        with shared:
            await tools.stream.fill(tools.memory, 3)

    async with device.lease(**member.open_options()) as lease, anyio.create_task_group() as group:
        group.start_soon(second, lease.share())
        await device.memory_info()


# --- what fails on purpose -------------------------------------------------------------------------------------------


async def injected(member: Member, device: Device) -> None:
    """Enqueues a task that fails, because a rule fires for fills of that size."""
    async with device.create_stream() as made, device.allocate(INJECTED_BYTES) as target:
        member.expects(TASK_FAILS)
        await made.fill(target, 1)
        raise Wrong("expected the await of a failed task to raise, but it returned")


async def refused(member: Member, device: Device) -> None:
    """Makes an allocation that fails, because a rule fires for allocations of that size."""
    member.expects(OUT_OF_MEMORY)
    async with device.allocate(REFUSED_BYTES):
        raise Wrong("expected an allocation with an injected fault to fail, but it succeeded")


async def reset(member: Member, device: Device) -> None:
    """A force reset, in some cases with almost no grace."""
    grace = member.random.choice((0.0, 0.001, 0.02, 5.0))
    member.check_report(await device.force_reset(grace=grace, reason=f"member {member.name}"))


# --- weights -------------------------------------------------------------------------------------------------------

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
# A wait for the whole device cannot attribute a failure, so all work in progress then raises the failure. A crowd in
# which every failure must be explained therefore has failing tasks or waits for the whole device, not both.
FAILING: Final[dict[Operation, int]] = {**WEIGHTS, injected: 3, refused: 2}
WAITING_FOR_ALL: Final[dict[Operation, int]] = {**WEIGHTS, synchronize: 1, refused: 2}
