"""scripts/environment.sh, which ./demo and ./test source: what it refuses, what it waits for, and how it ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]

NOBODY = 65534
USER = os.geteuid() or NOBODY  # root may write to each folder, so a test that runs as root uses another user

pytestmark = pytest.mark.process


@pytest.fixture
def clone() -> Iterator[Path]:
    """A folder that another user can reach, unlike tmp_path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def started(folder: Path, locale: str, user: int | None = None) -> subprocess.CompletedProcess[str]:
    """Sources the script of a clone in that folder, with a Python that does not exist, and makes the environment."""
    (folder / "scripts").mkdir(parents=True, exist_ok=True)
    shutil.copy2(ROOT / "scripts" / "environment.sh", folder / "scripts")
    program = 'root=$1; . "$root/scripts/environment.sh"; environment ""'
    return subprocess.run(
        ["sh", "-c", program, "sh", str(folder)],
        capture_output=True,
        encoding="utf-8",
        check=False,
        env={"PATH": os.environ["PATH"], "LC_ALL": locale, "PYTHON": "no-such-python"},
        user=user,
    )


def test_path_that_the_locale_cannot_decode_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "p\u00e4th"
    done = started(folder, "C")
    assert done.returncode == 1
    assert "expected a UTF-8 locale for the path" in done.stderr
    assert "Set LC_ALL=C.UTF-8" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["scripts"]


@pytest.mark.parametrize(("name", "locale"), [("path", "C"), ("p\u00e4th", "C.UTF-8")])
def test_path_that_the_locale_can_decode_is_accepted(tmp_path: Path, name: str, locale: str) -> None:
    done = started(tmp_path / name, locale)
    assert "expected a UTF-8 locale" not in done.stderr
    assert "aioacl needs Python 3.11 or later" in done.stderr


@pytest.mark.parametrize("name", ["a$b", "a{b", "a}b", "a:b", "a\nb"])
def test_path_that_the_build_tools_cannot_handle_is_refused_before_anything_is_made(
    tmp_path: Path, name: str
) -> None:
    done = started(tmp_path / name, "C")
    assert done.returncode == 1
    assert f"got {tmp_path / name}.\n" in done.stderr
    assert "Move the clone" in done.stderr
    assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["scripts"]


def test_path_with_other_special_characters_is_accepted(tmp_path: Path) -> None:
    done = started(tmp_path / "a b'c\"d#e%f&g;h(i)j*k?l!m=n@o,p~q^r|s<t>u\\v[w]x", "C")
    assert "aioacl needs Python 3.11 or later" in done.stderr


@pytest.mark.parametrize("name", [".", "build", "build/environment.lock", ".venv", "aioacl"])
def test_clone_that_is_read_only_is_refused_in_one_message(clone: Path, name: str) -> None:
    for folder in ("build", ".venv", "aioacl", "scripts"):
        (clone / folder).mkdir()
    (clone / "build" / "environment.lock").touch()
    for path in (clone, *clone.rglob("*")):
        os.chown(path, USER, -1)
    (clone / name).chmod(0o555)
    done = started(clone, "C", USER)
    assert done.returncode == 1
    expected, got, remedy = done.stderr.splitlines()
    assert expected.startswith("expected a clone that ./demo and ./test may write to")
    assert str(clone / name) in got
    assert "clone the repository" in remedy
