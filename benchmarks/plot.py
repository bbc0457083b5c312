"""Draws the rate of each way to wait, by the number of concurrent waits."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchmarks.rows import Row

RATE: Final = re.compile(r"(?P<waits>\d+) waits?: rate of (?P<way>.+)")


def lines(rows: Iterable[Row]) -> dict[str, list[tuple[int, float]]]:
    """Returns the rates of the pinned process, by way: pairs of a number of waits and thousands per second."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        match = RATE.fullmatch(row.name)
        if match and row.suite == "throughput" and row.pinned and row.spread:
            found.setdefault(match["way"], []).append((int(match["waits"]), row.spread.median))
    return {way: sorted(points) for way, points in found.items()}


def draw(rows: Iterable[Row], path: Path) -> None:
    """Writes the plot as SVG."""
    matplotlib: Any = import_module("matplotlib")  # of the extra `bench`; only --write needs it
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "aioacl"  # the same result gives the same file
    pyplot: Any = import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    for way, points in lines(rows).items():
        axes.plot(
            *zip(*points, strict=True), marker="o", linewidth=2.5 if way == "aioacl" else 1.2, label=way
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel("concurrent waits (on up to 64 streams)")
    axes.set_ylabel("awaits of empty tasks, thousands per second")
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1))
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
