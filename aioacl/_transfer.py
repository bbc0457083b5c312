"""Copies of pageable memory of any size: chunk by chunk, at most four of them under way."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from aioacl._core import Kept, StreamCore
from aioacl._errors import ParameterError, QueueFull
from aioacl._place import Place, copy_kind, copy_size, place_of

if TYPE_CHECKING:
    from aioacl._event import Ticket
    from aioacl._stream import Stream

STAGED_AT_MOST: Final = 1 << 20


async def pump(stream: Stream, target: object, source: object, *, up: bool) -> None:
    """Copies chunk by chunk, to the device or from it. The buffers are in use from the start to the end."""
    stream._check()
    to, of = place_of(target, stream._manager, writable=True), place_of(source, stream._manager)
    if not (to if up else of).device or (of if up else to).device:
        raise ParameterError(
            f"{'upload' if up else 'download'} goes {'to' if up else 'from'} a DeviceBuffer, and the other "
            "end is host memory",
            hint="The target comes first, as in copy(target, source).",
        )
    size, kind = copy_size(to, of, None), copy_kind(to, of)
    buffers = (to.owner, of.owner) if not (to.pageable or of.pageable) else (to.owner if up else of.owner,)
    core = stream._core
    kept = Kept(core, buffers, (to.owner, of.owner))
    try:
        core.hold(kept)
        await _pump_held(stream, core, to, of, size, kind)
    except BaseException:  # some chunks may be under way
        core.placed(kept)
        raise
    core.forget(kept)


async def _pump_held(stream: Stream, core: StreamCore, to: Place, of: Place, size: int, kind: int) -> None:
    tickets: deque[Ticket] = deque()
    for offset in range(0, size, STAGED_AT_MOST):
        if len(tickets) == 4:
            await tickets.popleft()
        chunk = min(STAGED_AT_MOST, size - offset)
        part = to.part(offset, chunk), of.part(offset, chunk)
        tickets.append(await _chunk(stream, core, *part, chunk, kind))
    while tickets:
        await tickets.popleft()


async def _chunk(stream: Stream, core: StreamCore, to: Place, of: Place, size: int, kind: int) -> Ticket:
    waited = False
    while True:
        try:
            if to.pageable or of.pageable:
                return stream._copy_staged(core, to, of, size, ())
            return stream._copy_directly(core, to, of, size, kind, ())
        except QueueFull as full:
            if full.code is not None and waited:
                raise  # what the runtime calls full with nothing in it will not have room either
            waited = full.code is not None
            await (stream._wait(None) if waited else stream._ready())
