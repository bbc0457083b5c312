"""docs/testing.md does what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from aioacl.testing._snapshot import KNOWN
from tests.support import forkserver
from tests.testing.test_plugin import run

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


def blocks(language: str) -> list[str]:
    """The page's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the settings of the page."""
    (settings,) = blocks("toml")
    (tmp_path / "pyproject.toml").write_text(settings)
    return tmp_path


def test_the_tests_pass(project: Path) -> None:
    tests = [block for block in blocks("python") if "def test_" in block and "# fails" not in block]
    for number, block in enumerate(tests):
        (project / f"test_{number}.py").write_text(block)
    ran = run(project, "-W", "error")
    assert (ran.status, len(ran.passed)) == (0, 8), ran.output


def test_the_leak_is_told_like_that(project: Path) -> None:
    (leak,) = [block for block in blocks("python") if block.startswith("# fails\n")]
    (project / "test_leak.py").write_text(leak)
    (told,) = blocks("console")
    assert told in run(project, "test_leak.py").output


def test_the_program_runs(tmp_path: Path) -> None:
    (program,) = [block for block in blocks("python") if "def test_" not in block]
    (tmp_path / "program.py").write_text(program)
    ran = forkserver.run([sys.executable, "-W", "error", str(tmp_path / "program.py")])
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "<Device 0, OPEN, generation 1>\n"


def test_what_may_be_left_is_what_is_counted() -> None:
    (row,) = re.findall(r"^\| `aioacl_leaves\(.*", PAGE, flags=re.MULTILINE)
    named = set(re.findall(r"\w+", row.partition("may leave:")[2]))
    assert named == KNOWN
