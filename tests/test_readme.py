"""The pages are correct: their commands exist, their links have targets, and their programs run.

A block that is fenced as `python` is a program. If the next block is fenced as `text`, the program must print this
text. pytest runs programs that define tests. If a block is not run here, a comment above it gives the reason: `<!--
not run: ... -->`. The pages in OWN_TESTS have their own tests for each block.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from aioacl._base.paths import DATA
from scripts.pages import (
    ROOT,
    blocks,
    file_of,
    language,
    links,
    name_of,
    one,
    pages,
    parse,
    wrong_blocks,
    wrong_links,
)
from tests.support import forkserver
from tests.support.command import finished

if TYPE_CHECKING:
    from pathlib import Path

    from scripts.pages import Block

README = (ROOT / "README.md").read_text()
REFERENCE = ROOT / "docs" / "reference"
PAGES = pages()
every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
OWN_TESTS = {
    "docs/services.md": "tests/test_services.py",
    "docs/failures.md": "tests/test_services.py",
    "docs/testing.md": "tests/testing/test_docs.py",
    "docs/typing.md": "tests/test_typing.py",
}
SETTINGS = (
    '[tool.pytest.ini_options]\naioacl_library = "simulator"\naioacl_check = "all"\nasyncio_mode = "strict"\n'
)
LOOP = 'asyncio_default_fixture_loop_scope = "function"\n'


CHINESE = [page for page in PAGES if page.name.endswith(".zh.md")]
PROGRAMS = [
    block
    for page in PAGES
    if name_of(page) not in OWN_TESTS and page not in CHINESE  # they have the programs of the English pages
    for block in blocks(page)
    if block.language == "python"
]


@pytest.mark.process
@pytest.mark.parametrize(
    "block", [each for each in PROGRAMS if not each.reason], ids=lambda block: block.place
)
def test_program_of_a_page_runs_and_prints_the_output_on_the_page(block: Block, tmp_path: Path) -> None:
    if re.search(r"^(?:async )?def test_", block.text, flags=re.MULTILINE):
        (tmp_path / "pyproject.toml").write_text(SETTINGS + LOOP)
        (tmp_path / "test_page.py").write_text(block.text)
        command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        tested = finished(command, cwd=tmp_path, env=_environ(), timeout=60)
        assert tested.returncode == 0, tested.stdout
        return
    if "load_model" in block.text and find_spec("onnxruntime") is None:
        pytest.skip("models need onnxruntime: pip install 'aioacl[onnx]'")
    program = tmp_path / "program.py"
    program.write_text(block.text)
    if re.search(r"^import acl$", block.text, flags=re.MULTILINE):
        _run_pyacl(program, block)
        return
    ran = forkserver.run([sys.executable, "-W", "error", str(program)])
    assert (ran.returncode, ran.stderr) == (0, "")
    if block.prints is not None:
        assert ran.stdout == block.prints


def _run_pyacl(program: Path, block: Block) -> None:
    """Runs a program that imports `acl`, with the command of the page and with the model in its folder."""
    shutil.copy(DATA / "digits.om", program.parent)
    command = [sys.executable, "-m", "aioacl", "pyacl", "-q", "--library", "simulator", str(program)]
    ran = finished(command, cwd=program.parent, env={**_environ(), "PYTHONWARNINGS": "error"}, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, block.prints, "")


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "AIOACL"))}


@every_page
def test_blocks_of_a_page_can_be_tested(page: Path) -> None:
    assert list(wrong_blocks(page.read_text(), name_of(page))) == []


@pytest.mark.parametrize("page", sorted(REFERENCE.glob("*.md")), ids=name_of)
def test_page_of_the_reference_has_an_example(page: Path) -> None:
    assert [block for block in blocks(page) if block.language == "python"] != []


def is_signature(text: str) -> bool:
    """Whether a text is one signature of a function or class, or one name with its type."""
    for form in (f"def {text.strip()}: ...", f"{text.strip()}: ...", text):
        with suppress(SyntaxError):
            statements = ast.parse(form).body
            if len(statements) == 1 and isinstance(
                statements[0], (ast.FunctionDef, ast.ClassDef, ast.AnnAssign)
            ):
                return True
    return False


def test_blocks_marked_py_are_signatures_of_the_reference() -> None:
    found = {page: [block for block in blocks(page) if block.language == "py"] for page in PAGES}
    assert {page.parent for page, signatures in found.items() if signatures} == {REFERENCE}
    wrong = [block.place for each in found.values() for block in each if not is_signature(block.text)]
    assert wrong == [], "expected signatures in blocks marked `py`; fence a program as `python`"


@pytest.mark.process
def test_example_of_the_readme_is_short_and_runs(tmp_path: Path) -> None:
    example = one("README.md", "tests/test_readme.py").text
    assert len(example.splitlines()) <= 15
    program = tmp_path / "example.py"
    program.write_text(example)
    ran = finished([sys.executable, "-W", "error", program], timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.fullmatch(r"hello True\ndevice 0: open at generation 2; .*\n(  .*\n)*", ran.stdout)


def test_readme_has_at_most_120_lines() -> None:
    assert len(README.splitlines()) <= 120


# --- the pages in two languages ------------------------------------------------------------------------------------


def english(page: Path) -> Path:
    """The English page of a Chinese page."""
    return page.with_name(page.name.removesuffix(".zh.md") + ".md")


def outline(text: str) -> list[str]:
    """The headings, blocks, rows of tables and items of lists, without the words that a translation changes."""
    parts = []
    for token in parse(text):
        if token.type == "heading_open":
            parts.append(f"a heading {token.tag}")
        elif token.type in ("fence", "code_block"):
            code = token.content
            if language(token) == "console":
                code = re.sub(r" +# .*", "", code)  # comments of commands are translated
            parts.append(f"a block {language(token)}: {code}")
        elif token.type in ("tr_open", "list_item_open"):
            parts.append({"tr_open": "a row", "list_item_open": "an item"}[token.type])
    return parts


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_chinese_page_has_the_headings_blocks_rows_and_items_of_the_english_page(page: Path) -> None:
    assert outline(page.read_text()) == outline(english(page).read_text())


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_pages_in_two_languages_link_to_each_other_before_the_first_heading(page: Path) -> None:
    assert f"({page.name})" in english(page).read_text().partition("\n## ")[0]
    assert f"({english(page).name})" in page.read_text().partition("\n## ")[0]


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_chinese_page_links_to_pages_in_chinese_where_they_exist(page: Path) -> None:
    targets = {file_of(target, page.parent) for _, target in links(page.read_text())}
    translated = {english(each) for each in CHINESE}
    assert translated & targets == {english(page)}, "link to the page *.zh.md"


@pytest.mark.parametrize("page", CHINESE, ids=name_of)
def test_chinese_paragraph_is_one_line_because_browsers_show_a_line_break_as_a_space(page: Path) -> None:
    broken = [
        token.content
        for token in parse(page.read_text())
        for child in token.children or ()
        if child.type == "softbreak"
    ]
    assert broken == []


@pytest.mark.parametrize(
    "change",
    [
        ("## B", "### B"),
        ("## B\n", ""),
        ("print(1)", "print(2)"),
        ("```python", "```text"),
        ("$ run", "$ walk"),
        ("| 2 |\n", ""),
        ("- d\n", ""),
    ],
    ids=["a level", "a heading", "a program", "a language", "a command", "a row", "an item"],
)
def test_outline_of_a_page_differs_if_a_translation_leaves_something_out(change: tuple[str, str]) -> None:
    text = (
        "# A\n\n## B\n\n```python\nprint(1)\n```\n\n```console\n$ run  # it\n```\n\n"
        "| a |\n|---|\n| 1 |\n| 2 |\n\n- c\n- d\n"
    )
    assert text.count(change[0]) == 1
    assert outline(text.replace(*change)) != outline(text)
    assert outline(text.replace("# it", "# 它").replace("# A", "# 甲")) == outline(text)


def test_commands_of_the_readme_exist() -> None:
    commands = re.findall(r"^\$ \./(\w+)", README, flags=re.MULTILINE)
    assert commands == ["demo", "test"]
    for command in (*commands, "scripts/docs"):
        assert (ROOT / command).stat().st_mode & 0o111, f"expected {command} to be executable"


@every_page
def test_links_of_a_page_have_targets_in_the_repository(page: Path) -> None:
    assert list(wrong_links(page)) == []
