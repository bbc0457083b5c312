"""Each table of awaitables has a row for each awaitable.

CONTRIBUTING.md lists the tables in "Worked example: an awaitable". The awaitables are the functions and methods of the
public API whose signature returns an object that can be awaited.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

import aioacl
from scripts.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# The names of variables in the tables, by class. For other classes, the name is the name of the class in lower case.
VARIABLES = {"DeviceBuffer": "memory", "PinnedBuffer": "pinned"}
# Tables with a row for each method that enqueues. If no table of a file is named, the whole file counts as a table.
OF_ENQUEUES = {
    "tests/unit/handles/test_in_flight.py": ("ENQUEUES", "OF_EVENTS"),
    "tests/unit/handles/test_concurrent_close.py": ("ENQUEUES",),
    "tests/unit/lifecycle/test_faults.py": ("ENQUEUES",),
    "tests/reliability/stuck_cases.py": ("CASES",),
    "tests/sweep/scenarios.py": (),
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields each public function, and each public method with the variable of its class: `stream.copy`."""
    for name in aioacl.__all__:
        found = getattr(aioacl, name)
        if inspect.isfunction(found):
            yield name, found
        elif inspect.isclass(found):
            owner = VARIABLES.get(name, name.lower())
            for method, function in inspect.getmembers(found, inspect.isfunction):
                if not method.startswith("_"):
                    yield f"{owner}.{method}", function


def awaitables() -> dict[str, str]:
    """Returns the public functions that return an awaitable, each with the name of its class."""
    classes = {name for name in aioacl.__all__ if hasattr(getattr(aioacl, name), "__await__")}
    found: dict[str, str] = {}
    for name, function in public_functions():
        returned = re.match(r"\w*", str(inspect.signature(function).return_annotation))
        assert returned is not None
        assert not inspect.iscoroutinefunction(function), (
            f"expected {name} to return an Operation, got a coroutine"
        )
        if returned[0] in classes:
            found[name] = returned[0]
    return found


AWAITABLES = awaitables()
# Model.enqueue has its own tests, because it needs a loaded model.
ENQUEUES = {
    name for name, kind in AWAITABLES.items() if kind in ("Ticket", "Event") and not name.startswith("model.")
}


def uses(tree: ast.AST) -> Iterator[str]:
    """Yields each name in a table, and each attribute with its owner. Strings that are expressions are included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            owner = node.value
            yield f"{getattr(owner, 'id', getattr(owner, 'attr', ''))}.{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                yield from uses(ast.parse(node.value.strip(), mode="eval"))
            except SyntaxError:
                continue


def table(file: str, *names: str) -> set[str]:
    """Returns the names that these tables of a file use. If no table is named, returns the names that the file uses."""
    tree = ast.parse((ROOT / file).read_text())
    if not names:
        return set(uses(tree))
    found = {
        target.id: node
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id in names
    }
    assert sorted(found) == sorted(names), (
        f"expected the tables {names} in {file}; correct tests/test_awaitables.py"
    )
    return {use for node in found.values() for use in uses(node)}


def method(name: str) -> str:
    return name.rpartition(".")[2]


def test_awaitables_are_found_by_their_signatures() -> None:
    assert {"open_device", "device.run", "memory.close", "stream.synchronize"} <= AWAITABLES.keys()
    assert {"event.record", "stream.copy", "stream.fill", "stream.record", "stream.wait_event"} <= ENQUEUES


@pytest.mark.parametrize("file", OF_ENQUEUES)
def test_table_of_enqueues_has_each_method_that_enqueues(file: str) -> None:
    missing = {method(name) for name in ENQUEUES} - {method(use) for use in table(file, *OF_ENQUEUES[file])}
    assert missing == set(), f"expected a row for each method that enqueues; add the missing rows to {file}"


def test_table_of_stale_handles_has_each_awaitable_of_streams_and_events() -> None:
    expected = {
        name for name in AWAITABLES if name.startswith(("stream.", "event.")) and method(name) != "close"
    }
    missing = expected - table("tests/unit/handles/test_stale.py", "USES")
    assert missing == set(), (
        "expected a row for each awaitable of streams and events; add the missing rows to USES in "
        "tests/unit/handles/test_stale.py"
    )


def test_table_of_garbage_has_each_awaitable() -> None:
    missing = AWAITABLES.keys() - table("tests/unit/test_cycles.py", "CASES")
    assert missing == set(), (
        "expected a row for each awaitable; add the missing rows to CASES in tests/unit/test_cycles.py"
    )


def test_table_of_types_has_each_awaitable() -> None:
    missing = AWAITABLES.keys() - table("tests/test_typing.py", "AWAITABLES")
    assert missing == set(), (
        "expected a row for each awaitable; add the missing rows to AWAITABLES in tests/test_typing.py"
    )


def test_page_about_typing_has_each_awaitable_with_its_class() -> None:
    rows = re.findall(r"^\| (.+) \| (.+) \|$", (ROOT / "docs" / "typing.md").read_text(), flags=re.MULTILINE)
    documented = {
        (use, kind)
        for expressions, kinds in rows
        for expression in re.findall(r"`([^`]+)`", expressions)
        for use in uses(ast.parse(expression))
        for kind in re.findall(r"\w+", kinds)
    }
    missing = {name for name, kind in AWAITABLES.items() if (name, kind) not in documented}
    assert missing == set(), (
        "expected each awaitable in the first table of docs/typing.md; add each missing one as a call, for example on "
        "`stream` or `device`"
    )
