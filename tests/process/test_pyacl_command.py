"""`python -m aioacl pyacl`."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from aioacl._base.paths import PACKAGE
from aioacl._library.locate import Unusable
from aioacl._pyacl.place import check_folder, python_path

if TYPE_CHECKING:
    from pathlib import Path

ROOT = PACKAGE.parent
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


def pyacl(
    *words: str, options: tuple[str, ...] = (), cwd: Path | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIOACL_", "ASCEND_")) and name != "PYTHONPATH"
    }
    return subprocess.run(
        [sys.executable, *options, "-m", "aioacl", "pyacl", *words],
        cwd=cwd,
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
        (("--shadow", "program.py"), "expected --shadow with --path only"),
        (("--path", "--library", "simulator"), "expected --path without --library"),
        (("-m",), "expected the name of a module after -m"),
        (("-c",), "expected a program text after -c"),
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


# --- as Python itself runs a program ------------------------------------------------------------------------------

REPORT = """
import json, os, sys
import acl
names = ("dev_mode", "optimize", "dont_write_bytecode", "inspect", "safe_path")
json.dump([sys.argv, sys.path, sys.warnoptions, [getattr(sys.flags, each) for each in names]], sys.stdout)
sys.exit("ended" if "-x" in sys.argv else 0)
"""


def reported(words: list[str], folder: Path, standard_input: str = "", **environ: str) -> list[Any]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        input=standard_input,
        env={**kept, "AIOACL_LIBRARY": "simulator", **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return [ended.returncode, ended.stderr, json.loads(ended.stdout)]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a script and a package that import `acl`."""
    folder = tmp_path / "work"
    (folder / "net").mkdir(parents=True)
    for name in ("script.py", "net/__init__.py", "net/sibling.py"):
        (folder / name).write_text(REPORT if name == "script.py" else "")
    for name in ("net/run.py", "net/__main__.py"):
        (folder / name).write_text("from . import sibling\n" + REPORT)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["script.py", "-q", "-x", "--path"],
        ["./script.py", "--", "-m", "--", "net"],
        ["-m", "net", "-x", "-q"],
        ["-m", "net.run", "--library", "x", "--", "-q"],
        ["-mnet", "x"],
        ["-c", REPORT, "-q", "a b"],
        ["-", "-m"],
    ],
)
def test_program_sees_what_python_itself_shows_it(words: list[str], package: Path) -> None:
    text = REPORT if words[0] == "-" else ""
    expected = reported(words, package, text, PYTHONPATH=python_path(str(ROOT)))
    command = ["-m", "aioacl", "pyacl", "-q", *words]
    assert reported(command, package, text, PYTHONPATH=str(ROOT)) == expected


@pytest.mark.parametrize(
    "options", [["-u", "-O"], ["-X", "dev", "-Werror"], ["-OOB"], ["-W", "ignore::UserWarning", "-P"]]
)
def test_program_gets_the_options_of_python(options: list[str], package: Path) -> None:
    expected = reported([*options, "script.py"], package, PYTHONPATH=python_path(str(ROOT)))
    for module in (["-m", "aioacl"], ["-maioacl"]):
        command = [*options, *module, "pyacl", "-q", "script.py"]
        assert reported(command, package, PYTHONPATH=str(ROOT)) == expected
    joined = (
        [*options[:-1], f"{options[-1]}m", "aioacl"] if options == ["-OOB"] else [*options, "-m", "aioacl"]
    )
    assert reported([*joined, "pyacl", "-q", "script.py"], package, PYTHONPATH=str(ROOT)) == expected


def test_empty_part_of_pythonpath_stays_the_current_folder(package: Path) -> None:
    for before in (f":{ROOT}", f"{ROOT}::/nowhere", f"{ROOT}:"):
        expected = reported(["script.py"], package, PYTHONPATH=python_path(before))
        assert str(package) in expected[2][1][1:]
        command = ["-m", "aioacl", "pyacl", "-q", "script.py"]
        assert reported(command, package, PYTHONPATH=before) == expected
    assert python_path("") == python_path(None) == FOLDER


@pytest.mark.parametrize("words", [("program.py",), ("-m", "program")])
def test_acl_beside_the_program_is_refused(words: tuple[str, ...], other: Path) -> None:
    (other / "program.py").write_text("import acl\n")
    ended = pyacl(*words, cwd=other, AIOACL_LIBRARY="simulator", PYTHONPATH=str(ROOT))
    assert ended.returncode == 2
    assert f"expected no module acl in the folder of the program, got {other}/acl.py" in ended.stderr


def test_acl_in_the_current_folder_is_not_reported_for_a_program_elsewhere(
    package: Path, other: Path
) -> None:
    script = str(package / "script.py")
    ended = pyacl(script, cwd=other, AIOACL_LIBRARY="simulator", PYTHONPATH=str(ROOT))
    assert ended.returncode == 0
    assert "the module of aioacl, the only one" in ended.stderr


@pytest.mark.parametrize("option", ["-E", "-I"])
def test_option_of_python_that_ignores_pythonpath_is_refused(option: str, program: str) -> None:
    ended = pyacl(program, options=(option,), AIOACL_LIBRARY="simulator")
    assert ended.returncode == 2
    assert "expected Python without -E and -I, which ignore PYTHONPATH" in ended.stderr


def test_folder_that_every_user_may_write_to_is_refused_and_findings_are_printed(tmp_path: Path) -> None:
    made = tmp_path / "path" / "acl" / "__pycache__"
    made.mkdir(parents=True)
    (made.parent / "__init__.py").write_text("")
    (made / "__init__.pyc").write_text("")
    assert check_folder(strict=True, folder=made.parents[1]) == ()
    for each in (made, made / "__init__.pyc", made.parent / "__init__.py", made.parent, made.parents[1]):
        before = each.stat().st_mode
        each.chmod(before | stat.S_IWGRP)
        assert str(each) in check_folder(strict=False, folder=made.parents[1])[0]
        with pytest.raises(Unusable, match="AIOACL_STRICT refuses this"):
            check_folder(strict=True, folder=made.parents[1])
        each.chmod(before | stat.S_IWOTH)
        with pytest.raises(Unusable, match="any user may write to"):
            check_folder(strict=False, folder=made.parents[1])
        each.chmod(before)
