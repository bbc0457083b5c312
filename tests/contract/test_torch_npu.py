"""An unmodified torch_npu on the simulator: it imports, its runtime part works, and aioacl works beside it.

The wheels of torch_npu are downloaded from the package index and installed in a virtual environment, which is kept in
the user's cache. The tests are skipped if the wheels cannot be installed. torch must be a build without CUDA. PyPI has
no such build, so PyTorch's own index is used too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

import pytest

from scripts.pages import one
from tests.contract import vendor
from tests.support.command import finished

pytestmark = pytest.mark.torch

VERSION: Final = "2.13.0"
WHEELS: Final = (f"torch=={VERSION}+cpu", f"torch_npu=={VERSION}")
CPU_INDEX: Final = "https://download.pytorch.org/whl/cpu"
PIP_INSTALL: Final = (
    *("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "2"),
    *("--only-binary", ":all:", "--extra-index-url", CPU_INDEX),
)
INSTALL_SECONDS: Final = 1800
RUN_SECONDS: Final = 300
TAIL: Final = 2000
PAGE: Final = Path(__file__).parents[2] / "docs" / "c-programs.md"

PROGRAM: Final = """
import json
import torch
import torch_npu

npu = torch.npu
npu.set_device(1)
stream, other = npu.Stream(), npu.Stream()
began, ended = npu.Event(enable_timing=True), npu.Event(enable_timing=True)
source = torch.arange(1 << 16, dtype=torch.int32).pin_memory()
back = torch.zeros_like(source).pin_memory()
there = torch.empty(source.shape, dtype=source.dtype, device="npu")
with npu.stream(stream):
    began.record()
    there.copy_(source, non_blocking=True)
    ended.record()
other.wait_event(ended)
with npu.stream(other):
    back.copy_(there, non_blocking=True)
other.synchronize()
npu.synchronize()
print(json.dumps({
    "versions": [torch.__version__, torch_npu.__version__],
    "devices": npu.device_count(),
    "device": npu.current_device(),
    "pinned": source.is_pinned() and back.is_pinned(),
    "place": str(there.device),
    "timed": began.elapsed_time(ended) >= 0,
    "done": [began.query(), ended.query(), stream.query(), other.query()],
    "same": bool((back == source).all()),
}))
"""

OPERATOR: Final = """
import json
import torch
import torch_npu

numbers = torch.arange(4.0).to("npu")
try:
    found = (numbers + 1).cpu().tolist()
except RuntimeError as error:
    found = str(error)
print(json.dumps({"found": found}))
"""

# aioacl and cffi are not installed beside torch, so the program adds their folders to its path.
FOLDERS: Final = (str(Path(__file__).parents[2]), sysconfig.get_path("purelib"))
BORROWED: Final = f"""
import sys
import torch
import torch_npu

sys.path += {FOLDERS!r}
import json
import aioacl
from aioacl import simulator

aioacl.use_library("simulator")
npu = torch.npu
npu.set_device(0)
source = torch.arange(1 << 12, dtype=torch.int32).pin_memory()
there = torch.zeros_like(source).to("npu")
theirs = npu.Stream()
npu.synchronize()
found = []
with aioacl.open_device() as device, device.create_stream() as ours, device.pinned(source.nbytes) as back:
    with simulator.held(theirs.npu_stream), npu.stream(theirs):
        there.copy_(source, non_blocking=True)
        buffer = device.from_dlpack(there, stream=ours)
        ticket = ours.copy(back, buffer)
        found.append(ticket.done)
    ticket.result()
    found.append(bytes(back.view) == source.numpy().tobytes())
    ours.fill(buffer, 0).result()
    buffer.close().result()
    found.append(there.cpu().count_nonzero().item())
    found.append(simulator.violations())
print(json.dumps(found))
"""

# These programs skip the end of the interpreter: torch's destructors abort in a context that was stopped or reset.
OWN_CONTEXT: Final = f"""
import os
import sys
import torch
import torch_npu

sys.path += {FOLDERS!r}
import json
import aioacl
from aioacl import simulator

