"""`demo inference` as a process: its results, its reset, and what it refuses."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("onnx", reason="models need the package onnx: pip install 'aioacl[onnx]'")
pytest.importorskip("onnxruntime", reason="models need the package onnxruntime: pip install 'aioacl[onnx]'")

from aioacl import _digits
from aioacl.simulator._atc import Options, convert
from tests.process.test_demo import CLASSIFIED, FEW, MAIN, QUICK, WARNINGS_ARE_ERRORS, _environment
from tests.support import forkserver

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


def inference(*arguments: str | Path, prepare: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs `demo inference` with few digits, after the preparation."""
    command = [*WARNINGS_ARE_ERRORS, "-c", FEW + prepare + MAIN, "demo", "inference", *map(str, arguments)]
    return forkserver.run(command, env=_environment({**QUICK, **environ}), timeout=120)


def found(done: subprocess.CompletedProcess[str], status: int = 0) -> dict[str, Any]:
    assert done.returncode == status, (done.stdout, done.stderr)
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    result: dict[str, Any] = json.loads(line)
    return result


def test_each_digit_has_one_right_result() -> None:
    result = found(inference("--json"))
    digits = _digits.digits()
    held_out = digits.held_out[digits.held_out < CLASSIFIED]
    right = _digits.expected(digits.images[held_out]) == digits.labels[held_out]
    assert result["backend"] == "simulator"
    assert (result["digits"], result["results"]) == (CLASSIFIED, CLASSIFIED)
    assert (result["wrong"], result["duplicates"], result["lost"], result["failures"]) == (0, 0, 0, [])
    assert result["held_out"] == len(held_out)
    assert result["accuracy"] == round(float(right.mean()), 4)
    assert result["resets"] == 1
    assert result["slots"] == 3
    assert result["simulated_ms"] == {"upload": 2.0, "run": 5.0, "download": 2.0}
    assert result["bound_per_s"] == 200
    assert 0 < result["together_per_s"] <= 200
    assert 0 < result["alone_per_s"] <= 1000 / 9


def test_call_that_the_reset_ends_is_repeated_once() -> None:
    """The next execution hangs until the reset ends it, so the reset begins while a call is in progress."""
    hang = """
import anyio
from aioacl import simulator
from aioacl._device import Device
reset = Device.force_reset
async def reset_during_an_execution(self, **options):
    with simulator.fault("aclmdlExecuteAsync", nth=1, late_complete=3600) as hanging:
        while not hanging.hits:
            await anyio.sleep(0)
        return await reset(self, **options)
Device.force_reset = reset_during_an_execution
"""
    result = found(inference("--json", prepare=hang))
    assert result["repeated"] >= 1
    assert (result["results"], result["wrong"], result["duplicates"], result["lost"]) == (CLASSIFIED, 0, 0, 0)


def test_report_is_lines_for_the_stages_and_a_table() -> None:
    done = inference()
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    title = next(at for at, line in enumerate(lines) if line.startswith("aioacl demo inference"))
    assert "simulator: no card was used" in lines[title]
    assert [line.split()[0] for line in lines[title + 2 :] if line[2] != " "] == ["digits", "rate", "result"]
    text = " ".join(done.stdout.split())
    assert f"{CLASSIFIED} results for {CLASSIFIED} digits" in text
    assert "These are the simulator's times, not those of a card" in text


def test_model_with_gears_may_be_given() -> None:
    result = found(inference("--json", "--model", _digits.BATCH_MODEL))
    assert (result["results"], result["wrong"]) == (CLASSIFIED, 0)


@pytest.mark.parametrize("before", [True, False], ids=["before the part", "after the part"])
def test_json_may_stand_before_or_after_the_part(before: bool) -> None:
    words = ["--json", "inference"] if before else ["inference", "--json"]
    command = [*WARNINGS_ARE_ERRORS, "-c", FEW + MAIN, "demo", *words]
    assert found(forkserver.run(command, env=_environment(QUICK), timeout=120))["results"] == CLASSIFIED


