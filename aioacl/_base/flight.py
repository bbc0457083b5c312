"""The records of the flight recorder, in words and as numbers; the ring itself is in C (recorder.c).

The recorder is always on. It has the last 65,536 records of the process: what was enqueued, what waited, what took
long, what failed, and each state of each device. A record has numbers only, so it contains no text of a user or of the
runtime.
"""

from __future__ import annotations

import errno
import os
from struct import Struct
from typing import TYPE_CHECKING, Final, Literal

from aioacl._base.codes import lookup
from aioacl._base.ffi import ffi, flight_batch, flight_items, flight_note, lib, name_of_function
from aioacl._base.states import State
from aioacl._base.unique import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "EVERY_DEVICE",
    "FAILED",
    "KINDS",
    "RECENT",
    "FlightKind",
    "FlightRecord",
    "decode",
    "flight_batch",
    "flight_items",
    "flight_note",
    "lines",
    "models",
    "name_model",
    "open_file",
    "recent",
]

NOWHERE: Final = 0xFFFFFFFF  # in place of the position of what was never enqueued, and of an unknown stream
RECENT: Final = 256
EVERY_DEVICE: Final = -1
MODELS_KEPT: Final = 4096
FAILED: Final = 1  # the code of a failure that has no code of ACL
NO_DEVICE: Final = 0xFFFF
LAYOUT: Final = Struct("<QqQHHiiI")  # a record, as aio_flight_read returns it, and as it is in a file

FlightKind = Literal[
    "enqueue",
    "copy",
    "execution begins",
    "execution ends",
    "wait begins",
    "wait ends",
    "no wait",
    "wake",
    "slow call",
    "slot wanted",
    "slot taken",
    "slot given",
    "batch leaves",
    "item done",
    "fault",
    "state",
    "load",
    "slot refused",
    "failed call",
    "batch fails",
    "item gone",
]

KINDS: Final[dict[int, FlightKind]] = {
    lib.AIO_FLIGHT_ENQUEUE: "enqueue",
    lib.AIO_FLIGHT_COPY: "copy",
    lib.AIO_FLIGHT_EXECUTION_BEGINS: "execution begins",
    lib.AIO_FLIGHT_EXECUTION_ENDS: "execution ends",
    lib.AIO_FLIGHT_WAIT_BEGINS: "wait begins",
    lib.AIO_FLIGHT_WAIT_ENDS: "wait ends",
    lib.AIO_FLIGHT_NO_WAIT: "no wait",
    lib.AIO_FLIGHT_WAKE: "wake",
    lib.AIO_FLIGHT_SLOW_CALL: "slow call",
    lib.AIO_FLIGHT_SLOT_WANTED: "slot wanted",
    lib.AIO_FLIGHT_SLOT_TAKEN: "slot taken",
    lib.AIO_FLIGHT_SLOT_GIVEN: "slot given",
    lib.AIO_FLIGHT_BATCH_LEAVES: "batch leaves",
    lib.AIO_FLIGHT_ITEM_DONE: "item done",
    lib.AIO_FLIGHT_FAULT: "fault",
    lib.AIO_FLIGHT_STATE: "state",
    lib.AIO_FLIGHT_LOAD: "load",
    lib.AIO_FLIGHT_SLOT_REFUSED: "slot refused",
    lib.AIO_FLIGHT_FAILED_CALL: "failed call",
    lib.AIO_FLIGHT_BATCH_FAILS: "batch fails",
    lib.AIO_FLIGHT_ITEM_GONE: "item gone",
}