RESETS, FAILURES, FAULT = 100, 300, 507015
aioacl.use_library("simulator")
npu = torch.npu
npu.set_device(0)
source = torch.arange(1 << 10, dtype=torch.int32).pin_memory()
there = torch.empty(source.shape, dtype=source.dtype, device="npu")
back = torch.zeros_like(source).pin_memory()
theirs = npu.Stream()

def begin():
    back.zero_()
    with npu.stream(theirs):
        there.copy_(source, non_blocking=True)
        back.copy_(there, non_blocking=True)

def end():
    theirs.synchronize()
    return bool((back == source).all())

def copy(device, code=0):
    with device.create_stream() as stream, device.allocate(64) as memory:
        answer = bytearray(64)
        if code:
            simulator.fail_next(stream, code)
        stream.copy(memory, bytes(range(64)))
        try:
            stream.copy(answer, memory).result()
        except aioacl.DeviceFault as error:
            return error.action
        return bytes(answer) == bytes(range(64))

begin()
end()
found = dict.fromkeys(("resets", "our failures", "their failures", "torch", "aioacl"), 0)
with aioacl.open_device(context="own") as device:
    for _ in range(RESETS):
        with simulator.held(theirs.npu_stream):
            begin()
            stream, memory = device.create_stream().result(), device.allocate(64).result()
            simulator.hold(stream)
            stream.fill(memory, 1)
            report = device.force_reset(grace=0).result()
            found["resets"] += report.ok and report.scope == "context"
        found["torch"] += end()
        found["aioacl"] += copy(device)
    for _ in range(FAILURES):
        begin()
        found["our failures"] += copy(device, FAULT) == "new_stream"
        found["torch"] += end()
        found["aioacl"] += copy(device)
    before = device.generation, device.health.failed_tasks
    for _ in range(FAILURES):
        try:
            simulator.fail_next(theirs.npu_stream, FAULT)
            begin()
            theirs.synchronize()
        except RuntimeError:  # the first failure stops torch's context
            found["their failures"] += 1
        found["aioacl"] += copy(device)
    found["same"] = (device.generation, device.health.failed_tasks) == before
    found["ready"], found["foreign stop"] = device.health.ready, device.health.foreign_stop
    found["scope"] = device.force_reset(grace=0).result().scope
print(json.dumps(found), flush=True)
os._exit(0)
"""

COUNTED_RESETS: Final = f"""
import os
import sys
import torch
import torch_npu

sys.path += {FOLDERS!r}
import json
import aioacl
from aioacl import simulator

RESETS = 100
aioacl.use_library("simulator")
npu = torch.npu
npu.set_device(0)
theirs = npu.Stream()
# This copy goes through torch's queue, whose thread sets the device when it starts.
torch.zeros(8).pin_memory().to("npu", non_blocking=True)
npu.synchronize()
before = simulator.retain_count(0)
found = {{"torch": before > 0, "ok": 0, "foreign sets": 0, "counts": 0}}
with aioacl.open_device() as device:
    for _ in range(RESETS):
        counted = simulator.retain_count(0)
        report = device.force_reset(grace=0).result()
        found["ok"] += report.ok
        found["foreign sets"] += report.foreign_sets == before
        found["counts"] += simulator.retain_count(0) == counted == before + 1
found["closed"] = simulator.retain_count(0) == before
print(json.dumps(found), flush=True)
os._exit(0)
"""

STOP_OF_TORCH: Final = f"""
import os
import sys
import torch
import torch_npu

sys.path += {FOLDERS!r}
import json
import aioacl
from aioacl import simulator
from tests.kit import until_now

aioacl.use_library("simulator")
found = []
with aioacl.open_device() as device:
    torch.npu.set_device(0)
    theirs = torch.npu.Stream()
    found += [until_now(lambda: device.health.foreign_stop), device.health.ready]
print(json.dumps(found), flush=True)
os._exit(0)
"""


def _install(folder: Path) -> None:
    """Makes a virtual environment with the wheels; raises CalledProcessError if they cannot be installed."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True, text=True)
    command = [str(folder / "bin" / "python"), *PIP_INSTALL, *WHEELS]
    # Otherwise pip would not install a wheel that is in a folder of PYTHONPATH, as torch is in .ci/slow.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)


