"""The pytest plugin of aioacl: devices as fixtures, and a check after each test that it left nothing behind.

pytest imports this module in every project whose environment has aioacl installed. So the module imports aioacl only
when a test uses a fixture or marker of the plugin, or the project sets `aioacl_check = all`.

It is a module outside the package, because importing a module inside the package would import the package.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, SupportsIndex, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from types import ModuleType

    from typing_extensions import Buffer

    import aioacl

SIMULATOR: Final = "simulator"
LONGEST_SECONDS: Final = 1e7  # four months, which the timer of the watchdog accepts
FIXTURES: Final = frozenset(
    {"aioacl_library", "aioacl_simulator", "aioacl_open", "aioacl_open_pool", "aioacl_device", "aioacl_pyacl"}
)
MARKERS: Final = {
    "aioacl_hardware": "the test needs a card: skipped on the simulator",
    "aioacl_simulator": "the test needs the simulator: skipped on a card",
    "aioacl_allow_leaks(name, ...)": "the resources that the test may leave behind: devices, streams, device_blocks, "
    "host_blocks, threads, descriptors, violations, ...",
}
CHECKS: Final = ("fixtures", "all", "none")
TRIAL: Final = """
import sys
sys.path.append(sys.argv[1])  # the package is beside this module
import aioacl
aioacl.use_library("simulator")
aioacl.list_devices()
"""


@dataclass(frozen=True)
class Settings:
    """The settings of the command line and the ini file.

    Attributes:
        library: "simulator", or the absolute path of a real library.
        check: which tests are checked for leaks: "fixtures" (tests with a fixture or marker of aioacl), "all", "none".
        leaves: the names of the resources that every test may leave behind.
        patience: the time in seconds that the threads and the unfinished work of a test may take to end.
        watchdog: the seconds after which held streams and hung calls of a test are released; 0 means never.
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
        """Opens a device.

        Args:
            index: the index of the device.
        """
        ...


class OpenPool(Protocol):
    """The fixture `aioacl_open_pool`: opens a pool, which is closed after the test."""

    def __call__(
        self,
        model: str | os.PathLike[str] | Buffer,
        devices: Iterable[SupportsIndex] | None = None,
        **options: Any,
    ) -> aioacl.Pool:
        """Opens a pool. The arguments are those of `open_pool`.

        Args:
            model: the path of the model, or its bytes.
            devices: the indexes of the devices; None is all visible devices.
            **options: the other arguments.
        """
        ...


