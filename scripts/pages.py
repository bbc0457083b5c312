"""The Markdown pages of the repository: their blocks of code, their links, and what the tests cannot check in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from markdown_it.token import Token

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDERS: Final = (
    "aioacl",
    "benchmarks",
    "docs",
    "examples",
    "scripts",
    "simulator",
    "tests",
    ".ci",
    ".github",
)
TEMPLATES: Final = ROOT / "docs" / "reference" / "_pages"
LANGUAGES: Final = ("c", "console", "ini", "py", "python", "text", "toml", "yaml")
"""`python` marks a program, `text` the output of the program above it, and `py` a signature of the reference."""

NOT_RUN: Final = re.compile(r"<!-- not run: (.+) -->")
FENCE: Final = re.compile(r"[ \t>*+-]*(?:\d+[.)][ \t]+)?(?:`{3}|~{3})")
RAW_LINK: Final = re.compile(r"<\w[^>]*\s(?:href|src)\s*=", flags=re.IGNORECASE)
REFERENCE: Final = re.compile(r"\]\[[^\]]*\]")


@dataclass(frozen=True)
class Block:
    """A block of code in a page.

    Attributes:
        place: the page and the line.
        language: the first word after the fence; "" for an indented block.
        text: the code.
        prints: the next block, if it is fenced as `text` and nothing is between them.
        reason: why the tests do not run the program, from the comment above it.
    """

    place: str
    language: str
    text: str
    prints: str | None = None
    reason: str = ""


def pages() -> list[Path]:
    """All Markdown pages of the repository, except the templates of the reference."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")]
    return [*sorted(ROOT.glob("*.md")), *sorted(path for path in found if TEMPLATES not in path.parents)]


def name_of(page: Path) -> str:
    """The path of a page in the repository."""
    return page.relative_to(ROOT).as_posix()


@cache
def parse(text: str) -> list[Token]:
    """The tokens of a Markdown text. Do not change them."""
    return MarkdownIt("commonmark").enable("table").parse(text)


def _line(token: Token) -> int:
    """The line of a token, from 1."""
    return token.map[0] + 1 if token.map else 1


# --- blocks --------------------------------------------------------------------------------------------------------


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """The blocks of a page."""
    return tuple(blocks_of(page.read_text(), name_of(page)))


def blocks_of(text: str, name: str) -> Iterator[Block]:
    """The blocks of code in a Markdown text."""
    tokens = parse(text)
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        if token.type not in ("fence", "code_block"):
            continue
        comment = (
            NOT_RUN.fullmatch(before.content.strip()) if before and before.type == "html_block" else None
        )
        prints = after.content if after and after.type == "fence" and language(after) == "text" else None
        place = f"{name}:{_line(token)}"
        yield Block(place, language(token), token.content, prints, comment[1] if comment else "")


def language(fence: Token) -> str:
    """The language of a fence, in lower case: the first word after it."""
    return next(iter(fence.info.lower().split()), "")


def one(page: str, test: str, where: Callable[[str], bool] = bool, *, language: str = "python") -> Block:
    """The only block of a page in a language, with a text for which a condition holds.

    Raises:
        ValueError: the number of such blocks is not one. The message names them, and the test to adapt.
    """
    found = [block for block in blocks(ROOT / page) if block.language == language and where(block.text)]
    if len(found) != 1:
        places = ", ".join(block.place for block in found) or "none"
        raise ValueError(
            f"expected one block `{language}` in {page}, got {len(found)} ({places}); "
            f"adapt {test}, which tests each block of this page"
        )
    return found[0]


def wrong_blocks(text: str, name: str) -> Iterator[str]:
    """Yields a complaint for each block that the tests cannot check, and for each fence that begins no block."""
    for block in blocks_of(text, name):
        if block.language not in LANGUAGES:
            got = (
                f"a block that is marked {block.language!r}"
                if block.language
                else "a block without a language"
            )
            yield (
                f"{block.place}: expected a fenced block of {', '.join(LANGUAGES)}, got {got}; "
                "fence a program as `python`, and its output after it as `text`"
            )
    fenced = {
        number for token in parse(text) if token.type == "fence" and token.map for number in range(*token.map)
    }
    for number, line in enumerate(text.splitlines()):
        if FENCE.match(line) and number not in fenced:
            yield (
                f"{name}:{number + 1}: expected a fence that begins or ends a block, got one inside a paragraph "
                "or HTML; put an empty line before the block, and do not indent it"
            )


# --- links ---------------------------------------------------------------------------------------------------------


def links(text: str) -> Iterator[tuple[int, str]]:
    """The target of each link and image in a Markdown text, with the line of its paragraph."""
    for token in parse(text):
        for child in token.children or ():
            target = child.attrs.get("href" if child.type == "link_open" else "src")
            if target is not None:
                yield _line(token), str(target)


def file_of(target: str, folder: Path) -> Path | None:
    """The file or folder that a link in a page of `folder` refers to. None for a URL, or a heading of the page."""
    url = urlsplit(target)
    return None if url.scheme or url.netloc or not url.path else (folder / unquote(url.path)).resolve()


def wrong_links(page: Path) -> Iterator[str]:
    """Yields a complaint for each link of a page that cannot be checked, or whose file is not in the repository."""
    text, name = page.read_text(), name_of(page)
    for line, target in links(text):
        path = file_of(target, page.parent)
        if path is None:
            if not target.startswith(("https://", "#")):
                yield f"{name}:{line}: expected a link to a file or to https://, got {target}; correct it"
        elif not path.is_relative_to(ROOT) or not path.exists():
            yield f"{name}:{line}: expected a link to a file of the repository, got {target}; correct it"
    yield from unparsed_links(text, name)


def unparsed_links(text: str, name: str) -> Iterator[str]:
    """Yields a complaint for each link that `links` cannot find: a link in HTML, or one whose label is not defined."""
    for token in parse(text):
        for child in (token, *(token.children or ())):
            if child.type.startswith("html") and (raw := RAW_LINK.search(child.content)):
                yield f"{name}:{_line(token)}: expected a link in Markdown, got {raw[0]}; write `[text](target)`"
            elif child.type == "text" and (label := REFERENCE.search(child.content)):
                yield f"{name}:{_line(token)}: expected a label that the page defines, got {label[0][1:]}; define it"
