"""The records that `metrics()` returns."""

from __future__ import annotations

from typing import Literal

from aioacl._base.public import publish
from aioacl._base.unique import record

MetricType = Literal["counter", "gauge", "histogram"]


@record
class MetricSample:
    """One value of a metric.

    Attributes:
        name: the name of the metric; of a histogram, this name with the suffix `_bucket`, `_count` or `_sum`.
        labels: the labels and their values. A bucket has the label `le`, the upper bound of its values.
        value: the value, an int or a float.
    """

    name: str
    labels: dict[str, str]
    value: float


@record
class Metric:
    """A metric with its values now, from `metrics()`.

    Attributes:
        name: the name.
        type: "counter", "gauge" or "histogram".
        help: what the metric measures, in a sentence.
        unit: "seconds" or "bytes"; "" for numbers of things.
        samples: the values, a tuple of MetricSample.
    """

    name: str
    type: MetricType
    help: str
    unit: str
    samples: tuple[MetricSample, ...]


publish("aioacl", ["Metric", "MetricSample"], of=__name__)
