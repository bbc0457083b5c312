"""The programs and tables of docs/testing.md are correct."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from aioacl.testing._snapshot import KNOWN
from tests import test_typing
from tests.support import forkserver
from tests.testing.test_plugin import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()
PLUGIN = ROOT / "pytest_aioacl.py"


def blocks(language: str) -> list[str]:
    """Returns the blocks of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the settings of the page."""
    (settings,) = blocks("toml")
    (tmp_path / "pyproject.toml").write_text(settings)
    return tmp_path


def test_tests_of_the_page_pass(project: Path) -> None:
    tests = [block for block in blocks("python") if "def test_" in block and "# fails" not in block]
    for number, block in enumerate(tests):
        (project / f"test_{number}.py").write_text(block)
    ran = run(project, "-W", "error")
    assert (ran.status, len(ran.passed)) == (0, 13), ran.output


def test_types_of_fixtures_are_those_of_the_plugin() -> None:
    documented = dict(re.findall(r"^\| `(aioacl_\w+)` \| `([^`]+)` \|", PAGE, flags=re.MULTILINE))
    returned = {
        function.name: ast.unparse(function.returns).replace("'", '"')
        for function in ast.parse(PLUGIN.read_text()).body
        if isinstance(function, ast.FunctionDef)
        and function.returns is not None
        and any("pytest.fixture" in ast.unparse(each) for each in function.decorator_list)
        and not function.name.startswith("_")
    }
    assert returned == {**documented, "aioacl_open": "Generator[Open]"}
    # The page does not name the type `Open`, because users cannot import it.
    assert documented["aioacl_open"] == "Callable[[int], aioacl.Device]"


@pytest.mark.slow
@pytest.mark.parametrize("checker", test_typing.CHECKERS)
def test_annotated_fixtures_are_accepted_in_strict_mode(tmp_path: Path, checker: str) -> None:
    (annotated,) = [block for block in blocks("python") if "Callable[[int], aioacl.Device]" in block]
    assert test_typing.CHECKERS[checker](tmp_path, annotated, test_typing.PYTHONS[0]) == set()


def test_report_of_a_leak_is_as_documented(project: Path) -> None:
    (leak,) = [block for block in blocks("python") if block.startswith("# fails\n")]
    (project / "test_leak.py").write_text(leak)
    (documented,) = blocks("console")
    assert documented in run(project, "test_leak.py").output


def test_program_of_the_page_runs(tmp_path: Path) -> None:
    (program,) = [block for block in blocks("python") if "def test_" not in block]
    (tmp_path / "program.py").write_text(program)
    ran = forkserver.run([sys.executable, "-W", "error", str(tmp_path / "program.py")])
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "<Device 0, OPEN, generation 1>\n"


def test_documented_names_of_leaks_are_those_that_are_counted() -> None:
    (row,) = re.findall(r"^\| `aioacl_allow_leaks\(.*", PAGE, flags=re.MULTILINE)
    named = set(re.findall(r"\w+", row.partition("may leave:")[2]))
    assert named == KNOWN
