"""The pytest plugin's actions around each test that it checks; pytest_aioacl.py registers them.

The audit of a test begins before the setup of its first fixture and ends after the teardown of its last one. So the
audit also finds resources that a fixture made. It finds them even if the loop on which they were made has ended,
because all code here is synchronous. The simulator is released before the fixtures are torn down, because a fixture
that closes a stream must not wait for work that the test held.

A fixture of a broader scope may be set up within the first test that uses it. The fixture, not the test, owns the
resources that it makes. The resources are checked when the fixture is torn down, after the last test that uses it.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, SupportsIndex

import pytest

from aioacl._base import flight, flight_ring, late
from aioacl._base.errors import AclError, LibraryConflict, LibraryNotFound, ParameterError
from aioacl._library.load import library_info, use_library
from aioacl._lifecycle import manager
from aioacl._opening import open_device
from aioacl._pool.opening import open_pool
from aioacl.testing._audit import Audit, Finding, report
from aioacl.testing._broader import Broader
from aioacl.testing._cleanup import plainly, recover_device, release_everything, restore_initial_state
from aioacl.testing._snapshot import is_simulated, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from types import ModuleType

    from aioacl._device import Device
    from aioacl._library.load import LibraryInfo
    from aioacl._pool.pool import Pool
    from pytest_aioacl import Open, OpenPool, Settings

RECORDS_KEPT: Final = 256  # of the flight recorder
RECORDS_SHOWN: Final = 12
HELD_BY_A_TRACEBACK: Final = ("descriptors", "directories")
TRIO_ON_ASYNCIO: Final = (
    "expected this test for trio to have no marker asyncio, got that marker, so pytest-asyncio would run the test on "
    'asyncio (asyncio_mode = "auto" adds the marker to each async test); '
    'set asyncio_mode = "strict" in pytest\'s settings, and remove the marker asyncio from tests for trio'
)

_audits: Final = pytest.StashKey[Audit]()
_watchdogs: Final = pytest.StashKey["Watchdog"]()
_raised: Final = pytest.StashKey[bool]()  # the test, or its setup or teardown, has raised
_broken: Final = pytest.StashKey[bool]()  # pytest reports the exception as a failure: xfail does not cover it
_checked: Final = pytest.StashKey[bool]()  # an audit has begun, which recovers devices at its end
_first: Final = pytest.StashKey[int]()  # the number of the first record of the test in the flight recorder
_left: Final = pytest.StashKey[bool]()  # the audit has findings


def _is_ours(trace: pytest.ExceptionInfo[BaseException]) -> bool:
    return isinstance(trace.value, AclError)


def hide_our_frames() -> None:
    """Hides aioacl's frames in the tracebacks of an AclError, so that they end at the user's line."""
    for name, module in list(sys.modules.items()):
        if name.startswith("aioacl."):
            module.__dict__["__tracebackhide__"] = _is_ours  # pytest looks it up in the globals of each frame


def load(choice: str) -> LibraryInfo:
    """Returns the library; fails the test, without a traceback, if it cannot be loaded."""
    try:
        return use_library(choice)
    except (LibraryNotFound, LibraryConflict) as error:
        problem = str(error)
    # Not in the except block, because pytest would print the error twice.
    pytest.fail(
        f"{problem}\nThe option --aioacl-library or the setting aioacl_library chooses the library of the tests.",
        pytrace=False,
    )


def use_pyacl(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Makes `import acl` give the module of aioacl, for this process and its children, until monkeypatch undoes it."""
    from aioacl._pyacl.modules import modules  # noqa: PLC0415 - only tests with the fixture need it
    from aioacl._pyacl.place import FOLDER, python_path  # noqa: PLC0415 - as above

    found = modules()
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    monkeypatch.setenv("PYTHONPATH", python_path(os.environ.get("PYTHONPATH")))
    for module in found.values():
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return found["acl"]


@contextmanager
def opener(waits: Literal["watch", "thread"]) -> Generator[Open]:
    """Yields a function that opens devices, for the fixture. Closes these devices at the end of the context."""
    opened: list[Device] = []

    def open_one(index: SupportsIndex = 0) -> Device:
        opened.append(plainly(lambda: open_device(index, waits, cache=False).result()))
        return opened[-1]

    yield open_one
    while opened:
        device = opened.pop()
        plainly(lambda device=device: device.close().result())  # type: ignore[misc]  # the default's type


