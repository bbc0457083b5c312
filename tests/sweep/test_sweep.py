"""Each call of the runtime fails in turn, and aioacl keeps its promises. All injections run with `-m sweep`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.command import finished

ROOT = Path(__file__).parents[2]


def sweep(*words: str, seconds: float) -> str:
    """Runs the sweep and returns its table. The sweep must find nothing."""
    done = finished([sys.executable, "-m", "tests.sweep", *words], cwd=ROOT, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def numbers(table: str) -> tuple[int, int]:
    """Returns the number of injections, and the number of functions with a fault."""
    injections = re.search(r"^(\d+) injections", table)
    functions = re.search(r"^(\d+) functions", table, flags=re.MULTILINE)
    assert injections is not None
    assert functions is not None
    return int(injections[1]), int(functions[1])


def test_sample_of_the_sweep_finds_nothing() -> None:
    injections, functions = numbers(sweep("--codes", "1", "--of", "30", seconds=100))
    assert injections > 50
    assert functions > 10


def test_replay_repeats_an_injection() -> None:
    lines = sweep("--replay", "copy_and_await", "aclrtMalloc:nth=1:rc=207001", seconds=60).splitlines()
    assert lines[0] == "hits: 1"
    assert lines[1].startswith("error: OutOfMemoryError")
    assert lines[2:] == []


@pytest.mark.sweep
def test_whole_sweep_finds_nothing() -> None:
    injections, functions = numbers(sweep(seconds=3600))
    assert injections >= 20_000
    assert functions >= 80
