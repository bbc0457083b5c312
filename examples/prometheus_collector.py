"""Adds the metrics of aioacl to those that prometheus_client serves. Needs `pip install prometheus_client`."""

import asyncio
from collections.abc import Iterator

from prometheus_client import REGISTRY, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

import aioacl


class AioaclCollector(Collector):
    """Copies each metric. A scrape calls no ACL function and waits for nothing."""

    def collect(self) -> Iterator[Metric]:
        """The metrics, with their values now."""
        for metric in aioacl.metrics():
            copy = Metric(metric.name.removesuffix("_total"), metric.help, metric.type, metric.unit)
            for sample in metric.samples:
                copy.add_sample(sample.name, sample.labels, sample.value)
            yield copy


async def main() -> None:
    """Shows one of the metrics, as Prometheus gets it."""
    REGISTRY.register(AioaclCollector())
    async with aioacl.open_device(0) as device:
        await device.force_reset()
        text = generate_latest(REGISTRY).decode()
        print(*[line for line in text.splitlines() if line.startswith("aioacl_resets_total")], sep="\n")


if __name__ == "__main__":
    aioacl.library_info()  # loads the library; if there is none, it raises an error that names the remedy
    asyncio.run(main())
