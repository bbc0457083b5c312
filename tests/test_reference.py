"""docs/reference describes each public name on a page, which is made from the signatures and docstrings."""

from __future__ import annotations

import ast
import itertools
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aioacl
import pytest_aioacl
from aioacl import lowlevel, simulator, testing, torch
from aioacl._base.codes import lookup
from aioacl._conformance._vectors import load
from scripts import reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from aioacl._conformance._vectors import Step

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference"
MODULES: dict[str, ModuleType] = {
    "aioacl": aioacl,
    "aioacl.simulator": simulator,
    "aioacl.lowlevel": lowlevel,
    "aioacl.testing": testing,
    "aioacl.torch": torch,
}
FOR_TESTS = {"allow", "deprecated", "of_this_process"}
"""Functions of the package that only tests and benchmarks call: no public name is deprecated yet."""

CLASSES = ("Device", "Stream", "Event", "Ticket", "DeviceBuffer", "PinnedBuffer", "Lease")


def headings(page: str) -> set[str]:
    """Returns the headings of a page."""
    return set(re.findall(r"^##+ (.+)$", (PAGES / page).read_text(), flags=re.MULTILINE))


def members(noun: type) -> set[str]:
    """Returns the public attributes of a class and of its bases in aioacl."""
    own = [base for base in noun.__mro__ if base.__module__.partition(".")[0] == "aioacl"]
    made = ("factory", "noun")
    return {name for base in own for name in vars(base) if not name.startswith("_") and name not in made}


@pytest.mark.process  # griffe runs git
def test_pages_are_up_to_date() -> None:
    assert reference.outdated() == [], f"expected pages that are up to date; run: {reference.COMMAND}"


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_has_a_heading_on_its_page(module: str) -> None:
    public = MODULES[module].__all__
    missing = [
        name
        for name in public
        if name.lower() not in map(str.lower, headings(f"{reference.page_of(module, name)}.md"))
    ]
    assert missing == []  # `functions` and its class `Functions` share a heading


@pytest.mark.parametrize("module", MODULES)
def test_each_public_name_is_in_the_index(module: str) -> None:
    chapter = (PAGES / "index.md").read_text().partition(f"### `{module}`\n")[2].partition("\n### ")[0]
    assert sorted(re.findall(r"^\| \[`(\w+)`\]", chapter, flags=re.MULTILINE)) == sorted(
        MODULES[module].__all__
    )


@pytest.mark.parametrize("noun", CLASSES)
def test_each_member_of_a_class_has_a_heading(noun: str) -> None:
    page = headings(f"{reference.page_of('aioacl', noun)}.md")
    assert {f"{noun}.{name}" for name in members(getattr(aioacl, noun))} <= page


@pytest.mark.process  # griffe runs git
def test_page_of_the_plugin_has_its_fixtures_markers_and_settings() -> None:
    text = (PAGES / "pytest-plugin.md").read_text()
    source = Path(pytest_aioacl.__file__).read_text()
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    settings = {
        str(argument.value)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("addini", "addoption")
        for argument in call.args[:1]
        if isinstance(argument, ast.Constant)
    }
    assert len(settings) == 6
    assert set(reference.fixtures()) > pytest_aioacl.FIXTURES
    assert set(reference.fixtures()) <= headings("pytest-plugin.md")
    for name in settings | {marker.partition("(")[0] for marker in pytest_aioacl.MARKERS}:
        assert f"`{name}" in text, name


def test_functions_page_has_all_acl_functions() -> None:
    import build_ffi

    named = re.findall(
        r"^\| `[^`]*?\b(acl\w+)\(", (PAGES / "acl-functions.md").read_text(), flags=re.MULTILINE
    )
    assert sorted(named) == sorted(row.name for row in build_ffi.table())


VECTORS = ROOT / "tests" / "conformance"


def recorded_steps() -> list[Step]:
    """Returns the calls of all recorded vectors."""
    paths = [path for path in VECTORS.glob("*.jsonl*") if path.name != "derived.jsonl"]
    return [step for path in paths for vector in load(path) for step in vector.steps]


