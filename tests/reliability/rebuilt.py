"""Compiles the engine once, and later each changed file. Links the extension and the programs of the native tests.

Objects and programs are written to another folder, never to the checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import build_ffi
from tests.native.run import link_options
from tests.reliability.killing import Noticed
from tests.reliability.names import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.reliability.killing import Reporter

ENGINE: Final = build_ffi.NATIVE
NATIVE: Final = ROOT / "tests" / "native"
COMPILER: Final = os.environ.get("CC", "gcc").split()[0]
FLAGS: Final = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-pthread", "-fvisibility=hidden", "-w"]
INCLUDES: Final = [*build_ffi.include_flags(), f"-I{NATIVE}"]
LIBRARIES: Final = ["-pthread", "-ldl", "-lm"]
NATIVE_SECONDS: Final = 30.0


def missing() -> str:
    """Returns which files of a build are missing here; "" if none is missing."""
    lacking = [
        str(path.relative_to(ROOT)) for path in (ENGINE / "gate.c", NATIVE / "bed.c") if not path.exists()
    ]
    return f"expected {' and '.join(lacking)}, found none; run this part in a checkout" if lacking else ""


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def _compile(source: Path, target: Path, *flags: str) -> Path:
    _run([COMPILER, *FLAGS, *INCLUDES, *flags, "-c", str(source), "-o", str(target)])
    return target


class Engine:
    """The objects of the unchanged engine."""

    def __init__(self, folder: Path, library: Path, *, extension: bool) -> None:
        self._folder = folder
        self._library = library
        folder.mkdir()
        sources = [*build_ffi.c_files(ENGINE), NATIVE / "bed.c", *sorted(NATIVE.glob("test_*.c"))]
        with ThreadPoolExecutor(2) as pool:
            made = pool.map(lambda source: _compile(source, folder / f"{source.stem}.o"), sources)
            self._objects = dict(zip((source.stem for source in sources), made, strict=True))
            if len(self._objects) != len(sources):
                raise SystemExit(
                    "expected C files of the engine and its tests to have different names; rename one"
                )
            made_of = ("trampolines", "_acl", *build_ffi.c_files(build_ffi.BINDING))
            self._python = list(pool.map(self._for_python, made_of)) if extension else []
        self.for_python = extension
        self.lists = [name for name in self._objects if name.startswith("test_")]

    def _for_python(self, what: str | Path) -> Path:
        """Compiles a C file that uses Python.h. If `what` is a str, build_ffi.py first generates that file."""
        source = self._generated(what) if isinstance(what, str) else what
        target = self._folder / f"python_{source.stem}.o"
        include = f"-I{sysconfig.get_path('include')}"
        return _compile(source, target, include, build_ffi.LIMITED_API, "-fvisibility=default")

    def _generated(self, name: str) -> Path:
        source = self._folder / f"{name}.c"
        program = {
            "trampolines": f"import pathlib; pathlib.Path({str(source)!r}).write_text(build_ffi.trampolines())",
            "_acl": f"import pathlib; build_ffi.extension_source(pathlib.Path({str(source)!r}))",
        }[name]
        begin = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import build_ffi; "
        _run([sys.executable, "-c", begin + program])
        return source

    def changed(self, name: str, text: str, folder: Path) -> dict[str, Path]:
        """Returns the engine's objects, of which one is compiled from the changed text."""
        source = folder / name
        source.write_text(text)
        stem = source.stem
        return {**self._objects, stem: _compile(source, folder / f"{stem}.o")}

    def extension(self, objects: dict[str, Path], target: Path) -> None:
        """Links the extension."""
        engine = [str(path) for name, path in objects.items() if name != "bed" and name not in self.lists]
        _run([COMPILER, "-shared", *engine, *map(str, self._python), *LIBRARIES, "-o", str(target)])

    def try_lists(self, objects: dict[str, Path], folder: Path, reporter: Reporter, first: str) -> None:
        """Runs the native tests; the tests whose name contains `first` come first. Raises Noticed if one fails."""
        engine = [str(path) for name, path in objects.items() if name not in self.lists]
        for name in sorted(self.lists, key=lambda name: (first not in name, name)):
            program = folder / name
            _run([COMPILER, str(objects[name]), *engine, *LIBRARIES, *link_options(name), "-o", str(program)])
            for test in subprocess.run(
                [str(program)], capture_output=True, text=True, check=True
            ).stdout.split():
                self._try(program, test, reporter)

    def _try(self, program: Path, test: str, reporter: Reporter) -> None:
        name = f"{program.name}.c::{test}"
        reporter.pytest_runtest_logstart(name)
        environment = {**os.environ, "AIOACL_TEST_LIBRARY": str(self._library)}
        try:
            status = subprocess.run(
                [str(program), test],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=NATIVE_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            raise Noticed(f"{name} hangs") from None
        if status:
            raise Noticed(f"{name} (status {status})")
        reporter.pytest_runtest_logfinish(name)
