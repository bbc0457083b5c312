"""Runs tests on changed copies of the package, and reports which test noticed each change.

Two copies are tested at a time. Each run is a fork of this process, so a run needs no new Python process. This process
has imported the test tools and nothing of aioacl. The child puts its copy first on the path and reports over a pipe
which test is running. If a test takes far longer than on the unchanged package, the child is killed, and the change
counts as noticed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

from tests.reliability.names import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

SLOTS: Final = 2
PATIENCE_SECONDS: Final = 10.0  # added to the expected time of a test; the sum is its time limit
PATIENCE_FACTOR: Final = 10
MEASURING_SECONDS: Final = 60.0  # the limit of tests that were not measured yet
GIVE_UP_SECONDS: Final = 4.0
PR_SET_PDEATHSIG: Final = 1
COLLECTING: Final = "collecting"
OPTIONS: Final = (
    "-q",
    "-x",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-m",
    "not slow and not sweep and not packaging",
    "--hypothesis-seed=1",
    "-o",
    "pythonpath=",
)

KILLED: Final = "killed"
HUNG: Final = "hung"
SURVIVED: Final = "survived"
BROKEN: Final = "not run"
BROKEN_STATUS: Final = 70


def preload() -> None:
    """Imports the modules that every run needs, before the first fork."""
    for name in ("anyio", "asyncio", "hypothesis", "numpy", "trio", "trio.testing", "uvloop"):
        __import__(name)
    assert "aioacl" not in sys.modules, "expected aioacl not to be imported yet: a copy could not replace it"


@dataclass
class Ended:
    """How a run ended."""

    kind: str
    by: str = ""  # the test that noticed the change, or that was running at the end
    tests: int = 0
    seconds: float = 0.0
    log: str = ""


@dataclass
class Plan:
    """The tests of a run, their order, and their time limits."""

    files: tuple[str, ...]
    share: int = 0  # the number of this share, if the tests are divided into several
    shares: int = 1
    durations: dict[str, float] = field(default_factory=dict)
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    longest: float = float("inf")  # tests that take longer are left out
    group: str = ""
    patience: float = PATIENCE_SECONDS

    def chosen(self, items: list[pytest.Item]) -> list[pytest.Item]:
        """Returns the tests of this plan. The tests that noticed the most changes per second come first."""
        items = [item for item in items if "uvloop" not in item.nodeid]  # uvloop has the same port as asyncio
        items = [item for item in items if self.durations.get(item.nodeid, 0.0) <= self.longest]
        return sorted(items[self.share :: self.shares], key=lambda item: self.rank(item.nodeid))

    def rank(self, name: str) -> tuple[float, float, int]:
        """Returns the sort key of a test: tests with lower keys run earlier."""
        cost = self.durations.get(name, 0.05) + 0.01
        own, all_ = self.kills[self.group, name], self.kills["", name]
        file = next((i for i, path in enumerate(self.files) if name.startswith(path)), 0)
        return (-(3 * own + all_) / cost, file, 0) if own or all_ else (0.0, file, 0)

    def limit(self, test: str) -> float:
        """The time limit of a test."""
        return self.patience + PATIENCE_FACTOR * self.durations.get(test, 0.0)


class Reporter:
    """A pytest plugin: orders the tests, and reports their progress."""

    def __init__(self, pipe: int, plan: Plan) -> None:
        self._pipe = pipe
        self._plan = plan
        self._began = 0.0
        self.noticed = False

    def write(self, kind: str, test: str = "", seconds: float = 0.0) -> None:
        """Writes one line to the parent process."""
        os.write(self._pipe, (json.dumps([kind, test, seconds]) + "\n").encode())

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Selects and sorts the tests. If the plan has a group, also shortens the time limit of the tests' waits."""
        if self._plan.group:
            sys.modules["tests.kit"].__dict__["PATIENCE_SECONDS"] = GIVE_UP_SECONDS
        items[:] = self._plan.chosen(items)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Reports that a test begins."""
        self._began = time.monotonic()
        self.write("start", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Reports a failed test."""
        if report.failed:
            self.noticed = True
            self.write("failed", report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Reports the end of a test."""
        self.write("end", nodeid, time.monotonic() - self._began)


@dataclass
class Job:
    """A change, and the tests that should notice it."""

    name: str
    plan: Plan
    files: dict[str, str] = field(default_factory=dict)  # changed files of the package, with their new text
    # Called in the child with the copy's folder; may raise Noticed.
    before: Callable[[Path, Reporter], None] | None = None


class Noticed(Exception):
    """A check outside of pytest noticed the change."""


def _in_a_thread(error: BaseException) -> bool:
    """Whether pytest raised this error when it ended, because a thread had raised an exception.

    Such an error belongs to no test.
    """
    warning = pytest.PytestUnhandledThreadExceptionWarning
    return isinstance(error, warning) or (
        isinstance(error, BaseExceptionGroup) and error.subgroup(warning) is not None
    )


def _tested(job: Job, reporter: Reporter) -> int:
    """Returns pytest's status, or 1 if pytest raised after a failed test or because of an error in a thread."""
    try:
        return int(pytest.main([*OPTIONS, f"--rootdir={ROOT}", *job.plan.files], plugins=[reporter]))
    except BaseException as error:
        if not reporter.noticed and not _in_a_thread(error):
            raise
        traceback.print_exc()
        return 1


def _child(copy: Path, job: Job, pipe: int, log: Path) -> NoReturn:
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # end if the parent process is killed
    for descriptor, name in ((0, os.devnull), (1, str(log)), (2, str(log))):
        opened = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, descriptor)
    sys.path.insert(0, str(copy))
    sys.dont_write_bytecode = True
    # If a test starts a process with -c, PYTHONSAFEPATH makes that process import the copy, not the checkout's package.
    path = os.pathsep.join((str(copy), str(ROOT)))
    os.environ |= {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    os.chdir(ROOT)
    reporter = Reporter(pipe, job.plan)
    status = BROKEN_STATUS
    try:
        if job.before is not None:
            job.before(copy, reporter)
        if job.plan.files:
            status = _tested(job, reporter)
            found = str(getattr(sys.modules.get("aioacl"), "__file__", copy))
            if not found.startswith(str(copy)):
                raise RuntimeError(f"expected to test the package in {copy}, got {found}")
        else:
            status = 0
    except Noticed as noticed:
        reporter.write("failed", str(noticed))
        status = 1
    except BaseException:
        status = BROKEN_STATUS
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class Run:
    """A running child, as the parent process sees it."""

    def __init__(self, copy: Path, job: Job, log: Path) -> None:
        self.job = job
        self.log = log
        self.began = self.since = time.monotonic()
        self.test = COLLECTING
        self.failed = ""
        self.tests = 0
        self.hung = False
        self._rest = b""
        self.pipe, end = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _child(copy, job, end, log)
        os.close(end)

    def read(self) -> bool:
        """Reads the child's reports. Returns False if the child has closed its end of the pipe."""
        data = os.read(self.pipe, 1 << 16)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            kind, test, seconds = json.loads(line)
            self.test, self.since = (test, time.monotonic()) if kind == "start" else (self.test, self.since)
            self.failed = self.failed or (test if kind == "failed" else "")
            if kind == "end":
                self.tests += 1
                self.job.plan.durations.setdefault(test, seconds)
        return bool(data)

    def left(self) -> float:
        """The seconds that are left to the running test."""
        allowed = 4 * PATIENCE_SECONDS if self.test == COLLECTING else self.job.plan.limit(self.test)
        return self.since + allowed - time.monotonic()

    def kill(self) -> None:
        """Kills a child that hangs."""
        self.hung = True
        os.kill(self.pid, signal.SIGKILL)
        self._end_group()

    def _end_group(self) -> None:
        with suppress(ProcessLookupError):  # the child has ended
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> Ended:
        """Waits for the child, kills the processes that the child has left, and returns how the run ended."""
        os.close(self.pipe)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._end_group()
        kind = HUNG if self.hung else {0: SURVIVED, BROKEN_STATUS: BROKEN}.get(status, KILLED)
        by = self.failed or ("" if kind == SURVIVED else f"{self.test} ({status})")
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        self.log.unlink(missing_ok=True)
        return Ended(kind, by, self.tests, time.monotonic() - self.began, text[-4000:])


def _link_library(source: str, target: str) -> None:
    if source.endswith(".so"):
        try:
            os.link(source, target)
        except OSError:  # the target is on another file system
            pass
        else:
            return
    shutil.copy2(source, target)


class Copies:
    """The copies of the package, and the runs on them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._template = folder / "template"
        found = importlib.util.find_spec("aioacl")
        assert found is not None, "expected aioacl to be installed, found no such package; install it"
        assert found.origin is not None, (
            "expected aioacl to have an __init__.py, found none; install it again"
        )
        self._clone(Path(found.origin).parent, self._template / "aioacl")
        for slot in range(SLOTS):
            self._clone(self._template / "aioacl", self.copy(slot) / "aioacl")

    @staticmethod
    def _clone(source: Path, target: Path) -> None:
        """Copies the package with compiled Python files. Links the libraries, because a job never writes to them."""
        ignored = shutil.ignore_patterns("_native")
        shutil.copytree(source, target, ignore=ignored, copy_function=_link_library)

    def copy(self, slot: int) -> Path:
        """Returns the folder of the copy with that number."""
        return self._folder / f"copy-{slot}"

    @property
    def library(self) -> Path:
        """The simulator's library."""
        return self._template / "aioacl" / "simulator" / "libascendcl.so"

    def source(self, name: str) -> str:
        """Returns the unchanged text of a file of the package."""
        return (self._template / "aioacl" / name).read_text()

    def _change(self, slot: int, files: dict[str, str]) -> None:
        for name, text in files.items():
            file = self.copy(slot) / "aioacl" / name
            file.write_text(text)
            for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
                compiled.unlink()

    def _restore(self, slot: int) -> None:
        for file in self._template.rglob("*"):
            copied = self.copy(slot) / file.relative_to(self._template)
            if file.is_file() and not (
                copied.exists() and copied.stat().st_mtime_ns == file.stat().st_mtime_ns
            ):
                shutil.copy2(file, copied)

    def _start(self, slot: int, job: Job) -> Run:
        self._change(slot, job.files)
        return Run(self.copy(slot), job, self._folder / f"log-{slot}")

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Ended]]:
        """Runs the jobs, as many at a time as there are copies."""
        waiting, free = iter(jobs), set(range(SLOTS))
        with selectors.DefaultSelector() as selector:
            while True:
                while free and (job := next(waiting, None)) is not None:
                    slot = free.pop()
                    run = self._start(slot, job)
                    selector.register(run.pipe, selectors.EVENT_READ, (slot, run))
                running = [key.data for key in selector.get_map().values()]
                if not running:
                    return
                ready = selector.select(max(0.0, min(run.left() for _, run in running)))
                ended = [key.data for key, _ in ready if not key.data[1].read()]
                if not ready:
                    ended = [(slot, run) for slot, run in running if run.left() <= 0]
                    for _, run in ended:
                        run.kill()
                for slot, run in ended:
                    selector.unregister(run.pipe)
                    yield run.job, run.end()
                    self._restore(slot)
                    free.add(slot)

    def baseline(
        self, plan: Plan, before: Callable[[Path, Reporter], None] | None = None, *, everywhere: bool = True
    ) -> list[str]:
        """Runs the plan on unchanged copies and measures its tests; returns a text for each run that failed.

        `before` runs on each copy. Without `everywhere` it runs on the first copy only, which is enough if pytest has
        nothing to run.
        """
        halves = [
            Plan(
                plan.files, share, SLOTS, plan.durations, plan.kills, plan.longest, patience=MEASURING_SECONDS
            )
            for share in range(SLOTS)
        ]
        jobs = [
            Job(f"unchanged {half.share}", half, before=before if everywhere or not half.share else None)
            for half in halves
        ]
        return [
            f"{job.name}: expected all tests to pass, got {ended.kind} by {ended.by}\n{ended.log}"
            for job, ended in self.run(jobs)
            if ended.kind != SURVIVED
        ]


@contextmanager
def package_copies() -> Generator[tuple[Copies, Path]]:
    """Yields the copies, and a folder for builds; both are deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="aioacl-mutants-") as folder:
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(Path(folder, "hypothesis"))
        preload()
        yield Copies(Path(folder, "copies")), Path(folder)
