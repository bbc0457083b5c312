"""Public names and modules that are imported when they are first used."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import aioacl
from aioacl._base import late
from tests.support.command import finished


def test_table_of_late_names_agrees_with_the_imports_for_type_checkers() -> None:
    tree = ast.parse(Path(aioacl.__file__).read_text())
    branches = [node for node in tree.body if isinstance(node, ast.If)]
    branch = next(node for node in branches if ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in branch.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imports for alias in node.names} == aioacl._LATE
    assert set(aioacl._LATE) < set(aioacl.__all__)


def test_unknown_name_of_the_package_raises_attribute_error() -> None:
    name = "opn_device"
    with pytest.raises(AttributeError, match=r"^module 'aioacl' has no attribute 'opn_device'$") as raised:
        getattr(aioacl, name)
    assert (raised.value.name, hasattr(aioacl, name)) == (name, False)


@pytest.fixture
def new_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that has never been imported."""
    name = "late_test_module"
    (tmp_path / f"{name}.py").write_text("value = 3\n__hidden__ = 4\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(late, "_loaded", {})
    monkeypatch.setattr(late, "listeners", set())
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_late_module_is_imported_by_the_first_use_of_a_name(new_module: str) -> None:
    module = late.late(new_module)
    assert new_module not in sys.modules
    assert (module.value, module.value, new_module in sys.modules) == (3, 3, True)
    with pytest.raises(AttributeError, match="other"):
        _ = module.other


def test_late_module_is_not_imported_by_a_tool_that_reads_hidden_names(new_module: str) -> None:
    module = late.late(new_module)
    assert not hasattr(module, "__hidden__")
    assert not hasattr(module, "__wrapped__")
    assert new_module not in sys.modules


def test_listener_is_called_once_before_the_module_is_used(new_module: str) -> None:
    heard: list[bool] = []
    late.listeners.add(lambda: heard.append(new_module in sys.modules and not late._loaded))
    module = late.late(new_module)
    assert (module.value, module.value) == (3, 3)
    assert heard == [True]


def test_load_after_an_interrupt_imports_and_calls_the_listeners(new_module: str) -> None:
    heard: list[str] = []

    def listen() -> None:
        heard.append("called")
        if len(heard) == 1:
            raise KeyboardInterrupt

    late.listeners.add(listen)
    with pytest.raises(KeyboardInterrupt):
        late.load(new_module)
    assert late.load(new_module).value == 3
    assert heard == ["called", "called"]


FRESH = {
    "dir": "print(sorted(set(aioacl.__all__) - set(dir(aioacl))), 'open_device' in vars(aioacl))",
    "star": "from aioacl import *; print([n for n in aioacl.__all__ if n not in globals()], len(dir()) > 40)",
    "help": "from pydoc import plain, render_doc as r; t = plain(r(aioacl)); "
    "print([n for n in aioacl.__all__ if n not in t], False)",
    "pickle": "import pickle; print([], pickle.loads(b'caioacl\\nMissingSymbol\\n.') is not aioacl.MissingSymbol)",
}


@pytest.mark.process
@pytest.mark.parametrize(("use", "more"), [*zip(FRESH, (False, True, False, False), strict=True)])
def test_first_use_of_the_package_finds_all_names(use: str, more: bool) -> None:
    ran = finished([sys.executable, "-W", "error", "-c", f"import aioacl; {FRESH[use]}"], timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"[] {more}\n", "")
