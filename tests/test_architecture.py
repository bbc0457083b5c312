"""What the documents say of the house is what the house is."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aioacl
import build_ffi
import build_stubs
from aioacl import _acl, lowlevel, simulator, testing
from aioacl.simulator._releases import RELEASES, WITHOUT_RUNTIME
from tests import elf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from aioacl.simulator._releases import Release

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "aioacl"


# --- floors -------------------------------------------------------------------------------------------------------

READERS = {
    "_library.load": "AIOACL_STRICT; hands the environment to locate, or none of it",
    "_library.locate": "AIOACL_LIBRARY, LD_LIBRARY_PATH and the places that set_env.sh names",
    "testing": "AIOACL_SIM_FAULTS and AIOACL_SIM_LIMITS, which hold for each test anew",
    "_conformance": "tells each child how many devices its vector wants",
    "_cli": "doctor tells what the environment says, demo sets the simulator's",
}
LONG = {
    "aioacl/_base/codes.py": "one table",
    "aioacl/_lifecycle/manager.py": "two lines of imports; it is to be split by concern",
    "aioacl/_native/enqueue.c": "one protocol: owning a stream to enqueue",
    "aioacl/_native/stream.c": "one protocol: asking a stream and believing its answer",
    "aioacl/_native/watcher.c": "one protocol: one pass of the watcher",
}
LINES_AT_MOST = 400
LAYERS = (
    "_base",
    "_library",
    "_wait",
    "_lifecycle",
    "_handles",
)  # each of their files has a floor of its own


def _architecture() -> list[list[str]]:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    return [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")
    ]


def _floors() -> dict[str, int]:
    rows = [(int(row[0]), row[1]) for row in _architecture() if row[0].isdigit()]
    return {name: floor for floor, names in rows for name in re.findall(r"`([\w.]+)`", names)}


def _sources() -> dict[str, list[Path]]:
    """The files of each module; a package in the package counts as one, unless it is a layer."""
    found: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[0] in LAYERS and parts[-1] == "__init__":
            continue
        first = ".".join(parts) if parts[0] in LAYERS else parts[0]
        found.setdefault("aioacl" if first == "__init__" else first, []).append(path)
    return found


def _statements(tree: ast.AST, *, top_only: bool = False) -> Iterator[ast.AST]:
    """All nodes but those that only type checkers see, and bodies of functions on request."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if top_only and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        yield node
        yield from _statements(node, top_only=top_only)


def _imports(path: Path, *, top_only: bool = False) -> set[str]:
    found: set[str] = set()
    for node in _statements(ast.parse(path.read_text()), top_only=top_only):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {_module(name.split(".")[1:]) for name in found if name.startswith("aioacl.")}


def _module(parts: list[str]) -> str:
    if parts[0] not in LAYERS:
        return parts[0]
    known = _sources()
    return next(name for end in range(len(parts), 0, -1) if (name := ".".join(parts[:end])) in known)


def _edges(*, top_only: bool = False) -> set[tuple[str, str]]:
    known = {*_sources(), "_acl"}
    return {
        (module, target if target in known else "aioacl")
        for module, paths in _sources().items()
        for path in paths
        for target in _imports(path, top_only=top_only)
        if target != module
    }


def test_every_module_has_a_floor() -> None:
    assert {*_sources(), "_acl"} <= set(_floors())


def test_every_native_file_has_a_floor() -> None:
    named = {name for row in _architecture() if row[0] == "C" for name in re.findall(r"`(\w+\.c)`", row[1])}
    assert named == {path.name for path in build_ffi.c_files(build_ffi.NATIVE)}


def test_imports_point_down() -> None:
    floors = _floors()
    assert {(low, high) for low, high in _edges() if floors[high] > floors[low]} == set()


def test_imports_have_no_cycle() -> None:
    left = _edges(top_only=True)
    while left:
        leaves = {target for _, target in left} - {module for module, _ in left}
        assert leaves, f"a cycle among {sorted(left)}"
        left = {edge for edge in left if edge[1] not in leaves}


def test_one_door_to_the_compiled_module() -> None:
    assert {module for module, target in _edges() if target == "_acl"} == {"_base.ffi"}


def test_one_reader_of_the_environment() -> None:
    words = re.compile(r"\b(environb?|getenvb?|putenv)\b")
    found = {
        module
        for module, paths in _sources().items()
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Attribute, ast.alias)) and words.search(ast.unparse(node))
    }
    assert found <= set(READERS)


def test_native_code_reads_no_environment() -> None:
    for path in build_ffi.c_files(build_ffi.NATIVE):
        assert not re.search(r"\b(secure_)?getenv\b|\benviron\b", path.read_text()), path.name


def test_files_are_short() -> None:
    paths = [path for suffix in ("py", "c", "h", "inc") for path in PACKAGE.rglob(f"*.{suffix}")]
    long = {
        str(path.relative_to(ROOT)) for path in paths if len(path.read_text().splitlines()) > LINES_AT_MOST
    }
    assert long <= set(LONG)


# --- what an import does ------------------------------------------------------------------------------------------

