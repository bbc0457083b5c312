"""Checks a part of the rules for text in CONTRIBUTING.md: phrases that do not belong in technical English.

Each entry of PHRASES was hard to understand at first reading. Its number is how often it occurred in this project.
This test only keeps these phrases from being used again; it does not replace reading.
"""

from __future__ import annotations

import io
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("aioacl", "benchmarks", "docs", "examples", "scripts", "tests", ".ci")
TEXT: Final = (".py", ".c", ".h", ".inc", ".md", ".toml", ".sh")
# The pattern, the number of lines with it before the text was rewritten, and what to write instead.
PHRASES: Final = {
    r"(?<!there )is none": (42, "state what was expected and what came"),
    r"(?<!there )is no (stream|event|number|byte|buffer|time)": (17, "expected a stream, got ..."),
    r"nobody": (214, "name the thread, the caller or the code: no thread waits"),
    r"somebody": (143, "another thread, other code, the caller"),
    r"whoever": (68, "the thread that, each caller that"),
    r"whom": (18, "which"),
    r"(he|him|his)": (80, "it, the caller"),
    r"tells": (74, "returns, reports, logs"),
    r"in the air": (15, "running"),
    r"(forsakes?|forsaken|condemns?|condemned)": (3, "abandon, fail"),
    r"(limbo|referee)": (30, "in-flight references, usage checker"),
    r"(struck|strikes)": (31, "fired, fails"),
    r"the face": (28, "the public API"),
    r"anew": (19, "again"),
    r"knows of": (3, "has a record of"),
    r"mends?": (14, "fix, recover"),
    r"(behind your back|in silence)": (3, "without notice, silently"),
}
# Files that use a phrase in an ordinary sense, each with the reason.
ALLOWED: Final[dict[str, dict[str, str]]] = {
    "tests/test_language.py": dict.fromkeys(PHRASES, "the list itself"),
    "CHANGELOG.md": dict.fromkeys(PHRASES, "entries of the changelog are not rewritten"),
    "tests/native/sim/faults.c": {"nobody": "a function name that does not exist"},
    "tests/native/sim/kernels.c": {"nobody": "a kernel name that does not exist"},
    "tests/simulator/test_faults_env.py": {"nobody": "a function name that does not exist"},
}


@cache
def _files() -> list[str]:
    paths = [*ROOT.glob("*.*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*"))]
    names = sorted(str(path.relative_to(ROOT)) for path in paths if path.suffix in TEXT)
    return [name for name in names if "/build/" not in name and ".egg-info/" not in name]


@cache
def _prose(name: str) -> str:
    """The text in a file, at its lines: comments, strings and names of tests, or all text of a page."""
    text = (ROOT / name).read_text()
    if name.endswith(".py"):
        lines = [""] * (text.count("\n") + 2)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            is_test = token.type == tokenize.NAME and token.string.startswith("test_")
            if token.type in (tokenize.COMMENT, tokenize.STRING) or is_test:
                words = token.string.replace("_", " ") if is_test else token.string
                for offset, line in enumerate(words.splitlines()):
                    lines[token.start[0] + offset - 1] += f" {line}"
        return "\n".join(lines)
    if name.endswith((".c", ".h", ".inc")):
        kept = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|//[^\n]*", re.DOTALL)
        found, end = "", 0
        for match in kept.finditer(text):
            found += "\n" * text.count("\n", end, match.start()) + match[0]
            end = match.end()
        return found
    return text


@pytest.mark.parametrize("phrase", PHRASES)
def test_text_of_the_project_avoids_the_phrase(phrase: str) -> None:
    pattern = re.compile(rf"(?<![\w-])(?:{phrase})(?![\w-])")
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name in _files()
        if phrase not in ALLOWED.get(name, {})
        for number, line in enumerate(_prose(name).splitlines(), start=1)
        if pattern.search(line)
    ]
    assert not found, f"{len(found)} lines; write instead: {PHRASES[phrase][1]}\n" + "\n".join(found)


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed_file_uses_a_phrase_that_it_is_allowed(name: str) -> None:
    if len(ALLOWED[name]) == len(PHRASES):
        return
    text = _prose(name)
    unused = [phrase for phrase in ALLOWED[name] if not re.search(rf"(?<![\w-])(?:{phrase})(?![\w-])", text)]
    assert unused == []
