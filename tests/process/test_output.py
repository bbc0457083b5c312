"""The commands when stdout or stderr cannot be written to: one line, an exit status, and no traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.support.command import finished

COMMAND = [sys.executable, "-W", "error", "-m", "aioacl"]  # without -X dev: asyncio would log slow steps
WITH_CLOSED = """
import os, sys
os.close(int(sys.argv[1]))
os.execv(sys.argv[2], sys.argv[2:])
"""
FEW_DIGITS = """
import sys
from aioacl._cli import _demo_digits
from aioacl.__main__ import main
_demo_digits.DIGITS = _demo_digits.MEASURED = 3
_demo_digits.LEAST_ACCURACY = 0  # none of these digits is held out
sys.exit(main())
"""
DEMO = [sys.executable, "-W", "error", "-c", FEW_DIGITS, "demo"]
COMMANDS = [
    ("demo",),
    ("demo", "--json"),
    ("doctor",),
    ("doctor", "--json"),
    ("simulator", "dir"),
    ("--help",),
]


def arguments(command: tuple[str, ...], folder: Path) -> list[str]:
    """The command line. The demo gets one small file as its input, and classifies few digits."""
    if command[0] != "demo":
        return [*COMMAND, *command]
    (folder / "file").write_bytes(b"x" * 5000)
    return [*DEMO, *command[1:], "--input", str(folder / "file"), "--tasks", "2"]


def environment(folder: Path) -> dict[str, str]:
    """The environment, without PYTHONUNBUFFERED: if it is set, argparse ignores a failed write of the help."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**inherited, "AIOACL_SIM_COPY_LATENCY_US": "50", "XDG_CACHE_HOME": str(folder)}


def with_stdout(file: IO[str], command: tuple[str, ...], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs a command whose stdout is that file."""
    return subprocess.run(
        arguments(command, folder),
        stdout=file,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=environment(folder),
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_full_device_as_stdout_gives_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = with_stdout(full, command, tmp_path)
    assert (done.returncode, done.stderr) == (1, "aioacl: stdout: No space left on device\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_closed_pipe_as_stdout_gives_no_error(command: tuple[str, ...], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = with_stdout(pipe, command, tmp_path)
    assert (done.returncode, done.stderr) == (141, "")


def with_closed(descriptor: int, command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs a command in a process that starts without a descriptor."""
    return finished([sys.executable, "-c", WITH_CLOSED, str(descriptor), *command], env=environment(folder))


@pytest.mark.parametrize("command", COMMANDS)
def test_closed_stdout_gives_one_line(command: tuple[str, ...], tmp_path: Path) -> None:
    done = with_closed(1, arguments(command, tmp_path), tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("aioacl: expected an open stdout, got a closed one; ")


def test_closed_stderr_leaves_only_the_object_on_stdout(tmp_path: Path) -> None:
    done = with_closed(2, arguments(("demo", "--json"), tmp_path), tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["mismatches"] == 0


def test_error_is_not_written_to_stdout_if_stderr_is_closed(tmp_path: Path) -> None:
    done = with_closed(2, [*COMMAND, "demo", "--input", "/nowhere"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
