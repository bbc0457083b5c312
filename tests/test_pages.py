"""scripts/pages.py finds each block and link of a page, and names what the tests cannot check."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from scripts import pages

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = "print(1)\n"


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n```",
        "~~~python\nprint(1)\n~~~",
        "````python\nprint(1)\n````",
        "```Python\nprint(1)\n```",
        '```python hl_lines="1"\nprint(1)\n```',
        "``` python\nprint(1)\n```",
        "1. Step\n\n   ```python\n   print(1)\n   ```",
        "> ```python\n> print(1)\n> ```",
        "```python\nprint(1)\n",
    ],
    ids=["backticks", "tildes", "four", "capital", "options", "a space", "in a list", "quoted", "not closed"],
)
def test_program_in_each_form_of_fence_is_found(text: str) -> None:
    (block,) = pages.blocks_of(f"# Page\n\n{text}", "page.md")
    assert (block.language, block.text) == ("python", PROGRAM)
    assert list(pages.wrong_blocks(text, "page.md")) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "a\n\n```pycon\n>>> 1\n```",
            r"page\.md:3: .*, got a block that is marked 'pycon'; fence a program as",
        ),
        ("```{.python}\nprint(1)\n```", r"page\.md:1: .*, got a block that is marked '{\.python}'"),
        ("```\nprint(1)\n```", r"page\.md:1: .*, got a block without a language"),
        ("a\n\n    print(1)", r"page\.md:3: .*, got a block without a language"),
        (
            "!!! note\n\n    ```python\n    print(1)\n    ```",
            r"page\.md:3: .*, got a block without a language",
        ),
        ("<div>\n```python\n</div>", r"page\.md:2: expected a fence that begins or ends a block"),
        ("!!! note\n    ~~~python", r"page\.md:2: expected a fence that begins or ends a block"),
    ],
    ids=["pycon", "braces", "no language", "indented", "in an admonition", "in HTML", "in a paragraph"],
)
def test_block_in_another_form_is_refused_with_its_line(text: str, problem: str) -> None:
    wrong, *_ = pages.wrong_blocks(text, "page.md")
    assert re.match(problem, wrong)


def test_fence_inside_a_longer_fence_is_text() -> None:
    text = "````text\n```python\nprint(1)\n```\n````"
    (block,) = pages.blocks_of(text, "page.md")
    assert (block.language, block.text) == ("text", "```python\nprint(1)\n```\n")
    assert list(pages.wrong_blocks(text, "page.md")) == []


@pytest.mark.parametrize(
    ("between", "prints"),
    [("", "1\n"), ("\n\n\n", "1\n"), ("\n\nThe output:\n\n", None)],
    ids=["nothing", "empty lines", "a paragraph"],
)
def test_output_of_a_program_is_the_next_text_block(between: str, prints: str | None) -> None:
    program, _ = pages.blocks_of(f"```python\nprint(1)\n```\n{between}```text\n1\n```", "page.md")
    assert program.prints == prints


@pytest.mark.parametrize(
    ("comment", "reason"),
    [("<!-- not run: it needs a card -->", "it needs a card"), ("<!-- not run -->", ""), ("Not run:", "")],
)
def test_comment_above_a_program_gives_the_reason_why_it_is_not_run(comment: str, reason: str) -> None:
    (block,) = pages.blocks_of(f"{comment}\n\n```python\nprint(1)\n```", "page.md")
    assert block.reason == reason


def test_number_of_blocks_other_than_one_is_reported_with_the_places_and_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("```python\n1\n```\n\n```python\n2\n```\n")
    message = re.escape(
        "expected one block `python` in page.md, got 2 (page.md:1, page.md:5); adapt tests/test_a.py"
    )
    with pytest.raises(ValueError, match=message):
        pages.one("page.md", "tests/test_a.py")
    assert pages.one("page.md", "tests/test_a.py", lambda text: "2" in text).text == "2\n"
    with pytest.raises(ValueError, match=r"expected one block `toml` in page\.md, got 0 \(none\)"):
        pages.one("page.md", "tests/test_a.py", language="toml")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page of a repository with a file `docs/a b.md`."""
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "a b.md").touch()
    (tmp_path / "outside.md").touch()
    monkeypatch.setattr(pages, "ROOT", root)
    return root / "docs" / "page.md"


@pytest.mark.parametrize(
    "text",
    [
        "[a](a%20b.md#x) [b](https://example.org) [c](#heading) ![d](<a b.md>)",
        "[a][b] and `[a][c]`\n\n[b]: ../docs/",
        "`[a](gone.md)` `<a href=gone.md>`\n\n```text\n[a](gone.md) <a href=gone.md>\n```",
        "<!-- a href=gone -->",
    ],
    ids=["targets", "labels", "code", "a comment"],
)
def test_links_with_targets_and_links_in_code_are_accepted(page: Path, text: str) -> None:
    page.write_text(text)
    assert list(pages.wrong_links(page)) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a\n\n[a](gone.md)", "docs/page.md:3: expected a link to a file of the repository, got gone.md"),
        ("![a](gone.md)", "docs/page.md:1: expected a link to a file of the repository, got gone.md"),
        (
            "[a][b]\n\n[b]: gone.md",
            "docs/page.md:1: expected a link to a file of the repository, got gone.md",
        ),
        ("[a](../../outside.md)", "expected a link to a file of the repository, got ../../outside.md"),
        ("[a](http://b)", "expected a link to a file or to https://, got http://b"),
        ("| a |\n|---|\n| [`a`][b] |", "docs/page.md:3: expected a label that the page defines, got [b]"),
        ("[a][]", "expected a label that the page defines, got []"),
        ('a <a class="b" href="c.md">d</a>', 'expected a link in Markdown, got <a class="b" href='),
        ("<p>\n<img src=b>\n</p>", "docs/page.md:1: expected a link in Markdown, got <img src="),
    ],
)
def test_link_that_has_no_target_or_cannot_be_checked_is_named(page: Path, text: str, problem: str) -> None:
    page.write_text(text)
    (wrong,) = pages.wrong_links(page)
    assert problem in wrong


def test_pages_are_those_of_the_root_and_of_all_folders_except_the_templates() -> None:
    found = {pages.name_of(path) for path in pages.pages()}
    assert {
        "README.md",
        "CONTRIBUTING.md",
        "docs/reference/stream.md",
        "tests/conformance/README.md",
    } <= found
    assert not any("_pages" in name for name in found)
