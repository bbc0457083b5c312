"""The job: tasks copy files to the device, within it and back, while the device is force-reset.

A task copies one piece of a file at a time. If a reset makes the task's handles stale, the task copies the piece again
with new handles, so a reset costs only time. Worker threads read and hash; the event loop only drives the device.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import anyio
import anyio.to_thread

from aioacl._base.errors import AclError, DeviceReset, DeviceResetting, QueueFull, StaleHandleError
from aioacl._handles.transfer import STAGED_AT_MOST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioacl._cli._demo_input import Source
    from aioacl._device import Device
    from aioacl._handles.event import Ticket
    from aioacl._handles.pinned import PinnedBuffer
    from aioacl._handles.stream import Stream

T = TypeVar("T")

WORKER_THREADS: Final = 4
# The share of pieces before each reset, and its grace in seconds. The first reset lets running work end; the second has
# no grace and interrupts it.
RESETS: Final = ((0.4, 5.0), (0.6, 0.0))


@dataclass
class Tally:
    """The counts of the job so far."""

    files: int = 0
    pieces: int = 0
    bytes: int = 0
    mismatches: int = 0
    awaits: int = 0
    stale_refused: int = 0
    resetting_refused: int = 0
    interrupted: int = 0
    resets: int = 0
    at_work: list[int] = field(default_factory=list[int])
    finished: int = 0
    failures: list[str] = field(default_factory=list[str])
    events: list[str] = field(default_factory=list[str])  # resets, for the view
    by_stream: list[int] = field(default_factory=list[int])  # pieces that went through each stream


class Streams:
    """The streams that the tasks share. A stale stream is replaced when a task needs it next."""

    def __init__(self, device: Device, count: int) -> None:
        self._device = device
        self._made: list[Stream | None] = [None] * count
        self._turns = [anyio.Lock() for _ in range(count)]
        self._all = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._all.aclose()

    async def at(self, index: int) -> Stream:
        """Returns a stream by its number; numbers after the last stream wrap around to the first."""
        index %= len(self._made)
        async with self._turns[index]:
            stream = self._made[index]
            if stream is None or stream.stale:
                stream = await self._all.enter_async_context(self._device.create_stream())
                self._made[index] = stream
            return stream


class Kit:
    """The memory of one task, which is used for all pieces of the task until a reset."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._room = 0
        self._all = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.drop()

    async def drop(self) -> None:
        """Closes all buffers; `fit` allocates new ones."""
        self._room = 0
        await self._all.aclose()

    async def fit(self, size: int) -> None:
        """Allocates memory for a piece: of the exact size for a large piece, and of one common size for all others."""
        room = max(size, STAGED_AT_MOST)
        if room != self._room:
            await self.drop()
            self.here = await self._all.enter_async_context(self._device.allocate(room))
            self.there = await self._all.enter_async_context(self._device.allocate(room))
            self.pinned = await self._all.enter_async_context(self._device.pinned(STAGED_AT_MOST))
            self._room = room


