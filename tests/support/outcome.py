"""A pytest plugin for .ci/again.py: records which tests of a run failed, and runs one test only.

It is loaded by `-p tests.support.outcome`. With xdist, the process that distributes the tests records them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcome", metavar="FILE", type=Path, help="the file for the outcome of the run")
    parser.addoption("--only", metavar="TEST", help="the test to run; all others are deselected")


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("--outcome")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcome(path), "aioacl-outcome")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    only = config.getoption("--only")
    if only is not None:
        items[:] = [item for item in items if item.nodeid == only]


class Outcome:
    """What happened in a run. `problems` are failures that belong to no test, so no other run can excuse them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: dict[str, None] = {}
        self._passed: list[str] = []
        self._problems: list[str] = []
        self._ended = 0

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._problems.append(f"{report.nodeid} cannot be collected")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when not in ("setup", "call", "teardown"):  # xdist reports a test whose worker has died
            self._problems.append(f"the worker of {report.nodeid} died")
        elif report.failed:
            self._failed[report.nodeid] = None
        elif report.when == "call" and report.passed:
            self._passed.append(report.nodeid)

    def pytest_runtest_logfinish(self) -> None:
        self._ended += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        if error:
            self._problems.append(f"a worker died: {error}")

    def pytest_internalerror(self, excrepr: object) -> None:
        self._problems.append(f"an internal error of pytest: {excrepr}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._ended != session.testscollected:
            self._problems.append(f"{self._ended} of {session.testscollected} tests have ended")
        self._path.write_text(json.dumps(self._record()))

    def _record(self) -> dict[str, Sequence[Any]]:
        return {"failed": list(self._failed), "passed": self._passed, "problems": self._problems}
