"""What scripts/environment.sh refuses, what it waits for, and how it ends. ./demo and ./test source this script."""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.specifiers import SpecifierSet

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]

NOBODY = 65534
USER = os.geteuid() or NOBODY  # root may write to each folder, so a test that runs as root uses another user
PATIENCE_SECONDS = 60
WITH_FLOCK = pytest.mark.skipif(
    shutil.which("flock") is None, reason="the scripts lock only if flock is installed"
)

pytestmark = pytest.mark.process


@pytest.fixture
def clone() -> Iterator[Path]:
    """A folder that another user can reach, unlike tmp_path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def start(
    folder: Path, locale: str = "C", user: int | None = None, python: str = "no-such-python"
) -> subprocess.Popen[str]:
    """Sources scripts/environment.sh in a new clone, and makes the environment with this Python."""
    (folder / "scripts").mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / "scripts" / "environment.sh", folder / "scripts")
    program = 'root=$1; . "$root/scripts/environment.sh"; environment ""'
    return subprocess.Popen(
        ["sh", "-c", program, "sh", str(folder)],
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={"PATH": os.environ["PATH"], "LC_ALL": locale, "PYTHON": python},
        user=user,
    )


def started(
    folder: Path, locale: str, user: int | None = None, python: str = "no-such-python"
) -> tuple[int, str]:
    """Waits for the end of `start`. Returns the status and stderr."""
    with start(folder, locale, user, python) as process:
        errors = process.communicate()[1]
    return process.returncode, errors


def test_path_that_the_locale_cannot_decode_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "p\u00e4th"
    status, errors = started(folder, "C")
    assert status == 1
    assert "expected a UTF-8 locale for the path" in errors
    assert "Set LC_ALL=C.UTF-8" in errors
    assert sorted(path.name for path in folder.iterdir()) == ["scripts"]


@pytest.mark.parametrize(("name", "locale"), [("path", "C"), ("p\u00e4th", "C.UTF-8")])
def test_path_that_the_locale_can_decode_is_accepted(tmp_path: Path, name: str, locale: str) -> None:
    errors = started(tmp_path / name, locale)[1]
    assert "expected a UTF-8 locale" not in errors
    assert "aioacl needs Python 3.11 or later" in errors


@pytest.mark.parametrize("name", ["a$b", "a{b", "a}b", "a:b", "a\nb"])
def test_path_that_the_build_tools_cannot_handle_is_refused_before_anything_is_made(
    tmp_path: Path, name: str
) -> None:
    status, errors = started(tmp_path / name, "C")
    assert status == 1
    assert f"got {tmp_path / name}.\n" in errors
    assert "Move the clone" in errors
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["scripts"]


def test_path_with_other_special_characters_is_accepted(tmp_path: Path) -> None:
    errors = started(tmp_path / "a b'c\"d#e%f&g;h(i)j*k?l!m=n@o,p~q^r|s<t>u\\v[w]x", "C")[1]
    assert "aioacl needs Python 3.11 or later" in errors


@pytest.mark.parametrize("name", [".", "build", "build/environment.lock", ".venv", "aioacl"])
def test_clone_that_is_read_only_is_refused_in_one_message(clone: Path, name: str) -> None:
    for folder in ("build", ".venv", "aioacl", "scripts"):
        (clone / folder).mkdir()
    (clone / "build" / "environment.lock").touch()
    for path in (clone, *clone.rglob("*")):
        os.chown(path, USER, -1)
    (clone / name).chmod(0o555)
    status, errors = started(clone, "C", USER)
    assert status == 1
    expected, got, remedy = errors.splitlines()
    assert expected.startswith("expected a clone that ./demo and ./test may write to")
    assert str(clone / name) in got
    assert "clone the repository" in remedy


@WITH_FLOCK
def test_script_that_waits_for_another_script_reports_the_wait_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    with (tmp_path / "build" / "environment.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(tmp_path)
        assert process.stderr is not None
        assert process.stderr.readline().startswith(
            "waiting for another ./demo or ./test that builds in this clone"
        )
    with process:
        assert "aioacl needs Python 3.11 or later" in process.stderr.readline()


INSTALLED = """
root=$1
. "$root/scripts/environment.sh"
installation "" >"$installed"
environment ""
"""


@WITH_FLOCK
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_during_the_build_ends_the_compilers_and_the_script(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The compiler waits for the end of `hold`, and keeps `pipe` open. So `pipe` shows whether a compiler runs."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "build", "docs", "tests", "*.so"))
    (clone / ".venv").mkdir()
    for name in ("bin", "lib", "include", "pyvenv.cfg"):
        (clone / ".venv" / name).symlink_to(Path(sys.prefix, name))
    os.mkfifo(hold := tmp_path / "hold")
    os.mkfifo(pipe := tmp_path / "pipe")
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\nexec cat {hold} >{pipe}\n")
    compiler.chmod(0o755)
    with (
        hold.open("r+b", buffering=0),
        subprocess.Popen(
            ["sh", "-c", INSTALLED, "sh", str(clone)],
            stderr=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, "CC": str(compiler)},
        ) as process,
        pipe.open("rb", buffering=0) as compilers,
    ):
        process.send_signal(number)
        assert process.wait() == -number
        assert select.select([compilers], [], [], PATIENCE_SECONDS)[0], (
            "expected each compiler to end, one still runs"
        )
        assert process.stderr is not None
        assert all(line.startswith(("ninja: ", "building: ")) for line in process.stderr)
    for lock in clone.glob("build/**/*lock"):
        subprocess.run(["flock", "-w", str(PATIENCE_SECONDS), lock, "true"], check=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_signal_ends_the_children_of_a_command_and_the_script(
    tmp_path: Path, number: signal.Signals, shell: str
) -> None:
    """The command has a child that waits for the end of `hold`, and keeps `pipe` open."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    os.mkfifo(hold := tmp_path / "hold")
    os.mkfifo(pipe := tmp_path / "pipe")
    program = """
    root=$1
    . "$2/scripts/environment.sh"
    attended sh -c '(exec cat "$1/hold" >"$1/pipe"); exit 1' sh "$root" || exit 0
    """
    with (
        hold.open("r+b", buffering=0),
        subprocess.Popen([shell, "-c", program, shell, tmp_path, ROOT]) as process,
        pipe.open("rb", buffering=0) as child,
    ):
        process.send_signal(number)
        assert process.wait() != 0
        assert select.select([child], [], [], PATIENCE_SECONDS)[0], "expected the child to end, it still runs"