@record
class FlightRecord:
    """One record of the flight recorder, from `device.recent()` or `ResetReport.recent`.

    `print(record)` shows it in words. It contains numbers only, and no text of the program or of the runtime.

    Attributes:
        kind: what has happened, one of the strings of `FlightKind`. The page "Records" of the reference has a table of
            the kinds, and of what `id`, `code` and `value` are for each of them.
        at: the time, in seconds of `time.monotonic()`.
        device: the device's index; -1 for the wake of an event loop, which belongs to no device.
        id: the number of what the record is about, never an address. Records about the same entry of a stream, the
            same call of a model, the same batch or the same item have the same id.
        code: 0, or the code of a failure, or a small number that belongs to the kind.
        value: a number that belongs to the kind, such as microseconds or bytes; at most 2^32 - 1.
        thread: the id of the thread in the operating system.
        number: the place of the record among all records of the process, from 0. A gap shows that records are missing.
    """

    kind: FlightKind
    at: float
    device: int
    id: int
    code: int
    value: int
    thread: int
    number: int

    @property
    def stream(self) -> int:
        """The number of the stream, from 1 on each device, for a record about an entry of a stream."""
        return self.id >> 32

    @property
    def position(self) -> int:
        """The position of the entry in the stream's queue, for a record about an entry of a stream."""
        return self.id & NOWHERE

    def __str__(self) -> str:
        return f"{self.at:.6f} s, thread {self.thread}: {_WORDS[self.kind](self)}"


# --- words --------------------------------------------------------------------------------------------------------

_REFUSALS: Final[dict[int, str]] = {
    lib.AIO_STALE: "the handle is stale",
    lib.AIO_RESETTING_NOW: "a reset is running",
    lib.AIO_DRAINING_NOW: "the device is draining",
    lib.AIO_QUARANTINE: "the device is quarantined",
    lib.AIO_NOT_OPEN: "the device is not open",
    lib.AIO_WAS_RESET: "a reset ended it",
    lib.AIO_STREAM_FAILED: "the stream has failed",
    lib.AIO_EVENT_FAILED: "work before the event has failed",
    lib.AIO_REPORTS_LOST: "reports of failed tasks were lost",
    lib.AIO_NO_MEMORY: "no memory",
    lib.AIO_NO_THREAD: "no thread could be started",
}


def _outcome(code: int) -> str:
    if code in (0, FAILED):
        return "failed" if code else "ok"
    if code <= lib.AIO_LIMIT:
        return _REFUSALS.get(code, f"refused by aioacl ({code})")
    return f"{code} ({lookup(code).name})"


def _entry(record: FlightRecord) -> str:
    """Names the entry of a stream. What was never enqueued has 0 or the last number in place of a position."""
    where = "no position" if record.position in (0, NOWHERE) else f"position {record.position}"
    return f"stream {record.stream}, {where}"


def _fault(record: FlightRecord) -> str:
    """Names the failed entry, and the stream as log lines do: by the runtime's number."""
    runtime = "" if record.value == NOWHERE else f" (in log lines: stream {record.value})"
    return f"fault: {_entry(record)}{runtime}: {_outcome(record.code)}"


def _failed(record: FlightRecord) -> str:
    return f": {_outcome(record.code)}" if record.code else ""


def _state(record: FlightRecord) -> str:
    name = State(record.code).name if record.code in set(State) else f"state {record.code}"
    why = " (foreign reset)" if record.value & lib.AIO_FOREIGN else ""
    return f"{name}{why}, generation {record.id}"


_WORDS: Final[dict[FlightKind, Callable[[FlightRecord], str]]] = {
    "enqueue": lambda r: f"enqueue: {name_of_function(r.value)} on {_entry(r)}{_failed(r)}",
    "copy": lambda r: f"copy: {r.value} bytes on {_entry(r)}{_failed(r)}",
    "execution begins": lambda r: f"execution begins: model {r.value} on {_entry(r)}",
    "execution ends": lambda r: f"execution ends: {_entry(r)}",
    "wait begins": lambda r: f"wait begins: {_entry(r)}",
    "wait ends": lambda r: f"wait ends: {_entry(r)}, after {r.value} us: {_outcome(r.code)}",
    "no wait": lambda r: f"no wait: {_entry(r)} was done already: {_outcome(r.code)}",
    "wake": lambda r: f"wake: an event loop took {r.value} completions",
    "slow call": lambda r: f"slow call: {name_of_function(r.code)} took {r.value} us",
    "failed call": lambda r: f"failed call: {name_of_function(r.value)}: {_outcome(r.code)}",
    "slot wanted": lambda r: f"slot wanted: call {r.id} waits, {r.value} calls wait",
    "slot taken": lambda r: f"slot taken: call {r.id} has slot {r.code}, stream {r.value}",
    "slot given": lambda r: f"slot given: call {r.id} has left slot {r.code}, stream {r.value}",
    "slot refused": lambda r: (
        f"slot refused: call {r.id} waits no more: {_outcome(r.code) if r.code else 'its caller has gone'}"
    ),
    "batch leaves": lambda r: f"batch leaves: batch {r.id} with {r.code} rows, after {r.value} us",
    "batch fails": lambda r: (
        f"batch fails: batch {r.id}: {_outcome(r.code)}; {r.value} items wait to run again"
    ),
    "item gone": lambda r: (
        f"item gone: {'its time is over' if r.code else 'its caller has gone'} after {r.value} us, "
        f"{'while it ran or waited to run again' if r.id else 'before it ran'}"
    ),
    "item done": lambda r: (
        f"item done: item {r.position} of batch {r.stream}, after {r.value} us: {_outcome(r.code)}"
    ),
    "fault": _fault,
    "state": lambda r: f"state: {_state(r)}",
    "load": lambda r: f"load: model {r.id}, after {r.value} us: {_outcome(r.code)}",
}


