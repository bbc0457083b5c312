"""Builds the cffi extension `aioacl._acl`, the simulator, once for each release of CANN, and the generated stubs.

setuptools finds the compiler and its flags; ninja compiles and links in `build/native/`, which is kept. So after an
edit of one C file, ninja compiles that file and relinks the libraries that use it. Sources and stubs that are generated
from the table are made by rules of the same plan, which run build_ffi.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

sys.path.insert(0, str(Path(__file__).resolve().parent))  # setuptools loads this file by its path

from build_ffi import (  # after the path is set
    BINDING,
    CONTROLS,
    GENERATED,
    HEADERS,
    LIMITED_API,
    NATIVE,
    PYACL_ROWS,
    RELEASES,
    ROOT,
    RUNTIME,
    SIMULATOR,
    STUBS,
    WITHOUT_RUNTIME,
    c_files,
    header_folders,
    must_have_gil,
    write_if_changed,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from setuptools import Extension

# An undeclared function would return an int: a pointer would lose its upper half.
UNDECLARED: Final = "-Werror=implicit-function-declaration"
WARNINGS: Final = ("-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", UNDECLARED)
# They follow the flags of the Python that builds, or CFLAGS if that is set, as in scripts/wheels. No code relies on a
# signed overflow that wraps. But -fwrapv, which Python's flags and scripts/wheels have, limits the effect of a mistake.
# It is not here, because UBSan would then report no overflow: the sanitizers are built without Python's flags.
C_FLAGS: Final = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-fvisibility=hidden", *WARNINGS)
GENERATORS: Final = ("build_ffi.py", "build_stubs.py", "build_pyacl.py", "aioacl/_pyacl/table.py")
SOURCE_SUFFIXES: Final = (".c", ".h", ".inc")
INTERRUPTED: Final = 130  # the status of ninja after Ctrl-C, which Python may ignore
ENDING: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
PROGRESS_SECONDS: Final = 5.0
NINJA_STEP: Final = re.compile(r"\[(\d+)/(\d+)\] ")
NOTHING_TO_DO: Final = "ninja: no work to do."
NINJA_RULES: Final = """\
ninja_required_version = 1.11

rule compile
  command = $cc $flags -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc
  description = compile $in

rule link
  command = $ld $in $flags -o $out
  description = link $out

rule generate
  command = $python build_ffi.py --generate $out
  description = generate $out
  restat = 1
