"""Measures aioacl on the simulator, beside other ways to wait for the same work.

python -m benchmarks [SUITE ...] [--quick] [--pinned] [--rows] [--json FILE] [--write]

Each suite runs in a process of its own, which is pinned to one core, or to two for copies. The exit status is 1 if a
row misses what it must reach. README.md describes the suites.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

try:
    from rich.console import Console
except ModuleNotFoundError:
    sys.exit(
        "expected the packages of the extra `bench`, got no rich; run: "
        ".venv/bin/pip install -c constraints.txt -e '.[bench]'"
    )

from benchmarks import plot, report
from benchmarks.gates import GATES
from benchmarks.machine import facts
from benchmarks.rows import exit_status, judge, missing
from benchmarks.run import ROOT, run
from benchmarks.suites import SUITES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.rows import Judged

PAGE: Final = ROOT / "docs" / "performance.md"
WIDTH: Final = 160  # of the table, if the output is not a terminal
PICTURE: Final = "assets/performance.svg"


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=(__doc__ or "").partition("\n")[0],
        epilog="suites: " + "; ".join(f"{suite.name} ({suite.summary})" for suite in SUITES.values()),
    )
    made.add_argument("suites", nargs="*", metavar="SUITE", help="the suites to run (all)")
    made.add_argument("--quick", action="store_true", help="a few seconds a suite; the numbers are rough")
    made.add_argument(
        "--pinned", action="store_true", help="leave out the unpinned processes, whose rows are never judged"
    )
    made.add_argument("--rows", action="store_true", help="print the rows without a gate too")
    made.add_argument("--json", type=Path, metavar="FILE", help="write all rows to a file")
    made.add_argument(
        "--write", action="store_true", help="write the table and the plot of docs/performance.md"
    )
    return made


def chosen(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options. Ends the process with status 2 and a message if one is wrong."""
    made = parser()
    options = made.parse_args(arguments)
    for name in options.suites:
        if name not in SUITES:
            made.error(f"expected suites of {', '.join(SUITES)}; got {name!r}")
    if options.write and (options.suites or options.quick or options.pinned):
        made.error(
            "expected --write without suites, --quick and --pinned; the page has all rows of a full run"
        )
    return options


def write_page(judged: Sequence[Judged], page: Path = PAGE) -> None:
    """Writes the generated part of the page, and its plot."""
    text = report.between_markers(page.read_text(), report.markdown(judged, facts(), PICTURE))
    plot.draw((each.row for each in judged), page.parent / PICTURE)
    page.write_text(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the suites, shows the result, and returns the exit status."""
    options = chosen(sys.argv[1:] if arguments is None else arguments)
    suites = [SUITES[name] for name in dict.fromkeys(options.suites or SUITES)]
    rows = run(suites, quick=options.quick, unpinned=not (options.quick or options.pinned))
    lacking = missing(rows, GATES, [suite.name for suite in suites])
    if lacking:
        raise SystemExit(
            f"expected a row for each gate, got none for {lacking}; correct gates.py or the suite"
        )
    judged = judge(rows, GATES)
    console = Console()
    report.show(judged, console if console.is_terminal else Console(width=WIDTH), everything=options.rows)
    if options.json:
        report.write_json(options.json, report.as_json(judged, facts(), quick=options.quick))
    if options.write:
        write_page(judged)
    return exit_status(judged)


if __name__ == "__main__":
    sys.exit(main())