QUIET_IMPORT = """
import os
from pathlib import Path

asked = []
honest = type(os.environ).__getitem__
type(os.environ).__getitem__ = lambda self, key: (asked.append(key), honest(self, key))[1]
import aioacl

assert "libascendcl" not in Path("/proc/self/maps").read_text(), "a library is loaded"
assert len(list(Path("/proc/self/task").iterdir())) == 1, "a thread was started"
assert not [key for key in asked if key.startswith(("AIOACL", "ASCEND"))], asked
"""


@pytest.mark.process
def test_an_import_is_quiet() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", QUIET_IMPORT], capture_output=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


# --- what is public -----------------------------------------------------------------------------------------------

PUBLIC = {
    "aioacl": aioacl,
    "aioacl.simulator": simulator,
    "aioacl.lowlevel": lowlevel,
    "aioacl.testing": testing,
}


def _reference() -> dict[str, str]:
    """The chapters of docs/reference.md, by the module that each is about."""
    text = (ROOT / "docs" / "reference.md").read_text()
    parts = re.split(r"^## `([\w.]+)`.*$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _documented(chapter: str) -> list[str]:
    """The names in the first cells of the tables, without their arguments."""
    return re.findall(r"^\| `(\w+)[^`]*` \|", chapter, flags=re.MULTILINE)


@pytest.mark.parametrize(("name", "module"), PUBLIC.items())
def test_all_is_what_is_documented(name: str, module: ModuleType) -> None:
    names = _documented(_reference()[name])
    assert sorted(names) == sorted(module.__all__)


@pytest.mark.parametrize(("name", "module"), PUBLIC.items())
def test_all_is_there_with_a_docstring(name: str, module: ModuleType) -> None:
    for public in module.__all__:
        assert inspect.getdoc(getattr(module, public)), f"{name}.{public}"


def _members(noun: type) -> set[str]:
    own = [base for base in noun.__mro__ if base.__module__.startswith("aioacl.")]
    made = ("factory", "noun")
    return {
        member for base in own for member in vars(base) if not member.startswith("_") and member not in made
    }


@pytest.mark.parametrize(
    "noun", ["Device", "Stream", "Event", "Ticket", "DeviceBuffer", "PinnedBuffer", "Lease"]
)
def test_members_of_the_nouns_are_documented(noun: str) -> None:
    row = re.search(rf"^\| `{noun}` \|(.*)\|$", _reference()["aioacl"], flags=re.MULTILINE)
    assert row is not None
    assert _members(getattr(aioacl, noun)) == set(re.findall(r"`(\w+)[^`]*`", row[1]))


def test_the_changelog_knows_the_version() -> None:
    assert f"[{aioacl.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_types_are_shipped() -> None:
    assert (PACKAGE / "py.typed").read_bytes() == b""


# --- what is compiled ---------------------------------------------------------------------------------------------


def test_the_extension_exports_its_entry_only() -> None:
    assert elf.exports(Path(str(_acl.__file__))) == {"PyInit__acl"}


def test_the_simulator_exports_acl_and_its_controls_only() -> None:
    library = simulator.library_path()
    exports = elf.exports(library)
    controls = {name for name in exports if name.startswith("aclsim_")}
    assert elf.soname(library) == "libascendcl.so"
    assert exports - controls == build_ffi.exports().keys()
    assert {row.name for row in build_ffi.table()} <= exports


@pytest.mark.parametrize("cann", RELEASES)
def test_the_simulator_needs_its_libruntime_and_exports_none_of_its_names(cann: Release) -> None:
    library, runtime = simulator.library_path(cann), simulator.library_path().with_name("libruntime.so")
    assert not {name for name in elf.exports(library) if name.startswith("rt")}
    assert ("libruntime.so" in elf.needed(library)) == (cann not in WITHOUT_RUNTIME)
    assert ("$ORIGIN" in elf.runpath(library)) == (cann not in WITHOUT_RUNTIME)
    assert elf.soname(runtime) == "libruntime.so"
    exported = elf.exports(runtime)
    assert {"rtRegTaskFailCallbackByModule", "rtKernelLaunch", "MsprofReportApi"} <= exported
    assert {name for name in exported if not name.startswith(("rt", "Msprof"))} == {"aclsim_runtime_deliver"}


def test_the_build_and_the_package_agree_on_who_needs_libruntime() -> None:
    assert build_ffi.WITHOUT_RUNTIME == WITHOUT_RUNTIME


def test_the_controls_are_those_of_the_header() -> None:
    header = (PACKAGE / "simulator" / "csrc" / "aclsim.h").read_text()
    declared = set(re.findall(r"\b(aclsim_\w+)\(", header))
    exported = {name for name in elf.exports(simulator.library_path()) if name.startswith("aclsim_")}
    assert declared == exported


@pytest.mark.parametrize("path", build_stubs.stubs(), ids=lambda path: path.name)
def test_the_stubs_are_those_that_are_made(path: Path) -> None:
    assert build_stubs.stubs()[path] == path.read_text(), "run: python build_ffi.py --stub"
