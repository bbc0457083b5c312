"""Selects the tests of a run.

    ./test          the quick tests: those that run in this process, only with asyncio
    ./test --all    every test that .ci/run runs; if a path is given, only its tests
    ./test PATH     every test in the path, with any markers
    ./test simulator    the quick tests of the simulator, of which ./test runs a sample

`-m` overrides all three. A test is not `quick` if it has one of the markers in `NOT_QUICK`, or is in one of the
`PROCESS_FOLDERS`. Of the variants of a test for several event loops, only asyncio's is quick, unless the test has the
marker `every_loop`. The other variants have the marker `other_loop`, and run in .ci/slow, because event loops differ
only in the way in which they are woken. The markers `quick` and `other_loop` are added when the tests are collected. A
quick test that starts a process fails.
"""

from __future__ import annotations

import multiprocessing.util
import os
import re
import subprocess
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.support import forkserver

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import NoReturn

HERE: Final = Path(__file__).resolve().parent
PROCESS_FOLDERS: Final = frozenset(
    HERE / name for name in ("contract", "examples", "process", "sweep", "testing")
)
NOT_QUICK: Final = ("process", "thorough", "packaging", "slow", "sweep", "torch")
SIMULATOR: Final = HERE / "simulator"
SAMPLED: Final = 4  # ./test runs about one of so many test functions of the simulator
QUICK: Final = "quick"
OF_SIMULATOR: Final = "of_simulator"
OTHER_LOOP: Final = "other_loop"
ALL: Final = "not slow and not sweep and not torch and not other_loop"
STARTS: Final = (
    (subprocess.Popen, "__init__"),
    (os, "fork"),
    (os, "forkpty"),
    (os, "posix_spawn"),
    (os, "posix_spawnp"),
    (os, "system"),
    (multiprocessing.util, "spawnv_passfds"),
    (forkserver.Forked, "__init__"),
)


def add_option(parser: pytest.Parser) -> None:
    """The option --all."""
    parser.addoption(
        "--all",
        action="store_true",
        dest="every_test",
        help="run every test that .ci/run runs, not only the quick tests",
    )


def choose(config: pytest.Config) -> None:
    """Sets the marker expression of the run, unless -m is given.

    Raises UsageError for a path that does not exist or a marker that is not registered, because xdist hides pytest's
    own message about these. An xdist worker parses the same arguments, so it computes the same expression.
    """
    option = config.option
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    if named and not hasattr(config, "workerinput"):
        check_paths(config.invocation_params.dir, config.args)
    if any(argument.startswith("-m") for argument in config.invocation_params.args):
        check_markers(option.markexpr, (line.partition(":")[0] for line in config.getini("markers")))
    # `lf` and `failedfirst` do not exist without the cache plugin (-p no:cacheprovider).
    elif option.every_test or getattr(option, "lf", False) or getattr(option, "failedfirst", False):
        option.markexpr = ALL
    elif not named:
        option.markexpr = QUICK
        option.ignore = [*(option.ignore or ()), *map(str, sorted(PROCESS_FOLDERS))]  # without a quick test


def check_paths(folder: Path, names: Iterable[str]) -> None:
    """Raises UsageError unless each file or folder exists. A name may end with `::` and a test."""
    for name in names:
        path = folder / name.partition("::")[0].partition("[")[0]
        if not path.exists():
            raise pytest.UsageError(f"expected a file or folder of tests, got {name}; correct the path")


def check_markers(expression: str, registered: Iterable[str]) -> None:
    """Raises UsageError unless each name in the expression is a registered marker."""
    known = {name.partition("(")[0].strip() for name in registered}
    for name in re.findall(r"[A-Za-z_]\w*", expression):
        if name not in known | {"and", "or", "not", "True", "False", "None"}:
            raise pytest.UsageError(f"-m: expected a marker, got {name}; `./test --markers` lists them")


def header(config: pytest.Config) -> str:
    """The selection, for the first lines of the run."""
    texts = {
        QUICK: "the quick tests only, also with -k (--all: every test)",
        ALL: "every test that .ci/run runs",
        f"{QUICK} or {OF_SIMULATOR}": "the quick tests of the simulator",
        "": "every test in the given paths",
    }
    expression = str(config.option.markexpr)
    return f"selection: {texts.get(expression, f'-m {expression!r}')}"


def mark(items: Iterable[pytest.Item]) -> None:
    """Adds `process`, `quick` and `other_loop`; raises UsageError if a folder of tests is missing."""
    for folder in PROCESS_FOLDERS:
        if not folder.is_dir():
            raise pytest.UsageError(
                f"expected a folder {folder}; correct PROCESS_FOLDERS in tests/selection.py"
            )
    for item in items:
        if not PROCESS_FOLDERS.isdisjoint(item.path.parents):
            item.add_marker("process")
        if is_quick(item):
            item.add_marker(QUICK if is_sampled(item) else OF_SIMULATOR)
        if is_of_other_loop(item):
            item.add_marker(OTHER_LOOP)


def is_quick(item: pytest.Item) -> bool:
    """Whether ./test selects the test."""
    if any(marker.name in NOT_QUICK for marker in item.iter_markers()):
        return False
    return not is_of_other_loop(item)


def is_sampled(item: pytest.Item) -> bool:
    """Whether the test is not one of the simulator, or is in the sample. A function's name decides, so it is stable."""
    function = item.nodeid.partition("[")[0]
    return SIMULATOR not in item.path.parents or zlib.crc32(function.encode()) % SAMPLED == 0


def is_of_other_loop(item: pytest.Item) -> bool:
    """Whether the test is a variant for uvloop or trio that only .ci/slow runs."""
    return loop_of(item) not in ("asyncio", "") and item.get_closest_marker("every_loop") is None


def loop_of(item: pytest.Item) -> str:
    """The event loop of a test that runs on several event loops; "" for other tests."""
    variant = getattr(item, "callspec", None)
    return str(variant.params.get("anyio_backend", "")) if variant is not None else ""


@contextmanager
def guarded(item: pytest.Item) -> Generator[None]:
    """In the block, a quick test cannot start a process.

    The functions that start processes are replaced during the test. An audit hook is not used, because it cannot be
    removed and makes tests that trace each line five times slower.
    """
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker(QUICK) or item.get_closest_marker(OF_SIMULATOR):
            for module, name in STARTS:
                patch.setattr(module, name, _refusal(f"{module.__name__}.{name}"))
        yield


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        raise RuntimeError(f"mark the test with pytest.mark.process: it starts a process ({name})")

    return refuse