_models: Final[dict[int, str]] = {}


def name_model(instance: int, name: str) -> None:
    """Keeps the name of a model under its runtime id, for traces. The oldest names are dropped."""
    _models.pop(instance, None)
    _models[instance] = name
    while len(_models) > MODELS_KEPT:
        _models.pop(next(iter(_models), instance), None)


def models() -> dict[int, str]:
    """Returns the names of the models that were loaded last, by their runtime ids."""
    return dict(_models)


def lines(records: Iterable[FlightRecord], at_most: int) -> list[str]:
    """Returns the last records in words, after a line with the number of those that are left out.

    Neighbouring items of a batch with the same outcome share a line. Otherwise a large batch hides earlier records.
    """
    runs: list[list[FlightRecord]] = []
    for each in records:
        if runs and _continues(runs[-1][-1], each):
            runs[-1].append(each)
        else:
            runs.append([each])
    left = sum(map(len, runs[: max(len(runs) - at_most, 0)]))
    shown = [str(run[0]) if len(run) == 1 else _items(run) for run in runs[-at_most:]]
    return [f"({left} earlier records)", *shown] if left else shown


def _continues(before: FlightRecord, record: FlightRecord) -> bool:
    """Whether both are ends of items, and `record` is the next item of the same batch with the same outcome."""
    alike = before.kind == record.kind == "item done" and before.id + 1 == record.id
    return alike and (before.thread, before.code) == (record.thread, record.code)


def _items(run: list[FlightRecord]) -> str:
    first, last, times = run[0], run[-1], [each.value for each in run]
    place = f"items {first.position} to {last.position} of batch {first.stream}"
    took = f"after {min(times)} to {max(times)} us: {_outcome(first.code)}"
    return f"{first.at:.6f} s, thread {first.thread}: item done: {place}, {took}"


# --- reading ------------------------------------------------------------------------------------------------------


def decode(raw: bytes) -> list[FlightRecord]:
    """Returns the records in bytes of the layout of a record. Records of an unknown kind are left out."""
    return [
        FlightRecord(kind, ns / 1e9, -1 if device == NO_DEVICE else device, id_, code, value, thread, number)
        for number, ns, id_, number_of_kind, device, code, thread, value in LAYOUT.iter_unpack(raw)
        if (kind := KINDS.get(number_of_kind)) is not None
    ]


def recent(device: int, count: int = RECENT) -> tuple[FlightRecord, ...]:
    """Returns the newest records of the device, or of EVERY_DEVICE, at most `count`, newest last.

    Calls no ACL function.
    """
    records = ffi.new("aio_flight_record[]", count)
    found = lib.aio_flight_read(device, records, count)
    return tuple(decode(bytes(ffi.buffer(records, found * LAYOUT.size))))


def open_file(path: str) -> None:
    """Puts later records into a new file at the path, in which "{pid}" stands for the id of the process.

    A second call has no effect.

    Raises:
        OSError: the file cannot be made, for example because it exists.
    """
    name = path.replace("{pid}", str(os.getpid()))
    code = lib.aio_flight_open(os.fsencode(name))
    if code not in (0, errno.EALREADY):
        raise OSError(code, os.strerror(code), name)