def test_functions_page_states_what_the_answers_of_each_function_are_based_on() -> None:
    page = (PAGES / "acl-functions.md").read_text()
    cells: list[tuple[str, str]] = re.findall(
        r"^\| `[^`]*?\b(acl\w+)\(.* \| ([^|]+) \|$", page, flags=re.MULTILINE
    )
    steps = recorded_steps()
    calls = Counter(step.call for step in steps)
    succeeded = {step.call for step in steps if step.expected.get("rc") == 0}
    source = tomllib.loads(reference.PROVENANCE.read_text())["source"]
    read = {name for names in source.values() for name in names}
    assert {name for name in calls if name.startswith("acl")} <= {name for name, _ in cells}
    for name, cell in cells:
        number = re.match(r"recording: (\d+) calls?\b", cell)
        assert int(number[1] if number else 0) == calls[name], name
        assert ("none succeeded" in cell) == (name in calls and name not in succeeded), name
        assert cell.endswith("source") == (name in read and name not in succeeded), name
        assert (cell == "neither") == (name not in calls and name not in read), name


def test_no_recording_contains_a_failed_task() -> None:
    codes = {step.expected.get("rc", 0) for step in recorded_steps()}
    assert 507007 in codes
    assert [code for code in codes if lookup(code).action == "new_stream"] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('source."acl.cpp" = ["aclGone"]\nnot_recorded = {}', "aclGone"),
        ('source = {}\nnot_recorded.aclGone = "x"', "aclGone"),
        ('source = {}\nnot_recorded.aclrtMallocPhysical = "x"', "aclrtMallocPhysical"),
    ],
)
def test_provenance_of_a_function_that_is_unknown_or_not_recorded_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, wrong: str
) -> None:
    path = tmp_path / "provenance.toml"
    path.write_text(text)
    monkeypatch.setattr(reference, "PROVENANCE", path)
    with pytest.raises(
        reference.Problem, match=rf"expected provenance\.toml to name .*, got {wrong}; correct it"
    ):
        reference.provenance(["aclrtMalloc", "aclrtMallocPhysical"])


# --- errors in the sources and templates ---------------------------------------------------------------------------


SOURCE = '''
"""A module."""

__all__ = ["Noun", "run"]


class Noun:
    """A noun."""

    @property
    def size(self) -> int:
        """The size.

        Raises:
            ValueError: it is closed.
        """


def run(first: int, *rest: int) -> int:
    """Runs.

    Args:
        first: the first.
        rest: the others.

    Returns:
        The sum.

    Raises:
        ValueError: it is closed.

    Warns:
        UserWarning: it is slow.
    """
'''
TEMPLATE = "::: aioacl.sample\n\n::: aioacl.sample.Noun\n\n::: aioacl.sample.run\n\n::: names\n"


def test_continuation_of_a_description_is_not_an_entry_without_a_description() -> None:
    raises = "Raises:\n    ValueError: it is not a size, or it is\n        closed.\n    KeyError\n"
    assert reference.completed(raises).splitlines() == [
        "Raises:",
        "    ValueError: it is not a size, or it is",
        "        closed.",
        "    KeyError: -",
    ]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], int]]:
    """Makes the reference of a module `aioacl.sample` from its source and a template; returns the exit status."""
    for folder in ("aioacl", "_pages"):
        (tmp_path / folder).mkdir()
    (tmp_path / "aioacl" / "__init__.py").touch()
    for name, value in (("ROOT", tmp_path), ("PAGES", tmp_path), ("TEMPLATES", tmp_path / "_pages")):
        monkeypatch.setattr(reference, name, value)
    monkeypatch.setattr(reference, "MODULES", ("aioacl.sample",))
    (tmp_path / f"{reference.PLUGIN}.py").touch()
    monkeypatch.setattr("sys.argv", ["reference.py"])

    def make(source: str, template: str) -> int:
        (tmp_path / "aioacl" / "sample.py").write_text(source)
        (tmp_path / "_pages" / "page.md").write_text(template)
        return reference.main()

    cached = (reference.placed, reference.package)
    for function in cached:
        function.cache_clear()
    yield make
    for function in cached:
        function.cache_clear()