"""


def build_folder() -> Path:
    """The folder of objects and libraries, relative to the checkout; there is one for each Python ABI."""
    return Path("build", "native", str(sysconfig.get_config_var("SOABI") or "none"))


class Plan:
    """The text of build.ninja: every object once, and each library with the objects that it is linked from.

    All paths are relative to the checkout, which is where ninja runs.
    """

    def __init__(self, cc: list[str], ld: list[str], python_includes: list[str]) -> None:
        self._folder = build_folder()
        self._includes = [f"-I{_relative(folder)}" for folder in header_folders(*HEADERS)]
        self._python_includes = [f"-I{folder}" for folder in python_includes]
        self._lines = [
            f"builddir = {_path(str(self._folder))}",  # for ninja's own log
            f"cc = {_words([*cc, *C_FLAGS])}",
            f"ld = {_words(ld)}",
            f"ld_of_wheel = {_words(word for word in ld if not word.startswith('-Wl,-rpath'))}",
            f"python = {_words([sys.executable])}",
            NINJA_RULES,
        ]
        self._objects: dict[str, str] = {}
        self._runtime = ""

    def text(self) -> str:
        """The whole file."""
        return "\n".join([*self._lines, ""])

    def generated(self, name: str) -> str:
        """A generated source; it is regenerated when its inputs change."""
        target = str(self._folder / name)
        read = [
            *NATIVE.rglob("*.h"),
            *NATIVE.rglob("*.inc"),
            *SIMULATOR.rglob("*.inc"),
            *PYACL_ROWS.glob("*.txt"),
            *(ROOT / name for name in GENERATORS),
        ]
        self._lines.append(f"build {_path(target)}: generate | {_paths(sorted(map(_relative, read)))}")
        return target

    def compiled(self, source: str, *flags: str) -> str:
        """The object of a source; a second call for the same source adds nothing."""
        inside = source.removeprefix(f"{self._folder}/")
        target = str(self._folder / "objects" / f"{inside.removesuffix('.c')}.o")
        if target not in self._objects:
            self._objects[target] = source
            words = _words([*flags, *self._includes])
            self._lines += [f"build {_path(target)}: compile {_path(source)}", f"  flags = {words}"]
        return target

    def linked(self, name: str, objects: Iterable[str], flags: list[str], *reads: str) -> str:
        """A shared library of those objects, and the same library for a wheel, without debug information and symbols.

        In a wheel, the library does not name the folder of this machine's Python, in which the loader would search
        first. `reads` are the files that the flags name.
        """
        target = str(self._folder / "lib" / name)
        rule = f"link {_paths(objects)}" + (f" | {_paths(reads)}" if reads else "")
        self._lines += [f"build {_path(target)}: {rule}", f"  flags = {_words(flags)}"]
        self._lines += [f"build {_path(stripped(target))}: {rule}", "  ld = $ld_of_wheel"]
        self._lines += [f"  flags = {_words([*flags, '-Wl,--strip-all'])}"]
        return target

    def extension(self) -> str:
        """The cffi extension: the engine, the trampolines and cffi's module."""
        flags = [*self._python_includes, LIMITED_API]
        sources = [*map(_relative, [*c_files(NATIVE), *c_files(BINDING)]), *map(self.generated, GENERATED)]
        objects = [self.compiled(source, *flags) for source in sources]
        return self.linked("_acl.so", objects, ["-lpthread", "-ldl"])

    def simulator(self, release: str) -> str:
        """The simulator of a release: the objects that all releases share, and one that names the release.

        In the checkout, only the newest release keeps its debug information.
        """
        newest = release == RELEASES[-1]
        shared = [
            source
            for source in map(_relative, c_files(SIMULATOR))
            if newest or not source.endswith("/release.c")
        ]
        own = [] if newest else [self.generated(f"release-{release}.c")]
        script = self.generated(f"exports-{release}.map")
        flags = [
            "-Wl,-soname,libascendcl.so",
            "-Wl,-z,defs",
            f"-Wl,--version-script={script}",
            "-lpthread",
            "-ldl",
            "-lm",
        ]
        if not newest:
            flags.append("-Wl,--strip-debug")
        reads = [script]
        if release not in WITHOUT_RUNTIME:
            runtime = self.runtime()
            reads.append(runtime)
            # --as-needed would drop libruntime.so, because the only symbol that is used from it is weak. libc, which
            # follows on the command line, is needed anyway. So --push-state is not used, which `zig cc` refuses.
            flags += ["-Wl,--no-as-needed", runtime]
            flags += ["-Wl,-rpath,$ORIGIN", "-Wl,--enable-new-dtags"]
        return self.linked(f"libascendcl-{release}.so", map(self.compiled, [*shared, *own]), flags, *reads)

    def runtime(self) -> str:
        """The simulator's libruntime.so; a second call adds nothing."""
        if not self._runtime:
            objects = [self.compiled(_relative(source)) for source in c_files(RUNTIME)]
            flags = ["-Wl,-soname,libruntime.so", "-Wl,-z,defs", "-lpthread"]
            self._runtime = self.linked("libruntime.so", objects, flags)
        return self._runtime


def stripped(library: str) -> str:
    """The path of the stripped library."""
    path = Path(library)
    return str(path.parents[1] / "stripped" / path.name)


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _path(name: str) -> str:
    """A path, escaped for build.ninja."""
    return re.sub(r"([ :$])", r"$\1", name)


def _paths(names: Iterable[str]) -> str:
    return " ".join(map(_path, names))


def _words(words: Iterable[str]) -> str:
    """Words of a shell command, escaped for build.ninja."""
    return shlex.join(words).replace("$", "$$")


def ninja() -> str:
    """The ninja of this Python, or else the one in PATH."""
    beside = Path(sysconfig.get_path("scripts"), "ninja")
    found = str(beside) if beside.exists() else shutil.which("ninja")
    if found is None:
        raise SystemExit(
            "expected ninja beside Python or in PATH, found none; run: python -m pip install ninja"
        )
    return found