def test_result_that_differs_from_numpy_is_counted() -> None:
    differ = """
from aioacl import _digits
right = _digits.expected
_digits.expected = lambda images: (right(images) + 1) % 10
"""
    assert found(inference("--json", prepare=differ), 1)["wrong"] == CLASSIFIED


def test_calls_that_fail_are_reported_and_their_digits_are_lost() -> None:
    fail = """
from aioacl import simulator, use_library
use_library("simulator")
simulator.fault("aclmdlExecuteAsync", after=20, times=2, async_error=507015).__enter__()
"""
    result = found(inference("--json", prepare=fail), 1)
    assert result["lost"] == len(result["failures"]) == 2
    assert all("507015" in failure for failure in result["failures"])
    assert (result["results"], result["wrong"]) == (CLASSIFIED - 2, 0)


def test_reset_that_fails_is_reported() -> None:
    fail = """
from aioacl import simulator, use_library
use_library("simulator")
simulator.fail_call("aclrtResetDeviceForce", 507899, -1)
"""
    result = found(inference("--json", prepare=fail), 1)
    assert result["resets"] == 0
    assert any("QUARANTINED" in failure for failure in result["failures"])


def test_model_that_cannot_be_loaded_is_reported() -> None:
    fail = """
from aioacl import simulator, use_library
use_library("simulator")
simulator.fail_call("aclmdlLoadFromFileWithMem", 145006, -1)
"""
    result = found(inference("--json", prepare=fail), 1)
    assert (result["results"], result["alone_per_s"]) == (0, None)
    assert "145006" in result["failures"][0]


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a refusal."""
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


def test_missing_model_is_refused_in_one_line(tmp_path: Path) -> None:
    line = refused(inference("--model", tmp_path / "absent.om"))
    assert "--model" in line
    assert "No such file" in line


def test_model_of_other_shapes_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "pairs.om"
    path.write_bytes(convert(_digits.ONNX, Options(input_shape="x:2,64"), "pairs"))
    line = refused(inference("--model", path))
    assert "expected a model of digits" in line
    assert str(path) in line


WITHOUT = """
import sys
sys.modules[{!r}] = None
"""


@pytest.mark.parametrize("package", ["numpy", "onnxruntime"])
def test_missing_package_is_refused_in_one_line(package: str) -> None:
    line = refused(inference(prepare=WITHOUT.format(package)))
    assert line == f"aioacl: {package} is not installed: pip install 'aioacl[onnx]'"


@pytest.mark.parametrize("package", ["numpy", "onnxruntime"])
def test_demo_without_a_package_skips_the_part_and_succeeds(package: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 5000)
    program = [*WARNINGS_ARE_ERRORS, "-c", FEW + WITHOUT.format(package) + MAIN]
    arguments = ["demo", "--input", str(tmp_path / "file"), "--tasks", "2"]
    environ = _environment(QUICK)
    done = forkserver.run([*program, *arguments, "--json"], env=environ, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    reason = f"{package} is not installed: pip install 'aioacl[onnx]'"
    assert (result["inference"], result["inference_skipped"]) == (None, reason)
    shown = forkserver.run([*program, *arguments], env=environ, timeout=120)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert [line.split(maxsplit=1)[1] for line in shown.stdout.splitlines() if "digits" in line] == [
        f"skipped: {reason}"
    ]


def test_demo_refuses_a_model_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 5000)
    program = [*WARNINGS_ARE_ERRORS, "-c", FEW + MAIN]
    arguments = ["demo", "--input", str(tmp_path / "file"), "--json", "--model", str(tmp_path / "absent.om")]
    done = forkserver.run([*program, *arguments], env=_environment(QUICK), timeout=120)
    assert done.returncode == 2
    assert "No such file" in json.loads(done.stdout)["error"]


@pytest.mark.slow
def test_all_digits_are_classified() -> None:
    done = forkserver.run(
        [sys.executable, "-W", "error", "-m", "aioacl", "demo", "inference", "--json"],
        env=_environment({}),
        timeout=120,
    )
    result = found(done)
    assert (result["digits"], result["results"], result["held_out"]) == (1797, 1797, 359)
    assert (result["wrong"], result["duplicates"], result["lost"]) == (0, 0, 0)
    assert result["accuracy"] >= 0.95
