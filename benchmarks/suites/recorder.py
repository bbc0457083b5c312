"""Records of the flight recorder beside writes to a bare ring, and the encoding of a trace beside JSON.

A write to the bare ring reads the clock and increments a counter too, but no reader could tell whether a record is
complete. JSON is what `python -m aioacl trace --json` prints: an object for each record.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import tempfile
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import flight, flight_ring
from aioacl._base.ffi import ffi, lib, pointer
from aioacl._cli.trace import as_json
from aioacl._trace import perfetto
from benchmarks.harness import Sample, Session, Suite, timed, walls
from benchmarks.rows import Row, Spread, ratio_row

if TYPE_CHECKING:
    from collections.abc import Callable

NAME: Final = "recorder"
REPEATS: Final = 15
RECORDS: Final = 1_000_000  # of a repeat
QUICK_RECORDS: Final = 100_000
BARE: Final = "bare ring write"
SOURCE: Final = Path(__file__).resolve().parents[1] / "recorder_bare.c"


def build(folder: Path) -> ctypes.CDLL:
    """Compiles the bare ring, and loads it."""
    library = folder / "bare.so"
    command = [os.environ.get("CC", "gcc"), "-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared"]
    subprocess.run([*command, str(SOURCE), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def records(bare: ctypes.CDLL, count: int) -> dict[str, Callable[[], Sample]]:
    """Returns the ways to write a record."""
    native: Any = ffi
    address = ctypes.c_void_p(pointer(native.addressof(lib, "aio_flight_note")))
    number = ctypes.c_long(count)

    def of_bare() -> Sample:
        with timed() as timer:
            bare.repeat_bare(number)
        return timer.sample(count)

    def of_c() -> Sample:
        with timed() as timer:
            bare.repeat_note(address, number)
        return timer.sample(count)

    def of_python() -> Sample:
        note = flight.flight_note
        with timed() as timer:
            for _ in repeat(None, count):
                note(14, 0, 1, 0, 1)
        return timer.sample(count)

    return {BARE: of_bare, "record in C": of_c, "record from Python": of_python}


def a_full_ring() -> flight_ring.Ring:
    """Returns a full ring, with the records of awaits and of calls of models."""
    kinds = {name: number for number, name in flight.KINDS.items()}
    for number in range(flight_ring.SLOTS // 8):
        entry = (1 + number % 4) << 32 | number
        flight.flight_note(kinds["copy"], 0, entry, 0, 4096)
        flight.flight_note(kinds["wait begins"], 0, entry, 0, 0)
        flight.flight_note(kinds["slot taken"], 0, number, 0, 1 + number % 4)
        flight.flight_note(kinds["execution begins"], 0, entry + 1, 0, 1)
        flight.flight_note(kinds["execution ends"], 0, entry + 1, 0, 0)
        flight.flight_note(kinds["wait ends"], 0, entry, 0, 100)
        flight.flight_note(kinds["wake"], -1, 0, 0, 1)
        flight.flight_note(kinds["slot given"], 0, number, 0, 1 + number % 4)
    return flight_ring.of_this_process()


def encodings(ring: flight_ring.Ring) -> dict[str, Callable[[], Sample]]:
    """Returns the ways to encode all records."""
    listed = as_json(ring, ring.records())

    def of_trace() -> Sample:
        with timed() as timer:
            perfetto.encode(ring)
        return timer.sample(1)

    def of_json() -> Sample:
        with timed() as timer:
            json.dumps(listed)
        return timer.sample(1)

    return {"encoding of a trace": of_trace, "json.dumps": of_json}


def run(session: Session) -> list[Row]:
    """Measures records and encodings."""
    repeats = session.repeats(REPEATS)
    session.plan(2 * repeats)
    with tempfile.TemporaryDirectory() as folder:
        bare = build(Path(folder))
        count = QUICK_RECORDS if session.quick else RECORDS
        written = session.interleave(records(bare, count), repeats, "records")
    encoded = session.interleave(encodings(a_full_ring()), repeats, "encodings")
    own = [
        *(
            Row(NAME, name, "", "ns", Spread.of(wall * 1e9 for wall in walls(it)))
            for name, it in written.items()
        ),
        *(
            Row(NAME, name, "", "ms", Spread.of(wall * 1e3 for wall in walls(it)))
            for name, it in encoded.items()
        ),
    ]
    trace, dumps = encoded.items()
    ratios = [
        ratio_row(NAME, name, BARE, walls(it), walls(written[BARE]))
        for name, it in written.items()
        if name != BARE
    ]
    return [*own, *ratios, ratio_row(NAME, trace[0], dumps[0], walls(trace[1]), walls(dumps[1]))]


SUITE: Final = Suite(NAME, "records of the flight recorder, and the encoding of a trace", run)
