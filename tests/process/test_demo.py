"""The demo as a process: its checks, its output, and its end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aioacl._cli._demo_lag import RUNS
from tests.support import forkserver
from tests.support.command import finished
from tests.unit.test_trace import Decoded

KEYS = {
    "backend",
    "files",
    "bytes",
    "mismatches",
    "tasks",
    "streams",
    "awaits",
    "resets",
    "generation",
    "stale_refused",
    "resetting_refused",
    "loop_lag_p50_ms",
    "loop_lag_p99_ms",
    "blocking_loop_lag_p50_ms",
    "blocking_loop_lag_p99_ms",
    "seconds",
    "finished",
    "inference",
    "inference_skipped",
}
WARNINGS_ARE_ERRORS = [sys.executable, "-W", "error"]
COMPARED = 16
CLASSIFIED = 60
FEW = f"""
from aioacl._cli import _demo_digits, _demo_lag
_demo_lag.FILES = {COMPARED}
_demo_digits.DIGITS = {CLASSIFIED}
_demo_digits.MEASURED = 4
_demo_digits.LEAST_ACCURACY = 0.8  # a larger share of the first digits is difficult
"""
MAIN = """
import sys
from aioacl.__main__ import main
sys.exit(main())
"""
QUICK = {"AIOACL_SIM_COPY_LATENCY_US": "50"}


def process(*command: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python in a forked process."""
    return forkserver.run([*WARNINGS_ARE_ERRORS, *command], env=_environment(environ), timeout=120)


