"""`python -m aioacl pyacl`."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from aioacl._base.paths import PACKAGE

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = str(PACKAGE / "_pyacl" / "path")
PROGRAM = """
import os, subprocess, sys
import acl
print(acl.rt.get_device_count(), sys.argv[1:], __name__, acl.__name__)
child = "import acl; print('child', acl.rt.get_device_count())"
sys.stdout.flush()
subprocess.run([sys.executable, "-c", child], check=True)
sys.exit(7)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A folder with another module `acl`."""
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "acl.py").write_text("raise ImportError('the other acl')\n")
    return folder


def pyacl(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIOACL_", "ASCEND_")) and name != "PYTHONPATH"
    }
    return subprocess.run(
        [sys.executable, "-m", "aioacl", "pyacl", *words],
        env={**kept, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


OUTPUT = "(2, 0) ['-q', '--path'] __main__ acl\nchild (2, 0)\n"


def test_program_and_its_children_import_acl_and_its_arguments_and_status_are_kept(program: str) -> None:
    ended = pyacl(program, "-q", "--path", AIOACL_LIBRARY="simulator")
    assert (ended.returncode, ended.stdout) == (7, OUTPUT)
    assert ended.stderr == (
        "aioacl: acl is the module of aioacl, the only one; the ACL library is the simulator, so no card is used "
        "(from AIOACL_LIBRARY)\n"
    )


def test_quiet_prints_nothing(program: str) -> None:
    ended = pyacl("-q", program, "-q", "--path", AIOACL_LIBRARY="simulator")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, OUTPUT, "")


def test_library_of_the_option_is_used_by_the_children_too(program: str) -> None:
    ended = pyacl("--library", "simulator", program, "-q", "--path")
    assert (ended.returncode, ended.stdout) == (7, OUTPUT)
    assert "(from argument)" in ended.stderr


def test_program_uses_acl_of_aioacl_in_place_of_another_and_the_command_says_so(
    program: str, other: Path
) -> None:
    ended = pyacl(program, "-q", "--path", AIOACL_LIBRARY="simulator", PYTHONPATH=str(other))
    assert (ended.returncode, ended.stdout) == (7, OUTPUT)
    assert f"in place of {other}/acl.py, because this command was used" in ended.stderr


def test_path_prints_the_folder(tmp_path: Path) -> None:
    ended = pyacl("--path")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{FOLDER}\n", "")
    (tmp_path / "acl").mkdir()  # a folder without a module is not another acl
    assert pyacl("--path", PYTHONPATH=str(tmp_path)).returncode == 0


def test_path_beside_another_acl_ends_with_1_unless_shadow(other: Path) -> None:
    ended = pyacl("--path", PYTHONPATH=str(other))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"{other}/acl.py is another module acl" in ended.stderr
    assert "pass --shadow" in ended.stderr
    shadowed = pyacl("--path", "--shadow", PYTHONPATH=str(other))
    assert (shadowed.returncode, shadowed.stdout, shadowed.stderr) == (0, f"{FOLDER}\n", "")


def test_path_of_the_folder_itself_is_not_another_acl() -> None:
    assert pyacl("--path", PYTHONPATH=FOLDER).returncode == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "expected a program, got none; run `python -m aioacl pyacl SCRIPT`"),
        (("nowhere.py",), "nowhere.py: no such file"),
        (("--path", "program.py"), "expected --path without a program, got program.py"),
    ],
)
def test_wrong_use_is_named(words: tuple[str, ...], text: str) -> None:
    ended = pyacl(*words)
    assert ended.returncode == 2
    assert text in ended.stderr


def test_program_without_a_library_ends_with_the_cure(program: str) -> None:
    ended = pyacl(program, LD_LIBRARY_PATH="")
    assert ended.returncode == 2
    assert "`--library simulator` works without CANN" in ended.stderr
