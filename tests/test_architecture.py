"""The documents describe the structure of the project correctly."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aioacl
import build_ffi
from aioacl import _acl, lowlevel, simulator, testing, torch
from aioacl.simulator._releases import RELEASES, WITHOUT_RUNTIME
from tests import elf

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    from aioacl.simulator._releases import Release

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "aioacl"


# --- layers -------------------------------------------------------------------------------------------------------

READERS = {
    "_lifecycle.policy": "AIOACL_RESETS",
    "_library.load": "AIOACL_STRICT, AIOACL_PLAIN_AWAITS and AIOACL_RECORDER; passes the environment on to `locate`",
    "_library.locate": "AIOACL_LIBRARY, LD_LIBRARY_PATH and the variables that set_env.sh sets",
    "_library.visible": "ASCEND_RT_VISIBLE_DEVICES, for the text of an error",
    "_library.plog": "ASCEND_PROCESS_LOG_PATH, ASCEND_WORK_PATH and HOME, for the place of CANN's own log",
    "_library.onnxruntime": "AIOACL_SIM_ONNXRUNTIME, whether the simulator has a library for models",
    "testing": "AIOACL_SIM_FAULTS and AIOACL_SIM_LIMITS, which are applied again for each test",
    "_pyacl.calls": "AIOACL_PYACL_TRACE",
    "_conformance": "sets for each child the number of devices that its vector needs",
    "_cli": "doctor reports the environment, demo sets the simulator's variables, report selects a card for its steps",
}
LINES_AT_MOST = 400

COMPILED = ("_acl", "_await")


def _sections() -> dict[str, str]:
    """Returns the chapters of ARCHITECTURE.md by their titles."""
    parts = re.split(r"^## (.*)$", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _rows(text: str) -> list[list[str]]:
    """Returns the cells of the tables in a text, without the separator lines (`|---|`)."""
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")
    ]
    return [row for row in rows if not set("".join(row)) <= set("-")]


def _layers() -> dict[str, int]:
    """Returns the layer of each module in the table, counted from the lowest."""
    layers: dict[str, int] = {}
    layer = -1
    for row in _rows(_sections()["Layers"].partition("C, in ")[0])[1:]:
        layer += bool(row[0])
        for name in re.findall(r"`([\w.]+)`", row[1]):
            assert name not in layers, f"expected each module once in the table, got {name} twice"
            layers[name] = layer
    return layers


@cache
def _tree(path: Path) -> ast.Module:
    """Returns the syntax tree of a file. Do not change the tree."""
    return ast.parse(path.read_text())


@cache
def _modules() -> dict[str, Path]:
    """Returns the files of the package by their names after `aioacl.`; the package itself is "aioacl"."""
    found: dict[str, Path] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = _tree(path)
        if path.name == "__init__.py" and ast.get_docstring(tree) and len(tree.body) == 1:
            continue  # the file has only a docstring
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts).removesuffix("__init__").rstrip(".") or "aioacl"] = path
    return found


def _row_of(module: str, known: Iterable[str]) -> str | None:
    """Returns the name in the table that covers a module: its own name, or the name of a parent package."""
    while module and module not in known:
        module = module.rpartition(".")[0]
    return module or None


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes of a program that run: not the bodies of `if TYPE_CHECKING:`."""
    typed = node.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" else []
    for child in ast.iter_child_nodes(node):
        if child not in typed:
            yield child
            yield from _run_nodes(child)