@pytest.mark.process  # griffe runs git
def test_page_has_the_sections_of_each_docstring(project: Callable[[str, str], int], tmp_path: Path) -> None:
    assert project(SOURCE, TEMPLATE) == 0
    page = (tmp_path / "page.md").read_text()
    assert page.count("| `ValueError` | it is closed. |") == 2
    assert "| warns | when |\n|---|---|\n| `UserWarning` | it is slow. |" in page
    assert "| `rest` | `int` | the others. |" in page
    assert "Returns: The sum." in page
    assert re.search(r"^\| \[`run`\]\(page\.md#run\) \| Runs\. \|$", page, flags=re.MULTILINE)


@pytest.mark.process  # griffe runs git
@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("sample.run", "sample.runs", r"expected a name of aioacl, got aioacl\.sample\.runs; correct"),
        ("aioacl.sample.run", "none.run", r"expected a name of aioacl, got none\.run; correct"),
        ("::: aioacl.sample.run", ":::run", r"page\.md:5: expected a line `::: NAME`, got `:::run`"),
        ("::: aioacl.sample.run", " ::: run", r"page\.md:5: expected a line `::: NAME`, got ` ::: run`"),
        (
            "sample.run",
            "sample.Noun",
            r"page\.md:5: expected `::: aioacl\.sample\.Noun` once, got it also in page",
        ),
        (
            "::: aioacl.sample.run\n",
            "",
            r"expected a line `::: aioacl\.sample\.run` in a template .*, got none",
        ),
        ('"run"]', '"run", "gone"]', r"expected a name of aioacl, got aioacl\.sample\.gone; correct"),
        (', "run"]', "]", r"expected `__all__` of aioacl\.sample to have run, which aioacl\.sample defines"),
        ('"Noun", ', "", r"expected `__all__` of aioacl\.sample to have Noun, which aioacl\.sample defines"),
        (
            "Warns:",
            "Examples:",
            r"expected parameters, .*docstring of aioacl\.sample\.run, got examples; no page",
        ),
        (
            "Raises:",
            "Yields:",
            r"expected raises, .*docstring of aioacl\.sample\.Noun\.size, got yields; no page",
        ),
        (
            "module.",
            "module.\n\nRaises:\n    E: e.\n",
            r"expected no section .*of aioacl\.sample, got raises",
        ),
        ("first: the", "frist: the", r"sample\.py:\d+: Parameter 'frist' does not appear in the function"),
        (
            "first: the",
            "first the",
            r"sample\.py:\d+: Failed to get 'name: description' pair from 'first the",
        ),
    ],
)
def test_error_in_a_source_or_template_is_one_line(
    project: Callable[[str, str], int], capsys: pytest.CaptureFixture[str], old: str, new: str, problem: str
) -> None:
    assert old in SOURCE + TEMPLATE
    assert project(SOURCE.replace(old, new, 1), TEMPLATE.replace(old, new, 1)) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert re.search(problem, printed), printed


def test_public_def_of_the_package_is_exported_or_used() -> None:
    paths = [*(ROOT / "aioacl").rglob("*.py"), Path(pytest_aioacl.__file__)]
    trees = {path: ast.parse(path.read_text()) for path in paths}
    used = {name for module in MODULES.values() for name in module.__all__} | FOR_TESTS
    for node in itertools.chain.from_iterable(map(ast.walk, trees.values())):
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, ast.alias):
            used.add(node.name)
    forgotten = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path, tree in trees.items()
        if path != Path(pytest_aioacl.__file__)
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and not node.name.startswith("_")
        and node.name not in used
    ]
    assert forgotten == [], "expected each definition to be in an `__all__` or in use; export or remove these"
