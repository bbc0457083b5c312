"""The scripts of .ci report missing tests, parts and steps."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.reliability.part import PARTS
from tests.support import cost as cost_plugin
from tests.support.command import finished

CI = Path(__file__).parents[1] / ".ci"


def loaded(name: str) -> Any:
    """A program of .ci, as a module."""
    spec = importlib.util.spec_from_file_location(name, CI / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """.ci/counts.py with a temporary file of minimums, and with fixed numbers in place of counts."""
    module = loaded("counts")
    monkeypatch.setattr(module, "MINIMUM", tmp_path / "minimum.toml")
    monkeypatch.setattr(module, "counts", lambda: {"test functions": 7, "branches": 5})
    return module


@pytest.mark.parametrize(
    ("minimum", "status"),
    [
        ('"test functions" = 7\nbranches = 5\n', 0),
        ('"test functions" = 6\n', 0),
        ('"test functions" = 7\nbranches = 6\n', 1),
        ('"test functions" = 7\nbranches = 5\n"native tests" = 1\n', 1),
    ],
    ids=["the same", "more", "fewer", "no longer counted"],
)
def test_counts_below_the_minimum_fail(counts: Any, minimum: str, status: int) -> None:
    counts.MINIMUM.write_text(minimum)
    assert counts.main([]) == status


def test_recorded_counts_are_the_minimum(counts: Any) -> None:
    assert counts.main(["--record"]) == 0
    assert counts.MINIMUM.read_text().endswith('"test functions" = 7\n"branches" = 5\n')


def test_slow_checks_run_all_parts_of_the_reliability_tests() -> None:
    text = (CI / "slow").read_text()
    named = re.findall(r"tests\.reliability --slow ((?:[\w ]|\\\n)+)", text)
    assert sorted(" ".join(named).replace("\\", "").split()) == sorted(PARTS)


STEPS = """
set -euo pipefail
. .ci/steps.sh
fails() { false; true; }
breaks_off() { quiet "first" true; kill -9 $BASHPID; }
{step}
finish
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("step", "status"),
    [
        ("quiet step true; loud step true", 0),
        ("quiet step fails", 1),
        ("loud step fails", 1),
        ("aside beside quiet step fails; rejoin beside", 1),
        ("aside beside breaks_off; rejoin beside", 1),
        ("aside beside quiet step true; rejoin beside", 0),
    ],
)
def test_run_with_a_failing_step_fails(step: str, status: int) -> None:
    program = STEPS.replace("{step}", step)
    done = subprocess.run(["bash", "-c", program], cwd=CI.parent, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert ("FAILED" in done.stdout or "ended early" in done.stdout) == bool(status)


TESTS = """
import os
from pathlib import Path
import pytest

HERE = Path(__file__).parent

def fails_once():
    mark = HERE / os.environ["PYTEST_CURRENT_TEST"].partition("::")[2].split()[0].replace("/", "")
    if not mark.exists():
        mark.touch()
        pytest.fail("the first time")

@pytest.mark.parametrize("n", ["c/d::e f"])
def test_fails_once(n): fails_once()
@pytest.fixture
def broken_once():
    yield
    fails_once()
def test_teardown_fails_once(broken_once): pass
def test_passes(): pass
def test_fails(): assert False
def test_is_skipped_alone():
    mark = HERE / "skipped"
    if mark.exists():
        pytest.skip("alone")
    mark.touch()
    assert False
def test_kills_its_process_once():
    mark = HERE / "killed"
    if not mark.exists():
        mark.touch()
        os._exit(1)
"""


def again(folder: Path, *options: str, before: str = "") -> tuple[int, list[str], str]:
    """Runs .ci/again.py with tests of this folder. Returns its exit status, the unstable tests, and the output."""
    (folder / "test_it.py").write_text(before + TESTS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    unstable = folder / "unstable"
    pytest_: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "xdist",
        "-c",
        folder / "pytest.ini",
    ]
    command: list[str | Path] = [
        sys.executable,
        CI / "again.py",
        unstable,
        *pytest_,
        *options,
        folder / "test_it.py",
    ]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = finished(command, cwd=CI.parent, env=environment)
    tests = unstable.read_text().splitlines() if unstable.exists() else []
    return done.returncode, tests, done.stdout + done.stderr


@pytest.mark.process
def test_tests_that_pass_alone_are_unstable_and_do_not_fail_the_run(tmp_path: Path) -> None:
    status, unstable, output = again(tmp_path, "-n", "2", "-k", "once and not kills or passes")
    assert (status, sorted(unstable)) == (
        0,
        ["test_it.py::test_fails_once[c/d::e f]", "test_it.py::test_teardown_fails_once"],
    ), output


@pytest.mark.process
@pytest.mark.parametrize(
    ("options", "before", "status"),
    [
        (("-k", "test_fails"), "", 1),
        (("-k", "is_skipped_alone"), "", 1),
        (("-n", "2", "-k", "kills or passes"), "", 1),
        (("-n", "2"), "import nothing_of_this_name\n", 1),
        (("-x", "-k", "test_fails_once or passes"), "", 1),
    ],
    ids=["fails again", "skipped alone", "worker dies", "not collected", "ended early"],
)
def test_failure_that_is_not_only_of_tests_that_pass_alone_stays_a_failure(
    tmp_path: Path, options: tuple[str, ...], before: str, status: int
) -> None:
    found, unstable, output = again(tmp_path, *options, before=before)
    assert (found, unstable) == (status, []), output


FAILED: dict[str, Any] = {"failed": ["a", "b"], "passed": [], "problems": []}


@pytest.mark.parametrize(
    ("status", "outcome", "tests"),
    [
        (1, FAILED, ["a", "b"]),
        (1, {}, []),  # the process ended before it wrote the outcome
        (1, {**FAILED, "problems": ["a worker died"]}, []),
        (1, {**FAILED, "failed": [str(n) for n in range(11)]}, []),
        *((status, FAILED, []) for status in (2, 3, 4, 5, -9)),
    ],
)
def test_only_failed_tests_of_a_whole_run_are_repeated(
    status: int, outcome: dict[str, Any], tests: list[str]
) -> None:
    assert loaded("again").to_repeat(status, outcome) == tests


@pytest.mark.process
@pytest.mark.parametrize(("count", "status"), [(0, 0), (2, 0), (3, 1)])
def test_run_with_more_than_two_unstable_tests_fails(count: int, status: int) -> None:
    program = STEPS.replace(
        "{step}", f"for n in $(seq {count}); do echo test_$n >>$unstable; done; quiet step true"
    )
    done = subprocess.run(["bash", "-c", program], cwd=CI.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("\nunstable  test_")) == (status, count), done.stdout
    assert ("FAILED" in done.stdout) == bool(status)


def test_each_run_of_pytest_in_ci_run_repeats_failed_tests() -> None:
    lines = (CI / "run").read_text().splitlines()
    runs = [line for line in lines if re.search(r"-m pytest|\./test", line) and not line.startswith("#")]
    assert len(runs) == 5
    assert all(re.search(r"\btested .*(-m pytest|\./test) ", line) for line in runs)


@pytest.mark.process
def test_slow_checks_refuse_an_unknown_part() -> None:
    listed = subprocess.run([CI / "slow", "--list"], capture_output=True, text=True, check=True)
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert {"tests", "torch", "sweep", "reliability", "mutants", "coverage"} <= set(names)
    refused = subprocess.run([CI / "slow", "nowhere"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith(".ci/slow: expected a part, got nowhere; the parts are:\n")
    assert refused.stderr.endswith(listed.stdout)


@pytest.fixture
def pythons(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """.ci/pythons.py, with an empty PATH, without pyenv, and without a Python of an earlier run."""
    module = loaded("pythons")
    monkeypatch.setattr(module, "MADE", tmp_path / "made")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return module


def put_python(path: Path, program: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    return path


VERSION = "{}.{}".format(*sys.version_info)
STARTS = f'exec {sys.executable} "$@"'


@pytest.mark.process
@pytest.mark.parametrize(
    "place", ["bin/python", f"pyenv/versions/{VERSION}.1/bin/python", f"made/{VERSION}/usr/bin/python"]
)
def test_python_of_the_version_is_found_in_each_place(pythons: Any, tmp_path: Path, place: str) -> None:
    python = put_python(tmp_path / f"{place}{VERSION}", STARTS)
    assert pythons.found(VERSION) == python


@pytest.mark.process
def test_python_that_does_not_start_or_is_of_another_version_is_not_used(
    pythons: Any, tmp_path: Path
) -> None:
    put_python(tmp_path / f"bin/python{VERSION}", "exit 127")
    put_python(tmp_path / "pyenv/versions/3.99.0/bin/python3.99", STARTS)
    assert pythons.found(VERSION) is None
    assert pythons.found("3.99") is None


@pytest.mark.process
def test_copy_has_the_files_of_the_tree_and_keeps_what_the_tests_made(
    pythons: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # git is in PATH
    monkeypatch.setattr(pythons, "MADE", tmp_path / "made")
    tree = pythons.copied("3.99")
    (tree / "build").mkdir()
    (tree / "aioacl/left_over.py").touch()
    assert pythons.copied("3.99") == tree
    assert (tree / "build").is_dir()
    assert not (tree / "aioacl/left_over.py").exists()
    assert (tree / ".ci/pythons.py").read_text() == (CI / "pythons.py").read_text()
    assert not (tree / "aioacl/_acl.abi3.so").exists()


LEAKS = """
==7==ERROR: LeakSanitizer: detected memory leaks

Direct leak of 952 byte(s) in 17 object(s) allocated from:
    #0 0x7f01 in __interceptor_malloc asan_malloc_linux.cpp:69
    #1 0x7f02 in gc_alloc Modules/gcmodule.c:2283

Direct leak of 32 byte(s) in 1 object(s) allocated from:
    #0 0x7f01 in __interceptor_calloc asan_malloc_linux.cpp:77
    #1 0x7f02 in {} aioacl/_binding/dlpack.c:99

SUMMARY: AddressSanitizer: 984 byte(s) leaked in 18 allocation(s).
"""


@pytest.mark.parametrize(
    ("report", "count"),
    [
        ("", 0),
        (LEAKS.format("dlpack_export"), 1),
        (LEAKS.format("aio_port_new"), 0),
        ("==7==ERROR: AddressSanitizer: heap-use-after-free on address 0x60b0", 1),
        ("aioacl/_native/port.c:17:3: runtime error: null pointer passed as argument 1", 1),
    ],
    ids=["nothing", "a leak of aioacl", "a leak of a port", "an error of ASan", "an error of UBSan"],
)
def test_sanitized_run_counts_errors_and_leaks_of_aioacl(report: str, count: int) -> None:
    assert len(loaded("sanitized").ours(report)) == count


INFERENCE: dict[str, Any] = {
    "digits": 1797,
    "results": 1797,
    "held_out": 359,
    "accuracy": 0.975,
    "lost": 0,
    "duplicates": 0,
    "wrong": 0,
    "resets": 1,
    "failures": [],
    "overlap": 1.7,
    "share_of_bound": 0.93,
}


def test_good_figures_of_the_inference_are_accepted() -> None:
    assert all(loaded("check_demo").of_inference(INFERENCE).values())


@pytest.mark.parametrize(
    "changed",
    [
        {"results": 1796},
        {"digits": 60, "results": 60},
        {"accuracy": 0.94},
        {"lost": 1},
        {"duplicates": 1},
        {"wrong": 1},
        {"resets": 0},
        {"failures": ["one"]},
        {"overlap": 1.29},
        {"share_of_bound": 0.49},
    ],
    ids=repr,
)
def test_each_bad_figure_of_the_inference_is_refused(changed: dict[str, Any]) -> None:
    promises = loaded("check_demo").of_inference({**INFERENCE, **changed})
    assert list(promises.values()).count(False) == 1


def test_missing_inference_is_refused() -> None:
    assert loaded("check_demo").of_inference(None) == {"the digits were classified": False}


@pytest.fixture
def cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """.ci/cost.py with a temporary file of the recorded cost."""
    module = loaded("cost")
    monkeypatch.setattr(module, "RECORDED", tmp_path / "cost.toml")
    module.RECORDED.write_text('"quick tests" = 100\n')
    return module


def measured(folder: Path, tests: dict[str, float], *pieces: float) -> str:
    path = folder / "measured"
    path.write_text(json.dumps({"tests": tests, "pieces": pieces}))
    return str(path)


@pytest.mark.parametrize(("dear", "status"), [(19.0, 0), (19.1, 1)])
def test_quick_tests_that_cost_more_than_twice_the_recorded_ratio_fail(
    cost: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], dear: float, status: int
) -> None:
    path = measured(tmp_path, {"cheap": 1.0, "dear": dear}, 0.01, 0.1, 9.0)
    assert cost.main([path]) == status
    output = capsys.readouterr().out
    assert output.index(" dear\n") < output.index(" cheap\n")
    assert ("pytest.mark.thorough" in output) == bool(status)


def test_recorded_cost_is_the_ratio_of_the_run(cost: Any, tmp_path: Path) -> None:
    assert cost.main([measured(tmp_path, {"one": 2.0, "other": 1.0}, 0.005), "--record"]) == 0
    assert cost.RECORDED.read_text().endswith('"quick tests" = 600\n')


@pytest.mark.parametrize(("tests", "pieces"), [({}, [0.1]), ({"one": 1.0}, [])])
def test_run_without_a_measured_test_fails(
    cost: Any, tmp_path: Path, tests: dict[str, float], pieces: list[float]
) -> None:
    assert cost.main([measured(tmp_path, tests, *pieces)]) == 1


@pytest.mark.parametrize(("only", "count"), [(None, 1), ("a test", 0)])
def test_repeated_run_of_one_test_writes_no_cost(only: str | None, count: int) -> None:
    registered: list[object] = []
    options = {"--cost": Path("cost"), "--only": only}
    config: Any = SimpleNamespace(
        getoption=lambda name, _=None: options[name],
        pluginmanager=SimpleNamespace(register=lambda plugin, _: registered.append(plugin)),
    )
    cost_plugin.pytest_configure(config)
    assert len(registered) == count


DEAR = """
import time
import pytest

@pytest.fixture
def dear_fixture():
    yield
    spend()
def spend():
    end = time.process_time() + 0.5
    while time.process_time() < end: pass
def test_dear(dear_fixture): pass
@pytest.mark.quick
def test_dear_and_quick(dear_fixture): spend()
@pytest.mark.quick
def test_cheap(): pass
"""


@pytest.mark.process
@pytest.mark.parametrize("workers", ["0", "2"])
def test_cost_has_the_cpu_time_of_each_quick_test_with_its_fixtures(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_it.py").write_text(DEAR)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = quick\n")
    command: list[str | Path] = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.support.cost"]
    options: list[str | Path] = ["-n", workers, "-c", tmp_path / "pytest.ini", f"--cost={tmp_path / 'cost'}"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(
        [*command, *options, tmp_path / "test_it.py"],
        cwd=CI.parent,
        env=environment,
        capture_output=True,
        check=True,
    )
    run = json.loads((tmp_path / "cost").read_text())
    assert set(run["tests"]) == {"test_it.py::test_dear_and_quick", "test_it.py::test_cheap"}
    assert run["tests"]["test_it.py::test_dear_and_quick"] >= 1.0
    assert len(run["pieces"]) == 5
    assert min(run["pieces"]) > 0
