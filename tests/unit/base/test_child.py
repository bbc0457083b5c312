"""Commands that run a module of the package in a child process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aioacl
from aioacl._base import child

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.process


def test_module_gets_the_arguments_and_the_path_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text("import sys; print(__name__, sys.argv[1:])")
    monkeypatch.syspath_prepend(tmp_path)
    done = subprocess.run(child.command("program", "a b", "-c"), capture_output=True, text=True, check=True)
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


@pytest.mark.parametrize("written", [lambda _: "", lambda _: ".", str], ids=["empty", "relative", "absolute"])
def test_current_folder_in_the_path_is_searched_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Callable[[Path], str]
) -> None:
    for name in ("json", "random", "runpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)")
    (tmp_path / "program.py").write_text("import json, random; print('found')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [written(tmp_path), *(folder for folder in sys.path if folder)])
    done = subprocess.run(child.command("program"), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "found\n")


def test_path_keeps_its_order_in_the_folder_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text("import sys; print(repr(sys.path[0]))")
    monkeypatch.chdir(Path(aioacl.__file__).parents[1])
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    done = subprocess.run(child.command("program"), capture_output=True, text=True, check=True)
    assert done.stdout == "''\n"


def test_command_in_a_removed_folder_keeps_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "program.py").write_text("print('found')")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(
        sys, "path", ["", str(gone), str(tmp_path), *(folder for folder in sys.path if folder)]
    )
    done = subprocess.run(child.command("program"), capture_output=True, text=True, check=True)
    assert done.stdout == "found\n"
