"""`aioacl.trace()`: the file for Perfetto, decoded with Perfetto's own protos, and the page for a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
import stat
from collections import Counter, defaultdict
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import pytest

import aioacl
from aioacl import _digits, simulator
from aioacl._base import flight, flight_ring
from aioacl._base.ffi import lib, name_of_function
from aioacl._trace import page, perfetto, recording
from tests.kit import FAULT, Waiting, equipped, failing_fill, held_fill, raises, until
from tests.unit.base.test_flight import NUMBERS, file_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kit import OpenDevice

anyio_test = pytest.mark.anyio
protos: Any = import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
HOSTILE = "</script><img src=x onerror=alert(1)> \"' <!-- &"


class Event(NamedTuple):
    """A decoded event: its track by name, and its names instead of their numbers."""

    type: int
    at: int
    track: int
    name: str
    flows: frozenset[int]
    values: dict[str, int]


class Decoded:
    """A decoded trace."""

    def __init__(self, raw: bytes) -> None:
        trace = protos.Trace()
        trace.ParseFromString(raw)
        packets = list(trace.packet)
        self.tracks = {
            each.track_descriptor.uuid: each.track_descriptor
            for each in packets
            if each.HasField("track_descriptor")
        }
        [state] = [each for each in packets if each.HasField("interned_data")]
        names = {each.iid: each.name for each in state.interned_data.event_names}
        keys = {each.iid: each.name for each in state.interned_data.debug_annotation_names}
        assert state.trace_packet_defaults.timestamp_clock_id == perfetto.MONOTONIC
        self.clocks = [each.clock_snapshot for each in packets if each.HasField("clock_snapshot")]
        self.events = sorted(
            (
                Event(
                    each.track_event.type,
                    each.timestamp,
                    each.track_event.track_uuid,
                    names[each.track_event.name_iid] if each.track_event.name_iid else "",
                    frozenset(each.track_event.flow_ids),
                    {keys[it.name_iid]: it.int_value for it in each.track_event.debug_annotations},
                )
                for each in packets
                if each.HasField("track_event")
            ),
            key=lambda event: event.at,
        )

    def slices(self) -> list[tuple[Event, Event]]:
        """Pairs begins and ends. Fails if slices of one track overlap, or if one has no begin or no end."""
        found: list[tuple[Event, Event]] = []
        open_ones: defaultdict[int, list[Event]] = defaultdict(list)
        for event in self.events:
            if event.type == BEGIN:
                open_ones[event.track].append(event)
            elif event.type == END:
                assert open_ones[event.track], (event, self.tracks[event.track].name)
                found.append((open_ones[event.track].pop(), event))
        assert {track: events for track, events in open_ones.items() if events} == {}
        return found

    def named(self, name: str) -> list[tuple[Event, Event]]:
        return [pair for pair in self.slices() if pair[0].name == name]

    def arrows(self) -> tuple[list[Event], list[Event]]:
        """Returns the awaits that waited: those with an arrow from the enqueue, and those without any arrow.

        An await of a stream may be one for a mark, which has no record. It still has an arrow to its end.
        """
        chains: defaultdict[int, list[str]] = defaultdict(list)
        for event in self.events:
            for flow in event.flows:
                chains[flow].append(event.name)
        waited = [
            begin for begin, _ in self.named("await") if "done at once" not in self.tracks[begin.track].name
        ]
        names = [{*chains[flow]} - {"await", "done", "wake"} for each in waited for flow in each.flows]
        alone = [each for each in waited if not any("done" in chains[flow] for flow in each.flows)]
        return [each for each, kinds in zip(waited, names, strict=True) if kinds], alone

    def track_names(self) -> Counter[str]:
        return Counter(track.name for track in self.tracks.values())


def decoded(ring: flight_ring.Ring) -> Decoded:
    return Decoded(perfetto.encode(ring))


def ring_of(*records: tuple[Any, ...], written: int | None = None, missing: int = 0) -> flight_ring.Ring:
    """Returns a ring of records (kind, us, fields), whose other fields are 0."""
    raw = b"".join(
        flight.LAYOUT.pack(
            number,
            us * 1000,
            fields.get("id", 0),
            NUMBERS[kind],
            fields.get("device", 0),
            fields.get("code", 0),
            fields.get("thread", 1),
            fields.get("value", 0),
        )
        for number, (kind, us, fields) in enumerate(records)
    )
    count = len(records) if written is None else written
    return flight_ring.Ring(raw, 77, 10, 5, count, 0, 0, missing)


async def work(open_device: OpenDevice) -> None:
    """Uses a device in all ways that have records."""
    x = _digits.inputs(_digits.digits().images[0])
    async with equipped(open_device) as (device, stream, memory):
        async with anyio.create_task_group() as group:
            for _ in range(4):
                ticket = stream.fill(memory, 1)
                Waiting(group, lambda ticket=ticket: ticket)  # type: ignore[misc]  # the default's type
        async with device.load_model(_digits.MODEL, label=HOSTILE) as model:
            async with anyio.create_task_group() as group:
                for _ in range(8):
                    Waiting(group, lambda: model(x))
            async with aioacl.open_batcher(model) as infer, anyio.create_task_group() as group:
                for _ in range(4):
                    Waiting(group, lambda: infer(x))
        await raises(aioacl.DeviceFault, failing_fill(stream, memory))
        await device.force_reset(grace=0)


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


# --- the file -----------------------------------------------------------------------------------------------------


@anyio_test
async def test_trace_of_a_program_has_a_begin_and_an_end_for_all_its_work(
    open_device: OpenDevice, tmp_path: Path
) -> None:
    path, html = tmp_path / "run.pftrace", tmp_path / "run.html"
    async with aioacl.trace(path, html=html):
        await work(open_device)
    found = Decoded(path.read_bytes())
    assert not [begin for begin, end in found.slices() if "unfinished" in end.values]
    linked, alone = found.arrows()
    assert (len(linked) >= 12, alone) == (True, [])
    assert len(found.named("call")) == 12
    assert len(found.named("execution")) >= 12
    assert len(found.named("item")) == 4
    assert {begin.name for begin, _ in found.slices()} >= {"await", "load", "generation", "OPEN", "RESETTING"}
    [fault] = [event for event in found.events if event.name == "fault"]
    assert fault.values["code"] > 0
    assert {event.type for event in found.events} == {BEGIN, END, INSTANT, COUNTER}
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(html.stat().st_mode) == 0o600
    assert names_in(tmp_path) == ["run.html", "run.pftrace"]


@anyio_test
async def test_arrows_lead_from_the_enqueue_to_the_await_its_end_and_the_wake(
    open_device: OpenDevice, tmp_path: Path
) -> None:
    path = tmp_path / "run.pftrace"
    async with equipped(open_device) as (_, stream, memory), aioacl.trace(path):
        ticket = held_fill(stream, memory)
        async with anyio.create_task_group() as group:
            waiting = Waiting(group, lambda: ticket)
            await until(lambda: any(each.kind == "wait begins" for each in flight.recent(0, 3)))
            simulator.release(stream)
            await waiting.outcome()
    found = Decoded(path.read_bytes())
    [enqueued] = [event for event in found.events if event.name == "aclrtMemsetAsync"]
    [flow] = enqueued.flows
    chain = [event for event in found.events if flow in event.flows]
    assert [event.name for event in chain] == ["aclrtMemsetAsync", "await", "done", "wake"]
    assert re.fullmatch(r"stream \d+", found.tracks[chain[2].track].name)
    assert found.tracks[chain[3].track].name.startswith("thread ")


def test_arrows_lead_from_an_item_to_its_batch_and_to_its_end() -> None:
    batch = 5
    found = decoded(
        ring_of(
            ("batch leaves", 100, {"id": batch, "code": 2, "value": 40}),
            ("item done", 200, {"id": batch << 32, "value": 140}),
            ("item done", 200, {"id": batch << 32 | 1, "value": 120}),
        )
    )
    flows = {flow for event in found.events for flow in event.flows}
    assert len(flows) == 2
    for flow in flows:
        chain = [event for event in found.events if flow in event.flows]
        assert [(event.name, event.at) for event in chain[1:]] == [("item", 100_000), ("item done", 200_000)]
        assert chain[0].type == BEGIN
    assert sorted(begin.at for begin, _ in found.named("item")) == [60_000, 80_000]


def test_states_of_a_device_are_slices_in_that_of_their_generation() -> None:
    found = decoded(
        ring_of(
            ("state", 1, {"id": 1, "code": 1}),
            ("state", 5, {"id": 1, "code": 2}),
            ("state", 6, {"id": 1, "code": 3}),
            ("state", 9, {"id": 2, "code": 1}),
            ("state", 12, {"id": 3, "code": 0}),
        )
    )
    spans = {(begin.name, begin.at // 1000, end.at // 1000) for begin, end in found.slices()}
    assert spans == {
        ("generation", 1, 9),
        ("OPEN", 1, 5),
        ("DRAINING", 5, 6),
        ("RESETTING", 6, 9),
        ("generation", 9, 12),
        ("OPEN", 9, 12),
    }


def test_failed_call_is_shown_beside_the_states_with_its_function_and_code() -> None:
    names = [name_of_function(index) for index in range(lib.aio_table_size())]
    function = names.index("aclrtResetDeviceForce")
    found = decoded(
        ring_of(
            ("state", 1, {"id": 1, "code": 3}),
            ("failed call", 2, {"code": FAULT, "value": function}),
            ("state", 3, {"id": 1, "code": 4}),
        )
    )
    [failed] = [event for event in found.events if event.type == INSTANT]
    assert (failed.name, failed.values) == ("aclrtResetDeviceForce", {"code": FAULT})
    assert found.tracks[failed.track].name == "states"


@anyio_test
async def test_trace_that_begins_when_a_device_is_open_shows_its_state(
    open_device: OpenDevice, tmp_path: Path
) -> None:
    path = tmp_path / "run.pftrace"
    async with open_device() as device, aioacl.trace(path):
        await device.force_reset()
        generation = device.generation
    found = Decoded(path.read_bytes())
    states = [begin.name for begin, _ in found.slices() if begin.name in aioacl.State.__members__]
    assert states[0] == states[-1] == "OPEN"
    assert [begin.values["generation"] for begin, _ in found.named("generation")] == [
        generation - 1,
        generation,
    ]


@anyio_test
async def test_track_of_a_model_has_the_name_of_its_file_without_its_folder(
    open_device: OpenDevice, tmp_path: Path
) -> None:
    path, file = tmp_path / "run.pftrace", tmp_path / 'a "name"\n</script>.om'.replace("/", "")
    file.write_bytes(_digits.MODEL.read_bytes())
    async with open_device() as device, device.load_model(file) as model, aioacl.trace(path):
        await model(_digits.inputs(_digits.digits().images[0]))
    [name] = [name for name in Decoded(path.read_bytes()).track_names() if name.startswith("model ")]
    assert re.fullmatch(rf"model {re.escape(file.name)} \(\d+\)", name)


def test_awaits_take_as_few_lanes_as_overlap() -> None:
    records: list[tuple[str, int, dict[str, int]]] = []
    for number in range(30):  # at most three at the same time
        records.append(("wait begins", 10 * number, {"id": (1 << 32) | number}))
        if number >= 2:
            records.append(("wait ends", 10 * number + 5, {"id": (1 << 32) | (number - 2), "value": 25}))
    found = decoded(ring_of(*records))
    assert found.track_names()["awaits"] == 3
    assert len(found.named("await")) == 30
    assert max(event.type == COUNTER for event in found.events)


def test_await_that_has_not_ended_ends_with_the_trace() -> None:
    found = decoded(ring_of(("wait begins", 1, {"id": (1 << 32) | 1}), ("wake", 9, {"value": 1})))
    [(begin, end)] = found.named("await")
    assert (begin.at, end.at, end.values) == (1000, 9000, {"unfinished": 1})


def test_await_whose_begin_is_missing_is_made_from_its_duration() -> None:
    found = decoded(
        ring_of(
            ("wait ends", 50, {"id": (1 << 32) | 1, "value": 30, "code": 507011}),
            ("no wait", 60, {"id": (1 << 32) | 1}),
        )
    )
    (first, first_end), (second, second_end) = found.named("await")
    assert (first.at, first_end.at, first_end.values) == (20_000, 50_000, {"code": 507011})
    assert (second.at, second_end.at) == (60_000, 60_000)
    assert found.track_names()["awaits (begin not recorded, or done at once)"] == 1


def test_execution_that_a_reset_has_ended_ends_with_its_generation() -> None:
    found = decoded(
        ring_of(
            ("state", 1, {"id": 1, "code": 1}),
            ("execution begins", 2, {"id": (1 << 32) | 1, "value": 7}),
            ("state", 3, {"id": 1, "code": 3}),
            ("state", 4, {"id": 1, "code": 1, "device": 1}),
            ("state", 5, {"id": 2, "code": 1}),
            ("execution begins", 6, {"id": (2 << 32) | 1, "value": 7}),
            ("wake", 9, {"value": 1}),
        )
    )
    assert [(begin.at, end.at, end.values) for begin, end in found.named("execution")] == [
        (2000, 5000, {"code": lib.AIO_WAS_RESET}),
        (6000, 9000, {"unfinished": 1}),
    ]


def test_call_whose_wait_for_a_slot_ends_has_an_end() -> None:
    found = decoded(
        ring_of(
            ("slot wanted", 1, {"id": 7, "value": 1}),
            ("slot refused", 4, {"id": 7, "code": -5}),
            ("wake", 9, {"value": 1}),
        )
    )
    spans = [(begin.name, begin.at, end.at, end.values) for begin, end in found.slices()]
    assert spans == [("slot wanted", 1000, 4000, {"code": -5}), ("call", 1000, 4000, {"code": -5})]


def test_two_awaits_of_one_entry_are_two_slices() -> None:
    entry = {"id": (1 << 32) | 1}
    found = decoded(
        ring_of(
            ("wait begins", 1, entry),
            ("wait begins", 2, entry),
            ("wait ends", 5, entry),
            ("wait ends", 6, entry),
        )
    )
    assert len(found.named("await")) == 2


def test_clocks_relate_the_times_of_the_trace_to_unix_time() -> None:
    [snapshot] = decoded(ring_of()).clocks
    assert {clock.clock_id: clock.timestamp for clock in snapshot.clocks} == {3: 5, 1: 10}
    assert snapshot.primary_trace_clock == perfetto.MONOTONIC


def test_tracks_of_two_processes_differ() -> None:
    records = [("state", 1, {"id": 1, "code": 1})]
    one, two = ring_of(*records), ring_of(*records)
    object.__setattr__(two, "process", 78)
    assert decoded(one).tracks.keys() & decoded(two).tracks.keys() == set()


# --- what is missing ----------------------------------------------------------------------------------------------


def all_kinds(chance: random.Random, count: int) -> Iterator[bytes]:
    """Yields records with random fields, as a damaged file may contain them."""
    for number in range(count):
        yield flight.LAYOUT.pack(
            number,
            chance.randrange(1 << 62),
            chance.randrange(1 << 64),
            chance.choice([*NUMBERS.values(), 0, 99, 0xFFFF]),
            chance.choice([0, 1, 63, 64, 255, flight.NO_DEVICE]),
            chance.randrange(-(1 << 31), 1 << 31),
            chance.randrange(-(1 << 31), 1 << 31),
            chance.randrange(1 << 32),
        )


@pytest.mark.parametrize("seed", range(20))
def test_records_with_any_numbers_give_a_valid_trace(seed: int) -> None:
    chance = random.Random(seed)
    raw = b"".join(all_kinds(chance, chance.randrange(1, 400)))
    ring = flight_ring.Ring(raw, 77, 10, 5, 500, 0, 0, 3)
    found = decoded(ring)
    begun = Counter(event.track for event in found.events if event.type == BEGIN)
    assert begun == Counter(event.track for event in found.events if event.type == END)
    assert found.events  # and each name and track is known
    assert {event.track for event in found.events} <= found.tracks.keys()
    json.loads(page.escaped(page.data(ring, {})))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(20))
def test_damaged_file_gives_a_trace_that_says_what_is_missing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = file_of(chance.choice([300, flight_ring.SLOTS + 300]))
    at = chance.randrange(flight_ring.HEADER_BYTES, flight_ring.HEADER_BYTES + 200 * flight.LAYOUT.size)
    data[at : at + 500] = chance.randbytes(500)
    path = tmp_path / "flight"
    path.write_bytes(data)
    ring = flight_ring.of_file(path)
    assert ring.missing > 0
    found = decoded(ring)
    [said] = [event for event in found.events if event.name == ring.summary()]
    assert f"{ring.missing} are missing" in said.name
    assert len(found.named("item")) == len(ring.records())


@pytest.mark.thorough
def test_writer_that_is_stopped_for_a_lap_gives_a_trace_that_says_what_is_missing(tmp_path: Path) -> None:
    """Its slot keeps the sequence of the earlier lap, and the record of the later lap was dropped."""
    slot, laps = 17, flight_ring.SLOTS + 300
    data = file_of(laps)
    at = flight_ring.HEADER_BYTES + slot * flight.LAYOUT.size
    data[at : at + 8] = (2 * slot + 1).to_bytes(8, "little")
    path = tmp_path / "flight"
    path.write_bytes(data)
    ring = flight_ring.of_file(path)
    assert (ring.overwritten, ring.missing) == (300, 1)
    found = decoded(ring)
    assert len(found.named("item")) == flight_ring.SLOTS - 1
    assert [event.name for event in found.events if "missing" in event.name] == [ring.summary()]


def test_whole_ring_has_no_event_about_missing_records() -> None:
    assert [event for event in decoded(ring_of()).events if "missing" in event.name] == []


@pytest.mark.thorough
@anyio_test
async def test_trace_keeps_more_records_than_the_recorder(tmp_path: Path) -> None:
    path, laps = tmp_path / "run.pftrace", 3
    async with aioacl.trace(path):
        for number in range(laps * flight_ring.SLOTS):
            flight.flight_note(NUMBERS["batch leaves"], 0, number, 1, 0)
            if number % 8192 == 0:
                await anyio.sleep(0.1)  # the thread looks every 50 ms; a slow one shows as missing records
    found = Decoded(path.read_bytes())
    said = [event.name for event in found.events if "missing" in event.name]
    count = sum(event.name == "batch leaves" for event in found.events)
    assert count == laps * flight_ring.SLOTS or said


@anyio_test
async def test_records_that_a_trace_lacks_are_counted_in_the_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MOST_RECORDS", 100)
    monkeypatch.setattr(recording, "LOOK_SECONDS", 1e9)  # only the end looks, so each lap is lost
    before, laps = overwritten(), 2
    async with aioacl.trace(tmp_path / "run.pftrace"):
        for number in range(laps * flight_ring.SLOTS):
            flight.flight_note(NUMBERS["batch leaves"], 0, number, 1, 0)
    found = Decoded((tmp_path / "run.pftrace").read_bytes())
    taken = sum(event.name == "batch leaves" for event in found.events)
    assert overwritten() - before >= laps * flight_ring.SLOTS - taken
    assert taken < flight_ring.SLOTS


def overwritten() -> float:
    [metric] = [each for each in aioacl.metrics() if each.name == "aioacl_trace_overwritten_total"]
    [sample] = metric.samples
    assert sample.labels == {}
    return sample.value


# --- the page -----------------------------------------------------------------------------------------------------


def block(text: str, mark: str) -> str:
    [found] = re.findall(rf"<{mark}>(.*?)</{mark.split(maxsplit=1)[0]}>", text, flags=re.DOTALL)
    return str(found)


@anyio_test
async def test_page_has_a_policy_without_network_and_escapes_every_name(
    open_device: OpenDevice, tmp_path: Path
) -> None:
    html = tmp_path / "run.html"
    async with aioacl.trace(tmp_path / "run.pftrace", html=html):
        await work(open_device)
    text = html.read_text()
    policy = re.search(r'content="(default-src [^"]*)"', text)
    assert policy is not None
    for kind, mark in (("script-src", "script"), ("style-src", "style")):
        digest = base64.b64encode(hashlib.sha256(block(text, mark).encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none'; ")
    assert "unsafe" not in policy[1]
    data = block(text, 'script type="application/json" id="data"')
    assert not set("<>&") & set(data)
    models = [track["name"] for track in json.loads(data)["tracks"] if HOSTILE in track["name"]]
    assert models
    assert text.count("<script") == text.count("</script>") == 2
    page_itself = text.replace(data, "")
    assert re.findall(r"(?:src|href)=|url\(|https?://|innerHTML|eval\(|document\.write", page_itself) == []


def test_text_cannot_end_the_block_of_data() -> None:
    for text in (HOSTILE, "\u2028\u2029", "</ScRiPt >", "<!--<script>", 'a"b\nc'):
        shown = page.escaped([text])
        assert not set("<>&\u2028\u2029\n") & set(shown)
        assert json.loads(shown) == [text]


def test_page_pairs_begins_and_ends_and_keeps_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = ring_of(
        ("wait begins", 1, {"id": (1 << 32) | 1}),
        ("wait ends", 9, {"id": (1 << 32) | 1, "value": 8}),
        ("no wait", 20, {"id": (1 << 32) | 2}),
    )
    found = page.data(ring, {})
    awaits = [each[2:4] for each in found["slices"] if each[1] == found["await"]]
    assert awaits == [[0, 8], [19, 0]]
    monkeypatch.setattr(page, "MOST_SLICES", 1)
    less = page.data(ring, {})
    assert [each[3] for each in less["slices"]] == [8]
    assert "shortest slices are left out" in less["summary"]


# --- arguments, files and threads ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [3, None, b"run.pftrace", ["run"]])
def test_path_of_a_wrong_type_is_refused(path: Any) -> None:
    with pytest.raises(aioacl.ParameterError, match=r"path must be a str or an os\.PathLike\[str\], got "):
        aioacl.trace(path)
    if path is not None:
        with pytest.raises(
            aioacl.ParameterError, match=r"html must be a str or an os\.PathLike\[str\], got "
        ):
            aioacl.trace("run.pftrace", html=path)


@pytest.mark.parametrize("path", ["", ".", "/", "run\0"])
def test_path_that_names_no_file_is_refused(path: str) -> None:
    with pytest.raises(aioacl.ParameterError, match="path must name a file, got "):
        aioacl.trace(path)


def test_same_file_for_both_is_refused() -> None:
    with pytest.raises(aioacl.ParameterError, match="path and html must be different files"):
        aioacl.trace("run", html="./run")


@anyio_test
async def test_trace_in_a_missing_folder_raises_before_the_block(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        async with aioacl.trace(tmp_path / "absent" / "run.pftrace"):
            pytest.fail("the block began")


@anyio_test
async def test_file_that_cannot_be_written_raises_at_the_end_of_the_block(tmp_path: Path) -> None:
    folder = tmp_path / "run.pftrace"
    trace = aioacl.trace(folder)
    await trace.__aenter__()
    folder.mkdir()
    with pytest.raises(IsADirectoryError):
        await trace.__aexit__(None, None, None)
    assert names_in(tmp_path) == ["run.pftrace"]


@anyio_test
async def test_file_that_cannot_be_made_leaves_no_other_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        async with aioacl.trace(tmp_path / "run.pftrace", html=tmp_path / "absent" / "run.html"):
            pytest.fail("the block began")
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    ("make", "error"), [(os.mkfifo, FileExistsError), (os.mkdir, IsADirectoryError)], ids=["fifo", "folder"]
)
@anyio_test
async def test_path_of_no_file_raises_before_the_block_and_is_kept(
    make: Callable[[Path], None], error: type[OSError], tmp_path: Path
) -> None:
    existing = tmp_path / "existing"
    make(existing)
    for path, html in ((existing, None), (tmp_path / "run.pftrace", existing)):
        with pytest.raises(error, match="existing"):
            async with aioacl.trace(path, html=html):
                pytest.fail("the block began")
    assert not existing.is_file()
    assert names_in(tmp_path) == ["existing"]


@anyio_test
async def test_existing_file_and_link_are_replaced_and_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "run.pftrace"
    target.write_text("kept")
    link.symlink_to(target)
    async with aioacl.trace(link):
        pass
    assert target.read_text() == "kept"
    assert not link.is_symlink()
    Decoded(link.read_bytes())


@anyio_test
async def test_trace_of_a_block_that_raises_is_written(tmp_path: Path) -> None:
    path = tmp_path / "run.pftrace"
    with pytest.raises(ZeroDivisionError):
        async with aioacl.trace(path):
            raise ZeroDivisionError
    Decoded(path.read_bytes())


@anyio_test
async def test_trace_with_a_plain_block_on_a_loop_and_a_second_use_are_refused(tmp_path: Path) -> None:
    trace = aioacl.trace(tmp_path / "run.pftrace")
    with pytest.raises(RuntimeError, match="use `async with` instead of `with`"), ExitStack() as stack:
        stack.enter_context(trace)
    async with trace:
        pass
    with pytest.raises(RuntimeError, match="the trace was already used"):
        async with trace:
            pass


def test_trace_on_a_plain_thread_uses_with(tmp_path: Path) -> None:
    path = tmp_path / "run.pftrace"
    with aioacl.trace(path):
        flight.flight_note(NUMBERS["fault"], 0, 1, 507011, 0)
    assert [event.name for event in Decoded(path.read_bytes()).events if event.name == "fault"] == ["fault"]
