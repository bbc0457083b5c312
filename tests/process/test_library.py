"""The library that a process loads, the files that are never loaded, and ACL libraries that other code has loaded."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioacl.simulator import library_path
from aioacl.simulator._releases import runtime_path
from tests.support import forkserver
from tests.support.libraries import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

# A substitute for a library of CANN, sufficient for the search. When it is loaded, its constructor writes a file.
SOURCE = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int aclInit(const char *path);
int aclrtSetDevice(int device);

int aclInit(const char *path) { return path ? 1 : 0; }
#ifndef PART
int aclrtSetDevice(int device) { return device; }
#endif

__attribute__((constructor)) static void loaded(void) { close(open(LOADED, O_WRONLY | O_CREAT, 0600)); }
"""

PRELUDE = """
import ctypes, json, os, sys
import aioacl
from aioacl import library_info, use_library

def report(choose):
    "Prints the library that was loaded, or the error."
    try:
        info = choose()
    except (aioacl.LibraryConflict, aioacl.LibraryNotFound) as error:
        print(json.dumps({"error": type(error).__name__, "text": str(error)}))
    else:
        print(json.dumps({"path": info.path, "origin": info.origin, "backend": info.backend,
                          "extra": info.extra_paths, "findings": info.findings}))
    sys.exit(0)
"""


LONG_ERROR_TEXT = """
#include <string.h>

const char *aclGetRecentErrMsg(void);

const char *aclGetRecentErrMsg(void) {
    static char text[100000];
    memset(text, 'x', sizeof text - 1);
    return text;
}
"""


@dataclass(frozen=True)
class Cann:
    """A folder with a library, and the file that the library's constructor writes."""

    library: Path
    mark: Path

    @property
    def folder(self) -> Path:
        return self.library.parent

    @property
    def was_loaded(self) -> bool:
        return self.mark.exists()


@pytest.fixture
def cann(tmp_path: Path) -> Callable[..., Cann]:
    """Returns a function that builds libraries. Only the owner may write to their folders."""

    def build(folder: str = "cann", name: str = "libascendcl.so", *options: str) -> Cann:
        (tmp_path / folder).mkdir(mode=0o755, exist_ok=True)
        made = Cann(tmp_path / folder / name, tmp_path / f"{folder}-{name}-was-loaded")
        compiled(SOURCE, made.library, f'-DLOADED="{made.mark}"', f"-Wl,-soname,{name}", *options)
        return made

    return build


def outcome(program: str, **environ: str) -> Any:
    """Runs the program, and returns its report.

    The program itself sets the variables, because the fork server refuses a request with another LD_LIBRARY_PATH.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIOACL_", "ASCEND_"))}
    settings = "".join(f"os.environ[{name!r}] = {value!r}\n" for name, value in environ.items())
    done = forkserver.run([sys.executable, "-W", "error", "-c", PRELUDE + settings + program], env=clean)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def refused(error: str, program: str, **environ: str) -> str:
    """Runs the program, which must report this error. Returns the error's text."""
    report = outcome(program, **environ)
    assert report["error"] == error
    return str(report["text"])


def copied_simulator(path: Path) -> Path:
    """Makes a copy of the simulator, with the libruntime.so that it needs in the same folder."""
    runtime = runtime_path("master")
    assert runtime is not None
    shutil.copy(runtime, path.with_name(runtime.name))
    return Path(shutil.copy(library_path(), path))


def depending_on_the_simulator(cann: Callable[..., Cann], name: str) -> Cann:
    """Makes a library that is linked with the simulator, contains none of its code, and has the SONAME stub.so."""
    simulator = library_path()
    needs = ["-Wl,--no-as-needed", str(simulator), f"-Wl,-rpath,{simulator.parent}"]
    return cann("stub", name, "-Wl,-soname,stub.so", *needs)


def load(path: Path) -> str:
    """Returns a line of a program that loads the library without aioacl, as other code would."""
    return f"other = ctypes.CDLL({str(path)!r})\n"


