"""`python -m aioacl simulator models`: the models of a program, its output, and its exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.simulator import modelfiles
from tests.support.command import finished

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = """
import os
import signal
import sys
import warnings
from pathlib import Path

from aioacl import simulator
from aioacl._library import runtime
from tests.simulator.modelcalls import load_code, rc
from tests.simulator.rawacl import good

runtime.load()
good("aclrtSetDevice", 0)
path = Path(sys.argv[1])
_, first = load_code(path)
_, second = load_code(path.read_bytes())
good("aclmdlUnload", first)
print("done", len(simulator.models()), flush=True)
match sys.argv[2]:
    case "signal":
        os.kill(os.getpid(), signal.SIGKILL)
    case "fork":
        warnings.simplefilter("ignore")  # Python warns about threads, which the child does not use
        child = os.fork()
        if not child:
            sys.exit(0)
        os.waitpid(child, 0)
    case status:
        sys.exit(int(status))
"""

BLOCKED: Final = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.om"
    path.write_bytes(modelfiles.genuine())
    return path


def _environ(cache: Path) -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AIOACL")}
    return {**environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}


def command(*arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return finished(
        [sys.executable, "-m", "aioacl", "simulator", "models", *arguments],
        cwd=cache,
        env=_environ(cache),
        timeout=120,
    )


def listed(file: Path, how: str, status: int) -> list[dict[str, Any]]:
    done = command("--json", "--", sys.executable, "-c", PROGRAM, str(file), how, cache=file.parent)
    assert (done.returncode, done.stderr) == (status, "done 1\n")
    result = json.loads(done.stdout)
    assert result["status"] == status
    models: list[dict[str, Any]] = result["models"]
    return models


def test_models_of_a_python_program_are_listed_with_their_state(file: Path) -> None:
    first, second = listed(file, "3", 3)
    assert (first["id"], first["path"], first["state"]) == (1, str(file), "unloaded")
    assert (second["id"], second["path"], second["state"]) == (2, None, "loaded")
    assert first["inputs"] == [{"name": "x", "shape": [2, 3], "dtype": "float32", "nbytes": 24}]
    assert (first["computed_by"], first["executions"], first["nbytes"]) == ("none", 0, 1124)


def test_program_that_a_signal_ends_lists_only_unloaded_models(file: Path) -> None:
    assert [model["state"] for model in listed(file, "signal", 128 + 9)] == ["unloaded"]


def test_child_of_fork_does_not_list_the_models_of_its_parent(file: Path) -> None:
    assert [model["state"] for model in listed(file, "fork", 0)] == ["unloaded", "loaded"]


def test_table_has_a_row_for_each_model_after_the_output(file: Path) -> None:
    done = command("--", sys.executable, "-c", PROGRAM, str(file), "0", cache=file.parent)
    assert (done.returncode, done.stderr) == (0, "")
    output, headings, first, second = done.stdout.splitlines()
    assert output == "done 1"
    assert headings.startswith("  id   file ")
    assert str(file) in first
    assert "memory" in second


def test_program_without_models_gets_one_line(tmp_path: Path) -> None:
    done = command("--", "true", cache=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "The program has loaded no model.\n", "")


def test_missing_program_is_refused(tmp_path: Path) -> None:
    done = command("--", str(tmp_path / "nothing"), cache=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected a program that can be started, got: No such file or directory" in done.stderr
    assert command(cache=tmp_path).returncode == 2


def test_interrupt_ends_the_program_and_the_models_are_listed(file: Path) -> None:
    program = BLOCKED + PROGRAM.partition("match")[0] + "signal.sigwait([signal.SIGINT])\nsys.exit(5)\n"
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "aioacl",
            "simulator",
            "models",
            "--",
            sys.executable,
            "-c",
            program,
            str(file),
        ],
        env=_environ(file.parent),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "done 1\n"
        os.killpg(running.pid, signal.SIGINT)
        table, _ = running.communicate(timeout=120)
    assert running.returncode == 5
    assert re.findall(r"(?:un)?loaded", table) == ["unloaded", "loaded"]
