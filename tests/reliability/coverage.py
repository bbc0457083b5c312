"""The tests reach every branch of the lifecycle, and 95 % of the package.

Quick: the state table is measured, with its own tests and the tests of the counts. By default: the modules of the
lifecycle, with the tests of these modules. Slow: the whole package, with all tests that are not marked `slow`, `sweep`
or `packaging`. Coverage is measured in threads, in child processes that tests start, and in forked children.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tests.reliability.names import ROOT, missing, unmatched
from tests.reliability.part import Outcome, Scale

LIMIT_SECONDS: Final = {Scale.QUICK: 40.0, Scale.DEFAULT: 300.0, Scale.SLOW: 1800.0}
PACKAGE_PERCENT: Final = 95.0
LIFECYCLE: Final = (
    "_base/states",
    "_lifecycle/manager",
    "_lifecycle/admission",
    "_lifecycle/lease",
    "_lifecycle/turns",
    "_lifecycle/counts",
    "_lifecycle/deferred",
    "_lifecycle/failures",
    "_lifecycle/procedures/procedure",
    "_lifecycle/procedures/close",
    "_lifecycle/procedures/foreign",
    "_lifecycle/procedures/reset",
    "_lifecycle/executor",
    "_lifecycle/jobs",
    "_wait/port",
    "_wait/asyncio",
    "_wait/thread",
    "_wait/current",
    "_wait/trio",
)
UNITS: Final = (
    "handles/test_dropped.py",
    "handles/test_ended.py",
    "handles/test_garbage.py",
    "handles/test_repr.py",
    "handles/test_truth_corners.py",
    "handles/test_uncollected.py",
    "handles/test_with.py",
    "lifecycle/test_closing.py",
    "lifecycle/test_counts_beside.py",
    "lifecycle/test_notifications.py",
    "lifecycle/test_executor.py",
    "lifecycle/test_faults.py",
    "lifecycle/test_procedures.py",
    "lifecycle/test_foreign.py",
    "lifecycle/test_foreign_found.py",
    "lifecycle/test_foreign_set.py",
    "lifecycle/test_foreign_sets.py",
    "lifecycle/test_foreign_unmet.py",
    "lifecycle/test_hooks.py",
    "lifecycle/test_job_waits.py",
    "lifecycle/test_late.py",
    "lifecycle/test_lease.py",
    "lifecycle/test_lease_exits.py",
    "lifecycle/test_maintenance.py",
    "lifecycle/test_owed_sets.py",
    "lifecycle/test_own_context.py",
    "lifecycle/test_reset.py",
    "lifecycle/test_reset_failing.py",
    "lifecycle/test_reset_stuck.py",
    "lifecycle/test_stuck_ends.py",
    "lifecycle/test_turns.py",
    "lifecycle/test_without_abort.py",
    "models/test_closed_loops.py",
    "models/test_model_resets.py",
    "models/test_resets.py",
    "test_contract.py",
    "test_device.py",
    "test_misuse.py",
    "wait/test_interrupts.py",
    "wait/test_no_memory.py",
    "wait/test_port.py",
)
REASON: Final = re.compile(r"#\s*pragma: no (cover|branch)\b(?! - \w)")


@dataclass(frozen=True)
class Selection:
    """The tests to run, and the modules whose branches they must all reach."""

    tests: tuple[str, ...]
    modules: tuple[str, ...]
    workers: int = 2
    match: str = ""  # pytest's -k expression
    package: bool = False  # whether the whole package is measured


SELECTIONS: Final = {
    Scale.QUICK: Selection(
        ("tests/unit/base/test_states.py", "tests/unit/lifecycle/test_counts.py"),
        ("_base/states",),
        0,
        match="not random_sequences",
    ),
    Scale.DEFAULT: Selection(
        (
            "tests/unit/base/test_states.py",
            "tests/unit/lifecycle/test_admission.py",
            "tests/unit/lifecycle/test_counts.py",
            *(f"tests/unit/{unit}" for unit in UNITS),
            "tests/unit/handles/test_awaits.py::TestOnALoop::test_result_is_refused_on_a_thread_whose_loop_runs",
            "tests/unit/wait/test_cancel.py",
            "tests/unit/handles/test_contract_awaits.py::test_34_without_reports_failures_are_confirmed_and_the_first_open_warns",
            "tests/process/test_fork.py::test_use_in_a_child_raises_while_all_locks_are_held",
            "tests/process/test_limits.py",
        ),
        LIFECYCLE,
        workers=0,  # starting workers would take as long as the tests
        match="not uvloop and not many_cancelled_copies "
        "and (not trio or test_port or test_lease or test_executor or test_no_memory)",
    ),
    Scale.SLOW: Selection(("tests",), LIFECYCLE, package=True),
}

MARKED: Final = "not slow and not sweep and not packaging"
LOOPS: Final = ("asyncio", "uvloop", "trio")
SETTINGS: Final = """
[run]
branch = true
source_pkgs = aioacl
patch = subprocess, fork, _exit
data_file = {folder}/data
[report]
exclude_also =
    if TYPE_CHECKING:
    raise AssertionError
    raise NotImplementedError
    @overload