# --- setuptools' commands -----------------------------------------------------------------------------------------


def _is_runtime(extension: Extension) -> bool:
    return extension.name.endswith(".libruntime")


def _release_of(extension: Extension) -> str | None:
    """The release of CANN that a libascendcl.so of the simulator provides; None for any other shared object."""
    _, found, release = extension.name.partition(".libascendcl")
    return (release.removeprefix("-").replace("_", ".") or RELEASES[-1]) if found else None


class BuildNative(build_ext):
    """Plans the build, runs ninja, and installs the simulator under the name that programs link with."""

    def finalize_options(self) -> None:
        must_have_gil()
        super().finalize_options()
        self.in_checkout = bool(self.inplace)  # `run` of setuptools clears `inplace` during the build
        for extension in self.extensions:
            simulator = _release_of(extension) is not None
            runtime = _is_runtime(extension)
            folder = RUNTIME if runtime else SIMULATOR if simulator else NATIVE
            extension.sources = [_relative(path) for path in c_files(folder)]
            if folder == NATIVE:
                extension.sources += [_relative(path) for path in c_files(BINDING)]
            extension.py_limited_api = not (simulator or runtime)

    def build_extensions(self) -> None:
        plan = Plan(self.compiler.compiler_so, self.compiler.linker_so, self.compiler.include_dirs)
        built: dict[str, str] = {}
        for extension in self.extensions:
            release = _release_of(extension)
            if _is_runtime(extension):
                built[extension.name] = plan.runtime()
            else:
                built[extension.name] = plan.extension() if release is None else plan.simulator(release)
        stubs = {name: plan.generated(name) for name in STUBS}
        if not self.in_checkout:
            built = {name: stripped(library) for name, library in built.items()}
        with alone() as lock:
            run_ninja(plan.text(), lock, *built.values(), *stubs.values())
            for name, library in built.items():
                install(ROOT / library, Path(self.get_ext_fullpath(name)))
            for name, made in stubs.items():
                install(ROOT / made, (ROOT if self.in_checkout else Path(self.build_lib)) / name)

    def get_outputs(self) -> list[str]:
        built: list[str] = super().get_outputs()
        return built if self.inplace else [*built, *(f"{self.build_lib}/{name}" for name in STUBS)]

    def get_output_mapping(self) -> dict[str, str]:
        """The files of the build, each with the file of the checkout that an editable installation links to."""
        stubs = {f"{self.build_lib}/{name}": name for name in STUBS} if self.inplace else {}
        return {**super().get_output_mapping(), **stubs}

    def get_ext_filename(self, fullname: str) -> str:
        if "libascendcl" in fullname or "libruntime" in fullname:
            return fullname.replace(".", "/").replace("_", ".") + ".so"
        return fullname.replace(".", "/") + ".abi3.so"  # with Python 3.15, setuptools would add the platform


@contextmanager
def alone() -> Generator[int]:
    """Holds a lock, so that only one build runs in the checkout. Yields the descriptor of the lock."""
    folder = ROOT / build_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if sys.stderr is not None:
                print(f"waiting for another build in this checkout (it holds {file.name})", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def run_ninja(plan: str, lock: int, *targets: str) -> None:
    """Builds what has changed since the last build of this plan; CompileError if anything fails.

    Without targets, builds everything in the plan. ninja inherits the lock, because it may outlive a build that is
    killed.
    """
    file = build_folder() / "build.ninja"
    write_if_changed(ROOT / file, plan)
    digests = touch_changed()
    command = [ninja(), "-f", str(file), "-j", str(len(os.sched_getaffinity(0))), *targets]
    # The output of ninja goes to stderr: stdout belongs to the command that needed the build.
    if sys.stderr is None:  # it was closed
        output = subprocess.DEVNULL
    elif not sys.stderr.isatty():
        output = subprocess.PIPE
    else:
        output = sys.stderr.fileno()  # ninja shows how many files are built, on one line
        if not has_work(command):
            command.append("--quiet")
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t] "}
    status = run_until_signal(command, cwd=ROOT, env=environment, pass_fds=[lock], stdout=output)
    if status == INTERRUPTED:
        raise SystemExit(status)
    if status:
        raise CompileError(
            f"expected ninja to build the libraries, got the status {status}; the reason is above"
        )
    (ROOT / build_folder() / "digests.json").write_text(json.dumps(digests, indent=1))