class TestSearch:
    def test_library_in_the_linkers_path_is_found_by_its_absolute_path(
        self, cann: Callable[..., Cann]
    ) -> None:
        made = cann()
        found = outcome("report(library_info)", LD_LIBRARY_PATH=f"/nowhere:{made.folder}")
        assert (found["path"], found["origin"]) == (str(made.library), "LD_LIBRARY_PATH")
        assert made.was_loaded

    def test_library_in_a_folder_that_all_may_write_to_is_refused_without_being_loaded(
        self, cann: Callable[..., Cann]
    ) -> None:
        made = cann()
        made.folder.chmod(0o777)
        text = refused("LibraryNotFound", "report(library_info)", LD_LIBRARY_PATH=str(made.folder))
        assert f"any user may write to {made.folder}" in text
        assert not made.was_loaded

    @pytest.mark.parametrize("value", [":", "{folder}:/nowhere", ".:/nowhere", "/nowhere;"])
    def test_library_in_a_relative_folder_is_refused_without_being_loaded(
        self, cann: Callable[..., Cann], value: str
    ) -> None:
        made = cann()
        program = f"os.chdir({str(made.folder)!r}); report(library_info)"
        text = refused(
            "LibraryNotFound", program, LD_LIBRARY_PATH=value.format(folder=f"../{made.folder.name}")
        )
        assert "the path is not absolute" in text
        assert not made.was_loaded

    def test_simulator_in_the_linkers_path_is_passed_over_without_being_loaded(
        self, cann: Callable[..., Cann]
    ) -> None:
        made = cann("real")
        simulated = made.folder.parent / "simulated"
        simulated.mkdir(mode=0o755)
        copied_simulator(simulated / "libascendcl.so")
        found = outcome("report(library_info)", LD_LIBRARY_PATH=f"{simulated}:{made.folder}")
        assert found["path"] == str(made.library)
        assert any("used on request only" in each for each in found["findings"])

    @pytest.mark.parametrize("later", [False, True])
    def test_library_that_depends_on_the_simulator_is_refused_unless_it_is_named(
        self, cann: Callable[..., Cann], later: bool
    ) -> None:
        stub, real = depending_on_the_simulator(cann, "libascendcl.so"), cann("real")
        (stub.folder / "lib64").symlink_to(".")
        variables = {"ASCEND_HOME_PATH": str(stub.folder)}
        found = outcome("report(library_info)", **variables, LD_LIBRARY_PATH=str(real.folder) * later)
        if later:
            assert (found["path"], found["backend"]) == (str(real.library), "ascend")
        else:
            assert found["error"] == "LibraryNotFound"
        texts = found["findings"] if later else found["text"].splitlines()
        assert any(str(stub.folder) in each and "depends on the simulator" in each for each in texts)
        named = outcome("report(library_info)", AIOACL_LIBRARY=str(stub.library))
        assert (named["path"], named["backend"]) == (str(stub.library), "simulator")

    def test_refused_library_does_not_stay_in_the_process(self, cann: Callable[..., Cann]) -> None:
        stub, real = depending_on_the_simulator(cann, "libascendcl.so"), cann("real")
        (stub.folder / "lib64").symlink_to(".")
        program = f"""
import pathlib
try:
    library_info()
except aioacl.LibraryNotFound:
    assert "libascendcl.so" not in pathlib.Path("/proc/self/maps").read_text()
    report(lambda: use_library({str(real.library)!r}))
"""
        found = outcome(program, ASCEND_HOME_PATH=str(stub.folder))
        assert (found["path"], found["origin"]) == (str(real.library), "argument")
        assert stub.was_loaded

    @pytest.mark.parametrize("by", ["LD_LIBRARY_PATH", "ASCEND_HOME_PATH", "AIOACL_LIBRARY"])
    def test_path_that_the_linker_would_expand_is_refused_and_loads_nothing(
        self, cann: Callable[..., Cann], by: str
    ) -> None:
        inspected, expanded = cann("$LIB"), cann("lib")
        root = inspected.folder.parent
        (root / "$LIB" / "lib64").symlink_to(".")
        for other in ("lib64", f"lib/{sysconfig.get_config_var('MULTIARCH')}"):
            (root / other).symlink_to(expanded.folder)
        names = {
            "LD_LIBRARY_PATH": inspected.folder,
            "ASCEND_HOME_PATH": inspected.folder,
            "AIOACL_LIBRARY": inspected.library,
        }
        text = refused("LibraryNotFound", "report(library_info)", **{by: str(names[by])})
        assert "the path contains '$'" in text
        assert not inspected.was_loaded
        assert not expanded.was_loaded

    def test_folders_of_the_linker_that_lack_the_library_are_reported_in_a_line_for_each_name(self) -> None:
        lines = outcome("report(library_info)", LD_LIBRARY_PATH="/nowhere:/elsewhere")["text"].splitlines()
        absent = [line for line in lines if "not in /nowhere, /elsewhere, " in line]
        assert [line.split("'")[1] for line in absent] == ["libascendcl.so", "libacl_rt.so"]

    def test_simulator_beside_a_real_library_is_not_loaded(self, cann: Callable[..., Cann]) -> None:
        made = cann()
        copied_simulator(made.folder / "libacl_rt.so")
        found = outcome("report(library_info)", AIOACL_LIBRARY=str(made.library))
        assert (found["backend"], found["extra"]) == ("ascend", [])
        assert any("it is the simulator" in each for each in found["findings"])
        program = (
            "import pathlib; library_info(); print(json.dumps(pathlib.Path('/proc/self/maps').read_text()))"
        )
        mapped = outcome(program, AIOACL_LIBRARY=str(made.library))
        assert "libascendcl.so" in mapped
        assert "libacl_rt.so" not in mapped

    def test_companion_that_depends_on_the_simulator_is_not_used(self, cann: Callable[..., Cann]) -> None:
        real = cann("stub", "libascendcl.so", "-Wl,-soname,real.so")
        stub = depending_on_the_simulator(cann, "libacl_rt.so")
        program = "report(library_info)"
        found = outcome(program, AIOACL_LIBRARY=str(real.library))
        assert (found["backend"], found["extra"]) == ("ascend", [])
        reason = "it depends on the simulator, whose functions are never added to a real library"
        assert f"passed over {stub.library}: {reason}" in found["findings"]
        program = "print(json.dumps([each.name for each in library_info().missing]))"
        assert "aclrtMalloc" in outcome(program, AIOACL_LIBRARY=str(real.library))

    def test_companion_that_cannot_be_loaded_is_passed_over_with_the_reason(
        self, cann: Callable[..., Cann]
    ) -> None:
        real, broken = cann(), cann("cann", "libacl_rt.so")
        broken.library.write_bytes(broken.library.read_bytes()[:100])
        found = outcome("report(library_info)", AIOACL_LIBRARY=str(real.library))
        assert f"passed over {broken.library}: it cannot be loaded" in found["findings"]

    @pytest.mark.parametrize("value", ["", "Simulator", "/nowhere.so"])
    def test_variable_that_names_no_library_is_named_in_the_error(self, value: str) -> None:
        text = refused("LibraryNotFound", "report(library_info)", AIOACL_LIBRARY=value)
        [line] = [line for line in text.splitlines() if line.startswith(f"  {value!r}: ")]
        assert "AIOACL_LIBRARY" in line


