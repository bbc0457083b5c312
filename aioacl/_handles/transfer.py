"""Uploads and downloads of any size, and the wait for room. At most four chunks of a transfer are in flight."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, SupportsIndex

from aioacl._base import sync
from aioacl._base.errors import ParameterError, QueueFull
from aioacl._base.ffi import InFlight, code_of, lib
from aioacl._handles.operand import CopyOperand, copy_kind, copy_size, operand_of
from aioacl._wait.current import current_port

if TYPE_CHECKING:
    from aioacl._handles.event import Ticket
    from aioacl._handles.stream import Stream
    from aioacl._handles.stream_core import StreamCore

HALF_A_QUEUE: Final = 1023
TURN_SECONDS: Final = 0.0004  # with one more chunk, a turn of the loop stays below a millisecond
STAGED_AT_MOST: Final = 1 << 20


async def pump(
    stream: Stream, target: object, source: object, nbytes: SupportsIndex | None, *, up: bool
) -> None:
    """Copies in chunks, to the device or from it. The buffers count as used until the whole transfer is done."""
    core = stream._live()
    to, of = operand_of(target, stream._manager, writable=True), operand_of(source, stream._manager)
    if to.device is not up or of.device is up:
        raise _wrong_ends(target, source, to, of, up=up)
    size, kind = copy_size(to, of, nbytes), copy_kind(to, of)
    buffers = (to.owner, of.owner) if not (to.pageable or of.pageable) else (to.owner if up else of.owner,)
    # A pageable source needs no reference: this coroutine refers to it, and each enqueue takes the bytes of its chunk.
    reference = InFlight(core, buffers, to.owner)
    try:
        core.hold(reference)
        await _pump_held(stream, core, to, of, size, kind)
    except BaseException:  # some chunks may be in flight
        core.placed(reference)
        raise
    core.forget(reference)


def _wrong_ends(
    target: object, source: object, to: CopyOperand, of: CopyOperand, *, up: bool
) -> ParameterError:
    """The error for a transfer that is not between host and device, or has the wrong direction."""
    name, other = ("upload", "download") if up else ("download", "upload")
    first, second = ("a DeviceBuffer", "host memory") if up else ("host memory", "a DeviceBuffer")
    if to.device and of.device:
        hint = "Use stream.copy(target, source) between two DeviceBuffers."
    elif to.device or of.device:
        hint = f"The target comes first: exchange the two arguments, or call {other}."
    else:
        hint = "The target comes first. Copy host memory to host memory yourself."
    return ParameterError(
        f"{name} expected {first} as target and {second} as source, "
        f"got {type(target).__name__} and {type(source).__name__}",
        hint=hint,
    )


async def _pump_held(
    stream: Stream, core: StreamCore, to: CopyOperand, of: CopyOperand, size: int, kind: int
) -> None:
    tickets: deque[Ticket] = deque()
    turn_began = sync.monotonic()
    for offset in range(0, size, STAGED_AT_MOST):
        if len(tickets) == 4:  # chunks end in order, so the await of the second covers the first
            del tickets[0]
            await tickets.popleft()
        chunk = min(STAGED_AT_MOST, size - offset)
        part = to.part(offset, chunk), of.part(offset, chunk)
        tickets.append(await _chunk(stream, core, *part, chunk, kind))
        # This thread copies the bytes of a pageable source.
        if of.pageable and offset + chunk < size and sync.monotonic() - turn_began > TURN_SECONDS:
            await current_port().next_turn()
            turn_began = sync.monotonic()
    if tickets:
        await tickets[-1]


async def _chunk(
    stream: Stream, core: StreamCore, to: CopyOperand, of: CopyOperand, size: int, kind: int
) -> Ticket:
    waited = False
    while True:
        try:
            if to.pageable or of.pageable:
                return stream._copy_staged(core, to, of, size, ())
            return stream._copy_part(core, to, of, size, kind)
        except QueueFull as full:
            if full.code is not None and waited:
                raise  # the runtime reports that an empty queue is full: another attempt does not help
            waited = full.code is not None
            await (stream._wait(None) if waited else room(stream))


async def room(stream: Stream) -> None:
    """Waits until there is room in the stream's queue and in the staging memory, and no launch block is open."""
    while True:
        core = stream._live()
        if lib.aio_stream_launches(core.handle):
            await _end_of_launch(stream, core)
        elif lib.aio_stream_room(core.handle) < 2:
            await _half_empty(core)
        elif not await _staging(stream):
            return


async def _end_of_launch(stream: Stream, core: StreamCore) -> None:
    """Waits until the launch block of another thread has ended."""
    admission, ended = core.manager.admission, False
    if lib.aio_stream_launches(core.handle) == lib.AIO_LAUNCHING_HERE:
        raise core.refused(lib.AIO_LAUNCHING_HERE, "stream.ready()", stream)

    def announce() -> None:
        nonlocal ended
        with admission.changed:
            ended = True
            admission.announce()

    waits = core.puts_off(announce)
    while waits:
        with admission.changed:
            seen = admission.version
        if ended:
            return
        await admission.change(seen, None)


async def _half_empty(core: StreamCore) -> None:
    position = max(1, lib.aio_stream_tail(core.handle) - HALF_A_QUEUE)
    result = await core.wait(position)
    if result < 0 and (code_of(result) <= lib.AIO_LIMIT or core.stranded):
        raise core.failure(result, position)


async def _staging(stream: Stream) -> bool:
    """Waits for staging memory. Returns True if the function had to wait, False if memory was free at once."""
    manager = stream._manager
    index = manager.index
    if lib.aio_stage_free_slots(index, STAGED_AT_MOST):
        return False
    code = await manager.make(lambda _: lib.aio_stage_grow(index, 1))
    if code == 0:
        return True
    for core in manager.streams.members():
        oldest = core.oldest()
        if oldest and not core.passed(oldest):
            await core.wait(oldest)
            return True
    if lib.aio_stage_free_slots(index, STAGED_AT_MOST):
        return True  # slots were released while this thread requested more
    raise stream._error(code, "aclrtMallocHost")  # no work is in flight that could release a slot
