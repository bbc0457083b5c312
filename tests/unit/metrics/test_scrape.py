"""A scrape: its format, its labels, and that it calls nothing and waits for nothing."""

from __future__ import annotations

import inspect
import re
import threading
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

import aioacl
from aioacl import simulator
from aioacl._base import totals
from aioacl._base.ffi import generation_of, lib
from aioacl._batches import totals as batch_totals
from aioacl._library import build, runtime
from aioacl._lifecycle import gate, manager
from aioacl._lifecycle.admission import Admission
from aioacl._metrics import read, text
from aioacl._metrics.table import DEVICE, PREFIX, TABLE
from aioacl._models import counting
from tests.kit import PATIENCE_SECONDS, Raised, Stop, until
from tests.support import offline
from tests.unit.metrics.conftest import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kit import OpenDevice

pytestmark = pytest.mark.anyio
ROOT: Final = Path(__file__).parents[3]
STRANGE: Final = 'a"b\\c\n<!--</script><img src=x onerror=1>.om'
QUICK_SCRAPES: Final = 50
ALL_SCRAPES: Final = 100_000
PARTS: Final = 10


def parsed(*, openmetrics: bool) -> list[Any]:
    """The metrics as a parser of prometheus_client reads them."""
    name = "prometheus_client.openmetrics.parser" if openmetrics else "prometheus_client.parser"
    parser = pytest.importorskip(name, reason="needs prometheus_client: pip install prometheus_client")
    return [*parser.text_string_to_metric_families(aioacl.prometheus_text(openmetrics=openmetrics))]


def samples(metrics: Any) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
    return {
        (each.name, frozenset(each.labels.items()), each.value)
        for metric in metrics
        for each in metric.samples
    }


# --- the table ------------------------------------------------------------------------------------------------------


def test_names_types_and_labels_are_those_of_the_table() -> None:
    found = aioacl.metrics()
    assert [(metric.name, metric.type, metric.help) for metric in found] == [
        (PREFIX + family.name, family.type, family.help) for family in TABLE
    ]
    for metric, family in zip(found, TABLE, strict=True):
        assert metric.unit == family.unit
        for sample in metric.samples:
            assert tuple(label for label in sample.labels if label != "le") == family.labels
            assert ("le" in sample.labels) == sample.name.endswith("_bucket")


def test_names_follow_the_rules_of_prometheus() -> None:
    for family in TABLE:
        assert family.name.endswith("_total") == (family.type == "counter")
        assert family.name.endswith(("_seconds", "_rows")) or family.type != "histogram"
        assert not re.search(r"[\\\n]", family.help)
        assert family.labels[:2] == DEVICE or not {*DEVICE} & {*family.labels}


def test_bounds_of_c_and_python_are_the_same() -> None:
    assert len(totals.QUICK_BOUNDS) == lib.AIO_BOUNDS
    bounds = [lib.aio_bound_us(bucket) for bucket in range(lib.AIO_BOUNDS)]
    assert bounds == [round(bound * 1e6) for bound in totals.QUICK_BOUNDS]


# --- the text -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("openmetrics", [False, True], ids=["prometheus", "openmetrics"])
async def test_text_is_read_by_the_parsers_of_prometheus_client(
    openmetrics: bool, open_device: OpenDevice, tmp_path: Path
) -> None:
    path = tmp_path / STRANGE.replace("/", "")
    path.write_bytes(offline.product("1,4"))
    async with (
        open_device() as device,
        device.load_model(path) as model,
        aioacl.open_batcher(model) as infer,
        device.create_stream() as stream,
        device.allocate(64) as memory,
    ):
        await infer(offline.rows(0, 1))
        await stream.fill(memory, 1)
        await device.force_reset()
        families = parsed(openmetrics=openmetrics)
        mine = aioacl.metrics()
    assert {family.name.removesuffix("_total") for family in families} == {
        metric.name.removesuffix("_total") for metric in mine
    }
    assert {family.type for family in families} == {"counter", "gauge", "histogram"}
    names = {(name, labels) for name, labels, _ in samples(mine)}
    assert {(name, labels) for name, labels, _ in samples(families)} == names
    assert any(("model", path.name) in labels for _, labels in names)
    if openmetrics:
        assert {family.unit for family in families} == {"", "seconds", "bytes"}


