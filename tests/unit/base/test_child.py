"""Commands that run a module of the package in a child process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aioacl._base import child

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process


def test_module_gets_the_arguments_and_the_path_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "told.py").write_text("import sys; print(__name__, sys.argv[1:])")
    monkeypatch.syspath_prepend(tmp_path)
    done = subprocess.run(child.command("told", "a b", "-c"), capture_output=True, text=True, check=True)
    assert done.stdout == "__main__ ['a b', '-c']\n"


def test_files_of_the_current_folder_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "runpy", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    done = subprocess.run(child.command("json.tool"), input=b"[1]", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"[\n    1\n]\n")
