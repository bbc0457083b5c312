"""The example project with each plugin for asynchronous tests, and with tests that leave or break something."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from aioacl import simulator
from tests.support import forkserver
from tests.support.command import finished

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PROJECT = HERE.parents[1] / "examples" / "testing"
BROKEN = HERE / "broken_tests.py"
LASTING = HERE / "lasting_tests.py"


@dataclass(frozen=True)
class Ran:
    """The output of a run of pytest, and the results of its tests: the text of each failure and error, by name."""

    status: int
    output: str
    failed: dict[str, str]
    refused: dict[str, str]
    skipped: dict[str, str]
    passed: frozenset[str]


def _report(path: Path) -> Iterator[tuple[str, str, str]]:
    for case in ET.parse(path).iter("testcase"):
        name = str(case.get("name"))
        yield name, "ran", "".join(part.text or "" for part in case.iter("system-out"))
        for part in case:
            yield name, part.tag, f"{part.get('message')}\n{part.text}"


def run(project: Path, *arguments: str, new_interpreter: bool = False) -> Ran:
    """Runs pytest in the project, as a user would. With `new_interpreter`, the fork server is not used."""
    report = project / "report.xml"
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("AIOACL_LIBRARY", "PYTEST"))
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments]
    if new_interpreter:
        ran = finished(command, cwd=project, env=clean, timeout=300)
    else:
        ran = forkserver.run(command, cwd=project, env=clean, timeout=300)
    parts = list(_report(report)) if report.exists() else []
    failed, refused, skipped = (
        {name: text for name, tag, text in parts if tag == wanted}
        for wanted in ("failure", "error", "skipped")
    )
    passed = {name for name, _, _ in parts} - failed.keys() - refused.keys() - skipped.keys()
    return Ran(ran.returncode, ran.stdout + ran.stderr, failed, refused, skipped, frozenset(passed))


def copy_of_project(folder: Path, *more: Path) -> Path:
    """Returns a copy of the example project with more files of tests."""
    copy = Path(shutil.copytree(PROJECT, folder / "framestore", ignore=shutil.ignore_patterns("__pycache__")))
    for path in more:
        shutil.copy(path, copy / "tests" / f"test_{path.stem.removesuffix('_tests')}.py")
    return copy


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example project."""
    return copy_of_project(tmp_path_factory.mktemp("user"))


# --- the example ---------------------------------------------------------------------------------------------------

