"""A trace in Perfetto's format, which https://ui.perfetto.dev shows.

The format is protobuf: a Trace is a list of packets. C writes the packets of the events (perfetto.c); this module
writes the packets before them: the clocks, the names, and the tracks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aioacl._base.ffi import ffi, lib
from aioacl._trace.events import COUNTERS, STATES, VALUES, Events, names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aioacl._base.flight_ring import Ring

    Field = tuple[int, "int | bytes | str"]

REALTIME, MONOTONIC = 1, 3  # BuiltinClock
CLEARED, NEEDS_STATE = 1, 2  # SequenceFlags
INSTANT: Final = 3  # TrackEvent.Type
MISSING: Final = 1 << 20  # the name of the event that says what is missing
PROCESS_TRACK: Final = 0  # before the tracks of the events
FIRST_TRACK: Final = 1 << 12  # tracks of groups are between these
EVENT_BYTES: Final = 80  # most events take less; the encoder says if they take more


# --- protobuf -----------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """Returns a number in groups of 7 bits, the lowest first."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(*fields: Field) -> bytes:
    """Returns a message with these fields. Numbers are varints; bytes and texts have their length before them."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            data = value.encode("utf-8", "replace") if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(data)) + data
    return bytes(out)


def _packet(*fields: Field) -> bytes:
    return message((1, message(*fields)))


# --- the trace ----------------------------------------------------------------------------------------------------


def encode(ring: Ring, labels: Mapping[int, str] | None = None) -> bytes:
    """Returns the trace of the records. `labels` has the names of models by their runtime ids.

    Raises:
        MemoryError: there is not enough memory.
    """
    events = Events(ring.raw)
    sequence = (ring.process & 0x3FFF) + 1
    first = (ring.process & 0xFFFFFF) << 24  # the uuids of tracks are those of all processes of a trace
    head = b"".join(_head(ring, events, labels or {}, sequence, first))
    return head + _body(events, first + FIRST_TRACK, sequence)


def _body(events: Events, first: int, sequence: int) -> bytes:
    size = events.count * EVENT_BYTES
    while True:
        out = bytearray(size)
        place: Any = ffi.from_buffer("uint8_t[]", out)
        used = lib.aio_trace_encode(events.native, events.count, first, sequence, place, size)
        if used <= size:
            return bytes(memoryview(out)[:used])
        size = used


def _head(
    ring: Ring, events: Events, labels: Mapping[int, str], sequence: int, first: int
) -> Iterator[bytes]:
    """Yields the packets before the events."""
    clocks = ((1, message((1, clock), (2, at))) for clock, at in _clocks(ring))
    yield _packet((6, message(*clocks, (2, MONOTONIC))), (10, sequence))
    interned = [
        *((2, message((1, number), (2, name))) for number, name in names().items()),
        (2, message((1, MISSING), (2, ring.summary()))),
        *((3, message((1, number), (2, name))) for number, name in VALUES.items()),
    ]
    defaults = message((58, MONOTONIC))
    yield _packet((10, sequence), (13, CLEARED), (59, defaults), (12, message(*interned)))
    yield _track((1, first), (3, message((1, ring.process), (6, f"aioacl {ring.process}"))))
    yield from _tracks(events, labels, first)
    if ring.missing or ring.overwritten:
        event = message((9, INSTANT), (11, first), (10, MISSING))
        at = int.from_bytes(ring.raw[8:16], "little") if ring.raw else ring.monotonic_ns
        yield _packet((8, at), (10, sequence), (13, NEEDS_STATE), (11, event))


def _clocks(ring: Ring) -> tuple[tuple[int, int], ...]:
    return (MONOTONIC, ring.monotonic_ns), (REALTIME, ring.wall_ns)


def _track(*fields: Field) -> bytes:
    return _packet((60, message(*fields)))


def _tracks(events: Events, labels: Mapping[int, str], first: int) -> Iterator[bytes]:
    """Yields the descriptions of the tracks: a track for each device, below it those of what it does."""
    devices: dict[int, int] = {}
    for place, track in enumerate(events.tracks):
        parent = first
        if track.device >= 0:
            if track.device not in devices:
                devices[track.device] = first + 1 + len(devices)
                yield _track((1, devices[track.device]), (2, f"device {track.device}"), (5, first))
            parent = devices[track.device]
        name = track.name(labels)
        counter: list[Field] = [(8, b"")] if track.kind in COUNTERS else []
        order: list[Field] = [(12, -1)] if track.kind == STATES else []  # sibling_order_rank: first
        yield _track((1, first + FIRST_TRACK + place), (2, name), (5, parent), *counter, *order)
