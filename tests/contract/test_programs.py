"""C and C++ programs that use only the vendor's headers, -lascendcl or -lacl_rt, and a folder of the simulator.

The first line of each program gives the oldest release of CANN that has all its functions. The program is linked with
and run against that release and the newest one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from aioacl.simulator._releases import NEWEST, RELEASES
from scripts.pages import one
from tests.contract import vendor
from tests.support.command import finished

if TYPE_CHECKING:
    from collections.abc import Callable

HERE: Final = Path(__file__).resolve().parent / "programs"
PAGE_NAME: Final = "docs/c-programs.md"
PAGE: Final = Path(__file__).parents[2] / PAGE_NAME
NOT_HERE: Final = 77
RUN_SECONDS: Final = 60
LANGUAGES: Final = {
    ".c": ({"gcc": "gcc", "clang": "clang"}, ["-std=c11", "-Wstrict-prototypes"]),
    ".cpp": ({"gcc": "g++", "clang": "clang++"}, ["-std=c++17"]),
}
WARNINGS: Final = ["-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion"]


@dataclass(frozen=True)
class Program:
    """A source, and the oldest release of CANN that it can be linked with."""

    source: Path
    cann: str

    def build(
        self, compiler: str, folder: Path, library: str, target: Path
    ) -> subprocess.CompletedProcess[str]:
        """Compiles and links the program."""
        names, flags = LANGUAGES[self.source.suffix]
        command = [
            names[compiler],
            *flags,
            *WARNINGS,
            "-O1",
            f"-I{HERE}",
            f"-isystem{vendor.include_folder()}",
        ]
        command += [str(self.source), "-o", str(target), f"-L{folder}", f"-l{library}", "-lpthread"]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def _programs() -> list[Program]:
    found: list[Program] = []
    for source in sorted(path for path in HERE.iterdir() if path.suffix in LANGUAGES):
        match = re.match(r"/[*/] CANN ([\w.]+)\. ", source.read_text())
        assert match is not None, f"{source.name}: expected a first line that begins with CANN and a release"
        found.append(Program(source, match[1]))
    return found


PROGRAMS: Final = {program.source.name: program for program in _programs()}


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes the folder as a user does: `python -m aioacl simulator dir --cann RELEASE`."""
    home = str(tmp_path_factory.mktemp("cache"))

    @cache
    def make(cann: str) -> Path:
        command = [sys.executable, "-m", "aioacl", "simulator", "dir", "--cann", cann]
        environ = {**os.environ, "XDG_CACHE_HOME": home}
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        return Path(ran.stdout.splitlines()[-1])

    return make


def _run(program: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AIOACL")}
    environ["LD_LIBRARY_PATH"] = str(folder)
    return finished([program], env=environ, timeout=RUN_SECONDS)


def _ways() -> list[tuple[str, str, str, str]]:
    """Returns each program with each compiler, library and release that it can be linked with."""
    newest = [(name, compiler, "ascendcl", NEWEST) for name in PROGRAMS for compiler in ("gcc", "clang")]
    runtime = [(name, "gcc", "acl_rt", NEWEST) for name in PROGRAMS]
    older = [
        (name, "gcc", "acl_rt" if cann == "9.1" else "ascendcl", cann)
        for name, program in PROGRAMS.items()
        for cann in {program.cann, "8.5", "9.1"}
        if RELEASES.index(program.cann) <= [*map(str, RELEASES)].index(cann) < len(RELEASES) - 1
    ]
    return newest + runtime + sorted(older)


@pytest.mark.parametrize(("name", "compiler", "library", "cann"), _ways())
def test_program_links_and_runs(
    name: str, compiler: str, library: str, cann: str, folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    folder, target = folder_of(cann), tmp_path / "program"
    built = PROGRAMS[name].build(compiler, folder, library, target)
    assert (built.returncode, built.stderr) == (0, "")
    ran = _run(target, folder)
    if ran.returncode == NOT_HERE:
        pytest.skip("the simulator does not support this yet")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.cann != RELEASES[0]])
def test_program_does_not_link_with_an_older_release(
    name: str, folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    older = RELEASES[[*map(str, RELEASES)].index(PROGRAMS[name].cann) - 1]
    built = PROGRAMS[name].build("gcc", folder_of(older), "ascendcl", tmp_path / "program")
    assert built.returncode != 0
    assert "undefined reference to `acl" in built.stderr


@pytest.mark.parametrize(("compiler", "suffix"), [("gcc", "c"), ("g++", "cpp")])
def test_program_of_the_page_prints_the_output_on_the_page(
    compiler: str, suffix: str, folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    text = one(
        PAGE_NAME, "tests/contract/test_programs.py", lambda text: "aclsim_" in text, language="c"
    ).text
    source, target = tmp_path / f"bytes.{suffix}", tmp_path / "bytes"
    source.write_text(text)
    folder = folder_of(NEWEST)
    # The command on the page has no warning flags, but a reader may add -Wall. Therefore -Wall must not warn.
    command = [compiler, "-Wall", "-Werror", f"-I{vendor.include_folder()}", f"-I{folder}"]
    subprocess.run([*command, source, "-o", target, f"-L{folder}", "-lascendcl"], check=True)
    assert _run(target, folder).stdout in PAGE.read_text()
    assert _run(target, folder).stdout == "507015, then 0\n"


def test_program_linked_with_a_newer_release_does_not_start(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    target = tmp_path / "program"
    assert PROGRAMS["newest.c"].build("gcc", folder_of(NEWEST), "ascendcl", target).returncode == 0
    environ = {**os.environ, "LD_LIBRARY_PATH": str(folder_of("8.5")), "LD_BIND_NOW": "1"}
    ran = subprocess.run([target], env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 127
    assert "aclrtDeviceL2CacheFlush" in ran.stderr
