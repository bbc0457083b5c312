"""Runs suites, each in a process of its own, and collects their rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.rows import row_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.harness import Suite
    from benchmarks.rows import Row

ROOT: Final = Path(__file__).resolve().parents[1]


def environment(suite: Suite) -> dict[str, str]:
    """Returns the environment of a suite's process.

    It has this process's variables without AIOACL_*, and the variables that the suite sets.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIOACL_")}
    return {**kept, **suite.environment}


def in_process(suite: Suite, cores: int, *, quick: bool, bar: Progress) -> list[Row]:
    """Runs the suite in a new process that is pinned to `cores` cores (0: not pinned)."""
    where = f"{cores} core{'s' if cores > 1 else ''}" if cores else "unpinned"
    task = bar.add_task(f"{suite.name}, {where}", total=None, what="")
    command = [sys.executable, "-m", "benchmarks.child", suite.name, str(cores)]
    command += ["--quick"] if quick else []
    rows: list[Row] | None = None
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment(suite)
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            said = json.loads(line)
            if "progress" in said:
                done, total, what = said["progress"]
                bar.update(task, completed=done, total=total, what=what)
            else:
                rows = [row_of(each) for each in said["rows"]]
    if child.returncode or rows is None:
        raise SystemExit(
            f"expected rows from the suite {suite.name}, got the exit status {child.returncode}; "
            "the reason is above"
        )
    bar.update(task, what="done")
    if not bar.console.is_terminal:  # here the console draws no bar
        bar.console.print(f"{suite.name}, {where}: {len(rows)} rows")
    return rows


def run(suites: Iterable[Suite], *, quick: bool, unpinned: bool) -> list[Row]:
    """Runs the suites one after another, each with a progress bar.

    Suites that are also unpinned run a second time on all cores, if `unpinned`.
    """
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    rows: list[Row] = []
    with Progress(*columns, console=Console(stderr=True)) as bar:
        for suite in suites:
            rows += in_process(suite, suite.cores, quick=quick, bar=bar)
            if suite.unpinned and unpinned:
                rows += in_process(suite, 0, quick=quick, bar=bar)
    return rows