class TestLoadedByOtherCode:
    def test_call_without_a_choice_uses_the_loaded_library(self, cann: Callable[..., Cann]) -> None:
        made, other = cann("first"), cann("second")
        found = outcome(load(made.library) + "report(library_info)", LD_LIBRARY_PATH=str(other.folder))
        assert (found["path"], found["origin"]) == (str(made.library), "loaded")
        assert not other.was_loaded

    @pytest.mark.parametrize("by", ["argument", "AIOACL_LIBRARY"])
    def test_another_file_is_refused_without_being_loaded(self, cann: Callable[..., Cann], by: str) -> None:
        made, other = cann("first"), cann("second")
        named = by == "argument"
        choose = f"report(lambda: use_library({str(other.library)!r}))" if named else "report(library_info)"
        variables = {} if named else {by: str(other.library)}
        text = refused("LibraryConflict", load(made.library) + choose, **variables)
        assert repr(str(made.library)) in text
        assert repr(str(other.library)) in text
        assert not other.was_loaded

    @pytest.mark.parametrize("kind", ["link", "hard link"])
    def test_another_name_of_the_loaded_file_is_accepted(self, cann: Callable[..., Cann], kind: str) -> None:
        made = cann()
        name = made.folder / "another.so"
        if kind == "link":
            name.symlink_to(made.library)
        else:
            name.hardlink_to(made.library)
        found = outcome(load(made.library) + f"report(lambda: use_library({str(name)!r}))")
        assert (found["path"], found["origin"]) == (str(made.library), "argument")

    def test_file_that_was_loaded_by_a_link_is_reported_under_its_usual_name(
        self, cann: Callable[..., Cann]
    ) -> None:
        made = cann()
        link = made.folder / "libhccl.so"
        link.symlink_to(made.library.name)
        found = outcome(load(link) + "report(library_info)")
        assert (found["path"], found["origin"]) == (str(made.library), "loaded")

    def test_another_part_of_the_loaded_cann_is_accepted(self, cann: Callable[..., Cann]) -> None:
        runtime = cann("cann", "libacl_rt.so")
        part = cann("cann", "libascendcl.so", "-DPART")
        found = outcome(load(runtime.library) + f"report(lambda: use_library({str(part.library)!r}))")
        assert found["path"] == str(runtime.library)

    def test_two_loaded_libraries_need_a_choice(self, cann: Callable[..., Cann]) -> None:
        first, second = cann("first", "libascendcl.so"), cann("second", "libacl_rt.so")
        both = load(first.library) + load(second.library)
        text = refused("LibraryConflict", both + "report(library_info)")
        assert str(first.library) in text
        assert str(second.library) in text
        found = outcome(both + "report(library_info)", AIOACL_LIBRARY=str(second.library))
        assert found["path"] == str(second.library)

    def test_loaded_library_that_all_may_write_to_is_refused(self, cann: Callable[..., Cann]) -> None:
        made = cann()
        made.library.chmod(0o777)
        text = refused("LibraryNotFound", load(made.library) + "report(library_info)")
        assert f"any user may write to {made.library}" in text


