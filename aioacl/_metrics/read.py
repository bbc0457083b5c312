"""Reads the metrics: from C, from the managers of the devices, and from the totals.

A scrape calls no ACL function, takes no lock that an await, an enqueue, a call of a model or a batch takes, and wakes
no thread. So it returns also if everything else is blocked. Its numbers may be of slightly different moments.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from aioacl._base import totals
from aioacl._base.codes import DEVICE_ACTIONS
from aioacl._base.ffi import ffi, lib
from aioacl._base.late import load
from aioacl._base.public import publish
from aioacl._base.states import State
from aioacl._base.totals import LONG_BOUNDS, QUICK_BOUNDS
from aioacl._batches import totals as batches
from aioacl._library.build import build
from aioacl._lifecycle.cache import DEVICE_MEMORY
from aioacl._lifecycle.gate import calls_inside, counts
from aioacl._lifecycle.manager import opened_managers
from aioacl._lifecycle.stuck import is_stuck
from aioacl._metrics.records import Metric, MetricSample
from aioacl._metrics.table import PREFIX, TABLE
from aioacl._models.counting import read_calls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aioacl._lifecycle.manager import Manager
    from aioacl._metrics.table import Family

ENDINGS: Final = ("done", "failed", "reset", "cancelled", "refused")  # as enum aio_ending
WAITS: Final = ("stream", "model")  # as enum aio_metrics
MICRO: Final = 1e-6


class Scrape:
    """The values of one scrape."""

    def __init__(self) -> None:
        self._samples: dict[str, list[MetricSample]] = {family.name: [] for family in TABLE}
        self._labels = {family.name: family.labels for family in TABLE}

    def add(self, name: str, value: float, *labels: str) -> None:
        """Adds the value of a counter or gauge."""
        named = dict(zip(self._labels[name], labels, strict=True))
        self._samples[name].append(MetricSample(PREFIX + name, named, value))

    def add_histogram(
        self, name: str, bounds: Sequence[float], numbers: Iterable[int], total: float, *labels: str
    ) -> None:
        """Adds a histogram. There is one number more than bounds, for the values above all bounds."""
        named = dict(zip(self._labels[name], labels, strict=True))
        samples, all_values = self._samples[name], 0
        for bound, below in zip((*bounds, float("inf")), accumulate(numbers), strict=True):
            le = "+Inf" if bound == float("inf") else str(float(bound))
            samples.append(MetricSample(f"{PREFIX}{name}_bucket", {**named, "le": le}, below))
            all_values = below
        samples.append(MetricSample(f"{PREFIX}{name}_count", named, all_values))
        samples.append(MetricSample(f"{PREFIX}{name}_sum", named, total))

    def metrics(self) -> tuple[Metric, ...]:
        """Returns all metrics of the table."""
        return tuple(map(self._metric, TABLE))

    def _metric(self, family: Family) -> Metric:
        name = PREFIX + family.name
        return Metric(name, family.type, family.help, family.unit, tuple(self._samples[family.name]))


def metrics() -> tuple[Metric, ...]:
    """Returns all metrics with their values now.

    Calls no ACL function, and waits for nothing that work on a device holds: it returns while calls of ACL hang. It
    loads no library.

    A device has values from its first open on. Its counters stay when it is closed. In a process that was forked from
    one that uses a device, only `aioacl_build_info` has a value.

    Returns:
        A tuple of Metric, one for each metric of the table, also if it has no values yet.
    """
    scrape = Scrape()
    scrape.add("build_info", 1, load("aioacl").__version__, *build())
    if not lib.aio_forked():
        ids = dict[str, str]()
        for manager in opened_managers():
            ids[str(manager.index)] = manager.physical_id
            _add_device(scrape, manager, (str(manager.index), manager.physical_id))
        _add_totals(scrape, ids)
        _add_models(scrape, ids)
        _add_batches(scrape)
    return scrape.metrics()


# --- a device ---------------------------------------------------------------------------------------------------------


def _add_device(scrape: Scrape, manager: Manager, device: tuple[str, str]) -> None:
    state = manager.admission.shown
    fault = manager.failures.last_fault
    poisoned = state is State.QUARANTINED or (fault is not None and fault.action in DEVICE_ACTIONS)
    stuck = max(
        (call.seconds for call in calls_inside(manager.index).values() if is_stuck(manager, call)),
        default=0.0,
    )
    scrape.add("device_ready", int(state is State.OPEN and not poisoned and not stuck), *device)
    for each in State:
        scrape.add("device_state", int(each is state), *device, each.name)
    scrape.add("device_generation", manager.generation, *device)
    scrape.add("stuck_seconds", stuck, *device)
    for kind, inside in zip(("enqueue", "wait", "lifetime"), counts(manager.index), strict=True):
        scrape.add("calls_in_c", inside, *device, kind)
    for kind, nbytes in _memory(manager).items():
        scrape.add("memory_bytes", nbytes, *device, kind)
    _add_waits(scrape, manager.index, device)


def _memory(manager: Manager) -> dict[str, int]:
    """The bytes of memory by kind. A load or a free that runs meanwhile may be in no kind or in a wrong one."""
    weights = workspace = of_models = 0
    for loaded in manager.models.loads:
        weights += loaded.memory.weights
        workspace += loaded.memory.workspace * len(loaded.instances)
        of_models += loaded.block_bytes
    cached = manager.cache.sizes[DEVICE_MEMORY]
    return {
        "weights": weights,
        "workspace": workspace,
        "slots": max(0, of_models - weights - workspace),
        "buffers": max(0, manager.blocks.nbytes - of_models - cached),
        "cached": cached,
        "pinned": manager.cache.pinned,
    }


def _add_waits(scrape: Scrape, index: int, device: tuple[str, str]) -> None:
    copy: Any = ffi.new("aio_device_counts *")
    lib.aio_device_counts_read(index, copy)
    for kind, name in enumerate(WAITS):
        ended = copy.dropped[kind] + sum(sum(of.counts) for of in copy.waits[kind])
        scrape.add("awaits_in_flight", max(0, copy.begun[kind] - ended), *device, name)
        for ending in range(lib.AIO_WAIT_ENDINGS):
            labels = *device, name, ENDINGS[ending]
            _add_native(scrape, "await_duration_seconds", copy.waits[kind][ending], labels)


def _add_native(scrape: Scrape, name: str, histogram: Any, labels: tuple[str, ...]) -> None:
    scrape.add_histogram(name, QUICK_BOUNDS, histogram.counts, histogram.sum_us * MICRO, *labels)


# --- totals -----------------------------------------------------------------------------------------------------------


def _add_totals(scrape: Scrape, ids: Mapping[str, str]) -> None:
    for name in (
        "resets_total",
        "faults_total",
        "model_loads_total",
        "model_abandoned_total",
        "events_missed_total",
    ):
        for (device, *labels), number in totals.counts(name).items():
            scrape.add(name, number, device, ids.get(device, ""), *labels)
    scrape.add("trace_overwritten_total", totals.counts("trace_overwritten_total").get((), 0))
    for name in ("reset_duration_seconds", "model_load_duration_seconds"):
        for (device, *labels), found in totals.observed(name).items():
            scrape.add_histogram(
                name, LONG_BOUNDS, found.counts, found.sum, device, ids.get(device, ""), *labels
            )


def _add_models(scrape: Scrape, ids: Mapping[str, str]) -> None:
    for (index, model), copy in read_calls().items():
        of: Any = copy
        device = str(index), ids.get(str(index), ""), model
        for name, numbers in (("requests", of.requests), ("executions", of.executions), ("rows", of.rows)):
            for ending, number in zip(ENDINGS, numbers, strict=False):
                scrape.add(f"model_{name}_total", number, *device, ending)
        _add_native(scrape, "model_slot_wait_seconds", of.slot_wait, device)
        _add_native(scrape, "model_execution_seconds", of.execution, device)


def _add_batches(scrape: Scrape) -> None:
    for model, of in batches.read().items():
        scrape.add("batch_waiting_rows", of.waiting, model)
        scrape.add_histogram("batch_wait_seconds", QUICK_BOUNDS, of.waits.counts, of.waits.sum, model)
        gears = sorted(of.by_gear)
        executions = (*(of.by_gear[gear] for gear in gears), 0)
        scrape.add_histogram("batch_rows", gears, executions, of.rows, model)
        scrape.add("batch_padded_rows_total", of.padded, model)
        for cause, number in of.repeats.items():
            scrape.add("batch_repeats_total", number, model, cause)
        for outcome, number in of.items.items():
            scrape.add("batch_items_total", number, model, outcome)


publish("aioacl", ["metrics"], of=__name__)
