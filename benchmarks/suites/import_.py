"""The time of `import aioacl` in a new process, beside other imports."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import Final

from benchmarks.harness import Sample, Session, Suite, walls
from benchmarks.rows import Row, Spread, ratio_row

NAME: Final = "import"
REPEATS: Final = 15
AIOACL: Final = "aioacl"
NEEDED: Final = "asyncio, cffi"  # what aioacl cannot do without
MODULES: Final = (AIOACL, NEEDED, "asyncio", "anyio", "trio")
PROGRAM: Final = "import time; began = time.perf_counter(); import {}; print(time.perf_counter() - began)"


def measure(module: str) -> Sample:
    """Returns the time of the import in a new process. The start of Python is not a part of it."""
    command = [sys.executable, "-I", "-c", PROGRAM.format(module)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Sample(float(done.stdout))


def run(session: Session) -> list[Row]:
    """Measures each import."""
    repeats = session.repeats(REPEATS)
    session.plan(repeats)
    found = session.interleave({name: partial(measure, name) for name in MODULES}, repeats, "imports")
    rows = [
        Row(NAME, f"import {name}", "", "ms", Spread.of(wall * 1e3 for wall in walls(samples)))
        for name, samples in found.items()
    ]
    ours = walls(found[AIOACL])
    return rows + [
        ratio_row(NAME, f"import {AIOACL}", f"import {name}", ours, walls(samples))
        for name, samples in found.items()
        if name != AIOACL
    ]


SUITE: Final = Suite(NAME, "`import aioacl` in a new process, beside other imports", run)
