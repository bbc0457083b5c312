"""The passages of a file that a person reads: comments, strings, names of tests, and paragraphs of pages."""

from __future__ import annotations

import io
import re
import tokenize
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

C_SUFFIXES: Final = (".c", ".h", ".inc")
C_TEXT: Final = re.compile(
    r"(?P<block>/\*.*?\*/)|(?P<string>\"(?:\\.|[^\"\\\n])*\")|(?P<comment>//[^\n]*)"
    r"|^(?:static void |TEST\()(?P<name>\w+)[()]",
    flags=re.DOTALL | re.MULTILINE,
)
QUOTES: Final = re.compile(r"^\w*(\"\"\"|'''|\"|')(.*)\1$", flags=re.DOTALL)
MARKS: Final = re.compile(r"^[ \t]*(?:(?:#|//|/?\*|>)+[ \t]*)+|[ \t]*\*/$", flags=re.MULTILINE)
ESCAPE: Final = re.compile(r"\\[nrt]")


class Passage(NamedTuple):
    """A text with single spaces between its words, and the line of each word."""

    text: str
    lines: list[int]

    def line_at(self, position: int) -> int:
        """The line of the file that has this position of the text."""
        return self.lines[self.text.count(" ", 0, position)]


class Piece(NamedTuple):
    """A comment, string or name of a source file, and where it is."""

    kind: str
    start: int
    end: int
    text: str


def passages(name: str, source: str) -> list[Passage]:
    """The passages of a file. Text that continues on the next line is one passage."""
    if name.endswith(".py"):
        return list(_joined(source, _python(source)))
    if name.endswith(C_SUFFIXES):
        return list(_joined(source, _c(source, tests=name.startswith("tests/"))))
    return list(_paragraphs(source))


def _passage(first: int, text: str) -> Passage:
    """Makes a passage from a text with the line breaks of the file. The text begins on the line `first`."""
    text = ESCAPE.sub("  ", text)
    words = [(word, first + row) for row, line in enumerate(text.split("\n")) for word in line.split()]
    return Passage(" ".join(word for word, _ in words), [line for _, line in words])


def _python(source: str) -> Iterator[Piece]:
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    before, opened = "", list[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        kind = tokenize.tok_name[token.type]
        if kind.endswith("STRING_START"):  # an f-string, since Python 3.12; its expressions may have strings
            opened.append(start)
        elif kind.endswith("STRING_END"):
            start, kind = opened.pop(), "STRING"
        is_test = token.string.startswith("test_") or (before == "class" and token.string.startswith("Test"))
        if kind == "NAME" and is_test:
            yield Piece("name", start, end, _words(token.string))
        elif kind == "COMMENT":
            yield Piece("comment", start, end, MARKS.sub("", token.string))
        elif kind == "STRING" and not opened:
            quoted = QUOTES.match(source[start:end])
            yield Piece("string", start, end, quoted[2] if quoted else source[start:end])
        before = token.string


def _c(source: str, *, tests: bool) -> Iterator[Piece]:
    for match in C_TEXT.finditer(source):
        kind = str(match.lastgroup)
        if kind == "name" and not tests:
            continue
        text = _words(match[kind]) if kind == "name" else MARKS.sub("", match[kind])
        yield Piece(kind, *match.span(), text.strip('"') if kind == "string" else text)


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", name)


def _joined(source: str, pieces: Iterator[Piece]) -> Iterator[Passage]:
    """Joins pieces of the same kind that have only white space between them."""
    last: Piece | None = None
    line, text, counted = 1, "", 0
    for piece in pieces:
        between = source[last.end : piece.start] if last else "x"
        follows = last is not None and last.kind == piece.kind and not between.strip()
        if piece.kind == "comment" and between.count("\n") > 1:
            follows = False
        if not follows:
            if text:
                yield _passage(line, text)
            line += source.count("\n", counted, piece.start)
            counted, text = piece.start, ""
        text += ("\n" * between.count("\n") or " ") * follows + piece.text
        last = piece
    if text:
        yield _passage(line, text)


def _paragraphs(source: str) -> Iterator[Passage]:
    for match in re.finditer(r"(?:^.*\S.*\n?)+", source, flags=re.MULTILINE):
        yield _passage(source.count("\n", 0, match.start()) + 1, MARKS.sub("", match[0]))
