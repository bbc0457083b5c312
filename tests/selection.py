"""Which tests a run takes.

    ./test          the quick ones: in this process, and on asyncio alone unless the test is about event loops
    ./test --all    every test that .ci/run runs
    ./test PATH     every test there, whatever its markers

`-m` overrides all three. A test is `quick` unless it has one of the markers in `NOT_QUICK`, is in one of the folders
`OF_PROCESSES`, or is the variant of a test for another loop than asyncio; a test marked `every_loop` is quick on each
loop. The marker `quick` is added when the tests are collected. A quick test that starts a process fails.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import NoReturn

HERE: Final = Path(__file__).resolve().parent
OF_PROCESSES: Final = tuple(HERE / name for name in ("contract", "examples", "process", "sweep", "testing"))
NOT_QUICK: Final = ("process", "packaging", "slow", "sweep")
QUICK: Final = "quick"
ALL: Final = "not slow and not sweep"
STARTS: Final = ((subprocess.Popen, "__init__"), (os, "fork"), (os, "posix_spawn"))


def add_option(parser: pytest.Parser) -> None:
    """The option --all."""
    parser.addoption(
        "--all",
        action="store_true",
        dest="every_test",
        help="every test that .ci/run runs, not the quick ones only",
    )


def choose(config: pytest.Config) -> None:
    """Sets the marker expression of the run, unless -m or a path says what to run."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    if not config.option.markexpr and not named:  # a worker of xdist gets what the controller has chosen
        config.option.markexpr = ALL if config.option.every_test else QUICK


def header(config: pytest.Config) -> str:
    """What the run takes, for its first lines."""
    taken = {
        QUICK: "the quick tests (--all: every test)",
        ALL: "every test that .ci/run runs",
        "": "every test there",
    }
    expression = str(config.option.markexpr)
    return f"selection: {taken.get(expression, expression)}"


def mark(items: Iterable[pytest.Item]) -> None:
    """Adds the markers `process` and `quick`; an error if a folder of tests is missing."""
    for folder in OF_PROCESSES:
        if not folder.is_dir():
            raise pytest.UsageError(f"expected a folder {folder}; correct OF_PROCESSES in tests/selection.py")
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in OF_PROCESSES):
            item.add_marker("process")
        if is_quick(item):
            item.add_marker(QUICK)


def is_quick(item: pytest.Item) -> bool:
    """Whether ./test takes it."""
    if any(item.get_closest_marker(name) for name in NOT_QUICK):
        return False
    return loop_of(item) in ("asyncio", "") or item.get_closest_marker("every_loop") is not None


def loop_of(item: pytest.Item) -> str:
    """The event loop of a test that is run on several, or nothing."""
    variant = getattr(item, "callspec", None)
    return str(variant.params.get("anyio_backend", "")) if variant is not None else ""


@contextmanager
def guarded(item: pytest.Item) -> Generator[None]:
    """Within it a quick test cannot start a process.

    Functions are replaced for the test's time: an audit hook would stay, and it costs the tests that trace each line
    five times their own time.
    """
    with pytest.MonkeyPatch.context() as patch:
        if item.get_closest_marker(QUICK):
            for module, name in STARTS:
                patch.setattr(module, name, _refusal(item.nodeid, name))
        yield


def _refusal(test: str, name: str) -> Callable[..., NoReturn]:
    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        raise RuntimeError(f"{test} starts a process ({name}); mark it with pytest.mark.process")

    return refuse
