"""Each example runs, prints the expected output, and emits no warning."""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from aioacl._base.paths import DATA
from aioacl._library.locate import candidates
from scripts.pages import one
from tests.support import forkserver
from tests.support.command import finished

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LINES_AT_MOST = 80

OUTPUT = {
    "acl_allocate_and_release": r"\d+ devices, this is number 0\n(<.*>\n){4}<Device 0, CLOSED, generation \d+>\n",
    "acl_wait_between_streams": r"the copy came after the fill: True\n",
    "acl_wait_for_a_device": r"8 of 8 streams are done\n",
    "acl_wait_for_a_stream": r"every byte is 7: True\n",
    "acl_wait_for_an_event": r"the first fill is done: True\n",
    "async_service": (
        r"lifespan.startup.complete 200 b'OPEN'\nreset: 200\nall echoed: True\ngeneration: 2\n"
    ),
    "classify_digits": (
        r"<Model '.*digits.om', device 0, loaded>\n([ .:\-=+*#%]*\n){8}"
        r"found:     4 9 6 9 4 7 8 9 9 6 5 9 1 7 8 2 6 6 8 1\n"
        r"expected:  4 5 6 9 4 7 8 9 9 6 9 9 1 7 8 2 6 6 8 1\n"
    ),
    "dynamic_batch": (
        r"1 requests in 1 executions: 1 right\n"
        r"5 requests in 1 executions: 5 right\n"
        r"40 requests in 2 executions: 38 right\n"
    ),
    "executor_interop": (
        r"8 digests from loop.run_in_executor\ndevice.run agrees: True\n"
        r"on a thread named aioacl-run-0\nexecutor.map agrees: True\n"
    ),
    "force_reset_under_load": (
        r"(device 0: open at generation \d;.*\n){5}[1-9]\d* copies, 0 wrong; \d+ times a worker began again\n"
    ),
    "hello_device": r"<Device 0, OPEN, generation 1>\nHello from the device!\n",
    "model_map": r"350 of 359 digits are right\n",
    "own_context": (
        r"(replaced: the context; our old stream is stale: True\n){3}the other code works on: True\n"
    ),
    "opentelemetry_metrics": r"aioacl_resets_total \[1\]\n",
    "overlapped_pipeline": r"40 results, in order\n",
    "serve_all_devices": r"0 1 2 3 4 9 6 7 8 9 0 1 2 3 4 5 6 7 8 9 from 2 devices\n",
    "prometheus_collector": (
        r'aioacl_resets_total\{cause="request",device="0",id="0",outcome="open"\} 1.0\n'
    ),
    "test_harness": r"(.*\n)*=+ 3 passed in .*\n",
    "timeouts_and_cancellation": (
        r"timeout=: DeviceTimeout\nasyncio.timeout: TimeoutError\ncancel: the task was cancelled\n"
        r"the copy is still in the queue\nThe copy has arrived.\n"
    ),
    "two_streams_and_an_event": r"(page \d: as written\n){5}",
    "video_pipeline": r"60 frames, 58 right, 3 resets\n",
}


PACKAGES = {"opentelemetry_metrics": "opentelemetry.sdk", "prometheus_collector": "prometheus_client"}


def needs_package(name: str) -> Any:
    """The example, or the same with a mark that skips it because its package is not installed."""
    package = PACKAGES.get(name)
    lacks = package is not None and find_spec(package.partition(".")[0]) is None
    return pytest.param(name, marks=pytest.mark.skipif(lacks, reason=f"the example needs {package}"))


MODELS = {"classify_digits", "dynamic_batch", "model_map", "serve_all_devices", "video_pipeline"}
REPEATS = {"dynamic_batch", "serve_all_devices"}  # examples with a batcher, which repeats what has failed
needs_onnxruntime = pytest.mark.skipif(
    find_spec("onnxruntime") is None, reason="models need onnxruntime: pip install 'aioacl[onnx]'"
)
USES_CONTROLS = {"test_harness", "timeouts_and_cancellation"}  # examples that use the simulator's controls


def _environment(**more: str) -> dict[str, str]:
    dropped = ("AIOACL_LIBRARY", "ASCEND_", "PYTEST")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)} | more


OTHERS = {"ray_serve"}  # test_ray.py


def test_each_example_is_named_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(OUTPUT) | OTHERS


@pytest.mark.parametrize("name", [*OUTPUT, *OTHERS])
def test_example_is_short(name: str) -> None:
    most = 40 if name == "serve_all_devices" else LINES_AT_MOST - 1
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= most


def test_deployment_of_the_page_is_that_of_the_example() -> None:
    block = one("docs/cluster.md", "tests/examples/test_examples.py", lambda text: "serve.deployment" in text)
    assert block.text in (EXAMPLES / "ray_serve.py").read_text()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=needs_onnxruntime) if name in MODELS else needs_package(name)
        for name in OUTPUT
    ],
)
def test_example_prints_the_expected_output(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")]
    environ = _environment(AIOACL_LIBRARY="simulator")
    if name == "hello_device":  # one example runs in a process that is not forked from the fork server
        ran = finished(command, cwd=tmp_path, env=environ, timeout=60)
    else:
        ran = forkserver.run(command, cwd=tmp_path, env=environ)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    assert re.fullmatch(OUTPUT[name], ran.stdout), ran.stdout


@pytest.mark.parametrize("name", [needs_package(name) for name in sorted(set(OUTPUT) - USES_CONTROLS)])
def test_example_without_a_library_fails_and_names_the_remedy(name: str, tmp_path: Path) -> None:
    environ = _environment()
    if any(Path(each.path).exists() for each in candidates(environ)):
        pytest.skip("CANN is installed: the example would use it")
    ran = forkserver.run([sys.executable, str(EXAMPLES / f"{name}.py")], cwd=tmp_path, env=environ)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "LibraryNotFound" in ran.stderr
    assert "set AIOACL_LIBRARY=simulator" in ran.stderr


@pytest.mark.parametrize("copy", [1, 2, 3, 60, 119, 120])
def test_pipeline_with_a_failing_copy_starts_again_and_returns_the_right_data(
    tmp_path: Path, copy: int
) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "overlapped_pipeline.py")]
    faults = {"AIOACL_SIM_FAULTS": f"copy:nth={copy}:async-error=507015"}
    ran = forkserver.run(command, cwd=tmp_path, env=_environment(AIOACL_LIBRARY="simulator", **faults))
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    expected = r"begins again at item \d+: ACL_ERROR_RT_AICORE_EXCEPTION\n40 results, in order\n"
    assert re.fullmatch(expected, ran.stdout), ran.stdout


