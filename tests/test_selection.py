"""./test runs the tests that CONTRIBUTING.md describes, and quick tests start no process."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests import selection
from tests.support import forkserver
from tests.support.command import finished

if TYPE_CHECKING:
    from collections.abc import Callable

Source = pytest.Config.ArgsSource
CI = "not slow and not sweep and not torch and not wheels and not other_loop"


def chosen(
    source: Source, *arguments: str, every_test: bool = False, markexpr: str = "", last_failed: bool = False
) -> str:
    """Returns the marker expression of a run with these arguments."""
    option = SimpleNamespace(
        markexpr=markexpr, every_test=every_test, lf=last_failed, failedfirst=False, ignore=None
    )
    paths = [argument for argument in arguments if not argument.startswith("-")]
    config: Any = SimpleNamespace(
        option=option,
        args_source=source,
        args=paths,
        invocation_params=SimpleNamespace(dir=selection.HERE.parent, args=arguments),
        getini=lambda _: ["quick: the quick tests", "sweep: faults", "slow: slow tests"],
    )
    selection.choose(config)
    return str(option.markexpr)


@pytest.mark.parametrize("source", [Source.TESTPATHS, Source.INVOCATION_DIR])
def test_run_without_a_path_selects_the_quick_tests(source: Source) -> None:
    assert chosen(source) == "quick"


def test_run_without_a_path_does_not_read_places_without_a_quick_test() -> None:
    config: Any = SimpleNamespace(option=SimpleNamespace(every_test=False, ignore=None))
    config.args_source, config.invocation_params = Source.TESTPATHS, SimpleNamespace(args=())
    selection.choose(config)
    assert set(config.option.ignore) == {
        str(place) for place in selection.PROCESS_FOLDERS | selection.REPOSITORY
    }


def test_run_with_all_selects_all_tests_of_ci() -> None:
    assert chosen(Source.TESTPATHS, every_test=True) == CI
    assert chosen(Source.ARGS, "tests/unit", every_test=True) == CI


def test_run_of_the_last_failures_selects_all_tests_of_ci() -> None:
    assert chosen(Source.TESTPATHS, last_failed=True) == CI


@pytest.mark.process
def test_run_without_the_cache_plugin_starts() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", __file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_run_with_a_path_selects_all_tests_there() -> None:
    assert chosen(Source.ARGS, "tests/unit/lifecycle/test_lease.py::test_nested_leases_count") == ""


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("markexpr", ["sweep", "", "not (slow or quick)"])
def test_run_with_m_selects_the_tests_of_its_expression(source: Source, markexpr: str) -> None:
    assert chosen(source, "-m", "tests", markexpr=markexpr, every_test=True) == markexpr


def test_path_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(pytest.UsageError, match=r"got tests/unit/nowhere\.py::test_x; correct the path"):
        chosen(Source.ARGS, "tests/unit/nowhere.py::test_x")


def test_marker_that_is_not_registered_is_an_error() -> None:
    with pytest.raises(pytest.UsageError, match="-m: expected a marker, got nowhere"):
        chosen(Source.ARGS, "-m", "tests", markexpr="slow or nowhere")


def item(*markers: str, loop: str | None = None) -> Any:
    """Returns an object that the selection accepts in place of a test with these markers."""
    variant = SimpleNamespace(params={"anyio_backend": loop} if loop else {})
    return SimpleNamespace(
        callspec=variant,
        get_closest_marker=lambda name: name if name in markers else None,
        iter_markers=lambda: [SimpleNamespace(name=name) for name in markers],
    )


@pytest.mark.parametrize(
    ("markers", "loop", "quick"),
    [
        ((), None, True),
        ((), "asyncio", True),
        ((), "trio", False),
        ((), "uvloop", False),
        (("every_loop",), "trio", True),
        (("every_loop", "process"), "trio", False),
        (("every_loop_in_ci",), "asyncio", True),
        (("every_loop_in_ci",), "trio", False),
        *(((name,), None, False) for name in selection.NOT_QUICK),
    ],
)
def test_test_is_quick_unless_its_markers_or_its_loop_exclude_it(
    markers: tuple[str, ...], loop: str | None, *, quick: bool
) -> None:
    assert selection.is_quick(item(*markers, loop=loop)) is quick


def test_sample_of_the_tests_of_the_simulator_has_whole_functions() -> None:
    def sampled(path: str, name: str) -> bool:
        test: Any = SimpleNamespace(path=selection.HERE / path, nodeid=f"tests/{path}::{name}")
        return selection.is_sampled(test)

    names = [f"test_{number}" for number in range(400)]
    chosen_names = [name for name in names if sampled("simulator/test_x.py", name)]
    assert 50 < len(chosen_names) < 150
    assert all(sampled("unit/test_x.py", name) for name in names)
    assert all(sampled("simulator/test_x.py", f"{name}[{index}]") for name in chosen_names for index in "ab")


@pytest.mark.parametrize(
    ("markers", "loop", "other"),
    [
        ((), None, False),
        ((), "asyncio", False),
        ((), "trio", True),
        (("process",), "uvloop", True),
        (("every_loop",), "trio", False),
        (("every_loop_in_ci",), "trio", False),
    ],
)
def test_variant_for_uvloop_or_trio_runs_in_the_slow_checks_unless_the_test_is_about_loops(
    markers: tuple[str, ...], loop: str | None, *, other: bool
) -> None:
    assert selection.is_of_other_loop(item(*markers, loop=loop)) is other


def test_collected_tests_are_hidden_from_the_garbage_collector(request: pytest.FixtureRequest) -> None:
    examined = {id(each) for each in gc.get_objects()}
    assert not [each.name for each in request.session.items if id(each) in examined]


@pytest.mark.parametrize("places", ["PROCESS_FOLDERS", "REPOSITORY"])
def test_place_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch, places: str) -> None:
    monkeypatch.setattr(selection, places, frozenset({selection.HERE / "nowhere"}))
    with pytest.raises(pytest.UsageError, match=r"expected tests in .*nowhere; correct the names"):
        selection.mark([])


@pytest.mark.parametrize(
    ("path", "markers"),
    [
        ("process/test_exit.py", ("process",)),
        ("benchmarks/test_rows.py", ("repository",)),
        ("test_ci.py", ("repository",)),
        ("unit/test_device.py", ()),
        ("test_selection.py", ()),
    ],
)
def test_place_of_a_test_adds_its_markers(path: str, markers: tuple[str, ...]) -> None:
    assert selection.of_place(selection.HERE / path) == markers


@pytest.mark.parametrize(
    "start",
    [
        lambda: subprocess.run(["true"], check=True),
        lambda: os.fork(),  # noqa: PLW0108 - os.fork is replaced when the test runs
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
        lambda: os.system("true"),  # pyright: ignore[reportDeprecated]  # a test may use it nevertheless
        lambda: multiprocessing.get_context("spawn").Process(target=print).start(),
        lambda: forkserver.run([sys.executable, "-c", ""]),
    ],
    ids=["run", "fork", "posix_spawn", "system", "multiprocessing", "forkserver"],
)
def test_quick_test_that_starts_a_process_fails(start: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match=r"mark the test with pytest\.mark\.process"):
        start()


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "selected"),
    [(("--all",), 0), (("-m", "sweep"), 1)],
    ids=["all", "marker"],
)
def test_workers_of_xdist_select_what_the_controller_selects(
    arguments: tuple[str, ...], selected: int
) -> None:
    """Uses the longest test. The workers only collect this test, they do not run it."""
    path = str(selection.HERE / "sweep" / "test_sweep.py")  # of all tests, the collection takes half a minute
    options = ["-n", "1", "--setup-plan", "-k", "whole_sweep", *arguments]
    done = finished([sys.executable, "-m", "pytest", path, *options], cwd=selection.HERE.parent, timeout=100)
    assert ("1 worker [1 item]" in done.stdout) == bool(selected), done.stdout
    assert done.returncode == (0 if selected else 5), done.stdout