@pytest.fixture(scope="module")
def python() -> Path:
    """A Python with torch and torch_npu."""
    kept = vendor.cache_folder() / f"torch-npu-{VERSION}-{sys.implementation.cache_tag}"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as passing:
            try:
                _install(Path(passing, "made"))
            except subprocess.TimeoutExpired:
                pytest.skip(f"pip did not install {WHEELS} within {INSTALL_SECONDS} s")
            except subprocess.CalledProcessError as error:
                pytest.skip(f"pip could not install {WHEELS}: {str(error.stderr).strip()[-TAIL:]}")
            if not kept.exists():
                shutil.move(Path(passing, "made"), kept)
    return kept / "bin" / "python"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder that a user makes with `python -m aioacl simulator dir`."""
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}
    command = [sys.executable, "-m", "aioacl", "simulator", "dir"]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()


def _run(python: Path, folder: str, tmp_path: Path, program: str) -> str:
    """Runs the program in a new process that finds the simulator only by LD_LIBRARY_PATH. Returns its last line."""
    ours = ("AIOACL", "ASCEND", "PYTHON", "TORCH")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ |= {"LD_LIBRARY_PATH": folder, "AIOACL_SIM_TRACE": str(tmp_path / "trace.jsonl")}
    ran = finished([python, "-c", program], cwd=tmp_path, env=environ, timeout=RUN_SECONDS)
    assert ran.returncode == 0, ran.stdout[-TAIL:] + ran.stderr[-TAIL:]
    return ran.stdout.splitlines()[-1]


def test_torch_npu_unmodified_copies_pinned_memory_both_ways(
    python: Path, folder: str, tmp_path: Path
) -> None:
    assert json.loads(_run(python, folder, tmp_path, PROGRAM)) == {
        "versions": [f"{VERSION}+cpu", VERSION],
        "devices": 2,
        "device": 1,
        "pinned": True,
        "place": "npu:1",
        "timed": True,
        "done": [True] * 4,
        "same": True,
    }
    calls = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert {"aclrtMallocHost", "aclrtMemcpyAsync"} <= {call["call"] for call in calls if "call" in call}


def test_torch_npu_running_an_operator_raises_not_supported(
    python: Path, folder: str, tmp_path: Path
) -> None:
    found = json.loads(_run(python, folder, tmp_path, OPERATOR))["found"]
    assert "The simulator does not support this call with these arguments." in found
    assert "Argument: aclopCompileAndExecute. Result: 207000." in found


def test_tensor_of_torch_npu_is_taken_without_a_copy_and_after_the_work_of_torch(
    python: Path, folder: str, tmp_path: Path
) -> None:
    assert json.loads(_run(python, folder, tmp_path, BORROWED)) == [False, True, 0, []]


def test_torch_npu_program_of_the_page_prints_the_output_on_the_page(
    python: Path, folder: str, tmp_path: Path
) -> None:
    program = one(
        "docs/c-programs.md", "tests/contract/test_torch_npu.py", lambda text: "torch_npu" in text
    ).text
    assert f"python both_ways.py\n{_run(python, folder, tmp_path, program)}\n" in PAGE.read_text()


def test_own_context_beside_torch_npu_sees_no_failure_of_torch_and_torch_sees_no_reset(
    python: Path, folder: str, tmp_path: Path
) -> None:
    assert json.loads(_run(python, folder, tmp_path, OWN_CONTEXT)) == {
        "resets": 100,
        "our failures": 300,
        "their failures": 300,
        "torch": 400,
        "aioacl": 700,
        "same": True,
        "ready": True,
        "foreign stop": False,
        "scope": "context",
    }


def test_resets_beside_torch_npu_in_the_primary_context_make_the_sets_of_torch_again(
    python: Path, folder: str, tmp_path: Path
) -> None:
    assert json.loads(_run(python, folder, tmp_path, COUNTED_RESETS)) == {
        "torch": True,
        "ok": 100,
        "foreign sets": 100,
        "counts": 100,
        "closed": True,
    }


def test_stop_mode_of_torch_npu_is_reported_before_a_failure(
    python: Path, folder: str, tmp_path: Path
) -> None:
    assert json.loads(_run(python, folder, tmp_path, STOP_OF_TORCH)) == [True, True]