def test_text_of_a_label_has_no_quote_backslash_or_newline_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(totals, "_counts", {"model_abandoned_total": {("0", STRANGE): 3}})
    (line,) = [
        line for line in aioacl.prometheus_text().splitlines() if line.startswith("aioacl_model_abandoned")
    ]
    escaped = STRANGE.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    assert line.endswith(f'model="{escaped}"}} 3')


def test_openmetrics_must_be_a_bool() -> None:
    wrong: Any = "text/plain"
    with pytest.raises(aioacl.ParameterError, match="openmetrics must be a bool"):
        aioacl.prometheus_text(openmetrics=wrong)


# --- labels ---------------------------------------------------------------------------------------------------------


def test_81_models_beyond_100_names_share_the_label_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "_models", {})
    labels = [totals.model_label(f"model-{number}") for number in range(150)]
    assert labels == [f"model-{number}" for number in range(100)] + ["other"] * 50
    assert totals.model_label("model-7") == "model-7"


async def test_81_key_of_an_item_is_no_label(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product("1,4")) as model,
        aioacl.open_batcher(model) as infer,
    ):
        await infer(offline.rows(0, 1), key="tenant-blue")
        assert "tenant-blue" not in aioacl.prometheus_text()


def test_file_name_that_is_not_utf8_can_be_encoded() -> None:
    assert totals.model_label("bad-\udcff.om").encode() == rb"bad-\udcff.om"


# --- counters ---------------------------------------------------------------------------------------------------------


async def test_80_counters_never_fall_when_a_device_a_model_or_a_batcher_is_closed(
    open_device: OpenDevice,
) -> None:
    def counters() -> dict[Any, float]:
        rising = {PREFIX + family.name for family in TABLE if family.type != "gauge"}
        values = Values.now().all
        return {
            key: value
            for key, value in values.items()
            if re.sub(r"_(bucket|count|sum)$", "", key[0]) in rising
        }

    seen: list[dict[Any, float]] = [counters()]
    async with open_device() as device:
        async with device.load_model(offline.product("1,4"), label="m") as model:
            async with aioacl.open_batcher(model) as infer:
                await infer(offline.rows(0, 1))
                seen.append(counters())
            seen.append(counters())
        await device.force_reset()
        seen.append(counters())
    seen.append(counters())
    async with open_device():
        seen.append(counters())
    for before, after in pairwise(seen):
        assert {key: value for key, value in before.items() if after[key] < value} == {}


async def test_numbers_of_an_ended_batcher_are_kept_without_it(open_device: OpenDevice) -> None:
    running = len(batch_totals._running)
    async with open_device() as device, device.load_model(offline.product("1,4"), label="m") as model:
        async with aioacl.open_batcher(model):
            assert len(batch_totals._running) == running + 1
        assert len(batch_totals._running) == running


