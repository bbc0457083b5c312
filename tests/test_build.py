"""The build finds sources in nested folders, and rebuilds only what an edit changes."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from setuptools import Distribution, Extension
from setuptools.errors import CompileError

import build_ffi
import build_ninja
import build_stubs
from aioacl._base.ffi import HandleBase
from tests import elf
from tests.support.command import finished

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
EDITED = "simulator/libascendcl/stream/stream.c"


def written(folder: Path, *names: str) -> Path:
    """Creates an empty file with each name, and returns the folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


@pytest.mark.process
@pytest.mark.parametrize("command", [("build_ext", "--inplace"), ("bdist_wheel",)])
def test_command_of_a_free_threaded_python_ends_with_one_message(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    free_threaded = "import sysconfig; sysconfig.get_config_vars()['Py_GIL_DISABLED'] = 1"
    program = f"{free_threaded}; import setuptools; setuptools.setup()"
    for name in (
        "aioacl",
        "build_ffi.py",
        "build_ninja.py",
        "build_stubs.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "NOTICE",
    ):
        (tmp_path / name).symlink_to(ROOT / name)
    done = finished([sys.executable, "-W", "ignore", "-c", program, "--quiet", *command], cwd=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("aioacl needs a Python with the GIL, got the free-threaded build")


def test_name_of_the_extension_is_the_same_for_each_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.15 prefers a name with the platform, which older versions do not find."""
    suffix = ".abi3-x86_64-linux-gnu.so"
    monkeypatch.setattr("setuptools.command.build_ext.get_abi3_suffix", lambda: suffix)
    command = build_ninja.BuildNative(Distribution({"ext_modules": [Extension("aioacl._acl", [])]}))
    command.finalize_options()
    assert command.get_ext_filename("aioacl._acl") == "aioacl/_acl.abi3.so"
    assert command.get_ext_filename("aioacl.simulator.libruntime") == "aioacl/simulator/libruntime.so"


@pytest.mark.parametrize("name", [".", "missing"])
def test_folder_without_c_files_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(SystemExit, match=r"expected C files in .*, found none"):
        build_ffi.c_files(written(tmp_path, "a.h") / name)


def test_folder_without_headers_is_an_error(tmp_path: Path) -> None:
    folder = written(tmp_path, "one/a.h", "two/b.c")
    with pytest.raises(SystemExit, match=r"expected headers in .*two, found none"):
        build_ffi.header_folders(folder / "one", folder / "two")


def test_headers_of_the_same_name_are_an_error(tmp_path: Path) -> None:
    folder = written(tmp_path, "one/a.h", "two/b/a.h")
    with pytest.raises(SystemExit, match=r"one/a\.h, .*two/b/a\.h; rename one"):
        build_ffi.header_folders(folder / "one", folder / "two")


def test_included_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "table.inc"
    path.write_text('#include "nowhere/rows.inc"\n')
    with pytest.raises(SystemExit, match=r"got nowhere/rows\.inc"):
        build_ffi.inlined(path)


def test_generated_source_that_does_not_change_keeps_its_modification_time(tmp_path: Path) -> None:
    target = tmp_path / "exports-8.1.map"
    build_ffi.generate(target)
    os.utime(target, ns=(0, 0))
    build_ffi.generate(target)
    assert target.stat().st_mtime_ns == 0
    target.write_text("other")
    build_ffi.generate(target)
    assert target.read_text() == build_ffi.version_script("8.1")


def linked() -> dict[str, set[str]]:
    """Returns the objects from which each library of the simulator is linked, according to the last build's plan."""
    text = (ROOT / build_ninja.build_folder() / "build.ninja").read_text()
    rows = re.findall(r"^build \S*/lib/(libascendcl\S+): link ([^|\n]+)", text, flags=re.MULTILINE)
    return {name: set(objects.split()) for name, objects in rows}


def test_simulators_share_all_objects_but_the_one_that_names_the_release() -> None:
    libraries = linked()
    assert libraries.keys() == {f"libascendcl-{release}.so" for release in build_ffi.RELEASES}
    shared = set.intersection(*libraries.values())
    assert len(shared) == len(build_ffi.c_files(build_ffi.SIMULATOR)) - 1
    assert all(len(objects - shared) == 1 for objects in libraries.values())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout: what the build reads, and what the last build has made outside the package."""
    names = (
        "aioacl",
        "simulator",
        *build_ninja.GENERATORS,
        "build_ninja.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "NOTICE",
    )
    ignored = shutil.ignore_patterns("*.so", "__pycache__", *(Path(name).name for name in build_ffi.STUBS))
    for name in ("build/native", *names):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored if name == "aioacl" else None)
        else:
            shutil.copy2(ROOT / name, tmp_path / name)
    return tmp_path


def ninja_in(checkout: Path, *arguments: str) -> str:
    """Runs ninja on the plan of the last build, and returns its output."""
    command = [build_ninja.ninja(), "-f", str(build_ninja.build_folder() / "build.ninja"), *arguments]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout


@pytest.mark.process
def test_edit_of_one_c_file_compiles_it_and_links_the_five_simulators(checkout: Path) -> None:
    libraries = [f"{build_ninja.build_folder()}/lib/{name}" for name in ("_acl.so", *linked())]

    def steps() -> list[str]:
        """Returns the steps that ninja would run, without running them."""
        shown = ninja_in(checkout, "-n", *libraries)
        return sorted(re.findall(r"^\[\d+/\d+\] (\w+)", shown, flags=re.MULTILINE))

    assert steps() == [], (
        "expected libraries newer than their sources; run ./test, which builds the libraries"
    )
    with (checkout / EDITED).open("a") as file:
        file.write("\n")
    assert steps() == ["compile", *["link"] * 5]


@pytest.mark.parametrize("name", build_ffi.STUBS)
def test_build_has_written_the_stub_into_the_package(name: str) -> None:
    assert (ROOT / name).read_text() == build_stubs.stub(name), (
        "expected the stub of this tree; run ./test, which writes the stub"
    )


@pytest.mark.process
def test_edit_of_the_table_writes_the_stubs_again(checkout: Path) -> None:
    with (checkout / "aioacl/_native/api/device.inc").open("a") as file:
        file.write('ACL_FN(FREE, aclError, aclrtExample, (int32_t example), (example), "9.1")\n')
    made = [build_ninja.build_folder() / name for name in build_ffi.STUBS]
    ninja_in(checkout, *map(str, made))
    engine, functions, *_ = [(checkout / path).read_text() for path in made]
    assert "def aio_u_aclrtExample(self, a0: int, /) -> int: ..." in engine
    assert "def aclrtExample(self, example: int) -> None:" in functions


@pytest.mark.process
@pytest.mark.parametrize("where", [".", "wheel"])
def test_build_writes_the_stubs_and_strips_the_libraries_of_a_wheel(checkout: Path, where: str) -> None:
    options = ["--inplace"] if where == "." else ["--build-lib", where]
    command = [
        sys.executable,
        "-c",
        "import setuptools; setuptools.setup()",
        "--quiet",
        "build_ext",
        *options,
    ]
    subprocess.run(command, cwd=checkout, check=True)
    package = checkout / where / "aioacl"
    for name in build_ffi.STUBS:
        assert (checkout / where / name).read_text() == build_stubs.stub(name)
    libraries = [package / "_acl.abi3.so", *package.glob("simulator/*.so")]
    assert len(libraries) == 2 + len(build_ffi.RELEASES)
    assert [elf.is_stripped(path) for path in libraries] == [where == "wheel"] * len(libraries)
    if where == "wheel":
        assert {folder for path in libraries for folder in elf.runpath(path)} == {"$ORIGIN"}


def test_only_the_library_of_a_wheel_is_linked_without_the_folder_of_python() -> None:
    plan = build_ninja.Plan(["cc"], ["cc", "-shared", "-Wl,-rpath,/python/lib", "-L/python/lib"], [])
    plan.linked("a.so", ["a.o"], [])
    lines = plan.text().splitlines()
    assert "ld = cc -shared -Wl,-rpath,/python/lib -L/python/lib" in lines
    assert "ld_of_wheel = cc -shared -L/python/lib" in lines
    statements = [number for number, line in enumerate(lines) if line.startswith("build ")]
    assert ["/stripped/" in lines[number] for number in statements] == [False, True]
    assert [number for number, line in enumerate(lines) if line == "  ld = $ld_of_wheel"] == [
        statements[1] + 1
    ]


def members(names: Iterable[str]) -> set[str]:
    """Returns the names without those of the form `__name__`, which a stub need not declare."""
    return {name for name in names if not re.fullmatch(r"__\w+__", name)}


def test_stub_of_the_binding_declares_what_the_module_has() -> None:
    tree = ast.parse((ROOT / "aioacl" / "_await.pyi").read_text())
    stub: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            inside = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
            inside += [ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)]
            stub[node.name] = members(inside)
        elif isinstance(node, ast.FunctionDef):
            stub[node.name] = set()
        elif isinstance(node, ast.AnnAssign):
            stub[ast.unparse(node.target)] = set()
    module = {
        name: members(vars(value)) if isinstance(value, type) else set[str]()
        for name, value in vars(sys.modules[HandleBase.__module__]).items()
        if members([name])
    }
    made_in_c = {"Await", "ItemWait", "Ready"}  # the stub has only what code in Python uses of them
    assert stub.pop("Await") <= module["Await"]
    assert stub == {name: inside for name, inside in module.items() if name not in made_in_c}


def tree(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path]:
    """Makes a small checkout. Returns the folders of its sources, and the place of the digests of its last build."""
    native = written(folder / "aioacl" / "_native", "a.c", "b.h", "c.inc", "d.txt")
    simulator = written(folder / "simulator" / "libascendcl", "e.c")
    written(folder, *build_ninja.GENERATORS)
    for name, value in {
        "ROOT": folder,
        "NATIVE": native,
        "BINDING": native,
        "SIMULATOR": simulator,
        "RUNTIME": simulator,
        "CONTROLS": simulator,
    }.items():
        monkeypatch.setattr(build_ninja, name, value)
    kept = folder / build_ninja.build_folder() / "digests.json"
    kept.parent.mkdir(parents=True)
    return native, simulator, kept


def test_source_that_is_restored_with_an_older_time_is_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native, simulator, kept = tree(tmp_path, monkeypatch)
    kept.write_text(json.dumps(build_ninja.touch_changed()))
    for name in ("a.c", "b.h", "c.inc"):
        path = native / name
        path.write_text("other")
        os.utime(path, ns=(0, 0))
        build_ninja.touch_changed()
        assert path.stat().st_mtime_ns > 0, name
    os.utime(simulator / "e.c", ns=(0, 0))
    build_ninja.touch_changed()
    assert (simulator / "e.c").stat().st_mtime_ns == 0


def test_build_after_one_that_was_killed_while_it_wrote_its_digests_builds_all_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native, _, kept = tree(tmp_path, monkeypatch)
    whole = build_ninja.touch_changed()
    kept.write_text(json.dumps(whole)[:20])
    os.utime(native / "a.c", ns=(0, 0))
    assert build_ninja.touch_changed() == whole
    assert (native / "a.c").stat().st_mtime_ns > 0


@pytest.mark.process
def test_build_works_with_a_closed_stderr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_ninja, "ROOT", tmp_path)
    monkeypatch.setattr(build_ninja, "touch_changed", dict)
    monkeypatch.setattr(build_ninja, "ninja", lambda: "true")
    monkeypatch.setattr(sys, "stderr", None)
    read, write = os.pipe()
    try:
        build_ninja.run_ninja("", read)
    finally:
        os.close(read)
        os.close(write)
    assert (tmp_path / build_ninja.build_folder() / "digests.json").exists()


def test_build_that_waits_for_another_build_reports_the_wait_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_ninja, "ROOT", tmp_path)
    entered = threading.Event()

    def build() -> None:
        with build_ninja.alone():
            entered.set()

    read, write = os.pipe()
    with os.fdopen(read) as lines, os.fdopen(write, "w", buffering=1) as errors:
        monkeypatch.setattr(sys, "stderr", errors)
        with build_ninja.alone():
            second = threading.Thread(target=build)
            second.start()
            line = lines.readline()
            assert not entered.is_set()
        second.join()
    assert line.startswith("waiting for another build in this checkout")
    assert entered.is_set()


@pytest.mark.process
def test_build_on_a_terminal_shows_its_steps_and_nothing_if_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_ninja, "ROOT", tmp_path)
    monkeypatch.setattr(build_ninja, "touch_changed", dict)
    plan = "rule make\n  command = touch $out\n  description = make $out\nbuild made: make\n"
    terminal, end = pty.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as shown, os.fdopen(end, "w", buffering=1) as errors:
        monkeypatch.setattr(sys, "stderr", errors)
        with build_ninja.alone() as lock:
            build_ninja.run_ninja(plan, lock)
            errors.write("first\n")
            build_ninja.run_ninja(plan, lock)
            errors.write("second\n")
        drawn = b""
        while b"second" not in drawn:
            drawn += shown.read(1 << 16)
    first, second = drawn.split(b"first\r\n")
    assert b"[1/1] make made" in first
    assert second == b"second\r\n"


@pytest.mark.process
def test_build_without_a_terminal_reports_its_progress_and_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second step waits for the end of `hold`, which the reader of the lines opens after a line with progress."""
    monkeypatch.setattr(build_ninja, "ROOT", tmp_path)
    monkeypatch.setattr(build_ninja, "touch_changed", dict)
    monkeypatch.setattr(build_ninja, "PROGRESS_SECONDS", 0.01)
    os.mkfifo(hold := tmp_path / "hold")
    plan = (
        "rule make\n  command = touch $out\nrule wait\n  command = timeout 60 cat hold && touch $out\n"
        "build one: make\nbuild two: wait one\n"
    )
    lines: list[str] = []

    def read_lines() -> None:
        with os.fdopen(read) as errors:
            for line in errors:
                lines.append(line)
                if line.startswith("building: 1 ") and hold.exists():
                    hold.open("w").close()
                    hold.unlink()

    read, write = os.pipe()
    reader = threading.Thread(target=read_lines)
    reader.start()
    with os.fdopen(write, "w", buffering=1) as errors:
        monkeypatch.setattr(sys, "stderr", errors)
        with build_ninja.alone() as lock:
            build_ninja.run_ninja(plan, lock)
            errors.write("first\n")
            monkeypatch.setattr(build_ninja, "PROGRESS_SECONDS", 60)
            build_ninja.run_ninja(plan, lock)
    reader.join()
    *progress, first = lines
    assert set(progress) <= {
        "building: no file yet\n",
        "building: 1 of 2 files\n",
        "building: 2 of 2 files\n",
    }
    assert "building: 1 of 2 files\n" in progress
    assert first == "first\n"


def test_last_message_of_ninja_needs_no_newline(capfd: pytest.CaptureFixture[str]) -> None:
    read, write = os.pipe()
    os.write(write, b"[1/2] make one\nninja: stopped")
    os.close(write)
    with os.fdopen(read, "rb") as output:
        build_ninja.pass_on(output)
    assert capfd.readouterr().err == "ninja: stopped"


@pytest.mark.process
def test_build_without_a_terminal_reports_why_a_step_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_ninja, "ROOT", tmp_path)
    monkeypatch.setattr(build_ninja, "touch_changed", dict)
    plan = "rule fail\n  command = echo the reason; exit 1\nbuild one: fail\n"
    with build_ninja.alone() as lock, pytest.raises(CompileError, match="the reason is above"):
        build_ninja.run_ninja(plan, lock)
    out, errors = capfd.readouterr()
    assert out == ""
    assert "the reason\n" in errors
    assert "ninja: build stopped" in errors


@pytest.mark.process
def test_ctrl_c_in_ninja_ends_the_build_with_status_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_ninja, "ROOT", tmp_path)
    monkeypatch.setattr(build_ninja, "touch_changed", dict)
    # Not in the language of the shell: dash catches SIGINT, and may have begun to wait for `sleep` when ninja sends it.
    command = tmp_path / "command.py"
    command.write_text(
        "import os, signal\nsignal.alarm(60)\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "os.kill(os.getppid(), signal.SIGINT)\nsignal.pause()\n"
    )
    plan = f"rule end\n  command = exec {sys.executable} {command}\nbuild made: end\n"
    # If SIGINT is ignored, as in a background job of a shell, ninja cannot end its command.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with build_ninja.alone() as lock, pytest.raises(SystemExit) as ended:
            build_ninja.run_ninja(plan, lock)
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert ended.value.code == 130