def has_work(command: list[str]) -> bool:
    """Whether ninja has work. Without work, ninja must not print "no work to do" at each start of ./demo and ./test."""
    done = subprocess.run([*command, "-n"], cwd=ROOT, check=False, capture_output=True, text=True)
    return "no work to do" not in done.stdout


def pass_on(output: IO[bytes]) -> None:
    """Writes ninja's messages to stderr until ninja ends, and its progress as one line every PROGRESS_SECONDS."""
    progress, rest = "building: no file yet", ""
    due = time.monotonic() + PROGRESS_SECONDS
    while True:
        if select.select([output], [], [], max(0, due - time.monotonic()))[0]:
            data = os.read(output.fileno(), 1 << 16)
            if not data:
                print(rest, end="", file=sys.stderr, flush=True)
                return
            *lines, rest = (rest + data.decode(errors="replace")).split("\n")
            for line in lines:
                if step := NINJA_STEP.match(line):
                    progress = f"building: {step[1]} of {step[2]} files"
                elif line != NOTHING_TO_DO:
                    print(line, file=sys.stderr, flush=True)
        if time.monotonic() >= due:
            print(progress, file=sys.stderr, flush=True)
            due = time.monotonic() + PROGRESS_SECONDS


def run_until_signal(command: list[str], **options: Any) -> int:
    """Runs a command and returns its status. A signal that would end Python ends the command first, by SIGTERM.

    ninja then ends its compilers. The compilers would continue if Python ended at once, or killed ninja.
    """
    caught: list[int] = []
    processes: list[subprocess.Popen[Any]] = []

    def end(number: int, _frame: object) -> None:
        caught.append(number)
        for process in processes:
            process.terminate()

    handled = [number for number in ENDING if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    handlers = {number: signal.signal(number, end) for number in handled}
    try:
        processes.append(subprocess.Popen(command, **options))
        if caught:
            processes[0].terminate()
        if (output := processes[0].stdout) is not None:
            with output:
                pass_on(output)
        status = processes[0].wait()
    finally:
        for handled_signal, handler in handlers.items():
            signal.signal(handled_signal, handler)
    for number in caught:
        signal.raise_signal(number)
    return status


def touch_changed() -> dict[str, str]:
    """Sets the time of each source to now if its text differs from the last build; returns the digests of all sources.

    ninja compares only times, and a source that was restored or copied with its old time can be older than its object.
    """
    kept = ROOT / build_folder() / "digests.json"
    last: dict[str, str] = {}
    with suppress(FileNotFoundError, ValueError):  # ValueError: a build was killed while it wrote the file
        last = json.loads(kept.read_text())
    paths = [
        path
        for root in (NATIVE, BINDING, SIMULATOR, RUNTIME, CONTROLS)
        for path in root.rglob("*.*")
        if path.suffix in SOURCE_SUFFIXES
    ]
    digests = {
        _relative(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted([*paths, *(ROOT / name for name in GENERATORS)])
    }
    for name, digest in digests.items():
        if last.get(name) != digest:
            (ROOT / name).touch()
    return digests


def install(library: Path, target: Path) -> None:
    """Copies a library, unless the target has the same time and size.

    The copy is renamed to the target, because the old file may be mapped.
    """
    made = library.stat()
    if target.exists() and (target.stat().st_mtime_ns, target.stat().st_size) == (
        made.st_mtime_ns,
        made.st_size,
    ):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{os.getpid()}.{target.name}")
    shutil.copy2(library, new)
    new.replace(target)


class Wheel(bdist_wheel):
    """A wheel whose tag names the stable ABI."""

    def finalize_options(self) -> None:
        must_have_gil()
        self.py_limited_api = "cp311"
        super().finalize_options()
