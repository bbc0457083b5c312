"""The pytest plugin of aioacl: devices as fixtures, and a check after each test that it left nothing behind.

pytest imports this in every project of an environment that has aioacl. So it imports nothing of aioacl by itself: not
before a test asks for a fixture or has a marker of it, or the project's settings say `aioacl_check = all`.

It is a module beside the package because importing one inside it would import the package.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, SupportsIndex, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import ModuleType

    import aioacl

SIMULATOR: Final = "simulator"
FIXTURES: Final = frozenset({"aioacl_library", "aioacl_simulator", "aioacl_open", "aioacl_device"})
MARKERS: Final = {
    "aioacl_hardware": "the test needs a card: skipped on the simulator",
    "aioacl_simulator": "the test needs the simulator: skipped on a card",
    "aioacl_allow_leaks(name, ...)": "what the test may leave: devices, streams, device_blocks, host_blocks, threads, "
    "descriptors, violations, ...",
}
CHECKS: Final = ("fixtures", "all", "none")


@dataclass(frozen=True)
class Settings:
    """What the command line and the ini file say.

    Attributes:
        library: "simulator", or the absolute path of a real one.
        check: which tests are checked for what they leave: those with a fixture or marker of aioacl, all, none.
        leaves: what every test may leave.
        patience: seconds that threads and unfinished work of a test get to end.
        watchdog: seconds after which held streams and hung calls of a test are released; 0 for never.
    """

    library: str
    check: str
    leaves: tuple[str, ...]
    patience: float
    watchdog: float


_settings: Final = pytest.StashKey[Settings]()


class Open(Protocol):
    """The fixture `aioacl_open`: opens a device, which is closed after the test."""

    def __call__(self, index: SupportsIndex = 0) -> aioacl.Device:
        """Opens device `index`."""
        ...


# --- settings ----------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option and the settings."""
    group = parser.getgroup("aioacl")
    group.addoption(
        "--aioacl-library", metavar="simulator|PATH", help="the ACL library of the tests (simulator)"
    )
    parser.addini(
        "aioacl_library", "the ACL library of the tests: simulator, or an absolute path", default=""
    )
    parser.addini("aioacl_check", "which tests must leave nothing: fixtures, all or none", default="fixtures")
    parser.addini("aioacl_allow_leaks", "what every test may leave behind", type="args", default=[])
    parser.addini("aioacl_settle_timeout", "seconds that threads and unfinished work get to end", default="2")
    parser.addini("aioacl_watchdog", "seconds after which what a test holds is released, or 0", default="60")


def pytest_configure(config: pytest.Config) -> None:
    """The markers; and settings that say nothing sensible end the run."""
    for marker, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {meaning}")
    settings = config.stash[_settings] = _read(config)
    if settings.library == SIMULATOR and not hasattr(config, "workerinput"):
        _try_environment()


def _try_environment() -> None:
    """The simulator ends a process whose AIOACL_SIM_* variables it cannot read: not this one, as pytest hides why."""
    if not any(name.startswith("AIOACL_SIM_") for name in os.environ):
        return
    command = [sys.executable, "-c", "import aioacl; aioacl.use_library('simulator'); aioacl.list_devices()"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - it is constant
    said = [line for line in tried.stderr.splitlines() if line.startswith("aclsim: ")]
    if tried.returncode and said:
        raise pytest.UsageError(said[-1].removeprefix("aclsim: "))


def _read(config: pytest.Config) -> Settings:
    library = config.getoption("--aioacl-library") or config.getini("aioacl_library") or SIMULATOR
    check = config.getini("aioacl_check")
    if library != SIMULATOR and not Path(library).is_absolute():
        raise pytest.UsageError(f"aioacl_library={library!r}: pass `simulator` or an absolute path")
    if check not in CHECKS:
        raise pytest.UsageError(f"aioacl_check={check!r}: pass one of {', '.join(CHECKS)}")
    patience, watchdog = _seconds(config, "aioacl_settle_timeout"), _seconds(config, "aioacl_watchdog")
    return Settings(library, check, tuple(config.getini("aioacl_allow_leaks")), patience, watchdog)


def _seconds(config: pytest.Config, name: str) -> float:
    text = str(config.getini(name))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise pytest.UsageError(f"{name}={text!r}: pass seconds, at least 0")
    return seconds


def pytest_report_header(config: pytest.Config) -> str:
    """Which library it is: nobody should take the simulator for a card."""
    settings = config.stash[_settings]
    return f"aioacl: library {settings.library}, checks {settings.check}"


# --- what is looked after ----------------------------------------------------------------------------------------


def _concerns(item: pytest.Item, check: str) -> bool:
    names = cast("list[str] | None", getattr(item, "fixturenames", None))
    if names is None:
        return False
    marked = any(item.get_closest_marker(marker.partition("(")[0]) for marker in MARKERS)
    return check == "all" or marked or not FIXTURES.isdisjoint(names)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The hooks that look after tests are there when there are such tests."""
    settings = config.stash[_settings]
    concerned = [item for item in items if _concerns(item, settings.check)]
    if concerned and not config.pluginmanager.has_plugin("aioacl-hooks"):
        from aioacl.testing._hooks import Hooks

        config.pluginmanager.register(Hooks(settings, concerned), "aioacl-hooks")


# --- fixtures: synchronous, so they work under pytest-asyncio, anyio's plugin, and without either ------------------


@pytest.fixture(scope="session")
def aioacl_library(pytestconfig: pytest.Config) -> aioacl.LibraryInfo:
    """The ACL library that the settings choose, loaded."""
    from aioacl.testing._hooks import load

    return load(pytestconfig.stash[_settings].library)


@pytest.fixture
def aioacl_simulator(aioacl_library: aioacl.LibraryInfo) -> ModuleType:
    """`aioacl.simulator`, its controls. After the test all is released: held streams, hung calls, armed failures."""
    from aioacl import simulator

    if aioacl_library.backend != "simulator":
        pytest.skip("needs the simulator")
    return simulator


@pytest.fixture
def aioacl_waits() -> Literal["watch", "thread"]:
    """The strategy of `aioacl_open` and `aioacl_device`: override it to test with "thread", or with both."""
    return "watch"


@pytest.fixture
def aioacl_open(
    aioacl_library: aioacl.LibraryInfo, aioacl_waits: Literal["watch", "thread"]
) -> Generator[Open]:
    """A function that opens device after device, `aioacl_open(1)`; they are closed after the test."""
    from aioacl.testing._hooks import opener

    del aioacl_library
    with opener(aioacl_waits) as open_one:
        yield open_one


@pytest.fixture
def aioacl_device(aioacl_open: Open) -> aioacl.Device:
    """Device 0, open; it is closed after the test."""
    return aioacl_open(0)
