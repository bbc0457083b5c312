"""The pages are correct: their commands exist, their links have targets, and their programs run.

A block that is fenced as `python` is a program. If the next block is fenced as `text`, the program must print this
text. pytest runs programs that define tests. If a block is not run here, a comment above it gives the reason: `<!--
not run: ... -->`. The pages in OWN_TESTS have their own tests for each block.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import forkserver

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCS = ROOT / "docs"
TOP = ("README.md", "README.zh.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
PAGES = [
    *(ROOT / name for name in TOP),
    *sorted(path for path in DOCS.rglob("*.md") if "_pages" not in path.parts),
    ROOT / "benchmarks" / "README.md",
    ROOT / "examples" / "testing" / "README.md",
]
OWN_TESTS = {
    "docs/services.md": "tests/test_services.py",
    "docs/failures.md": "tests/test_services.py",
    "docs/testing.md": "tests/testing/test_docs.py",
    "docs/typing.md": "tests/test_typing.py",
}
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n)?^```python\n(?P<program>.*?)^```\n"
    r"(?:\n```text\n(?P<prints>.*?)^```\n)?",
    flags=re.DOTALL | re.MULTILINE,
)
SETTINGS = (
    '[tool.pytest.ini_options]\naioacl_library = "simulator"\naioacl_check = "all"\nasyncio_mode = "strict"\n'
)
LOOP = 'asyncio_default_fixture_loop_scope = "function"\n'


@dataclass(frozen=True)
class Snippet:
    """A program of a page, and the output that the page shows, or None."""

    name: str
    program: str
    prints: str | None
    reason: str | None


def _snippets() -> list[Snippet]:
    found: list[Snippet] = []
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        if name not in OWN_TESTS:
            for number, match in enumerate(BLOCK.finditer(page.read_text()), 1):
                found.append(Snippet(f"{name}-{number}", match["program"], match["prints"], match["reason"]))
    return found


SNIPPETS = _snippets()


@pytest.mark.process
@pytest.mark.parametrize(
    "snippet", [each for each in SNIPPETS if each.reason is None], ids=lambda snippet: snippet.name
)
def test_program_of_a_page_runs_and_prints_the_output_on_the_page(snippet: Snippet, tmp_path: Path) -> None:
    if "\ndef test_" in snippet.program or "\nasync def test_" in snippet.program:
        (tmp_path / "pyproject.toml").write_text(SETTINGS + LOOP)
        (tmp_path / "test_page.py").write_text(snippet.program)
        command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        tested = subprocess.run(
            command, cwd=tmp_path, env=_environ(), capture_output=True, text=True, timeout=60, check=False
        )
        assert tested.returncode == 0, tested.stdout
        return
    program = tmp_path / "program.py"
    program.write_text(snippet.program)
    ran = forkserver.run([sys.executable, "-W", "error", str(program)])
    assert (ran.returncode, ran.stderr) == (0, "")
    if snippet.prints is not None:
        assert ran.stdout == snippet.prints


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "AIOACL"))}


def test_each_page_of_the_reference_has_an_example() -> None:
    with_example = {each.name.rpartition("-")[0] for each in SNIPPETS}
    pages = {f"docs/reference/{path.name}" for path in (DOCS / "reference").glob("*.md")}
    assert pages <= with_example


def test_signatures_are_only_in_the_reference() -> None:
    with_signature = [page for page in PAGES if "\n```py\n" in page.read_text()]
    assert {page.parent for page in with_signature} == {DOCS / "reference"}


@pytest.mark.process
def test_example_of_the_readme_is_short_and_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    assert len(example.splitlines()) <= 15
    program = tmp_path / "example.py"
    program.write_text(example)
    ran = subprocess.run(
        [sys.executable, "-W", "error", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.fullmatch(r"hello True\ndevice 0: open at generation 2; .*\n", ran.stdout)


def test_readme_has_at_most_100_lines() -> None:
    assert len(README.splitlines()) <= 100


def test_both_readmes_link_to_each_other_and_have_the_same_blocks() -> None:
    chinese = (ROOT / "README.zh.md").read_text()
    assert "(README.zh.md)" in README.partition("\n## ")[0]
    assert "(README.md)" in chinese.partition("\n## ")[0]
    blocks = [
        re.findall(r"^```python\n.*?^```", text, flags=re.DOTALL | re.MULTILINE) for text in (README, chinese)
    ]
    assert blocks[0] == blocks[1]


def test_commands_of_the_readme_exist() -> None:
    commands = re.findall(r"^\$ \./(\w+)", README, flags=re.MULTILINE)
    assert commands == ["demo", "test"]
    for command in (*commands, "scripts/docs"):
        assert (ROOT / command).stat().st_mode & 0o111, f"expected {command} to be executable"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_each_page_of_docs_is_in_the_navigation() -> None:
    named = re.findall(r"([\w./-]+\.md)", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    pages = {page.relative_to(DOCS).as_posix() for page in PAGES if page.is_relative_to(DOCS)}
    assert {name for name in named if (DOCS / name).exists()} == pages
    assert len(named) == len(set(named))


@pytest.mark.process
@pytest.mark.packaging
def test_site_is_built_without_a_broken_link() -> None:
    ran = subprocess.run([ROOT / "scripts" / "docs"], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (ROOT / "build" / "site" / "index.html").exists()