WITHOUT_ASYNCIO = ("-p", "no:asyncio", "-W", "ignore:Unknown config option")
MODES = {
    "strict": ((), 11),
    "auto": (("-o", "asyncio_mode=auto", "tests/test_with_asyncio.py", "tests/test_without_a_loop.py"), 7),
    "anyio alone": ((*WITHOUT_ASYNCIO, "tests/test_with_anyio.py", "tests/test_without_a_loop.py"), 7),
    "neither": ((*WITHOUT_ASYNCIO, "-p", "no:anyio", "tests/test_without_a_loop.py"), 3),
    "xdist": (("-n", "2"), 11),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_example_project_passes(project: Path, mode: str) -> None:
    arguments, count = MODES[mode]
    ran = run(project, "-W", "error", *arguments, new_interpreter=mode in {"strict", "neither"})
    assert (ran.status, len(ran.passed)) == (0, count), ran.output
    assert ran.skipped == {
        "test_card_has_more_than_one_gibibyte": ran.skipped["test_card_has_more_than_one_gibibyte"]
    }
    assert "--aioacl-library=/path/to/libascendcl.so" in ran.output + str(ran.skipped)


@pytest.mark.slow
def test_objects_that_stay_after_a_test_are_no_leak(tmp_path: Path) -> None:
    ran = run(copy_of_project(tmp_path, LASTING), "-W", "error", "tests/test_lasting.py")
    assert (ran.status, len(ran.passed), len(ran.skipped)) == (0, 15, 1), ran.output


def test_header_of_a_run_names_the_library(project: Path) -> None:
    assert "aioacl: library simulator, checks all" in run(project, "--collect-only").output


def test_fixture_for_acl_makes_the_module_importable_for_the_test_only(tmp_path: Path) -> None:
    tests = tmp_path / "pyacl_tests.py"
    tests.write_text(
        """
import subprocess, sys, pytest

def test_acl_is_importable(aioacl_pyacl):
    import acl
    assert acl is aioacl_pyacl and acl.rt.get_device_count() == (2, 0)
    subprocess.run([sys.executable, "-c", "import acl; acl.init()"], env={**__import__("os").environ,
        "AIOACL_LIBRARY": "simulator"}, check=True)

def test_acl_is_gone():
    with pytest.raises(ModuleNotFoundError):
        import acl
"""
    )
    ran = run(copy_of_project(tmp_path, tests), "-W", "error", "tests/test_pyacl.py")
    assert (ran.status, len(ran.passed)) == (0, 2), ran.output


# --- tests that are broken ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["one process", "xdist"])
def broken(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Ran:
    """The broken tests, run in the project."""
    project = copy_of_project(tmp_path_factory.mktemp("user"), BROKEN)
    workers = () if request.param == "one process" else ("-n", "2", "--dist", "loadfile")
    return run(
        project,
        "-o",
        "aioacl_watchdog=1.5",
        "-o",
        "aioacl_settle_timeout=0.2",
        *workers,
        "tests/test_broken.py",
    )


def _line(test: str) -> int:
    """Returns the number of the line in this broken test or fixture that the plugin must name."""
    lines = BROKEN.read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if f"def {test}(" in line)
    return next(number for number, line in enumerate(lines[start:], start + 1) if "# here" in line)


LEFT = {
    "test_leaves_a_stream": r"a stream on device 0 was still open when its device was closed",
    "test_leaves_a_stream_in_a_nested_task": r"a stream on device 0 was still open when its device was closed",
    "test_drops_memory": r"a device buffer of 100 bytes on device 0 was dropped without being closed",
    "test_keeps_pinned_memory": r"a pinned buffer of 100 bytes on device 0 is still open",
    "test_leaves_devices": r"device 1 is still open",
    "test_never_leaves_a_lease": r"a lease on device 0 was never left",
    "test_leaves_a_thread": r"thread 'pump' is still running",
    "test_leaves_a_file": r"descriptor \d+ \(\S+/open.log\) is still open",
    "test_leaves_a_socket": r"descriptor \d+ \(socket:\[\d+\]\) is still open",
    "test_leaves_a_temporary_file": r"descriptor \d+ \(\S+ \(deleted\)\) is still open",
    "test_leaves_a_named_temporary_file": r"descriptor \d+ \(\S+\) is still open",
    "test_leaves_a_file_of_mkstemp": r"descriptor \d+ \(\S+\) is still open",
    "test_leaves_a_spooled_file": r"descriptor \d+ \(\S+ \(deleted\)\) is still open",
    "test_leaves_a_temporary_directory": r"temporary directory \S+ was not cleaned up",
    "test_fails_as_expected_and_leaves_a_stream": r"a stream on device 0 was still open when its device was closed",
    "test_passes_unexpectedly_and_leaves_a_stream": r"a stream on device 0 was still open when its device was closed",
}


@pytest.mark.slow
@pytest.mark.parametrize("test", LEFT)
def test_report_of_a_leak_names_its_line(broken: Ran, test: str) -> None:
    place = rf"; it was (made|opened|started)\n    at tests/test_broken\.py:{_line(test)} in {test}"
    assert re.search(f"aioacl: {LEFT[test]}{place}", broken.refused[test]), broken.refused[test]
    assert broken.refused[test].count("aioacl: ") <= 2  # once in the message, once in the text


@pytest.mark.slow
def test_report_of_a_leak_names_the_callers(broken: Ran) -> None:
    text = broken.refused["test_leaves_a_stream_in_a_nested_task"]
    assert re.search(
        r"called at \S+ in test_leaves_a_stream_in_a_nested_task.<locals>.main\n +await helper", text
    )


@pytest.mark.slow
def test_report_of_a_leak_below_aioacl_names_the_acl_call(broken: Ran) -> None:
    text = broken.refused["test_leaves_a_count_below_aioacl"]
    assert "aioacl: 1 more set_counts than before" in text
    assert re.search(r"aclrtSetDevice\(1\), call \d+, on thread MainThread", text)
    assert "pipe:[" in broken.refused["test_leaves_a_pipe"]


@pytest.mark.slow
def test_violation_is_reported(broken: Ran) -> None:
    assert re.search(
        r"aioacl: a rule of ACL was violated: aclrtDestroyStream: .* expected a live handle of kind stream",
        broken.refused["test_violates_a_rule"],
    )


@pytest.mark.slow
def test_leak_of_a_class_fixture_is_reported_when_the_fixture_ends(broken: Ran) -> None:
    text = broken.refused["test_last_with_the_fixture_is_reported"]
    assert "was still open when its device was closed, by the fixture forgetful; it was made" in text
    assert f"at tests/test_broken.py:{_line('forgetful')} in forgetful" in text
    assert "test_first_with_the_fixture_passes" in broken.passed


@pytest.mark.slow
def test_broken_test_does_not_break_the_next(broken: Ran) -> None:
    broken_ones = {
        "test_fails_with_work_in_flight": "AssertionError: midway",
        "test_fails_with_a_call_stuck_in_c": "TimeoutError",
        "test_fails_on_a_poisoned_device": "507015",
    }
    assert broken.failed.keys() == broken_ones.keys(), broken.output
    for name, text in broken_ones.items():
        assert text in broken.failed[name]
    # Before each test of the file, a fixture checks that the device works.
    assert broken.refused.keys() == {
        *LEFT,
        "test_leaves_a_pipe",
        "test_leaves_a_count_below_aioacl",
        "test_last_with_the_fixture_is_reported",
        "test_violates_a_rule",
        "test_blocks_until_the_watchdog_acts",
    }, broken.output


@pytest.mark.slow
def test_blocked_test_is_released_and_reported(broken: Ran) -> None:
    assert (
        "was still running after 1.5 s (aioacl_watchdog)"
        in broken.refused["test_blocks_until_the_watchdog_acts"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("test", ["test_leaves_a_stream", "test_blocks_until_the_watchdog_acts"])
def test_report_of_a_leak_and_of_a_hang_has_the_end_of_the_flight_recorder(broken: Ran, test: str) -> None:
    record = r"  The last records of the flight recorder:\n(    .*\n)*    \d+\.\d{6} s, thread \d+: \w+"
    assert re.search(record, broken.refused[test]), broken.refused[test]


@pytest.mark.slow
def test_report_of_a_leak_without_records_has_no_flight_recorder(broken: Ran) -> None:
    assert "flight recorder" not in broken.refused["test_leaves_a_thread"]


@pytest.mark.slow
def test_report_of_a_leak_has_no_traceback_of_the_plugin(broken: Ran) -> None:
    assert not [name for name, text in broken.refused.items() if "_hooks.py" in text]


# --- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "cure"),
    [
        ("aioacl_library=libascendcl.so", "pass `simulator` or an absolute path"),
        ("aioacl_check=some", "pass one of fixtures, all, none"),
        ("aioacl_watchdog=soon", "aioacl_watchdog: expected seconds from 0 to 1e+07, got 'soon'"),
        ("aioacl_watchdog=1e300", "aioacl_watchdog: expected seconds from 0 to 1e+07, got '1e300'"),
        ("aioacl_settle_timeout=-1", "aioacl_settle_timeout: expected seconds from 0 to 1e+07, got '-1'"),
    ],
)
def test_setting_with_an_invalid_value_ends_the_run(project: Path, setting: str, cure: str) -> None:
    ran = run(project, "-o", setting)
    assert ran.status == pytest.ExitCode.USAGE_ERROR
    assert cure in ran.output


def test_missing_library_is_reported_without_a_traceback(project: Path) -> None:
    ran = run(project, "--aioacl-library=/nowhere/libascendcl.so", "tests/test_without_a_loop.py")
    assert len(ran.refused) == 4
    for text in ran.refused.values():
        reported = text.count("'/nowhere/libascendcl.so': no such file")
        assert 1 <= reported <= 2  # once in the message, once in the text
        assert "The option --aioacl-library" in text
        assert "_hooks.py" not in text


def test_plugin_does_not_import_aioacl_in_a_project_without_it(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\ndef test_it():\n    assert not [name for name in sys.modules if name.startswith('aioacl')]\n"
    )
    ran = run(tmp_path, "test_other.py", new_interpreter=True)
    assert (ran.status, sorted(ran.passed)) == (0, ["test_it"]), ran.output


# --- on a card -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A copy of the simulator that looks like another library: its controls have another name."""
    library = tmp_path_factory.mktemp("card") / "libascendcl.so"
    library.write_bytes(
        simulator.library_path().read_bytes().replace(b"aclsim_control_version", b"unknown_control_symbol")
    )
    runtime = library.with_name("libruntime.so")
    runtime.write_bytes(simulator.library_path().with_name("libruntime.so").read_bytes())
    return str(library)


@pytest.mark.slow
def test_card_is_used_when_its_library_is_chosen(project: Path, card: str) -> None:
    ran = run(project, "-W", "error", f"--aioacl-library={card}")
    assert ran.status == 0, ran.output
    assert f"aioacl: library {card}, checks all" in ran.output
    assert "test_card_has_more_than_one_gibibyte" in ran.passed
    assert "test_get_returns_the_stored_frame" in ran.passed
    assert all("needs the simulator" in text for text in ran.skipped.values())
    assert len(ran.skipped) == 5, ran.skipped


@pytest.mark.slow
def test_leak_is_reported_on_a_card(tmp_path: Path, card: str) -> None:
    ran = run(
        copy_of_project(tmp_path, BROKEN),
        f"--aioacl-library={card}",
        "-o",
        "aioacl_settle_timeout=0.2",
        "tests/test_broken.py",
        "-k",
        "leaves_a_stream",
    )
    assert f"at tests/test_broken.py:{_line('test_leaves_a_stream')}" in ran.refused["test_leaves_a_stream"]


def test_path_of_the_simulator_counts_as_the_simulator(project: Path) -> None:
    path = simulator.library_path()
    ran = run(project, f"--aioacl-library={path}", "tests/test_without_a_loop.py")
    assert (ran.status, len(ran.passed), len(ran.skipped)) == (0, 3, 1), ran.output


# --- a failure that nothing awaits ---------------------------------------------------------------------------------

UNAWAITED = """
import pytest

@pytest.fixture
def failed(aioacl_device, aioacl_simulator):
    memory, events = aioacl_device.allocate(64).result(), aioacl_device.events()
    stream = aioacl_device.create_stream().result()
    aioacl_simulator.fail_next(stream, 507015)
    stream.fill(memory, 1)
    memory.close().result()
    yield stream, events
    stream.close().result()

def test_reads_it(failed):
    stream, events = failed
    next(events)
    assert stream.error.code == 507015

def test_does_not_read_it(failed):
    stream, events = failed
    next(events)
    stream.close().result()

def test_closes_the_stream_before_the_failure_is_known(failed):
    stream, events = failed
    stream.close().result()

def test_next_passes(aioacl_device):
    assert aioacl_device.health.ready
"""
UNCOLLECTED = {"test_does_not_read_it", "test_closes_the_stream_before_the_failure_is_known"}


def test_failure_that_a_test_does_not_await_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(UNAWAITED)
    ran = run(tmp_path, "test_it.py")
    assert (ran.status, len(ran.passed)) == (0, 4), ran.output
    warned = re.findall(
        r"^test_it.py::(\w+)\n.*AclWarning: a task failed, no await raised the error, and its .* was closed",
        ran.output,
        re.MULTILINE,
    )
    assert set(warned) == UNCOLLECTED, ran.output


def test_failure_that_a_test_does_not_await_fails_the_test_if_warnings_are_errors(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(UNAWAITED)
    ran = run(tmp_path, "-o", "filterwarnings=error", "-p", "no:asyncio", "test_it.py")
    assert ran.failed.keys() | ran.refused.keys() == UNCOLLECTED, ran.output
    assert "no await raised the error, and its stream was closed: 507015" in ran.output


# --- injected faults ------------------------------------------------------------------------------------------------

FAULTS_OF_THE_ENVIRONMENT = """
import pytest

@pytest.mark.parametrize("time", [1, 2])
def test_faults_of_the_environment_start_again(aioacl_device, time):
    aioacl_device.allocate(64).result().close().result()
    with pytest.raises(MemoryError):
        aioacl_device.allocate(64).result()
    aioacl_device.allocate(64).result().close().result()

def test_changes_the_settings(aioacl_device, aioacl_simulator):
    aioacl_simulator.set_limits("stream=0")
    aioacl_simulator.set_virtual_clock(True)
    aioacl_simulator.fault("aclrtMalloc", rc=207001).__enter__()

def test_has_the_settings_of_the_environment(aioacl_device, aioacl_simulator):
    before = aioacl_simulator.clock()
    aioacl_device.create_stream().result().close().result()
    assert aioacl_simulator.clock() > before
"""


def test_injected_faults_of_the_environment_start_again_for_each_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_faults.py").write_text(FAULTS_OF_THE_ENVIRONMENT)
    monkeypatch.setenv("AIOACL_SIM_FAULTS", "seed=7; aclrtMalloc:nth=2:rc=207001")
    ran = run(tmp_path, "test_faults.py")
    assert (ran.status, len(ran.passed)) == (0, 4), ran.output


# --- invalid settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "options"),
    [('@pytest.mark.aioacl_allow_leaks("thread")\n', ()), ("", ("-o", "aioacl_allow_leaks=thread"))],
)
def test_unknown_name_of_a_leak_ends_the_run(tmp_path: Path, mark: str, options: tuple[str, ...]) -> None:
    (tmp_path / "test_it.py").write_text(f"import pytest\n\n{mark}def test_it(aioacl_device): pass\n")
    ran = run(tmp_path, "test_it.py", *options)
    assert ran.status == pytest.ExitCode.USAGE_ERROR
    assert (
        "expected the name of something that is counted, got 'thread' (did you mean 'threads'?)" in ran.output
    )


@pytest.mark.parametrize(
    ("arguments", "got"),
    [("streams=1", "got streams"), ("", "got nothing"), ('["streams"]', "got ['streams']")],
)
def test_leaks_marker_without_names_is_refused(tmp_path: Path, arguments: str, got: str) -> None:
    mark = f"@pytest.mark.aioacl_allow_leaks({arguments})\n"
    (tmp_path / "test_it.py").write_text(f"import pytest\n\n{mark}def test_it(aioacl_device): pass\n")
    ran = run(tmp_path, "test_it.py")
    assert ran.status == pytest.ExitCode.USAGE_ERROR
    assert got in ran.output


@pytest.mark.parametrize("setting", ["AIOACL_SIM_DEVICES", "AIOACL_SIM_FAULTS", "AIOACL_SIM_NONSENSE"])
def test_invalid_setting_of_the_simulator_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(aioacl_device): pass\n")
    monkeypatch.setenv(setting, "99 bottles")
    ran = run(tmp_path, "test_it.py")
    assert ran.status == pytest.ExitCode.USAGE_ERROR
    assert re.search(f'ERROR: {setting}(=|: ")99 bottles', ran.output), ran.output
    assert "Abort" not in ran.output


def test_invalid_setting_is_reported_beside_files_with_names_of_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(aioacl_device): pass\n")
    for name in ("logging", "socket", "token"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)")
    monkeypatch.setenv("AIOACL_SIM_DEVICES", "99 bottles")
    ran = run(tmp_path, "test_it.py")
    assert ran.status == pytest.ExitCode.USAGE_ERROR, ran.output
    assert "ERROR: AIOACL_SIM_DEVICES=99 bottles" in ran.output


def test_traceback_of_an_error_ends_at_the_line_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import aioacl\n\ndef test_it(aioacl_library): aioacl.open_device(99).result()\n"
    )
    reported = run(tmp_path, "test_it.py").failed["test_it"]
    assert "test_it.py:3: " in reported
    assert "manager.py" not in reported


LEAVES_A_QUARANTINED_DEVICE = """
import aioacl
import pytest
from aioacl import simulator
from aioacl.testing import wait_until_blocking
from threading import Thread

kept = []

def allocate(device):
    with pytest.raises(aioacl.DeviceQuarantined):
        device.allocate(64).result()

def test_without_a_fixture_of_aioacl_fails():
    aioacl.use_library("simulator")
    device = aioacl.open_device(cache=False).result()
    simulator.hang_call("aclrtMalloc")
    Thread(target=allocate, args=(device,)).start()
    wait_until_blocking(lambda: simulator.hung("aclrtMalloc"))
    assert device.force_reset(grace=0, timeout=0.1).result().ok

def test_next_passes(aioacl_device):
    aioacl_device.allocate(64).result().close().result()
"""


@pytest.mark.slow
@pytest.mark.parametrize("check", ["fixtures", "none"])
def test_failed_test_that_is_not_checked_leaves_a_device_that_works(tmp_path: Path, check: str) -> None:
    (tmp_path / "test_it.py").write_text(LEAVES_A_QUARANTINED_DEVICE)
    ran = run(tmp_path, "-o", f"aioacl_check={check}", "test_it.py")
    assert ran.passed == {"test_next_passes"}, ran.output