def _imports(path: Path) -> set[str]:
    """Returns the names that a file imports from the package when it runs, also inside functions."""
    found: set[str] = set()
    for node in _run_nodes(_tree(path)):
        if isinstance(node, ast.Call) and re.search(
            r"\b(import_module|__import__|late)$", ast.unparse(node.func)
        ):
            found |= {str(name.value) for name in node.args if isinstance(name, ast.Constant)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: expected absolute imports"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] in ("aioacl", "pytest_aioacl")}


@cache
def _edges() -> frozenset[tuple[str, str]]:
    """Returns pairs of a module and a module that it imports. The compiled modules are `_acl` and `_await`."""
    modules = {*_modules(), *COMPILED}
    edges = {
        (module, _row_of(name.removeprefix("aioacl."), modules) or "aioacl")
        for module, path in _modules().items()
        for name in _imports(path)
    }
    return frozenset((module, target) for module, target in edges if target != module)


def test_imports_are_those_that_run(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "if TYPE_CHECKING:\n    from aioacl._device import Device\nelse:\n    import aioacl._wait.port\n"
        "def later():\n    from aioacl import testing\n    import_module('aioacl._selftest')\n"
        "models = late('aioacl._models.model')\n"
    )
    assert _imports(file) == {
        "aioacl._wait.port",
        "aioacl.testing",
        "aioacl._selftest",
        "aioacl._models.model",
    }


def test_table_of_layers_has_all_modules() -> None:
    layers = _layers()
    missing = {name for name in _modules() if _row_of(name, layers) is None}
    gone = {name for name in layers if not any(f"{module}.".startswith(f"{name}.") for module in _modules())}
    assert (missing, gone) == (set(), set())


def test_table_of_c_files_has_all_files() -> None:
    named = re.findall(r"`(\w+\.c)`", _sections()["Layers"].partition("C, in ")[2])
    assert sorted(named) == sorted(
        path.name for folder in (build_ffi.NATIVE, build_ffi.BINDING) for path in build_ffi.c_files(folder)
    )


def test_imports_are_from_the_same_layer_or_a_lower_one() -> None:
    layers = _layers()

    def layer(module: str) -> int:
        name = _row_of(module, layers)
        return 0 if module in COMPILED or name is None else layers[name]

    assert {(low, high) for low, high in _edges() if layer(high) > layer(low)} == set()


def test_imports_have_no_cycle() -> None:
    left = set(_edges())
    while left:
        leaves = {target for _, target in left} - {module for module, _ in left}
        assert leaves, f"expected no cycle, got one among {sorted(left)}"
        left = {edge for edge in left if edge[1] not in leaves}


def _order_of_c_files() -> list[str]:
    """Returns the order of the engine's files in the head of internal.h."""
    head = (
        (build_ffi.NATIVE / "internal.h")
        .read_text()
        .partition("*/")[0]
        .partition("The order of the files.")[2]
    )
    lines = [line.split("    ")[0] for line in re.findall(r"^ \*     (\w.*)$", head, flags=re.MULTILINE)]
    return [name for line in lines for name in re.findall(r"\w+", line)]


def _c_code(path: Path) -> str:
    """Returns a C file without comments and strings."""
    code = re.sub(r"/\*.*?\*/", " ", path.read_text(), flags=re.DOTALL)
    return re.sub(r'"(\\.|[^"\\])*"', '""', code)


FUNCTION = re.compile(
    r"^(?!static\b|typedef\b|extern\b)[A-Za-z_][\w *]*?\b(\w+)\([^;{}]*\)\s*\{", re.MULTILINE
)


def test_c_file_of_the_engine_uses_only_functions_of_earlier_files() -> None:
    order = _order_of_c_files()
    code = {path.stem: _c_code(path) for path in build_ffi.c_files(build_ffi.NATIVE)}
    assert sorted(order) == sorted(code), "expected each C file once in the order of internal.h"
    defined = {name: file for file in order for name in FUNCTION.findall(code[file])}
    assert len(defined) > 200, "expected the functions of the engine, got few"
    used = {
        (file, name, defined[name])
        for file in order
        for name in set(re.findall(r"\w+", code[file])) & defined.keys()
    }
    assert {use for use in used if order.index(use[2]) > order.index(use[0])} == set()


def test_only_one_module_imports_the_compiled_modules() -> None:
    assert {module for module, target in _edges() if target in COMPILED} == {"_base.ffi"}


def test_environment_is_read_only_by_the_named_modules() -> None:
    words = re.compile(r"\b(environb?|getenvb?|putenv)\b")
    found = {
        module
        for module, path in _modules().items()
        for node in ast.walk(_tree(path))
        if isinstance(node, (ast.Attribute, ast.alias)) and words.search(ast.unparse(node))
    }
    assert {module for module in found if _row_of(module, READERS) is None} == set()


def test_native_code_reads_no_environment() -> None:
    for path in build_ffi.c_files(build_ffi.NATIVE):
        assert not re.search(r"\b(secure_)?getenv\b|\benviron\b", path.read_text()), path.name


def test_long_files_are_named_with_a_reason() -> None:
    """A file may be long if a chapter of ARCHITECTURE.md gives the reason."""
    long = {
        str(path.relative_to(root if root == PACKAGE else ROOT))
        for root in (PACKAGE, ROOT / "simulator")
        for suffix in ("py", "c", "h", "inc")
        for path in root.rglob(f"*.{suffix}")
        if len(path.read_text().splitlines()) > LINES_AT_MOST
    }
    named = set(re.findall(r"`([\w/.]+)`", _sections()["Files above 400 lines"]))
    assert long == named, (
        "expected the long files in ARCHITECTURE.md, Files above 400 lines; add each new file with a reason, and "
        "remove files that are now short"
    )


# --- importing aioacl ---------------------------------------------------------------------------------------------

IMPORT = """
import os
from pathlib import Path

asked = []
original = type(os.environ).__getitem__
type(os.environ).__getitem__ = lambda self, key: (asked.append(key), original(self, key))[1]
import aioacl

assert "libascendcl" not in Path("/proc/self/maps").read_text(), "expected no library, got libascendcl"
assert len(list(Path("/proc/self/task").iterdir())) == 1, "expected one thread, got more"
assert not [key for key in asked if key.startswith(("AIOACL", "ASCEND"))], asked
"""


@pytest.mark.process
def test_import_prints_nothing_loads_no_library_and_reads_no_variable() -> None:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", IMPORT], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


# --- public names ------------------------------------------------------------------------------------------------

PUBLIC = {
    "aioacl": aioacl,
    "aioacl.simulator": simulator,
    "aioacl.lowlevel": lowlevel,
    "aioacl.testing": testing,
    "aioacl.torch": torch,
}


@pytest.mark.parametrize(("name", "module"), PUBLIC.items())
def test_public_names_have_docstrings(name: str, module: ModuleType) -> None:
    for public in module.__all__:
        assert inspect.getdoc(getattr(module, public)), f"{name}.{public}"


def test_changelog_has_the_version() -> None:
    assert f"[{aioacl.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_package_has_the_marker_of_types() -> None:
    assert (PACKAGE / "py.typed").read_bytes() == b""


# --- compiled files ----------------------------------------------------------------------------------------------


def test_extension_exports_only_its_init_functions() -> None:
    assert elf.exports(Path(str(_acl.__file__))) == {
        "PyInit__acl",
        "PyInit__await",
        "PyInit__interpreter",
    }


def test_python_h_is_included_before_other_headers() -> None:
    """Python.h sets macros such as _POSIX_C_SOURCE, which decide what the headers of the system declare."""
    own = {
        "binding.h": "<Python.h>",
        "await.h": '"binding.h"',
        "cache.h": '"binding.h"',
        "call.h": '"await.h"',
        "batches.h": '"await.h"',
    }
    for path in [*build_ffi.BINDING.rglob("*.c"), *build_ffi.BINDING.rglob("*.h")]:
        found = re.search(r"^#include (.*)$", path.read_text(), flags=re.MULTILINE)
        first = found[1] if found else ""
        expected = {own[path.name]} if path.name in own else {"<Python.h>", *(f'"{name}"' for name in own)}
        assert first in expected, f"{path}: expected one of {expected} first, got {first}"


def test_simulator_exports_only_acl_and_its_controls() -> None:
    library = simulator.library_path()
    exports = elf.exports(library)
    controls = {name for name in exports if name.startswith("aclsim_")}
    assert elf.soname(library) == "libascendcl.so"
    assert exports - controls == build_ffi.exports().keys()
    assert {row.name for row in build_ffi.table()} <= exports


@pytest.mark.parametrize("cann", RELEASES)
def test_simulator_needs_its_libruntime_and_exports_none_of_its_names(cann: Release) -> None:
    library, runtime = simulator.library_path(cann), simulator.library_path().with_name("libruntime.so")
    assert not {name for name in elf.exports(library) if name.startswith("rt")}
    assert ("libruntime.so" in elf.needed(library)) == (cann not in WITHOUT_RUNTIME)
    assert ("$ORIGIN" in elf.runpath(library)) == (cann not in WITHOUT_RUNTIME)
    assert elf.soname(runtime) == "libruntime.so"
    exported = elf.exports(runtime)
    assert {"rtRegTaskFailCallbackByModule", "rtKernelLaunch", "MsprofReportApi"} <= exported
    assert {name for name in exported if not name.startswith(("rt", "Msprof"))} == {"aclsim_runtime_deliver"}


def test_each_code_with_a_reason_adds_it_to_the_error_text() -> None:
    """A refusal such as `error_set(CODE, "stream: a group is open")` gives a reason, which only listed codes show."""
    folder = ROOT / "simulator" / "libascendcl"
    listed = re.findall(r"^    {(\w+), \"E", (folder / "core" / "error.c").read_text(), flags=re.MULTILINE)
    sources = "".join(path.read_text() for path in folder.rglob("*.c"))
    given = re.findall(r"error_(?:set|quiet)\(\s*([A-Z]\w+),\s*\"[^\"]*: ", sources)
    assert len(given) > 50
    assert set(given) <= set(listed)


def test_build_and_package_agree_on_the_releases_without_libruntime() -> None:
    assert build_ffi.WITHOUT_RUNTIME == WITHOUT_RUNTIME


def test_controls_of_the_simulator_are_those_of_the_header() -> None:
    header = (PACKAGE / "simulator" / "aclsim.h").read_text()
    declared = set(re.findall(r"\b(aclsim_\w+)\(", header))
    exported = {name for name in elf.exports(simulator.library_path()) if name.startswith("aclsim_")}
    assert declared == exported
