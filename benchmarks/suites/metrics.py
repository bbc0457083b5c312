"""What the metrics add to an await and to a call of a model, beside one `Histogram.observe` of prometheus_client.

counting.c is compiled with metrics.c, and measures the functions that the engine calls. Also the time of a scrape.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aioacl
from benchmarks.harness import Sample, Suite, cpus, timed, walls
from benchmarks.rows import Row, Spread, ratio_row, skipped_row

if TYPE_CHECKING:
    from benchmarks.harness import Session

NAME: Final = "metrics"
HERE: Final = Path(__file__).resolve().parents[1]
FLAGS: Final = ("-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{HERE.parent / 'aioacl' / '_native'}")
PEER: Final = "Histogram.observe"
PACKAGE: Final = "prometheus_client"
NAMES: Final = {"await": "counting an await", "call": "counting a call of a model"}
SCRAPE: Final = "a scrape of one device"
REPEATS: Final = 15
ROUNDS: Final = 1_000_000
OBSERVED: Final = 100_000
SCRAPES: Final = 20


def build(folder: Path) -> Path:
    """Compiles the program, and returns its path."""
    program = folder / "counting"
    command = [os.environ.get("CC", "gcc"), *FLAGS, str(HERE / "counting.c"), "-o", str(program), "-pthread"]
    subprocess.run(command, check=True)
    return program


def observe() -> Sample:
    """Measures the peer: an observation of a duration, in a histogram with labels that were looked up before."""
    from prometheus_client import CollectorRegistry, Histogram  # noqa: PLC0415 - an optional package

    histogram = Histogram("seconds", "a time", ["kind"], registry=CollectorRegistry()).labels("stream")
    with timed() as timer:
        for _ in range(OBSERVED):
            histogram.observe(0.001)
    return timer.sample(OBSERVED)


def scrape() -> Sample:
    """Measures a scrape."""
    aioacl.use_library("simulator")
    with aioacl.open_device(0), timed() as timer:
        for _ in range(SCRAPES):
            aioacl.prometheus_text()
    return timer.sample(SCRAPES)


def run(session: Session) -> list[Row]:
    """Measures the additions of C, the peer, and a scrape, in turn."""
    repeats = session.repeats(REPEATS)
    session.plan(repeats)
    found: dict[str, list[Sample]] = {each: [] for each in NAMES}
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))

        def count() -> Sample:
            ran = subprocess.run([program, str(ROUNDS)], check=True, stdout=subprocess.PIPE, text=True)
            for each, nanoseconds in json.loads(ran.stdout).items():
                found[each].append(Sample(nanoseconds / 1e9, nanoseconds / 1e9))
            return found["await"][-1]

        ways = {"count": count, SCRAPE: scrape}
        if find_spec(PACKAGE) is not None:
            ways[PEER] = observe
        measured = session.interleave(ways, repeats, "metrics")
    found = {each: samples[1:] for each, samples in found.items()}  # without the warm-up
    rows = [
        Row(NAME, NAMES[each], "", "ns", Spread.of(cpu * 1e9 for cpu in cpus(samples)))
        for each, samples in found.items()
    ]
    rows.append(Row(NAME, SCRAPE, "", "ms", Spread.of(wall * 1e3 for wall in walls(measured[SCRAPE]))))
    if PEER not in measured:
        return rows + [skipped_row(NAME, NAMES[each], PEER, PACKAGE) for each in NAMES]
    theirs = cpus(measured[PEER])
    return rows + [
        ratio_row(NAME, NAMES[each], PEER, cpus(samples), theirs) for each, samples in found.items()
    ]


SUITE: Final = Suite(NAME, "what counting adds to an await and to a call, beside prometheus_client", run)