@contextmanager
def pool_opener(waits: Literal["watch", "thread"]) -> Generator[OpenPool]:
    """Yields a function that opens pools, for the fixture. Closes these pools at the end of the context."""
    opened: list[Pool] = []

    def open_one(model: Any, devices: Any = None, **options: Any) -> Pool:
        options.setdefault("waits", waits)
        opened.append(plainly(lambda: open_pool(model, devices, **options).result()))
        return opened[-1]

    try:
        yield open_one
    finally:
        while opened:
            pool = opened.pop()
            plainly(lambda pool=pool: pool.close().result())  # type: ignore[misc]  # the default's type


class Watchdog:
    """Releases the held streams and hung calls of a test that does not end in time, so that the test can end."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.expired = False
        self._recent: tuple[flight.FlightRecord, ...] = ()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.name = "aioacl-testing-watchdog"
        self._timer.daemon = True

    def start(self) -> None:
        """Starts the timer of the test."""
        if self.seconds > 0 and is_simulated():
            self._timer.start()

    def _expire(self) -> None:
        self.expired = True
        self._recent = flight.recent(
            flight.EVERY_DEVICE, RECORDS_KEPT
        )  # before the releases, which add records
        release_everything()

    def stop(self) -> list[Finding]:
        """Stops the timer; returns a finding if it had expired."""
        self._timer.cancel()
        text = (
            f"the test was still running after {self.seconds:g} s (aioacl_watchdog), so its held streams and hung "
            "calls were released"
        )
        return [Finding("watchdog", "\n".join([text, *recorded(self._recent)]))] if self.expired else []


def recorded(records: Sequence[flight.FlightRecord]) -> list[str]:
    """Returns the last records of the flight recorder in words, as lines of a report."""
    told = [f"    {line}" for line in flight.lines(records, RECORDS_SHOWN)]
    return ["  The last records of the flight recorder:", *told] if told else []


def wants_trio_on_asyncio(item: pytest.Item) -> bool:
    """Whether pytest-asyncio will run a test for trio (of anyio's plugin or pytest-trio) on asyncio."""
    backend: Any = getattr(item, "funcargs", {}).get("anyio_backend")
    marked = item.get_closest_marker("trio") is not None  # the marker of pytest-trio
    on_trio = marked or backend == "trio" or (isinstance(backend, tuple) and "trio" in backend)
    taken = item.get_closest_marker("asyncio") is not None and item.config.pluginmanager.has_plugin("asyncio")
    return on_trio and taken and bool(inspect.iscoroutinefunction(getattr(item, "function", None)))


def refuse_unnamed(marker: pytest.Mark, place: str) -> None:
    """Raises ParameterError for a marker without names, or with a name that no audit counts."""
    if marker.kwargs or not marker.args:
        raise ParameterError(
            f"{place}: expected names, got {', '.join(marker.kwargs) or 'nothing'}",
            hint='Pass the names as strings: aioacl_allow_leaks("streams").',
        )
    refuse_unknown(marker.args, place)


class Hooks:
    """The implementations of pytest's hooks, for the tests that are checked."""

    def __init__(self, settings: Settings, concerned: Iterable[pytest.Item]) -> None:
        self._settings = settings
        late.listeners.add(hide_our_frames)
        hide_our_frames()
        items = tuple(concerned)
        self._refuse_unknown_leaves(items)
        self._concerned = frozenset(item.nodeid for item in items)
        self._broader = Broader()
        self._failed_unchecked = (
            False  # a test without an audit has failed, perhaps because a device does not work
        )

    def _refuse_unknown_leaves(self, items: Iterable[pytest.Item]) -> None:
        try:
            refuse_unknown(self._settings.leaves, "aioacl_allow_leaks")
            for item in items:
                for marker in item.iter_markers("aioacl_allow_leaks"):
                    refuse_unnamed(marker, f"{item.nodeid}: aioacl_allow_leaks")
        except ParameterError as error:
            raise pytest.UsageError(str(error)) from None

    # --- before a test -----------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Before the first fixture: skips a test that needs another library, else begins the audit."""
        if item.nodeid not in self._concerned:
            return
        self._skip(item)
        load(self._settings.library)
        if self._failed_unchecked:
            self._failed_unchecked = False
            release_everything()
            recover_all()
        if self._settings.check != "none":
            self._begin(item)

    def _skip(self, item: pytest.Item) -> None:
        wants_card = item.get_closest_marker("aioacl_hardware") is not None
        wants_simulator = item.get_closest_marker("aioacl_simulator") is not None
        if wants_card and (self._settings.library == "simulator" or self._simulated()):
            pytest.skip("needs a card: --aioacl-library=/path/to/libascendcl.so")
        if wants_simulator and self._settings.library != "simulator" and not self._simulated():
            pytest.skip("needs the simulator: --aioacl-library=simulator")

    def _simulated(self) -> bool:
        load(self._settings.library)
        return library_info().backend == "simulator"

    def _begin(self, item: pytest.Item) -> None:
        marker = item.get_closest_marker("aioacl_allow_leaks")
        allowed = (*self._settings.leaves, *(marker.args if marker else ()))
        watchdog = item.stash[_watchdogs] = Watchdog(self._settings.watchdog)
        watchdog.start()
        restore_initial_state()
        audit = item.stash[_audits] = self._broader.audit = Audit(*allowed, patience=self._settings.patience)
        audit.begin()
        item.stash[_checked] = True
        item.stash[_first] = flight_ring.count()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Fails a test for trio that pytest-asyncio would run on asyncio, because that would test the wrong loop."""
        if item.nodeid in self._concerned and wants_trio_on_asyncio(item):
            pytest.fail(TRIO_ON_ASYNCIO, pytrace=False)

    # --- after a test ------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # around pytest's own hook, which handles xfail
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Stores whether the test failed, because the leaks of a failed test are printed below its failure.

        Leaks fail a test even if the test is marked xfail.
        """
        report = yield
        if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
            item.stash[_raised] = True
            item.stash[_broken] = item.stash.get(_broken, False) or report.failed
            self._failed_unchecked |= not item.stash.get(_checked, False)
        if call.when == "teardown" and item.stash.get(_left, False) and hasattr(report, "wasxfail"):
            report.outcome = "failed"
            del report.wasxfail
        return report

    @pytest.hookimpl(wrapper=True, trylast=True)  # within pytest's capture, around all fixtures
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Releases the simulator; after all fixtures are torn down, ends the audit."""
        audit = item.stash.get(_audits, None)
        if audit is None:
            return (yield)
        del item.stash[_audits]
        release_everything()
        try:
            result = yield
        except BaseException:
            item.stash[_raised] = item.stash[_broken] = True
            self._end(item, audit)
            raise
        self._end(item, audit)
        return result

    def _end(self, item: pytest.Item, audit: Audit) -> None:
        raised = item.stash.get(_raised, False)
        release_everything()  # the teardown of a fixture may have held a stream or a call
        left = [*item.stash[_watchdogs].stop(), *self._broader.findings(), *audit.left()]
        recovered = recover_all() if raised or left else []  # a reset frees blocked resources too
        counted = audit.counted(*(HELD_BY_A_TRACEBACK if raised else ()))
        findings = [finding for finding in (*left, *counted) if finding.name not in audit.allowed]
        item.stash[_left] = bool(findings)
        watched = any(finding.name == "watchdog" for finding in findings)  # it has records of its own
        told = recorded(self._records_of(item)) if findings and not watched else []
        text = "\n".join([*([report(findings)] if findings else []), *told, *recovered])
        if text and (item.stash.get(_broken, False) or (raised and not findings)):
            item.add_report_section("teardown", "aioacl", text)
        elif text:
            pytest.fail(text, pytrace=False)

    @staticmethod
    def _records_of(item: pytest.Item) -> list[flight.FlightRecord]:
        """Returns the records of a test, without those of earlier tests."""
        newest = flight.recent(flight.EVERY_DEVICE, RECORDS_KEPT)
        return [each for each in newest if each.number >= item.stash[_first]]

    # --- fixtures of a broader scope -----------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Attributes to a fixture of a broader scope the resources that it makes."""
        if fixturedef.scope == "function":
            return (yield)
        with self._broader.making(fixturedef):
            return (yield)

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Checks the resources that a fixture of a broader scope has not closed."""
        if fixturedef.scope != "function":
            self._broader.gone(fixturedef)


def recover_all() -> list[str]:
    """Tests every device that was ever open and resets those that do not work; returns their problems."""
    texts: list[str] = []
    for index in list(manager._managers):
        try:
            texts += [f"aioacl: {text}" for text in [recover_device(index)] if text]
        except AclError as error:
            texts.append(f"aioacl: device {index} could not be recovered: {error}")
    return texts
