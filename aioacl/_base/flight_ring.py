"""The whole content of a flight recorder: of this process, or of a file that a process has left.

A file may be damaged: a crash of the machine may have lost some of its pages, a copy may be cut off, and a process may
have been killed while it wrote a record. So each record is checked by its sequence. Records that fail this check count
as missing. The header of recorder.c has the layout; the counters in it are used only if they fit the records.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from struct import Struct
from typing import Final

from aioacl._base.errors import ParameterError
from aioacl._base.ffi import ffi, lib
from aioacl._base.flight import KINDS, LAYOUT, FlightRecord, decode
from aioacl._base.unique import record

__all__ = ["HEADER_BYTES", "SLOTS", "Ring", "count", "of_file", "of_this_process"]

SLOTS: Final = lib.AIO_FLIGHT_RECORDS
HEADER_BYTES: Final = lib.AIO_FLIGHT_HEADER
_MAGIC: Final = b"aioaclFR"
_HEADER: Final = Struct("<8sIIQqqq")
_COUNTER: Final = Struct("<Q")
_HEAD_AT, _DROPPED_AT = 128, 256
_KIND_AT: Final = 24  # in a record


@record
class Ring:
    """The content of a flight recorder.

    Attributes:
        raw: the records in the layout `LAYOUT`, in the order of their numbers.
        process: the id of the process.
        wall_ns: the time of the system clock (Unix time) at `monotonic_ns`.
        monotonic_ns: a time of the clock of the records.
        written: how many records were begun since the start of the process, or of a trace.
        overwritten: how many of them later records have replaced.
        dropped: how many of them were not written, because another thread was stopped while it wrote.
        missing: how many of the others are missing: dropped, incomplete or damaged.
    """

    raw: bytes
    process: int
    wall_ns: int
    monotonic_ns: int
    written: int
    overwritten: int
    dropped: int
    missing: int

    def records(self) -> list[FlightRecord]:
        """Returns the records, oldest first."""
        return decode(self.raw)

    def summary(self) -> str:
        """Returns in one sentence how many records there are, and how many are not."""
        count = len(self.raw) // LAYOUT.size
        return f"{count} records; {self.overwritten} older ones are overwritten, {self.missing} are missing"


def count() -> int:
    """Returns how many records the process has begun."""
    return lib.aio_flight_count(ffi.new("uint64_t *"))


def of_this_process() -> Ring:
    """Returns the content of the recorder of this process. Calls no ACL function."""
    records = ffi.new("aio_flight_record[]", SLOTS)
    dropped = ffi.new("uint64_t *")
    count = lib.aio_flight_read(-1, records, SLOTS)
    written = lib.aio_flight_count(dropped)
    raw = bytes(ffi.buffer(records, count * LAYOUT.size))
    missing = max(min(written, SLOTS) - count, 0)
    clocks = time.time_ns(), time.monotonic_ns()
    return Ring(raw, os.getpid(), *clocks, written, max(written - SLOTS, 0), dropped[0], missing)


def of_file(path: str | os.PathLike[str]) -> Ring:
    """Returns the content of a file of AIOACL_RECORDER, also while its process is writing to it.

    Raises:
        ParameterError: the file is not one of AIOACL_RECORDER, or of another version of aioacl.
        OSError: the file cannot be read.
    """
    data = Path(path).read_bytes()
    head, dropped, process, wall_ns, monotonic_ns = _header(data, path)
    slots = _whole_slots(data)
    newest = _newest([number for number, _ in slots])
    kept = sorted(slot for slot in slots if newest - SLOTS < slot[0] <= newest)
    raw = b"".join(_COUNTER.pack(number) + data[at + 8 : at + LAYOUT.size] for number, at in kept)
    written = head if newest < head <= newest + SLOTS else newest + 1
    expected = min(written, SLOTS)
    dropped = dropped if dropped <= written else 0
    missing, overwritten = max(expected - len(kept), 0), max(written - SLOTS, 0)
    return Ring(raw, process, wall_ns, monotonic_ns, written, overwritten, dropped, missing)


def _header(data: bytes, path: object) -> tuple[int, int, int, int, int]:
    found = _HEADER.unpack_from(data) if len(data) >= HEADER_BYTES else None
    if found is None or found[0] != _MAGIC:
        raise ParameterError(
            f"expected a file that AIOACL_RECORDER has named, got {str(path)!r}; pass its path"
        )
    if found[1:4] != (lib.AIO_FLIGHT_VERSION, LAYOUT.size, SLOTS):
        raise ParameterError(
            f"expected a file of version {lib.AIO_FLIGHT_VERSION}, got {str(path)!r} with version {found[1]}; "
            "read it with the version of aioacl that made it"
        )
    (head,), (dropped,) = _COUNTER.unpack_from(data, _HEAD_AT), _COUNTER.unpack_from(data, _DROPPED_AT)
    wall_ns, monotonic_ns, process = found[4:]
    return head, dropped, process, wall_ns, monotonic_ns


def _whole_slots(data: bytes) -> list[tuple[int, int]]:
    """Returns the number and the place of each record that was written completely, in the order of the slots."""
    found: list[tuple[int, int]] = []
    last = min(len(data) - LAYOUT.size, HEADER_BYTES + (SLOTS - 1) * LAYOUT.size)
    for slot, at in enumerate(range(HEADER_BYTES, last + 1, LAYOUT.size)):
        (sequence,) = _COUNTER.unpack_from(data, at)
        number = sequence // 2 - 1
        kind = int.from_bytes(data[at + _KIND_AT : at + _KIND_AT + 2], "little")
        if sequence and sequence % 2 == 0 and number % SLOTS == slot and kind in KINDS:
            found.append((number, at))
    return found


def _newest(numbers: list[int]) -> int:
    """Returns the number of the newest record; -1 if there is none.

    The numbers of undamaged records are less than a lap apart, so those that are far from the median are damaged.
    """
    if not numbers:
        return -1
    median = sorted(numbers)[len(numbers) // 2]
    return max(number for number in numbers if number - median < SLOTS)