@pytest.mark.parametrize("fault", ["copy:nth=60:async-error=507013", "copy:async-error=507015"])
def test_pipeline_raises_if_the_device_or_all_copies_fail(tmp_path: Path, fault: str) -> None:
    command = [sys.executable, str(EXAMPLES / "overlapped_pipeline.py")]
    environ = _environment(AIOACL_LIBRARY="simulator", AIOACL_SIM_FAULTS=fault)
    ran = forkserver.run(command, cwd=tmp_path, env=environ)
    assert ran.returncode == 1
    assert "results" not in ran.stdout
    assert "DeviceFault" in ran.stderr


@needs_onnxruntime
def test_example_of_a_model_takes_the_path_of_another_file(tmp_path: Path) -> None:
    model = tmp_path / "other.om"
    model.write_bytes((DATA / "digits.om").read_bytes())
    command = [sys.executable, "-W", "error", str(EXAMPLES / "classify_digits.py"), str(model)]
    ran = forkserver.run(command, cwd=tmp_path, env=_environment(AIOACL_LIBRARY="simulator"))
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    assert ran.stdout.startswith(f"<Model {str(model)!r}, device 0, loaded>\n")


@needs_onnxruntime
@pytest.mark.parametrize("name", sorted(MODELS - REPEATS))
def test_example_of_a_model_with_a_failing_execution_raises(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")]
    faults = {"AIOACL_SIM_FAULTS": "aclmdlExecuteAsync:nth=2:async-error=507015"}
    ran = forkserver.run(command, cwd=tmp_path, env=_environment(AIOACL_LIBRARY="simulator", **faults))
    assert ran.returncode == 1
    assert "DeviceFault" in ran.stderr
    assert len(ran.stdout.splitlines()) <= 1  # each example has printed at most what came before


@needs_onnxruntime
def test_example_of_batches_repeats_a_failed_execution(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "dynamic_batch.py")]
    faults = {"AIOACL_SIM_FAULTS": "aclmdlExecuteAsync:nth=2:async-error=507015"}
    ran = forkserver.run(command, cwd=tmp_path, env=_environment(AIOACL_LIBRARY="simulator", **faults))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "5 requests in 3 executions: 5 right" in ran.stdout


@needs_onnxruntime
@pytest.mark.parametrize("nth", [3, 4, 6])
def test_service_on_all_devices_answers_through_the_failure_of_a_device(nth: int, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "serve_all_devices.py")]
    faults = {"AIOACL_SIM_FAULTS": f"aclmdlExecuteAsync:dev=1:nth={nth}:async-error=507013"}
    ran = forkserver.run(command, cwd=tmp_path, env=_environment(AIOACL_LIBRARY="simulator", **faults))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.fullmatch(OUTPUT["serve_all_devices"], ran.stdout), ran.stdout


@needs_onnxruntime
def test_service_on_all_devices_works_with_the_device_that_opens(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "serve_all_devices.py")]
    faults = {"AIOACL_SIM_FAULTS": "aclrtSetDevice:dev=0:rc=507000"}
    ran = forkserver.run(command, cwd=tmp_path, env=_environment(AIOACL_LIBRARY="simulator", **faults))
    assert ran.returncode == 0
    assert ran.stdout.endswith("from 1 devices\n")
    assert "AclWarning: device 0 is not in the pool, and it is tried again after 0.5, 5, 50 s" in ran.stderr


@needs_onnxruntime
@pytest.mark.parametrize("nth", [2, 30, 61])
def test_pipeline_of_frames_repeats_the_frames_of_a_device_that_fails(nth: int, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(EXAMPLES / "video_pipeline.py")]
    faults = {"AIOACL_SIM_FAULTS": f"aclmdlExecuteAsync:nth={nth}:async-error=507013"}
    ran = forkserver.run(command, cwd=tmp_path, env=_environment(AIOACL_LIBRARY="simulator", **faults))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.fullmatch(r"60 frames, 58 right, [34] resets\n", ran.stdout), ran.stdout


def test_model_of_the_pixels_is_that_of_its_onnx_file(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "aioacl",
        "simulator",
        "atc",
        "--framework",
        "5",
        "--input_shape",
        "pixels:1,64",
    ]
    models = EXAMPLES / "models"
    command += ["--model", str(models / "pixels.onnx"), "--output", str(tmp_path / "pixels")]
    assert finished(command, cwd=tmp_path, env=_environment(), timeout=60).returncode == 0
    assert (tmp_path / "pixels.om").read_bytes() == (models / "pixels.om").read_bytes()