"""


def problems() -> list[str]:
    """Returns a line for each module or test above that does not exist, and for each `-k` word without a match."""
    found = missing(f"aioacl/{module}.py" for module in LIFECYCLE)
    for selection in SELECTIONS.values():
        found += missing(selection.tests)
        found += unmatched(selection.match, [name for name in selection.tests if not missing([name])], LOOPS)
    return found


def measured(selection: Selection, folder: Path) -> tuple[int, str]:
    """Runs the tests and measures coverage; returns pytest's status and the end of its output."""
    settings = folder / "settings"
    settings.write_text(SETTINGS.format(folder=folder))
    workers = ("-n", str(selection.workers)) if selection.workers else ("-p", "no:xdist")
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "-q", "-x"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", *workers, "-m", MARKED, "-k", selection.match, *selection.tests],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if not key.startswith("AIOACL_")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout[-3000:]


class Reached:
    """The lines and branches that the tests reached."""

    def __init__(self, folder: Path) -> None:
        import coverage

        self._data = coverage.Coverage(data_file=str(folder / "data"), config_file=str(folder / "settings"))
        self._data.combine()
        self._data.load()
        spec = find_spec("aioacl")
        assert spec is not None, "expected aioacl to be installed, found no such package; install it"
        assert spec.origin is not None, "expected aioacl to have an __init__.py, found none; install it again"
        self.path = Path(spec.origin).parent

    def lacking(self, module: str) -> tuple[list[int], list[str]]:
        """The lines and branches of a module that no test reached."""
        file = str(self.path / f"{module}.py")
        _, _, _, lines, _ = self._data.analysis2(file)
        branches = self._data.branch_stats(file)
        arcs = [
            f"{line} ({taken} of {all_} branches)" for line, (all_, taken) in branches.items() if taken < all_
        ]
        return lines, [arc for arc in arcs if int(arc.partition(" ")[0]) not in lines]

    def percent(self, files: str = "") -> float:
        """The percentage of lines and branches that were reached."""
        include = str(self.path / (files or "*"))
        return float(self._data.report(file=io.StringIO(), include=[include]))


def without_reason(package: Path) -> list[str]:
    """Returns the coverage pragmas without a reason."""
    return [
        f"{path.name}:{number}: {line.strip()}"
        for path in sorted(package.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if REASON.search(line)
    ]


def run(scale: Scale, seed: int) -> Outcome:
    """Runs the tests of the scale, and checks their coverage."""
    del seed  # the tests choose their own seeds
    outcome = Outcome()
    selection = SELECTIONS[scale]
    outcome.findings += problems()
    if outcome.findings:
        return outcome
    with tempfile.TemporaryDirectory(prefix="aioacl-coverage-") as name:
        folder = Path(name)
        status, output = measured(selection, folder)
        outcome.expect(status == 0, f"expected pytest to end with status 0, got {status}: {output}")
        outcome.figures["tests"] = f"{' '.join(selection.tests)}: {output.strip().splitlines()[-1]}"
        try:
            reached = Reached(folder)
        except Exception as error:  # coverage raises errors of many kinds
            outcome.findings.append(f"expected to read the coverage data, got {error!r}: {output}")
            return outcome
        check(outcome, reached, selection)
    return outcome


def check(outcome: Outcome, reached: Reached, selection: Selection) -> None:
    """Adds the coverage to the figures, and a finding for each module with lines or branches that were not reached."""
    shares: dict[str, Any] = {}
    for module in selection.modules:
        lines, branches = reached.lacking(module)
        shares[module] = round(reached.percent(f"{module}.py"), 2)
        outcome.expect(
            not lines and not branches,
            f"{module}.py: expected no unreached code, got lines {lines}, branches {branches}",
        )
    outcome.figures["percent of lines and branches"] = shares
    if selection.package:
        percent = round(reached.percent(), 2)
        outcome.figures["percent of the package"] = percent
        outcome.expect(
            percent >= PACKAGE_PERCENT,
            f"expected tests to reach at least {PACKAGE_PERCENT} % of the package, got {percent} %",
        )
    for line in without_reason(reached.path):
        outcome.findings.append(f"expected a reason after each coverage pragma, got {line}")
