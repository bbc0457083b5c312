"""Checks a part of the rules for text in CONTRIBUTING.md: phrases that do not belong in technical English.

Each entry of PHRASES was hard to understand at first reading. This test only prevents the use of these phrases. It does
not replace reading.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from scripts.pages import FOLDERS, ROOT, pages
from tests.support.prose import Passage, passages

if TYPE_CHECKING:
    from pathlib import Path

TEXT: Final = (".py", ".c", ".h", ".inc", ".md", ".toml", ".sh", ".yml", ".yaml")
# For each pattern: the number of lines with this pattern before the text was rewritten, and what to write instead.
PHRASES: Final = {
    r"(?<!there )is (?-i:none)": (42, "state what was expected and what came"),
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
    "tests/native/sim/kernels.c": {"nobody": "a kernel name that does not exist"},
    "tests/simulator/test_faults_env.py": {"nobody": "a function name that does not exist"},
}


@cache
def _files() -> list[str]:
    """The files of the project with text, and the programs without a suffix: `test`, `.ci/run`."""
    paths = [*ROOT.glob("*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    names = (path.relative_to(ROOT).as_posix() for path in paths if path.is_file() and _has_text(path))
    return sorted(name for name in names if "/build/" not in name and ".egg-info/" not in name)


def _has_text(path: Path) -> bool:
    if path.suffix:
        return path.suffix in TEXT
    with path.open("rb") as file:
        return file.read(2) == b"#!"


@cache
def _prose(name: str) -> list[Passage]:
    return passages(name, (ROOT / name).read_text())


def _uses(phrase: str, name: str, prose: list[Passage]) -> list[str]:
    """The places in a text that have the phrase, also across lines and with capitals."""
    pattern = re.compile(rf"(?<![\w-])(?:{phrase})(?![\w-])", flags=re.IGNORECASE)
    return [
        f"{name}:{each.line_at(match.start())}: "
        + each.text[max(0, match.start() - 40) : match.end() + 40].strip()
        for each in prose
        for match in pattern.finditer(each.text)
    ]


@pytest.mark.thorough  # tokenizes all files of the project
@pytest.mark.parametrize("phrase", PHRASES)
def test_text_of_the_project_avoids_the_phrase(phrase: str) -> None:
    found = [
        place
        for name in _files()
        if phrase not in ALLOWED.get(name, {})
        for place in _uses(phrase, name, _prose(name))
    ]
    assert not found, f"{len(found)} places; write instead: {PHRASES[phrase][1]}\n" + "\n".join(found)


def test_installed_texts_name_pages_by_their_titles() -> None:
    """A wheel has no pages, and the pages have no address."""
    headings = [re.match(r"# (.+)", page.read_text()) for page in pages()]
    titles = {heading[1].replace("`", "") for heading in headings if heading}
    named: set[str] = set()
    for name in _files():
        if name.startswith("aioacl/") or name in ("pytest_aioacl.py", *_simulator()):
            text = (ROOT / name).read_text()
            assert not re.search(r"\bdocs/|\b\w+\.md\b", text), name
            named |= {" ".join(title.split()) for title in re.findall(r'\bpage\s"([^"]+)"', text)}
    assert {"Reports from cards", "Test without a card"} <= named <= titles


def _simulator() -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in (ROOT / "simulator").glob("lib*/**/*.[chi]*")]


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed_file_uses_each_phrase_that_it_may_use(name: str) -> None:
    problems = _wrong_entries(name, ALLOWED[name])
    assert not problems, "\n".join(problems)


def _wrong_entries(name: str, entries: dict[str, str]) -> list[str]:
    """What is wrong with an entry of ALLOWED."""
    if name not in _files():
        reason = "its suffix or folder is not in TEXT and FOLDERS" if (ROOT / name).exists() else "it is gone"
        return [f"expected {name} to be a file that this test reads, but {reason}; remove it from ALLOWED"]
    if len(entries) == len(PHRASES):
        return []
    return [
        f"expected {name} to use the phrase {phrase!r}, but it does not; remove it from ALLOWED"
        for phrase in entries
        if phrase not in PHRASES or not _uses(phrase, name, _prose(name))
    ]


# Each text has the phrase "nobody waits", which starts on line 2.
PLACES: Final = {
    "an f-string": ("a.py", 'raise ValueError(\n    f"{name}: nobody waits"\n)'),
    "a nested f-string": ("a.py", "x = 1\nf\"nobody waits {', '.join(f'{each}' for each in y)}\""),
    "adjacent strings": ("a.py", 'x = (\n    "expected that nobody "\n    f"waits, got {y}")'),
    "a docstring": ("a.py", 'def a():\n    """Returns when nobody\n    waits."""'),
    "a string after an escape": ("a.py", 'x = 1\ny = "a\\nnobody waits"'),
    "comments in Python": ("a.py", "x = 1\n    # It ends when nobody\n    # waits.\n"),
    "a capital": ("a.py", "x = 1  # It is idle.\n# Nobody waits."),
    "a test": ("a.py", "x = 1\ndef test_when_nobody_waits(): pass"),
    "a test class": ("a.py", "x = 1\nclass TestNobodyWaits: pass"),
    "a block in C": ("a.c", "int x;\n/* It ends when nobody\n * waits. */"),
    "comments in C": ("a.c", "int x;\n// It ends when nobody\n// waits."),
    "strings in C": ("a.c", 'puts(\n    "when nobody "\n    "waits");'),
    "a test in C": ("tests/a.c", "int x;\nstatic void nobody_waits(void) {}"),
    "a paragraph": ("a.md", "# Title\nIt ends when nobody\nwaits."),
    "a quotation": ("a.md", "# Title\n> It ends when nobody\n> waits."),
    "comments in YAML": ("a.yml", "x: 1\n# It ends when nobody\n# waits."),
    "comments in a script": ("run", "#!/bin/sh\n# It ends when nobody\n# waits."),
}


@pytest.mark.parametrize("place", PLACES)
def test_phrase_in_this_kind_of_text_is_found_with_its_line(place: str) -> None:
    name, source = PLACES[place]
    found = _uses("nobody waits", name, passages(name, source))
    assert [each.split()[0] for each in found] == [f"{name}:2:"]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.py", 'f("nobody", "waits")'),
        ("a.py", "# For nobody\n\n# waits"),
        ("a.py", "# For nobody\nx = 1  # waits"),
        ("a.py", "nobody = waits"),
        ("a.c", '/* For nobody */ f("waits");'),
        ("a.md", "For nobody\n\nwaits"),
    ],
)
def test_separate_texts_are_not_joined(name: str, source: str) -> None:
    assert _uses("nobody waits", name, passages(name, source)) == []


def test_programs_without_a_suffix_and_settings_are_read() -> None:
    assert {"demo", "test", "scripts/docs", ".ci/run", ".ci/slow", "mkdocs.yml"} <= set(_files())


@pytest.mark.parametrize(
    ("name", "phrase", "problem"),
    [
        ("gone.py", "nobody", "it is gone; remove it from ALLOWED"),
        ("LICENSE", "nobody", "not in TEXT and FOLDERS; remove it from ALLOWED"),
        ("mkdocs.yml", "nobody", "it does not; remove it from ALLOWED"),
        ("mkdocs.yml", "not a phrase", "it does not; remove it from ALLOWED"),
    ],
)
def test_entry_of_allowed_that_is_not_needed_is_a_problem(name: str, phrase: str, problem: str) -> None:
    (found,) = _wrong_entries(name, {phrase: "a reason"})
    assert found.endswith(problem)