class TestReplacedFile:
    """The file of a library that other code has loaded was replaced after the load."""

    def test_simulator_without_a_choice_is_refused(self, cann: Callable[..., Cann], tmp_path: Path) -> None:
        loaded, real = copied_simulator(tmp_path / "libascendcl.so"), cann()
        replace = f"os.replace({str(real.library)!r}, {str(loaded)!r})\n"
        text = refused("LibraryConflict", load(loaded) + replace + "report(library_info)")
        assert "AIOACL_LIBRARY=simulator" in text

    @pytest.mark.parametrize("first", ["simulator", "real"])
    def test_library_that_is_named_by_its_path_is_refused(
        self, cann: Callable[..., Cann], tmp_path: Path, first: str
    ) -> None:
        simulator, real = copied_simulator(tmp_path / "libascendcl.so"), cann().library
        loaded, other = (simulator, real) if first == "simulator" else (real, simulator)
        replace = f"os.replace({str(other)!r}, {str(loaded)!r})\n"
        text = refused(
            "LibraryConflict", load(loaded) + replace + "report(library_info)", AIOACL_LIBRARY=str(loaded)
        )
        assert f"{str(loaded)!r} to be the file that other code has loaded" in text

    def test_choice_simulator_is_refused_if_a_real_library_is_loaded(
        self, cann: Callable[..., Cann], tmp_path: Path
    ) -> None:
        simulator, real = copied_simulator(tmp_path / "libascendcl.so"), cann().library
        replace = f"os.replace({str(simulator)!r}, {str(real)!r})\n"
        refused("LibraryConflict", load(real) + replace + "report(library_info)", AIOACL_LIBRARY="simulator")


class TestLoadedSimulator:
    def test_simulator_without_a_choice_is_refused(self) -> None:
        text = refused("LibraryConflict", load(library_path()) + "report(library_info)")
        assert "AIOACL_LIBRARY=simulator" in text

    def test_choice_simulator_accepts_a_loaded_copy_of_the_simulator(self, tmp_path: Path) -> None:
        copy = copied_simulator(tmp_path / "libascendcl.so")
        again = "use_library('simulator'); report(lambda: use_library('simulator'))"
        found = outcome(load(copy) + again, AIOACL_LIBRARY="simulator")
        assert (found["path"], found["backend"]) == (str(copy), "simulator")

    @pytest.mark.parametrize("choice", ["simulator", str(library_path())])
    def test_simulator_of_another_release_is_refused(self, choice: str) -> None:
        older = library_path("8.5")
        text = refused("LibraryConflict", load(older) + "report(library_info)", AIOACL_LIBRARY=choice)
        assert str(older) in text

    def test_path_of_the_simulator_is_refused_if_a_copy_of_it_is_loaded(self, tmp_path: Path) -> None:
        copy = copied_simulator(tmp_path / "libascendcl.so")
        refused("LibraryConflict", load(copy) + "report(library_info)", AIOACL_LIBRARY=str(library_path()))


def test_truncated_library_does_not_end_the_process(tmp_path: Path) -> None:
    whole, library = library_path().read_bytes(), tmp_path / "libascendcl.so"
    for size in (65, 700, 1 << 12, 1 << 17, 1 << 20):
        library.write_bytes(whole[:size])
        assert outcome("report(library_info)", AIOACL_LIBRARY=str(library))["error"] == "LibraryNotFound"


def test_long_text_of_the_runtime_is_cut_in_an_error(tmp_path: Path) -> None:
    needs = [str(library_path()), f"-Wl,-rpath,{library_path().parent}"]
    library = compiled(LONG_ERROR_TEXT, tmp_path / "libascendcl.so", "-Wl,--no-as-needed", *needs)
    program = """
from aioacl import simulator
device = aioacl.open_device(0).result()
simulator.fail_call("aclrtMalloc", 207001, 1)
try:
    device.allocate(64).result()
except aioacl.AclError as error:
    print(json.dumps({"size": len(error.message), "text": error.message[:9]}))
device.close().result()
"""
    assert outcome(program, AIOACL_LIBRARY=str(library)) == {"size": 8191, "text": "x" * 9}


def test_default_device_of_other_code_is_set_only_once_by_an_open_device(tmp_path: Path) -> None:
    config = tmp_path / "acl.json"
    config.write_text(json.dumps({"defaultDevice": {"default_device": "0"}}))
    program = f"""
from aioacl import simulator
other.aclInit({str(config).encode()!r}), other.aclrtSetDevice(0)
with aioacl.open_device(0) as device:
    report = device.force_reset().result()
    print(json.dumps({{"foreign": report.foreign_sets, "count": simulator.retain_count(0)}}))
"""
    found = outcome(load(library_path()) + program, AIOACL_LIBRARY="simulator")
    assert found == {"foreign": 1, "count": 2}