# --- settings ----------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option and the settings."""
    group = parser.getgroup("aioacl")
    group.addoption(
        "--aioacl-library", metavar="simulator|PATH", help="the ACL library of the tests (default: simulator)"
    )
    parser.addini(
        "aioacl_library", "the ACL library of the tests: simulator, or an absolute path", default=""
    )
    parser.addini(
        "aioacl_check", "which tests are checked for leaks: fixtures, all or none", default="fixtures"
    )
    parser.addini(
        "aioacl_allow_leaks", "the resources that every test may leave behind", type="args", default=[]
    )
    parser.addini(
        "aioacl_settle_timeout",
        "the time in seconds that threads and unfinished work may take to end",
        default="2",
    )
    parser.addini(
        "aioacl_watchdog",
        "seconds after which held streams and hung calls of a test are released, or 0",
        default="60",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers, and reads the settings; an invalid setting ends the run."""
    for marker, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{marker}: {meaning}")
    settings = config.stash[_settings] = _read(config)
    if settings.library == SIMULATOR and not hasattr(config, "workerinput"):
        _try_environment()


def _try_environment() -> None:
    """Tries the AIOACL_SIM_* variables in a child process.

    The simulator ends its process if one of the variables is invalid. In this process, pytest would hide the reason.
    The child does not search the current folder, where a file may have the name of a module.
    """
    if not any(name.startswith("AIOACL_SIM_") for name in os.environ):
        return
    command = [sys.executable, "-P", "-c", TRIAL, str(Path(__file__).parent)]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - Python itself
    reasons = [line for line in tried.stderr.splitlines() if line.startswith("aclsim: ")]
    if tried.returncode and reasons:
        raise pytest.UsageError(reasons[-1].removeprefix("aclsim: "))


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
    if not 0 <= seconds <= LONGEST_SECONDS:
        raise pytest.UsageError(
            f"{name}: expected seconds from 0 to {LONGEST_SECONDS:g}, got {text!r}; pass such a number"
        )
    return seconds


def pytest_report_header(config: pytest.Config) -> str:
    """Returns a line that names the library, so that results of the simulator are not mistaken for those of a card."""
    settings = config.stash[_settings]
    return f"aioacl: library {settings.library}, checks {settings.check}"


# --- which tests are checked -------------------------------------------------------------------------------------


def _concerns(item: pytest.Item, check: str) -> bool:
    names = cast("list[str] | None", getattr(item, "fixturenames", None))
    if names is None:
        return False
    marked = any(item.get_closest_marker(marker.partition("(")[0]) for marker in MARKERS)
    return check == "all" or marked or not FIXTURES.isdisjoint(names)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Registers the hooks that check tests, if there are tests to check."""
    settings = config.stash[_settings]
    concerned = [item for item in items if _concerns(item, settings.check)]
    if concerned and not config.pluginmanager.has_plugin("aioacl-hooks"):
        from aioacl.testing._hooks import Hooks

        config.pluginmanager.register(Hooks(settings, concerned), "aioacl-hooks")


# --- fixtures: synchronous, so they work under pytest-asyncio, anyio's plugin, and without either ------------------


@pytest.fixture(scope="session")
def aioacl_library(pytestconfig: pytest.Config) -> aioacl.LibraryInfo:
    """Loads the ACL library that the settings choose, and returns its LibraryInfo."""
    from aioacl.testing._hooks import load

    return load(pytestconfig.stash[_settings].library)


@pytest.fixture
def aioacl_simulator(aioacl_library: aioacl.LibraryInfo) -> ModuleType:
    """Returns `aioacl.simulator`, the simulator's controls; skips the test on a card.

    After the test, held streams and hung calls are released, and all rules for failures are removed.
    """
    from aioacl import simulator

    if aioacl_library.backend != "simulator":
        pytest.skip("needs the simulator")
    return simulator


@pytest.fixture
def aioacl_pyacl(aioacl_library: aioacl.LibraryInfo, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Returns aioacl's module `acl`. During the test, `import acl` gives this module, also in child processes."""
    from aioacl.testing._hooks import use_pyacl

    del aioacl_library
    return use_pyacl(monkeypatch)


@pytest.fixture
def aioacl_waits() -> Literal["watch", "thread"]:
    """Returns `waits` for the fixtures that open devices. Override it to test with "thread" or with both."""
    return "watch"


@pytest.fixture
def aioacl_open(
    aioacl_library: aioacl.LibraryInfo, aioacl_waits: Literal["watch", "thread"]
) -> Generator[Open]:
    """Returns a function that opens a device: `aioacl_open(1)`. The devices are closed after the test."""
    from aioacl.testing._hooks import opener

    del aioacl_library
    with opener(aioacl_waits) as open_one:
        yield open_one


@pytest.fixture
def aioacl_open_pool(
    aioacl_library: aioacl.LibraryInfo, aioacl_waits: Literal["watch", "thread"]
) -> Generator[OpenPool]:
    """Returns a function that opens a pool: `aioacl_open_pool("m.om", max_rows=8)`. Closes the pools after the test."""
    from aioacl.testing._hooks import pool_opener

    del aioacl_library
    with pool_opener(aioacl_waits) as open_one:
        yield open_one


@pytest.fixture
def aioacl_device(aioacl_open: Open) -> aioacl.Device:
    """Opens device 0, and closes it after the test."""
    return aioacl_open(0)
