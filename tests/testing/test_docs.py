"""The programs and tables of docs/testing.md are correct."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioacl.testing._snapshot import KNOWN
from scripts.pages import blocks, one
from tests import test_typing
from tests.support import forkserver
from tests.testing.test_plugin import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from scripts.pages import Block

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()
PLUGIN = ROOT / "pytest_aioacl.py"


def only_block(where: Callable[[str], bool] = bool, *, language: str = "python") -> Block:
    """Returns the only block of the page that is in this language and for which `where` returns true."""
    return one("docs/testing.md", "tests/testing/test_docs.py", where, language=language)


def has_tests(text: str) -> bool:
    return "def test_" in text


def fails(text: str) -> bool:
    return text.startswith("# fails\n")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the settings of the page."""
    (tmp_path / "pyproject.toml").write_text(only_block(language="toml").text)
    return tmp_path


def test_tests_of_the_page_pass(project: Path) -> None:
    texts = [block.text for block in blocks(ROOT / "docs" / "testing.md") if block.language == "python"]
    tests = [text for text in texts if has_tests(text) and not fails(text)]
    for number, text in enumerate(tests):
        (project / f"test_{number}.py").write_text(text)
    ran = run(project, "-W", "error")
    assert ran.status == 0, ran.output
    assert {name.partition("[")[0] for name in ran.passed} == set(
        re.findall(r"def (test_\w+)", "".join(tests))
    )


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
    assert returned == {
        **documented,
        "aioacl_open": "Generator[Open]",
        "aioacl_open_pool": "Generator[OpenPool]",
    }
    # The page does not name these types, because users cannot import them.
    assert documented["aioacl_open"] == "Callable[[int], aioacl.Device]"
    assert documented["aioacl_open_pool"] == "Callable[..., aioacl.Pool]"


@pytest.mark.slow
@pytest.mark.parametrize("checker", test_typing.CHECKERS)
def test_annotated_fixtures_are_accepted_in_strict_mode(tmp_path: Path, checker: str) -> None:
    annotated = only_block(lambda text: "Callable[[int], aioacl.Device]" in text)
    assert test_typing.CHECKERS[checker](tmp_path, annotated.text, test_typing.PYTHONS[0]) == set()


def test_report_of_a_leak_is_as_documented(project: Path) -> None:
    (project / "test_leak.py").write_text(only_block(fails).text)
    documented = only_block(language="console").text
    assert documented in run(project, "test_leak.py").output


def test_program_of_the_page_runs(tmp_path: Path) -> None:
    program = only_block(lambda text: not has_tests(text))
    (tmp_path / "program.py").write_text(program.text)
    ran = forkserver.run([sys.executable, "-W", "error", str(tmp_path / "program.py")])
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == program.prints


def test_documented_names_of_leaks_are_those_that_are_counted() -> None:
    (row,) = re.findall(r"^\| `aioacl_allow_leaks\(.*", PAGE, flags=re.MULTILINE)
    named = set(re.findall(r"\w+", row.partition("may leave:")[2]))
    assert named == KNOWN
