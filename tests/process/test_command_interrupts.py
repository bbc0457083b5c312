"""Ctrl-C in a command before and after its work: one line, the status 130, and no traceback."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.command import finished

# Python imports this module when it starts. The variable IMPORTED names another module. When Python looks up that
# other module, this module sends SIGINT.
SITE = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["IMPORTED"]:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if a shell runs the tests in the background
sys.meta_path.insert(0, Finder())
"""
SCRIPT = str(Path(sysconfig.get_path("scripts"), "aioacl"))


def interrupted(folder: Path, imported: str, *command: str) -> "subprocess.CompletedProcess[str]":
    (folder / "sitecustomize.py").write_text(SITE)
    return finished([*command, "doctor"], env={**os.environ, "PYTHONPATH": str(folder), "IMPORTED": imported})


@pytest.mark.parametrize("imported", ["aioacl._base.errors", "aioacl._device", "aioacl._cli.selftest"])
@pytest.mark.parametrize("command", [(sys.executable, "-m", "aioacl"), (sys.executable, SCRIPT)])
def test_ctrl_c_during_the_imports_of_a_command_gives_one_line(
    tmp_path: Path, imported: str, command: tuple[str, ...]
) -> None:
    done = interrupted(tmp_path, imported, *command)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "aioacl: interrupted\n")


def test_ctrl_c_during_the_import_by_another_program_raises(tmp_path: Path) -> None:
    done = interrupted(tmp_path, "aioacl._base.errors", sys.executable, "-c", "import aioacl")
    assert "KeyboardInterrupt" in done.stderr


IN_MAIN = """
import signal, sys
from aioacl import __main__
signal.signal(signal.SIGINT, signal.default_int_handler)
__main__.make_parser = lambda: signal.raise_signal(signal.SIGINT)
sys.exit(__main__.main([]))
"""


def test_ctrl_c_before_the_command_runs_gives_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", IN_MAIN], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "aioacl: interrupted\n")
