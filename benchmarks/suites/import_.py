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
AIOACL: Final = (
    "import aioacl",
    "from aioacl import open_device",
)  # the latter also imports the code for devices
NEEDED: Final = "import asyncio, cffi"  # what aioacl cannot do without
OTHERS: Final = (NEEDED, "import asyncio", "import anyio", "import trio")
PROGRAM: Final = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"


def measure(statement: str) -> Sample:
    """Returns the time of the import in a new process. The start of Python is not a part of it."""
    command = [sys.executable, "-I", "-c", PROGRAM.format(statement)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Sample(float(done.stdout))


def run(session: Session) -> list[Row]:
    """Measures each import."""
    repeats = session.repeats(REPEATS)
    session.plan(repeats)
    statements = (*AIOACL, *OTHERS)
    found = session.interleave({each: partial(measure, each) for each in statements}, repeats, "imports")
    rows = [
        Row(NAME, each, "", "ms", Spread.of(wall * 1e3 for wall in walls(samples)))
        for each, samples in found.items()
    ]
    return rows + [
        ratio_row(NAME, ours, other, walls(found[ours]), walls(found[other]))
        for ours in AIOACL
        for other in OTHERS
    ]


SUITE: Final = Suite(NAME, "`import aioacl` in a new process, beside other imports", run)
