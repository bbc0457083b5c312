"""Selects the tests of a run.

    ./test          the quick tests: those that run in this process, only with asyncio
    ./test --all    every test that .ci/run runs; if a path is given, only its tests
    ./test PATH     every test in the path, with any markers
    ./test simulator    the quick tests of the simulator, of which ./test runs a sample

`-m` overrides all three. A test is not `quick` if it has one of the markers in `NOT_QUICK`, or is in one of the
`PROCESS_FOLDERS` or in `REPOSITORY`. Of the variants of a test for several event loops, only asyncio's is quick, unless
the test has the marker `every_loop`. The other variants run with --all if the test has the marker `every_loop_in_ci`.
Otherwise, they have the marker `other_loop` and run in .ci/slow, because event loops differ only in the way in which
they are woken. The markers `quick`, `repository` and `other_loop` are added when the tests are collected. A quick test
that starts a process fails.
"""

from __future__ import annotations

import multiprocessing.util
import os
import re
import subprocess
import zlib
from contextlib import contextmanager
from functools import cache
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
REPOSITORY: Final = frozenset(  # tests of pages, scripts and the tests' own tools
    HERE / name
    for name in (
        "benchmarks",
        "reliability",
        "test_architecture.py",
        "test_awaitables.py",
        "test_barriers.py",
        "test_build.py",
        "test_card_sequences.py",
        "test_ci.py",
        "test_environment.py",
        "test_first_steps.py",
        "test_instructions.py",
        "test_language.py",
        "test_packaging.py",
        "test_pages.py",
        "test_readme.py",
        "test_reference.py",
        "test_release.py",
        "test_services.py",
        "test_signatures.py",
        "test_site.py",
        "test_typing.py",
        "test_wheels.py",
    )
)
NOT_QUICK: Final = ("process", "thorough", "packaging", "repository", "slow", "sweep", "torch", "wheels")
SIMULATOR: Final = HERE / "simulator"
SAMPLED: Final = 4  # ./test runs about one of so many test functions of the simulator
QUICK: Final = "quick"
OF_SIMULATOR: Final = "of_simulator"
OTHER_LOOP: Final = "other_loop"
ALL: Final = "not slow and not sweep and not torch and not wheels and not other_loop"
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
        without = sorted(PROCESS_FOLDERS | REPOSITORY)  # places without a quick test
        option.ignore = [*(option.ignore or ()), *map(str, without)]


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
    """Adds `process`, `repository`, `quick` and `other_loop`.

    Raises UsageError if a place of tests that is named above is missing.
    """
    for path in PROCESS_FOLDERS | REPOSITORY:
        if not path.exists():
            raise pytest.UsageError(f"expected tests in {path}; correct the names in tests/selection.py")
    for item in items:
        for marker in of_place(item.path):
            item.add_marker(marker)
        if is_quick(item):
            item.add_marker(QUICK if is_sampled(item) else OF_SIMULATOR)
        if is_of_other_loop(item):
            item.add_marker(OTHER_LOOP)


@cache
def of_place(path: Path) -> tuple[str, ...]:
    """The markers that all tests in a file have because of its place."""
    places = {path, *path.parents}
    found = (("process", PROCESS_FOLDERS), ("repository", REPOSITORY))
    return tuple(marker for marker, named in found if not named.isdisjoint(places))


def is_quick(item: pytest.Item) -> bool:
    """Whether ./test selects the test."""
    if any(marker.name in NOT_QUICK for marker in item.iter_markers()):
        return False
    return loop_of(item) in ("asyncio", "") or item.get_closest_marker("every_loop") is not None


def is_sampled(item: pytest.Item) -> bool:
    """Whether the test is not one of the simulator, or is in the sample. A function's name decides, so it is stable."""
    function = item.nodeid.partition("[")[0]
    return SIMULATOR not in item.path.parents or zlib.crc32(function.encode()) % SAMPLED == 0


def is_of_other_loop(item: pytest.Item) -> bool:
    """Whether the test is a variant for uvloop or trio that only .ci/slow runs."""
    if loop_of(item) in ("asyncio", ""):
        return False
    return not any(item.get_closest_marker(name) for name in ("every_loop", "every_loop_in_ci"))


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
