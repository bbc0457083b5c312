"""The metrics as text: the format of Prometheus, and OpenMetrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioacl._base.options import must_be_bool
from aioacl._base.public import publish
from aioacl._metrics.read import metrics

if TYPE_CHECKING:
    from aioacl._metrics.records import Metric, MetricSample


def prometheus_text(*, openmetrics: bool = False) -> str:
    """Returns all metrics as text, for an endpoint that Prometheus scrapes.

    It waits for nothing, as `metrics()`. The Content-Type of the answer is `text/plain; version=0.0.4; charset=utf-8`,
    or `application/openmetrics-text; version=1.0.0; charset=utf-8`.

    Args:
        openmetrics: whether to use the format OpenMetrics 1.0. Pass True if the Accept header of the request contains
            `application/openmetrics-text`.

    Returns:
        The text, which ends with a newline.

    Raises:
        ParameterError: `openmetrics` is not a bool.
    """
    must_be_bool("openmetrics", openmetrics)
    lines = list[str]()
    for metric in metrics():
        lines += _head(metric, openmetrics=openmetrics)
        lines += map(_line, metric.samples)
    if openmetrics:
        lines.append("# EOF")
    return "\n".join([*lines, ""])


def _head(metric: Metric, *, openmetrics: bool) -> list[str]:
    name = metric.name
    if openmetrics and metric.type == "counter":
        name = name.removesuffix("_total")
    lines = [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.type}"]
    if openmetrics and metric.unit:
        lines.append(f"# UNIT {name} {metric.unit}")
    return lines


def _line(sample: MetricSample) -> str:
    labels = ",".join([f'{name}="{_escaped(value)}"' for name, value in sample.labels.items()])
    return f"{sample.name}{{{labels}}} {sample.value}" if labels else f"{sample.name} {sample.value}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


publish("aioacl", ["prometheus_text"], of=__name__)