class Job:
    """Moves all files, each in one task."""

    def __init__(
        self,
        device: Device,
        files: tuple[Source, ...],
        tasks: int,
        streams: int,
        resets: tuple[tuple[float, float], ...] = RESETS,
    ) -> None:
        self.tally = Tally(by_stream=[0] * streams)
        self.files = len(files)
        self.pieces = sum(len(file.offsets()) for file in files)
        self._device = device
        self._left = iter(files)
        self._tasks = tasks
        self._resets = resets
        self._streams = Streams(device, streams)
        self._threads = anyio.CapacityLimiter(WORKER_THREADS)
        self._at_work = 0
        self._over = False
        self._marks: list[tuple[int, anyio.Event]] = []

    async def run(self) -> None:
        """Moves all files, while the device is force-reset."""
        async with self._streams, anyio.create_task_group() as group:
            group.start_soon(self._reset)
            for number in range(self._tasks):
                group.start_soon(self._work, number)

    # --- resets ----------------------------------------------------------------------------------------------

    async def _reset(self) -> None:
        for share, grace in self._resets:
            await self._reached(int(self.pieces * share))
            self.tally.at_work.append(self._at_work)
            name = f"reset {len(self.tally.at_work)} of {len(self._resets)}"
            self.tally.events.append(
                f"{name}: started with {self._at_work} tasks running; {_patience(grace)}"
            )
            begun = time.monotonic()
            report = await self._device.force_reset(grace=grace, reason="the demo")
            self.tally.resets += report.ok
            spent = (time.monotonic() - begun) * 1000
            self.tally.events.append(f"{name}: {'done' if report.ok else 'failed'} after {spent:.0f} ms")
            if not report.ok:
                self.tally.failures.append(report.summary())

    async def _reached(self, pieces: int) -> None:
        mark = anyio.Event()
        self._marks.append((pieces, mark))
        self._look_at_marks()
        await mark.wait()

    def _look_at_marks(self) -> None:
        """Sets the marks that are reached. After the last task, sets all marks, because failed tasks add no pieces."""
        for pieces, mark in self._marks:
            if pieces <= self.tally.pieces or self._over:
                mark.set()

    # --- tasks -----------------------------------------------------------------------------------------------

    async def _work(self, number: int) -> None:
        self._at_work += 1
        try:
            async with Kit(self._device) as kit:
                for turn, file in enumerate(self._left, start=number):
                    await self._carry(file, kit, turn)
            self.tally.finished += 1
        except AclError as error:
            self.tally.failures.append(f"task {number}: {error}")
        finally:
            self._at_work -= 1
            self._over = self._at_work == 0
            self._look_at_marks()

    async def _carry(self, file: Source, kit: Kit, turn: int) -> None:
        same = True
        for offset in file.offsets():
            data, digest = await self._off_loop(file.read, offset)
            back = await self._there_and_back(data, kit, turn)
            same &= await self._off_loop(_digest, back) == digest
            self.tally.bytes += len(data)
            self.tally.pieces += 1
            self._look_at_marks()
        self.tally.mismatches += not same
        self.tally.files += 1

    async def _off_loop(self, work: Callable[..., T], *arguments: Any) -> T:
        return await anyio.to_thread.run_sync(work, *arguments, limiter=self._threads)

    # --- one piece --------------------------------------------------------------------------------

    async def _there_and_back(self, data: bytes, kit: Kit, turn: int) -> bytearray:
        """Copies a piece to the device and back; starts again after a reset. Returns the bytes from the device."""
        while True:
            try:
                return await self._try(data, kit, turn)
            except DeviceReset:
                self.tally.interrupted += 1
            except StaleHandleError:
                self.tally.stale_refused += 1
            except DeviceResetting:
                self.tally.resetting_refused += 1
            await kit.drop()

    async def _try(self, data: bytes, kit: Kit, turn: int) -> bytearray:
        first, second = await self._streams.at(turn), await self._streams.at(turn + 1)
        back, size = bytearray(len(data)), len(data)
        await kit.fit(size)
        await self._up(first, kit, data, turn)
        moved = await self._enqueue(first, lambda: first.copy(kit.there, kit.here, nbytes=size))
        # The download waits on the device for the copy between the buffers, so the task does not wait for that copy.
        _ = second.wait_event(first.record())
        if size > STAGED_AT_MOST:
            await self._count(second.download(back, kit.there))
        else:
            downloaded = await self._enqueue(second, lambda: second.copy(back, kit.there, nbytes=size))
            await self._arrive(second, downloaded, turn + 1)
        await self._arrive(first, moved, turn + 2)
        for used in (turn, turn + 1):
            self.tally.by_stream[used % len(self.tally.by_stream)] += 1
        return back

    async def _up(self, stream: Stream, kit: Kit, data: bytes, turn: int) -> None:
        """Uploads a large piece in chunks. Copies smaller pieces from pinned and from pageable memory, in turns."""
        if len(data) > STAGED_AT_MOST:
            await self._count(stream.upload(kit.here, data))
            return
        source: bytes | PinnedBuffer = data
        if turn % 2:
            await self._off_loop(_fill, kit.pinned, data)
            source = kit.pinned
        ticket = await self._enqueue(stream, lambda: stream.copy(kit.here, source, nbytes=len(data)))
        await self._arrive(stream, ticket, turn)

    async def _enqueue(self, stream: Stream, enqueue: Callable[[], Ticket]) -> Ticket:
        while True:
            try:
                return enqueue()
            except QueueFull:
                await self._count(stream.ready())

    async def _arrive(self, stream: Stream, ticket: Ticket, turn: int) -> None:
        """Awaits the ticket, an event or the stream, in turns."""
        match turn % 3:
            case 0:
                await self._count(ticket)
            case 1:
                await self._count(stream.record())
            case _:
                await self._count(stream)

    async def _count(self, awaitable: Awaitable[None]) -> None:
        self.tally.awaits += 1
        await awaitable


def _patience(grace: float) -> str:
    return f"it waits at most {grace:g} s for running work" if grace else "it does not wait for running work"


def _digest(data: bytearray) -> bytes:
    return hashlib.sha256(data).digest()


def _fill(pinned: PinnedBuffer, data: bytes) -> None:
    pinned.view[: len(data)] = data