def test_batcher_that_ends_during_a_scrape_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the scrape runs a finalizer."""
    before, original, ended = batch_totals.read(), batch_totals._read, list[bool]()

    def read_and_end() -> Any:
        found = original()
        if not ended:
            ended.append(True)
            monkeypatch.setattr(batch_totals, "_ends", batch_totals._ends + 1)
        return found

    monkeypatch.setattr(batch_totals, "_read", read_and_end)
    assert batch_totals.read().keys() == before.keys()
    assert ended


# --- a scrape calls nothing and waits for nothing ---------------------------------------------------------------------


def called_by(thread: int) -> list[str]:
    return [call["call"] for call in simulator.journal() if call["tid"] == thread]


async def scrape_beside_load(open_device: OpenDevice, count: int) -> None:
    """Scrapes on a thread of its own, while the loop awaits copies, calls of a model and resets."""
    ids = list[int]()

    def scrape() -> None:
        ids.append(threading.get_native_id())
        for number in range(count):
            aioacl.prometheus_text(openmetrics=bool(number % 2))
            if number % 500 == 0:
                assert called_by(ids[0]) == []  # the journal keeps the newest calls
        assert called_by(ids[0]) == []

    async with (
        open_device() as device,
        device.load_model(offline.product("1,4")) as model,
        aioacl.open_batcher(model) as infer,
    ):
        scraping, made = Raised(scrape), 0
        while scraping.running:
            async with device.create_stream() as stream, device.allocate(64) as memory:
                for _ in range(20):
                    await stream.fill(memory, 1)
                    await infer(offline.rows(0, 1))
            made += 1
            if made % 5 == 0:
                await device.force_reset()
        scraping.join()
        assert made
        assert simulator.journal()


async def test_79_scrape_beside_load_calls_no_acl_function(open_device: OpenDevice) -> None:
    await scrape_beside_load(open_device, QUICK_SCRAPES)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
async def test_many_scrapes_beside_load_call_no_acl_function(part: int, open_device: OpenDevice) -> None:
    """In parts, because a test has a time limit."""
    assert part < PARTS
    await scrape_beside_load(open_device, ALL_SCRAPES // PARTS)


async def test_79_scrape_returns_while_another_thread_holds_each_lock(open_device: OpenDevice) -> None:
    async with (
        open_device() as device,
        device.load_model(offline.product("1,4")) as model,
        aioacl.open_batcher(model) as infer,
    ):
        locks: tuple[Any, ...] = (
            device._manager.admission.changed,
            manager._managers_lock,
            runtime._lock,
            model._life._lock,
        )

        def hold(lock: Any, stop: Stop) -> None:
            with lock:
                stop()

        holders: list[Callable[[Stop], object]] = [partial(hold, lock) for lock in locks]
        for held in (*holders, infer._runner.tell):
            stop = Stop()
            holding = Raised(partial(held, stop))
            assert stop.begun.wait(PATIENCE_SECONDS)
            Raised(aioacl.prometheus_text).join()  # fails if the scrape waits
            stop.go_on.set()
            holding.join()


async def test_79_scrape_returns_while_calls_hang_in_acl(open_device: OpenDevice) -> None:
    hung = ("aclrtMalloc", "aclmdlExecuteAsync")
    async with (
        open_device() as device,
        device.load_model(offline.product()) as model,
    ):
        for name in hung:
            simulator.hang_call(name)
        async with anyio.create_task_group() as group:
            group.start_soon(use, lambda: device.allocate(1 << 20))
            group.start_soon(use, lambda: model(offline.rows()))
            await until(lambda: all(map(simulator.hung, hung)))
            assert "aioacl_stuck_seconds" in Raised(aioacl.prometheus_text).join()
            for name in hung:
                simulator.release_call(name)


async def use(begin: Callable[[], Any]) -> None:
    """Awaits it, and closes what it has made."""
    made = await begin()
    if isinstance(made, aioacl.DeviceBuffer):
        await made.close()


def functions_of_c() -> Iterator[str]:
    """The functions of C that the modules of a scrape call, except those of openings and closes."""
    things: list[Any] = [read, text, batch_totals, manager.opened_managers, gate.calls_inside, gate.counts]
    for thing in (*things, counting.read_calls, build.build, vars(Admission)["shown"].fget, generation_of):
        yield from re.findall(r"\blib\.(aio_\w+)", inspect.getsource(thing))


def test_79_functions_of_c_that_a_scrape_calls_are_those_that_the_native_test_calls_with_all_locks_held() -> (
    None
):
    source = (ROOT / "tests" / "native" / "test_metrics.c").read_text()
    body = source.partition("static void scrape(")[2].partition("\n}")[0]
    assert {*functions_of_c()} <= {*re.findall(r"\b(aio_\w+)\(", body)}
