"""docs/reference describes each public name on a page, which is made from the signatures and docstrings."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aioacl
import pytest_aioacl
from aioacl import lowlevel, simulator, testing
from scripts import reference

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "reference"
MODULES: dict[str, ModuleType] = {
    "aioacl": aioacl,
    "aioacl.simulator": simulator,
    "aioacl.lowlevel": lowlevel,
    "aioacl.testing": testing,
}
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
    assert reference.outdated() == [], f"run: {reference.COMMAND}"


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
