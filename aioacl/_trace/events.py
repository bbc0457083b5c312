"""The events of a trace, which C makes from records of the flight recorder, and the names of tracks and events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioacl._base.ffi import ffi, lib, text_of
from aioacl._base.flight import KINDS, LAYOUT, NO_DEVICE
from aioacl._base.states import State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioacl._base.ffi import CData

STATES: Final = lib.AIO_TRACK_STATES
THREAD: Final = lib.AIO_TRACK_THREAD
COUNTERS: Final = {
    lib.AIO_TRACK_IN_FLIGHT: "awaits in flight",
    lib.AIO_TRACK_WAITING: "calls that wait for a slot",
    lib.AIO_TRACK_ROWS: "rows of a batch",
    lib.AIO_TRACK_UNCERTAINTY: "error of the device times (ns)",
}
_GROUPS: Final = {
    lib.AIO_TRACK_STATES: "states",
    lib.AIO_TRACK_STREAM: "stream {number}",
    lib.AIO_TRACK_DEVICE: "stream {number} on the device",
    lib.AIO_TRACK_AWAITS: "awaits",
    lib.AIO_TRACK_CALLS: "calls of models",
    lib.AIO_TRACK_MODEL: "model {number}",
    lib.AIO_TRACK_BATCHES: "batches",
    lib.AIO_TRACK_ITEMS: "items",
    lib.AIO_TRACK_THREAD: "thread {number}",
    lib.AIO_TRACK_LOADS: "loads",
    **COUNTERS,
}
_OWN_NAMES: Final = {
    lib.AIO_NAME_AWAIT: "await",
    lib.AIO_NAME_CALL: "call",
    lib.AIO_NAME_EXECUTION: "execution",
    lib.AIO_NAME_ITEM: "item",
    lib.AIO_NAME_GENERATION: "generation",
    lib.AIO_NAME_DONE: "done",
}
VALUES: Final = {
    lib.AIO_VALUE_BYTES: "bytes",
    lib.AIO_VALUE_CODE: "code",
    lib.AIO_VALUE_US: "us",
    lib.AIO_VALUE_ROWS: "rows",
    lib.AIO_VALUE_POSITION: "position",
    lib.AIO_VALUE_COMPLETIONS: "completions",
    lib.AIO_VALUE_SLOT: "slot",
    lib.AIO_VALUE_GENERATION: "generation",
    lib.AIO_VALUE_UNFINISHED: "unfinished",
    lib.AIO_VALUE_ERROR_NS: "error in ns",
}


class Track(NamedTuple):
    """A track: a line of the timeline, with slices that do not overlap.

    Attributes:
        kind: what it shows, a value of `enum aio_track_kind`.
        device: the device's index; -1 for a thread, which belongs to no device.
        number: the number of the stream, the model or the thread.
        lane: the number of the line in its group.
    """

    kind: int
    device: int
    number: int
    lane: int

    def name(self, labels: Mapping[int, str]) -> str:
        """Returns the name of its group. `labels` has the names of models by their runtime ids."""
        if self.kind == lib.AIO_TRACK_MODEL and self.number in labels:
            return f"model {labels[self.number]} ({self.number})"
        late = " (begin not recorded, or done at once)"
        more = late if self.kind == lib.AIO_TRACK_AWAITS and self.number else ""
        return _GROUPS[self.kind].format(number=self.number) + more


class Events:
    """The events and the tracks of some records. `raw` has the records in the layout of a Ring.

    Raises:
        MemoryError: there is not enough memory.
    """

    def __init__(self, raw: bytes) -> None:
        trace = lib.aio_trace_new()
        if trace == ffi.NULL:
            raise MemoryError("no memory for a trace")
        self._trace: CData = ffi.gc(trace, lib.aio_trace_free)
        records = ffi.from_buffer("aio_flight_record[]", raw)
        if lib.aio_trace_make(self._trace, records, len(raw) // LAYOUT.size):
            raise MemoryError("no memory for the events of a trace")
        place: Any = ffi.new("int *")
        self.native: Any = lib.aio_trace_events(self._trace, place)
        self.count: int = place[0]
        tracks: Any = lib.aio_trace_tracks(self._trace, place)
        self.tracks = [
            Track(each.kind, -1 if each.device == NO_DEVICE else each.device, each.number, each.lane)
            for each in tracks[0 : place[0]]
        ]


def names() -> dict[int, str]:
    """Returns the names of events by their numbers."""
    functions = {
        lib.AIO_NAME_FUNCTIONS + index: text_of(lib.aio_table_name(index))
        for index in range(lib.aio_table_size())
    }
    states = {lib.AIO_NAME_STATES + state: state.name for state in State}
    kinds = {lib.AIO_NAME_KINDS + number: kind for number, kind in KINDS.items()}
    return {**_OWN_NAMES, **kinds, **states, **functions}