def try_to_add(folder: Path, package: str) -> subprocess.CompletedProcess[str]:
    """Adds the packages of an extra without a network, and then writes "continues"."""
    (folder / "build").mkdir()
    (folder / "constraints.txt").touch()
    (folder / "pyproject.toml").write_text(f'[project.optional-dependencies]\nonnx = ["{package}>=1"]\n')
    program = 'set -eu; root=$1; . "$2/scripts/environment.sh"; python=$3; try_to_add onnx; echo continues'
    return subprocess.run(
        ["sh", "-c", program, "sh", folder, ROOT, sys.executable],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PIP_NO_INDEX": "1"},
        check=False,
    )


def test_optional_packages_that_cannot_be_installed_are_left_out_with_one_message(tmp_path: Path) -> None:
    done = try_to_add(tmp_path, "aioacl-no-such-package")
    assert (done.returncode, done.stdout) == (0, "continues\n")
    first, second = done.stderr.splitlines()
    assert first.startswith("installing the packages of aioacl[onnx]")
    assert "build/onnx.log has the reason" in second
    assert "No matching distribution" in (tmp_path / "build" / "onnx.log").read_text()


def test_optional_packages_that_are_installed_are_not_installed_again(tmp_path: Path) -> None:
    done = try_to_add(tmp_path, "pytest")
    assert (done.returncode, done.stdout, done.stderr) == (0, "continues\n", "")


def test_each_package_works_with_the_oldest_python() -> None:
    refused = {
        package.name: needed
        for package in distributions()
        if (needed := package.metadata["Requires-Python"]) and not SpecifierSet(needed).contains("3.11.0")
    }
    assert not refused


def test_constraint_of_isolated_builds_is_not_passed_to_a_build_without_isolation(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "${PIP_BUILD_CONSTRAINT-no constraint}, $*"\n')
    python.chmod(0o755)
    program = 'root=$1; . "$2/scripts/environment.sh"; python=$3; pip .'
    done = subprocess.run(
        ["sh", "-c", program, "sh", tmp_path, ROOT, python],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PIP_BUILD_CONSTRAINT": str(ROOT / "constraints.txt")},
        check=True,
    )
    assert done.stdout.startswith("no constraint, -m pip ")


def test_free_threaded_python_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    python = tmp_path / "python3.14t"
    program = (
        "import sys, sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1; exec(sys.stdin.read())"
    )
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}"\n')
    python.chmod(0o755)
    status, errors = started(tmp_path / "clone", "C", python=str(python))
    assert status == 1
    assert f"{python}: it is a free-threaded build, expected one with the GIL" in errors
    assert not (tmp_path / "clone" / ".venv").exists()


def test_extra_of_the_plugin_has_only_what_its_users_need() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {re.split(r"[<>=]", each)[0] for each in extras["test"]} == {"pytest", "pytest-asyncio"}
    assert "aioacl[test]" in extras["dev"]
