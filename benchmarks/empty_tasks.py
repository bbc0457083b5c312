"""Measures how many empty tasks per second go through one stream of the simulator, on one core.

    python benchmarks/empty_tasks.py [--tasks N] [--rounds N] [--core N] [--least RATE]

Builds empty_tasks.c and runs it on one core. The program measures empty kernels, event records, and a plain queue
between two threads, in turn. Prints one JSON object with the median rates, and with the rate of the kernels divided by
the rate of the queue. Exits with 1 if the rate of the kernels is below `--least` per second of processor time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from aioacl.simulator import library_path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
INCLUDES = [f"-I{ROOT / folder}" for folder in ("aioacl/_native", "aioacl/simulator")]
KINDS = ("kernels", "records", "queue")


def build(folder: Path) -> Path:
    """Compiles the program, and returns its path."""
    program = folder / "empty_tasks"
    compiler = os.environ.get("CC", "gcc")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", *INCLUDES]
    source = str(HERE / "empty_tasks.c")
    subprocess.run([compiler, *flags, source, "-o", str(program), "-pthread", "-ldl"], check=True)
    return program


def measure(tasks: int, rounds: int, core: int) -> list[dict[str, Any]]:
    """Runs the program on that core, and returns the rates of each round."""
    os.sched_setaffinity(0, {core})
    with tempfile.TemporaryDirectory() as folder:
        command = [str(build(Path(folder))), str(library_path()), str(tasks), str(rounds)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    rates: list[dict[str, Any]] = json.loads(done.stdout)
    return rates


def summary(rates: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the median rates, and the median of the kernels' rate divided by the queue's rate."""
    found: dict[str, Any] = {
        kind: {
            unit: statistics.median(each[kind][unit] for each in rates)
            for unit in ("per_second", "per_cpu_second")
        }
        for kind in KINDS
    }
    shares = [each["kernels"]["per_cpu_second"] / each["queue"]["per_cpu_second"] for each in rates]
    found["share_of_the_queue"] = round(statistics.median(shares), 3)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if the kernels reach the required rate, else 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=1_000_000, help="items of each kind (1000000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; medians are printed (5)")
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)), help="the core to run on")
    parser.add_argument("--least", type=float, default=1_000_000, help="least rate of kernels (1000000)")
    options = parser.parse_args(arguments)
    found = summary(measure(options.tasks, options.rounds, options.core))
    reached = found["kernels"]["per_cpu_second"] >= options.least
    print(json.dumps({"tasks": options.tasks, "core": options.core, **found, "reached": reached}, indent=2))
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
