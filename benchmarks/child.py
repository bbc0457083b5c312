"""Runs one suite in this process, and prints its progress and its rows as lines of JSON.

python -m benchmarks.child SUITE CORES [--quick]

CORES is the number of cores that the process is pinned to; 0: it is not pinned.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from typing import Any

from benchmarks.harness import Session


def pin(cores: int) -> None:
    """Pins the process to the last cores that it may use. SystemExit if there are fewer."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < cores:
        raise SystemExit(
            f"expected {cores} cores for this suite, got {len(usable)}; allow the process more cores"
        )
    if cores:
        os.sched_setaffinity(0, usable[-cores:])


def _say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def main(arguments: list[str]) -> None:
    """Runs the suite."""
    name, cores, *options = arguments
    pin(int(cores))  # before the import starts threads

    from benchmarks.suites import SUITES  # noqa: PLC0415 - see above

    session = Session(
        quick="--quick" in options,
        progress=lambda done, total, what: _say(progress=[done, total, what]),
        pinned=int(cores) > 0,
    )
    rows = SUITES[name].run(session)
    _say(rows=[asdict(replace(row, pinned=session.pinned)) for row in rows])


if __name__ == "__main__":
    main(sys.argv[1:])