def real_process(*command: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python in a new process."""
    return finished([*WARNINGS_ARE_ERRORS, *command], env=_environment(environ), timeout=120)


def _environment(environ: dict[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AIOACL_")}
    return {**clean, **environ}


def demo(*arguments: str | Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Runs a short demo: copies take almost no time, and few of them are compared. Few digits are classified."""
    return process("-c", FEW + MAIN, "demo", *map(str, arguments), **QUICK, **environ)


def found(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files of sizes around each limit, and a subfolder."""
    made = tmp_path / "input"
    (made / "deeper").mkdir(parents=True)
    for size in (0, 1, 4095, 1 << 16, (1 << 20) + 1, (2 << 20) + 3):
        (made / "deeper" / f"of {size} bytes").write_bytes(os.urandom(size))
    (made / "é.txt").write_bytes(b"a name that is not ASCII")
    return made


@pytest.mark.slow
def test_demo_with_defaults_verifies_each_file_and_keeps_the_loop_free() -> None:
    result = found(real_process("-m", "aioacl", "demo", "--json"))
    assert result.keys() >= KEYS
    assert result["backend"] == "simulator"
    assert result["files"] > 100
    assert result["bytes"] > 1 << 20
    assert (result["mismatches"], result["failures"]) == (0, [])
    assert (result["tasks"], result["finished"], result["streams"]) == (64, 64, 16)
    assert result["resets"] >= 1
    assert result["generation"] == 1 + result["resets"]
    assert result["tasks_at_work"] == [64] * result["resets"]
    assert result["stale_refused"] + result["resetting_refused"] + result["interrupted"] > 0
    assert result["awaits"] >= 3 * result["files"]
    assert result["loop_lag_p99_ms"] <= result["blocking_loop_lag_p99_ms"] / 2
    assert (result["inference"]["digits"], result["inference"]["results"]) == (1797, 1797)
    assert result["inference"]["accuracy"] >= 0.95


def test_demo_of_a_folder_verifies_files_of_all_sizes(folder: Path) -> None:
    result = found(demo("--json", "--input", folder, "--tasks", "3", "--streams", "2"))
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    assert (result["files"], result["bytes"]) == (len(sizes), sum(sizes))
    assert (result["mismatches"], result["finished"], result["resets"]) == (0, 3, 2)


def test_demo_without_resets_moves_all_files_and_makes_no_forced_reset(folder: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    result = found(
        demo("--json", "--no-reset", "--input", folder, "--tasks", "3", AIOACL_SIM_TRACE=str(trace))
    )
    assert (result["mismatches"], result["finished"], result["resets"], result["generation"]) == (0, 3, 0, 1)
    assert (result["inference"], result["inference_skipped"]) == (None, "it resets the device")
    calls = [json.loads(line).get("call") for line in trace.read_text().splitlines()]
    assert "aclrtMemcpyAsync" in calls
    assert "aclrtResetDeviceForce" not in calls


def test_demo_with_a_trace_writes_it_and_a_page(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.pftrace"
    found(demo("--input", folder, "--trace", path, "--json"))
    trace = Decoded(path.read_bytes())
    generations = {begin.values["generation"] for begin, _ in trace.named("generation")}
    assert len(generations) >= 3  # two resets
    assert len(trace.named("await")) > len(list(folder.iterdir()))
    linked, alone = trace.arrows()
    assert (len(linked) > 0, alone) == (True, [])
    assert path.with_name("run.pftrace.html").read_text().startswith("<!doctype html>")


def test_trace_in_a_missing_folder_is_refused_before_the_demo(tmp_path: Path) -> None:
    done = demo("--trace", tmp_path / "absent" / "run.pftrace")
    assert done.returncode == 2
    assert "expected a file in a folder that exists; choose another file with --trace" in done.stderr


def test_part_with_the_model_refuses_to_run_without_resets() -> None:
    done = demo("--no-reset", "inference")
    assert done.returncode == 2
    assert "always resets the device; omit --no-reset" in done.stderr


@pytest.mark.parametrize("size", [0, (4 << 20) + 1])
def test_input_may_be_a_single_file(tmp_path: Path, size: int) -> None:
    path = tmp_path / "alone"
    path.write_bytes(os.urandom(size))
    result = found(demo("--json", "--input", path, "--tasks", "2", "--streams", "1"))
    assert (result["files"], result["bytes"], result["mismatches"]) == (1, size, 0)


def test_file_that_is_not_regular_is_left_out(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    assert found(demo("--json", "--input", folder, "--tasks", "2"))["files"] == 7


@pytest.mark.parametrize(
    ("name", "reason"), [("absent", "No such file"), ("empty", "no file in it"), ("pipe", "regular file")]
)
def test_invalid_input_is_refused_in_one_line(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    done = demo("--input", tmp_path / name)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert str(tmp_path / name) in line
    assert reason in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read each file")
def test_file_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "é.txt").chmod(0)
    done = demo("--input", folder)
    assert done.returncode == 2
    assert "é.txt: it cannot be read" in done.stderr


@pytest.mark.parametrize("arguments", [("--tasks", "0"), ("--tasks", "many"), ("--streams", "-1")])
def test_invalid_numbers_are_refused(arguments: tuple[str, str]) -> None:
    done = demo(*arguments)
    assert done.returncode == 2
    assert "expected a whole number from 1 to" in done.stderr


def test_missing_library_is_refused_in_one_line(tmp_path: Path) -> None:
    done = demo("--library", tmp_path / "libascendcl.so")
    assert done.returncode == 2
    assert done.stderr == f"aioacl: {tmp_path / 'libascendcl.so'}: no such file\n"


def test_output_without_a_terminal_is_plain_lines_and_a_summary_of_seven_rows(folder: Path) -> None:
    arguments = ("demo", "--input", str(folder), "--tasks", "2")
    done = real_process("-c", FEW + MAIN, *arguments, **QUICK, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.isascii()
    assert "\033" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    lines = done.stdout.splitlines()
    title = next(
        at for at, line in enumerate(lines) if line.startswith("aioacl demo - simulator: no card was used")
    )
    assert [line.split()[0] for line in lines[title + 2 :] if line[2] != " "] == [
        "verified",
        "work",
        "resets",
        "loop",
        "digits",
        "rate",
        "result",
    ]
    assert lines[0].startswith("moved 0 of 7 files")
    assert [line.split(":")[0] for line in lines if line.startswith("reset")] == [
        *["reset 1 of 2"] * 2,
        *["reset 2 of 2"] * 2,
        *["reset"] * 2,
    ]


def run_after(preparation: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs the demo in a process, after the preparation."""
    program = f"""{FEW}
import sys
from aioacl import simulator, use_library
from aioacl.__main__ import main
use_library("simulator")
{preparation}
sys.exit(main(["demo", "--json", "--tasks", "4", "--input", sys.argv[1]]))
"""
    return process("-c", program, str(folder), **QUICK)


def test_task_that_fails_is_counted_and_reported(folder: Path) -> None:
    done = run_after('simulator.fail_call("aclrtMalloc", 207001, -1)', folder)
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["finished"] < 4
    assert (result["inference"], result["inference_skipped"]) == (None, "the job failed")
    assert any("207001" in failure for failure in result["failures"])
    assert result["loop_lag_p99_ms"] is None


def test_reset_that_fails_is_reported(folder: Path) -> None:
    done = run_after('simulator.fail_call("aclrtResetDeviceForce", 507899, -1)', folder)
    assert done.returncode == 1, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["resets"] == 0
    assert any("QUARANTINED" in failure for failure in result["failures"])


def test_file_that_is_removed_during_the_job_is_named(folder: Path) -> None:
    lose_one = """
import aioacl._cli.demo as demo
find = demo.find_input
def find_and_lose(path):
    found = find(path)
    found.files[-1].path.unlink()
    return found
demo.find_input = find_and_lose
"""
    done = run_after(lose_one, folder)
    assert done.returncode == 2
    assert "No such file" in json.loads(done.stdout)["error"]
    (line,) = done.stderr.splitlines()
    assert "No such file" in line


def test_bytes_that_change_are_counted_as_mismatches(folder: Path) -> None:
    change = """
from aioacl._cli import _demo_job, _demo_lag
_demo_job._digest = lambda back: b""
_demo_lag._digest = lambda back, size: b""
"""
    done = run_after(change, folder)
    assert done.returncode == 1, done.stderr
    in_the_comparison = 2 * RUNS * COMPARED
    assert json.loads(done.stdout.splitlines()[-1])["mismatches"] == 7 + in_the_comparison


def test_ctrl_c_ends_the_demo_at_once_without_a_traceback(folder: Path) -> None:
    """The demo opens a pipe when a copy starts. The copies are slow, so the demo still runs when the signal comes."""
    os.mkfifo(started := folder / "started")
    program = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if a shell runs the tests in the background
from aioacl._cli import _demo_job as job
carry = job.Job._carry
async def signal_and_carry(self, file, kit, turn):
    open({str(started)!r}, "w").close()
    job.Job._carry = carry
    await carry(self, file, kit, turn)
job.Job._carry = signal_and_carry
from aioacl.__main__ import main
sys.exit(main(["demo", "--tasks", "4", "--input", sys.argv[1]]))
"""
    with subprocess.Popen(
        [*WARNINGS_ARE_ERRORS, "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "AIOACL_SIM_COPY_LATENCY_US": "200000"},
    ) as process:
        started.open().close()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (output, errors) == ("moved 0 of 7 files, 0.0 MB\n", "aioacl: interrupted\n")
