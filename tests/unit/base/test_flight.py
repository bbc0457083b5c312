"""The flight recorder: its records as numbers and in words, and its files, whole and damaged."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final

import pytest

from aioacl import ParameterError
from aioacl._base import flight, flight_ring
from aioacl._base.ffi import lib
from aioacl._base.flight import KINDS, LAYOUT, FlightRecord, flight_note, lines
from aioacl._base.flight_ring import HEADER_BYTES, SLOTS

if TYPE_CHECKING:
    from pathlib import Path

DEVICE: Final = 61  # no test opens it
NUMBERS: Final = {name: number for number, name in KINDS.items()}


def made(kind: flight.FlightKind, **fields: int) -> FlightRecord:
    """Returns a record of that kind; a field that is not named is 0."""
    numbers = {"device": 0, "id": 0, "code": 0, "value": 0, "thread": 7, "number": 0, **fields}
    return FlightRecord(kind=kind, at=1.5, **numbers)


# --- records ------------------------------------------------------------------------------------------------------


def test_kinds_have_the_names_of_the_enum_in_c() -> None:
    names = {name for name in dir(lib) if name.startswith("AIO_FLIGHT_")}
    limits = {"RECORDS", "BYTES", "HEADER", "VERSION", "NO_DEVICE"}
    assert {getattr(lib, name): name for name in names if name.removeprefix("AIO_FLIGHT_") not in limits} == {
        number: f"AIO_FLIGHT_{name.upper().replace(' ', '_')}" for number, name in KINDS.items()
    }
    assert LAYOUT.size == lib.AIO_FLIGHT_BYTES


def test_note_of_python_code_comes_back_with_all_fields() -> None:
    flight_note(NUMBERS["item done"], DEVICE, 1 << 40, -3, 1 << 50)
    flight_note(NUMBERS["wake"], -1, 0, 0, 2)
    newest = flight.recent(DEVICE)[-1]
    assert (newest.kind, newest.device, newest.id, newest.code) == ("item done", DEVICE, 1 << 40, -3)
    assert newest.value == (1 << 32) - 1  # the largest value that fits
    assert flight_ring.of_this_process().records()[-1].device == -1


@pytest.mark.parametrize("given", [(1, 2, 3, 4), (1, 2, 3, 4, 5, 6), (1, 2, -3, 4, 5), (1, 2, 3, "4", 5)])
def test_note_with_wrong_arguments_is_refused_and_adds_no_record(given: tuple[int, ...]) -> None:
    before = flight.recent(2)
    with pytest.raises((TypeError, OverflowError)):
        flight_note(*given)
    assert flight.recent(2) == before


def test_recent_returns_at_most_the_count_newest_last() -> None:
    for number in range(300):
        flight_note(NUMBERS["item done"], DEVICE, number, 0, 0)
    assert [each.id for each in flight.recent(DEVICE)] == list(range(44, 300))
    assert [each.id for each in flight.recent(DEVICE, 2)] == [298, 299]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (made("enqueue", id=(3 << 32) | 9, value=0), r"enqueue: acl\w+ on stream 3, position 9"),
        (made("enqueue", id=3 << 32, code=207000), r"no position: 207000 \(ACL_ERROR_\w+\)"),
        (made("copy", id=(1 << 32) | 2, value=64), "copy: 64 bytes on stream 1, position 2"),
        (made("wait ends", id=(1 << 32) | 2, value=31), "wait ends: stream 1, position 2, after 31 us: ok"),
        (made("wait ends", code=lib.AIO_WAS_RESET), "after 0 us: a reset ended it"),
        (made("wait ends", code=lib.AIO_LIMIT - 900), r"refused by aioacl \(-2000000900\)"),
        (made("slow call", code=0, value=1200), r"slow call: acl\w+ took 1200 us"),
        (made("slow call", code=1 << 30), "slow call: function 1073741824 took 0 us"),  # of a damaged file
        (made("failed call", code=507000, value=0), r"failed call: acl\w+: 507000 \(ACL_ERROR_\w+\)"),
        (made("state", id=4, code=1), "state: OPEN, generation 4"),
        (made("state", id=4, code=3, value=lib.AIO_FOREIGN), r"RESETTING \(foreign reset\), generation 4"),
        (made("state", code=99), "state: state 99, generation 0"),
        (made("batch leaves", id=5, code=8, value=120), "batch 5 with 8 rows, after 120 us"),
        (
            made("fault", id=(2 << 32) | 1, code=507011, value=9),
            r"fault: stream 2, position 1 \(in log lines: stream 9\): 507011 \(",
        ),
        (made("fault", id=(2 << 32) | 1, code=507011, value=0xFFFFFFFF), r"stream 2, position 1: 507011 \("),
    ],
)
def test_record_is_shown_in_words(record: FlightRecord, words: str) -> None:
    assert re.fullmatch(rf"1\.500000 s, thread 7: .*{words}.*", str(record))


def test_every_kind_has_words() -> None:
    assert all(str(made(kind)).startswith(f"1.500000 s, thread 7: {kind}") for kind in KINDS.values())


def test_lines_name_the_number_of_records_that_are_left_out() -> None:
    records = [made("wake", value=number) for number in range(5)]
    assert lines(records, 5) == [str(each) for each in records]
    assert lines(records, 2) == ["(3 earlier records)", str(records[3]), str(records[4])]


def test_lines_join_the_items_of_a_batch_that_end_alike() -> None:
    ends = [
        (7, 0, 0, 30),
        (7, 1, 0, 20),
        (7, 2, 0, 10),
        (7, 3, 507011, 10),
        (7, 5, 507011, 10),
        (8, 0, 0, 10),
    ]
    items = [
        made("item done", id=(batch << 32) | place, code=code, value=value)
        for batch, place, code, value in ends
    ]
    shown = lines([made("wake"), *items], 4)
    joined = str(items[0]).replace("item 0 of", "items 0 to 2 of").replace("30 us", "10 to 30 us")
    assert shown[:2] == ["(1 earlier records)", joined]
    assert shown[2:] == [str(each) for each in items[3:]]


# --- files --------------------------------------------------------------------------------------------------------


def file_of(count: int) -> bytearray:
    """Returns the bytes of a file into which a process has written that many records, whose ids are their numbers."""
    data = bytearray(HEADER_BYTES + SLOTS * LAYOUT.size)
    data[:48] = flight_ring._HEADER.pack(b"aioaclFR", 1, LAYOUT.size, SLOTS, 5, 3, 77)
    data[128:136] = count.to_bytes(8, "little")
    for number in range(max(count - SLOTS, 0), count):
        put(data, number)
    return data


def put(data: bytearray, number: int, sequence: int | None = None) -> None:
    """Writes the record with that number; a sequence that is not even is that of an unfinished record."""
    at = HEADER_BYTES + number % SLOTS * LAYOUT.size
    sequence = 2 * number + 2 if sequence is None else sequence
    kind = NUMBERS["item done"]
    data[at : at + LAYOUT.size] = LAYOUT.pack(sequence, number, number, kind, 0, 0, 1, 0)


def read(folder: Path, data: bytes | bytearray) -> flight_ring.Ring:
    path = folder / "flight"
    path.write_bytes(data)
    return flight_ring.of_file(path)


@pytest.mark.parametrize("count", [0, 1, 100, SLOTS, SLOTS + 5, 3 * SLOTS + 7])
def test_file_gives_its_newest_records_in_order(tmp_path: Path, count: int) -> None:
    ring = read(tmp_path, file_of(count))
    assert [each.id for each in ring.records()] == list(range(max(count - SLOTS, 0), count))
    assert (ring.written, ring.missing, ring.overwritten) == (count, 0, max(count - SLOTS, 0))
    assert (ring.process, ring.wall_ns, ring.monotonic_ns) == (77, 5, 3)


def test_record_that_was_not_finished_counts_as_missing(tmp_path: Path) -> None:
    data = file_of(SLOTS + 50)
    put(data, SLOTS + 49, 2 * (SLOTS + 49) + 1)  # the process was killed while it wrote this record
    put(data, 20)  # the record SLOTS + 20 was dropped, and the record of the lap before is still there
    ring = read(tmp_path, data)
    assert {each.id for each in ring.records()} == {*range(50, SLOTS + 49)} - {SLOTS + 20}
    assert (ring.written, ring.missing) == (SLOTS + 50, 2)
    assert ring.summary() == f"{SLOTS - 2} records; 50 older ones are overwritten, 2 are missing"


DAMAGES = range(20)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", DAMAGES)
def test_damaged_file_gives_only_records_that_were_written_and_counts_the_rest(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    count = chance.randrange(200, 3 * SLOTS)
    data = file_of(count)
    for _ in range(chance.randrange(1, 5)):  # pages that never came to the disk, or that contain other bytes
        at = chance.randrange(HEADER_BYTES, len(data) - 4096)
        data[at : at + 4096] = bytes(4096) if chance.random() < 0.5 else chance.randbytes(4096)
    if chance.random() < 0.5:
        data[128:136] = chance.randbytes(8)  # the counter
    if chance.random() < 0.5:
        del data[chance.randrange(len(data) // 2, len(data)) :]
    ring = read(tmp_path, data)
    numbers = [each.number for each in ring.records()]
    assert numbers == sorted(set(numbers))
    assert all(count - SLOTS <= number < count for number in numbers)
    assert ring.missing == min(ring.written, SLOTS) - len(numbers)
    assert ring.written <= count
    assert len(numbers) > 0.4 * min(count, SLOTS)


@pytest.mark.parametrize("data", [b"", b"aioaclFR", bytes(HEADER_BYTES), b"text\n" * 2000])
def test_file_of_another_kind_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ParameterError, match="expected a file that AIOACL_RECORDER has named"):
        read(tmp_path, data)


def test_file_of_another_version_is_refused(tmp_path: Path) -> None:
    data = file_of(1)
    data[8] = 2
    with pytest.raises(ParameterError, match=r"expected a file of version 1, got .* with version 2"):
        read(tmp_path, data)


def test_words_of_work_that_was_never_enqueued_name_no_position() -> None:
    found = str(made("wait ends", id=(3 << 32) | 0xFFFFFFFF, code=507899))
    assert "stream 3, no position, after" in found
