"""Gives the metrics of aioacl to OpenTelemetry, as observable instruments. Needs `pip install opentelemetry-sdk`.

OpenTelemetry has no observable histogram. So a histogram becomes three counters: its buckets, count and sum.
"""

import asyncio
from collections.abc import Iterable
from functools import partial

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Sum

import aioacl


def observe(name: str, _: CallbackOptions) -> Iterable[Observation]:
    """The values of the samples with this name, now."""
    for metric in aioacl.metrics():
        for sample in metric.samples:
            if sample.name == name:
                yield Observation(sample.value, sample.labels)


def instrument(meter: Meter) -> None:
    """Makes the instruments."""
    for metric in aioacl.metrics():
        parts = ("_bucket", "_count", "_sum") if metric.type == "histogram" else ("",)
        create = meter.create_observable_gauge if metric.type == "gauge" else meter.create_observable_counter
        for part in parts:
            name = metric.name + part
            create(name, [partial(observe, name)], unit=metric.unit, description=metric.help)


async def main() -> None:
    """Shows one of the metrics, as an exporter gets it."""
    reader = InMemoryMetricReader()
    instrument(MeterProvider([reader]).get_meter("aioacl"))
    async with aioacl.open_device(0) as device:
        await device.force_reset()
        data = reader.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        if metric.name == "aioacl_resets_total" and isinstance(metric.data, Sum):
            print(metric.name, [point.value for point in metric.data.data_points])


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, it raises an error that names the remedy
    asyncio.run(main())
