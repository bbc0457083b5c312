"""A pytest plugin for .ci/run: records the CPU time of each quick test, and of a loop that calibrates the processor.

It is loaded by `-p tests.support.cost`. The process that runs a test measures its CPU time, and passes it on in the
test's report. The process that distributes the tests runs the loop at five moments of the run, and writes the file.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

PIECES: Final = 5
ROUNDS: Final = 1_000_000
SECONDS: Final = "cpu_seconds"
_begin = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cost", metavar="FILE", type=Path, help="the file for the CPU times of the quick tests"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the record, except in a run of .ci/again.py that repeats one test with the same options."""
    path: Path | None = config.getoption("--cost")
    repeats = config.getoption("--only", None) is not None
    if path is not None and not repeats and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Cost(path), "aioacl-cost")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_begin] = time.process_time()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown" and item.get_closest_marker("quick"):
        report.user_properties.append((SECONDS, time.process_time() - item.stash[_begin]))
    return report


def piece() -> float:
    """Returns the CPU time of one run of the loop."""
    begin, total = time.thread_time(), 0
    for number in range(ROUNDS):
        total += number * number % 7
    return time.thread_time() - begin


class Cost:
    """The CPU times of a run: `tests` by the ids of the quick tests, and `pieces` of the loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: dict[str, float] = {}
        self._pieces: list[float] = []
        self._ended = 0

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties: dict[str, Any] = dict(report.user_properties)
        if SECONDS in properties:
            self._tests[report.nodeid] = properties[SECONDS]

    def pytest_runtest_logfinish(self) -> None:
        self._ended += 1
        due = (2 * PIECES * self._ended // max(1, self._session.testscollected) + 1) // 2
        while len(self._pieces) < due:
            self._pieces.append(piece())

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps({"tests": self._tests, "pieces": self._pieces}))
