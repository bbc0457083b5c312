"""Builds the shared objects: the cffi extension `aioacl._acl`, and the simulator, once for each release of CANN.

The table `aioacl/_native/acl_api.inc` and the header `engine.h`, with what they include, are the only sources of
declarations. This module makes the cffi declarations and the trampolines from them, build_stubs.py the typed stubs.

    python build_ffi.py --stub            writes the stubs
    python build_ffi.py --generate FILE   writes one generated source; the build calls this

setuptools finds the compiler and its flags; ninja compiles and links, in `build/native/`, which is kept. So after an
edit of one C file, ninja compiles that file and links what contains it. C files and headers are found in nested
folders; a folder without any is an error, so a move cannot drop sources silently.

A trampoline is what Python calls for an ACL function: `aio_u_NAME` calls it as it is, `aio_g_NAME` passes the
gate of a device first.  Both keep the runtime's text on a failure, on the failing thread, at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from setuptools import Extension

ROOT = Path(__file__).resolve().parent
NATIVE = ROOT / "aioacl" / "_native"
SIMULATOR = ROOT / "aioacl" / "simulator" / "csrc"
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
LIMITED_API = not FREE_THREADED  # there is no stable ABI for free-threaded builds
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes"]
C_FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-fvisibility=hidden", *WARNINGS]


# --- sources ------------------------------------------------------------------------------------------------------


def c_files(folder: Path) -> list[Path]:
    """The C files in a folder and the folders below it, sorted; SystemExit if there are none."""
    found = sorted(folder.rglob("*.c"))
    if not found:
        raise SystemExit(f"expected C files in {folder}, found none; correct the path")
    return found


def header_folders(*roots: Path) -> list[Path]:
    """The folders at and below the roots that hold headers, sorted: what a compiler gets as -I.

    SystemExit if a root has none, or if two headers have the same name: the order of -I would decide which is used.
    """
    headers = [sorted(root.rglob("*.h")) for root in roots]
    for root, found in zip(roots, headers, strict=True):
        if not found:
            raise SystemExit(f"expected headers in {root}, found none; correct the path")
    paths = [path for found in headers for path in found]
    twice = [name for name, count in Counter(path.name for path in paths).items() if count > 1]
    if twice:
        places = ", ".join(str(path) for path in paths if path.name == twice[0])
        raise SystemExit(f"two headers have the same name: {places}; rename one")
    return sorted({path.parent for path in paths})


def include_flags(*more: Path) -> list[str]:
    """The -I options for the engine's headers, the simulator's, and those in `more`."""
    return [f"-I{folder}" for folder in header_folders(NATIVE, SIMULATOR, *more)]


# --- the table ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """One line of the table."""

    kind: str
    returns: str
    none: str  # what an absent one answers; empty: nothing
    name: str
    params: str
    args: str
    since: str

    @property
    def guarded(self) -> bool:
        """Whether calls of it pass the gate of a device."""
        return self.kind not in ("FREE", "CONTROL") and self.returns == "aclError"


ROW = re.compile(
    r"^ACL_FN(?P<macro>|_VALUE|_VOID)\((?P<kind>\w+),\s*"
    r"(?:(?P<returns>[^,(]+?),\s*)?(?:(?P<none>[\w.]+),\s*)?(?P<name>acl\w+),\s*"
    r'\((?P<params>[^)]*)\),\s*\((?P<args>[^)]*)\),\s*"(?P<since>[^"]+)"\)',
    re.MULTILINE,
)
INCLUDE = re.compile(r'^#include "([\w/.]+)"$', re.MULTILINE)


def inlined(path: Path, seen: set[Path] | None = None) -> str:
    """A file's text with our own headers in the place of their first inclusion."""
    seen = set() if seen is None else seen
    if path in seen:
        return ""
    seen.add(path)
    return INCLUDE.sub(lambda match: _included(path, match[1], seen), path.read_text())


def _included(path: Path, name: str, seen: set[Path]) -> str:
    for folder in (path.parent, NATIVE, *header_folders(NATIVE, SIMULATOR)):
        if (folder / name).exists():
            return inlined(folder / name, seen)
    raise SystemExit(f"{path} includes {name}, which is in no folder of headers; correct the name")


def table() -> list[Function]:
    """The rows of acl_api.inc, in order."""
    text = inlined(NATIVE / "acl_api.inc")
    rows = [_function(match) for match in ROW.finditer(text)]
    if len(rows) != len(re.findall(r"^ACL_FN", text, re.MULTILINE)):
        raise SystemExit("acl_api.inc: a row cannot be read")
    return rows


def _function(match: re.Match[str]) -> Function:
    part = {name: " ".join((text or "").split()) for name, text in match.groupdict().items()}
    returns = "void" if part["macro"] == "_VOID" else part["returns"]
    none = "AIO_ABSENT" if returns == "aclError" else part["none"]
    return Function(part["kind"], returns, none, part["name"], part["params"], part["args"], part["since"])


def plain(header: str) -> str:
    """A header, and those of ours that it includes, without comments and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", "", inlined(NATIVE / header), flags=re.DOTALL)
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith("#"))


def _guarded_params(row: Function) -> str:
    return "aio_pass pass" if row.params == "void" else f"aio_pass pass, {row.params}"


def prototypes(row: Function) -> list[str]:
    """The C prototypes of a function's trampolines."""
    found = [f"{row.returns} aio_u_{row.name}({row.params})"]
    if row.guarded:
        found.append(f"{row.returns} aio_g_{row.name}({_guarded_params(row)})")
    return found


def declarations() -> str:
    """What cffi is told of."""
    lines = [plain("engine.h")]
    lines += [f"{prototype};" for row in table() for prototype in prototypes(row)]
    return "\n".join(lines)


UNGUARDED = """{returns} aio_u_{name}({params}) {{
    if (!aio_present[AIO_FN_{name}])
        return {absent};
    aio_frame frame;
    aio_free_begin(&frame, AIO_FN_{name});
    {returns} result = aio_acl.{name}({args});
    aio_free_end(&frame, {code});
    return result;
}}
"""

UNGUARDED_VOID = """void aio_u_{name}({params}) {{
    if (!aio_present[AIO_FN_{name}])
        return;
    aio_frame frame;
    aio_free_begin(&frame, AIO_FN_{name});
    aio_acl.{name}({args});
    aio_free_end(&frame, 0);
}}
"""

GUARDED = """{returns} aio_g_{name}({params}) {{
    aio_frame frame;
    int code = aio_begin(&frame, pass, AIO_{kind}, AIO_FN_{name});
    if (code)
        return code;
    code = aio_acl.{name}({args});
    aio_end(&frame, code);
    return code;
}}
"""


def trampolines() -> str:
    """The C source of all trampolines."""
    parts = ['#include "internal.h"\n']
    for row in table():
        values = {"returns": row.returns, "name": row.name, "args": row.args, "kind": row.kind}
        code = "result" if row.returns == "aclError" else "0"
        shape = UNGUARDED_VOID if row.returns == "void" else UNGUARDED
        parts.append(shape.format(**values, params=row.params, absent=row.none, code=code))
        if row.guarded:
            parts.append(GUARDED.format(**values, params=_guarded_params(row)))
    return "\n".join(parts)


# --- building -----------------------------------------------------------------------------------------------------


def extension_source(target: Path) -> None:
    """Writes the C source of the cffi extension."""
    from cffi import FFI

    builder = FFI()
    builder.cdef(declarations())
    source = '#include "internal.h"\n#include "exporter.h"\n' + _declared()
    builder.set_source("aioacl._acl", source, py_limited_api=LIMITED_API)
    with redirect_stdout(StringIO()):  # it prints the name of the file
        builder.emit_c_code(str(target))


def _declared() -> str:
    return "\n".join(f"{prototype};" for row in table() for prototype in prototypes(row))


# --- the simulator's exports --------------------------------------------------------------------------------------

RELEASES = ("8.1", "8.5", "9.0", "9.1", "master")
EXPORT = re.compile(
    r'^ACL_FN\w*\((?:(?!^ACL_FN).)*?\b(?P<name>acl\w+),\s*\((?:(?!^ACL_FN).)*?"(?P<since>[^"]+)"\)$',
    re.MULTILINE | re.DOTALL,
)


def exports() -> dict[str, str]:
    """The ACL functions that the simulator has, each with the release of CANN that it came with."""
    text = inlined(SIMULATOR / "sim_api.inc")
    found = {match["name"]: match["since"] for match in EXPORT.finditer(text)}
    if len(found) != len(re.findall(r"^ACL_FN", text, re.MULTILINE)):
        raise SystemExit("sim_api.inc: a row cannot be read")
    return found


def version_script(release: str) -> str:
    """What the linker is told: a release has its own functions and older ones, the controls, and nothing else."""
    age = RELEASES.index
    names = [name for name, since in exports().items() if age(since) <= age(release)]
    return f"{{\n  global: {'; '.join([*names, 'aclsim_*'])};\n  local: *;\n}};\n"


# --- ninja --------------------------------------------------------------------------------------------------------

SOURCE_SUFFIXES: Final = (".c", ".h", ".inc")
GENERATED: Final = ("_acl.c", "trampolines.c")
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
    """Where objects and libraries are built and kept, relative to the checkout: one folder for each Python ABI."""
    return Path("build", "native", str(sysconfig.get_config_var("SOABI") or "none"))


def generate(target: Path) -> None:
    """Writes the generated source of that name if its text has changed. SystemExit for a name that is not known."""
    if target.name == "_acl.c":
        made = target.with_suffix(".new")
        extension_source(made)
        text = made.read_text()
        made.unlink()
    elif target.name == "trampolines.c":
        text = trampolines()
    elif (release := target.stem.removeprefix("exports-")) in RELEASES:
        text = version_script(release)
    elif (release := target.stem.removeprefix("release-")) in RELEASES:
        text = f'#define SIM_RELEASE "{release}"\n#include "release.c"\n'
    else:
        raise SystemExit(
            f"{target}: expected one of {', '.join(GENERATED)}, exports-RELEASE.map, release-RELEASE.c"
        )
    write_if_changed(target, text)


def write_if_changed(target: Path, text: str) -> None:
    """Leaves the file alone if it has this text already, so that ninja sees no change."""
    if not target.exists() or target.read_text() != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


class Plan:
    """The text of build.ninja: every object once, and each library with the objects that it is linked from.

    All paths are relative to the checkout, which is where ninja runs.
    """

    def __init__(self, cc: list[str], ld: list[str], python_includes: list[str]) -> None:
        self._folder = build_folder()
        self._includes = [f"-I{_relative(folder)}" for folder in header_folders(NATIVE, SIMULATOR)]
        self._python_includes = [f"-I{folder}" for folder in python_includes]
        self._lines = [
            f"builddir = {_path(str(self._folder))}",  # for ninja's own log
            f"cc = {_words([*cc, *C_FLAGS])}",
            f"ld = {_words(ld)}",
            f"python = {_words([sys.executable])}",
            NINJA_RULES,
        ]
        self._objects: dict[str, str] = {}

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
            ROOT / "build_ffi.py",
        ]
        self._lines.append(f"build {_path(target)}: generate | {_paths(sorted(map(_relative, read)))}")
        return target

    def compiled(self, source: str, *flags: str) -> str:
        """The object of a source; asking for it again adds nothing."""
        inside = source.removeprefix(f"{self._folder}/")
        target = str(self._folder / "objects" / f"{inside.removesuffix('.c')}.o")
        if target not in self._objects:
            self._objects[target] = source
            words = _words([*flags, *self._includes])
            self._lines += [f"build {_path(target)}: compile {_path(source)}", f"  flags = {words}"]
        return target

    def linked(self, name: str, objects: Iterable[str], flags: list[str], script: str = "") -> str:
        """A shared library of those objects."""
        target = str(self._folder / "lib" / name)
        needs = f" | {_path(script)}" if script else ""
        self._lines += [
            f"build {_path(target)}: link {_paths(objects)}{needs}",
            f"  flags = {_words(flags)}",
        ]
        return target

    def extension(self) -> str:
        """The cffi extension: the engine, the trampolines and cffi's module."""
        flags = [*self._python_includes, *(["-DPy_LIMITED_API=0x030B0000"] if LIMITED_API else [])]
        sources = [*map(_relative, c_files(NATIVE)), *map(self.generated, GENERATED)]
        objects = [self.compiled(source, *flags) for source in sources]
        return self.linked("_acl.so", objects, ["-lpthread", "-ldl"])

    def simulator(self, release: str) -> str:
        """The simulator of a release: the objects that all releases share, and one that says the release.

        Only the newest keeps its debug information.
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
        return self.linked(f"libascendcl-{release}.so", map(self.compiled, [*shared, *own]), flags, script)


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _path(name: str) -> str:
    """A path as build.ninja has it."""
    return re.sub(r"([ :$])", r"$\1", name)


def _paths(names: Iterable[str]) -> str:
    return " ".join(map(_path, names))


def _words(words: Iterable[str]) -> str:
    """Words of a shell command as build.ninja has them."""
    return shlex.join(words).replace("$", "$$")


def ninja() -> str:
    """The ninja of this Python, or else the one in PATH."""
    beside = Path(sysconfig.get_path("scripts"), "ninja")
    found = str(beside) if beside.exists() else shutil.which("ninja")
    if found is None:
        raise SystemExit("the build needs ninja: python -m pip install ninja")
    return found


# --- setuptools' commands -----------------------------------------------------------------------------------------


def _release_of(extension: Extension) -> str | None:
    """The release that a shared object of the simulator stands for; None for the cffi extension."""
    _, found, release = extension.name.partition(".libascendcl")
    return (release.removeprefix("-").replace("_", ".") or RELEASES[-1]) if found else None


class BuildNative(build_ext):
    """Plans the build, has ninja do it, and installs the simulator under the name that programs link with."""

    def finalize_options(self) -> None:
        super().finalize_options()
        for extension in self.extensions:
            simulator = _release_of(extension) is not None
            extension.sources = [_relative(path) for path in c_files(SIMULATOR if simulator else NATIVE)]
            extension.py_limited_api = LIMITED_API and not simulator

    def build_extensions(self) -> None:
        plan = Plan(self.compiler.compiler_so, self.compiler.linker_so, self.compiler.include_dirs)
        built: dict[str, str] = {}
        for extension in self.extensions:
            release = _release_of(extension)
            built[extension.name] = plan.extension() if release is None else plan.simulator(release)
        with alone() as lock:
            run_ninja(plan.text(), lock)
            for name, library in built.items():
                install(ROOT / library, Path(self.get_ext_fullpath(name)))

    def get_ext_filename(self, fullname: str) -> str:
        if "libascendcl" in fullname:
            return fullname.replace(".", "/").replace("_", ".") + ".so"
        return str(super().get_ext_filename(fullname))  # type: ignore[no-untyped-call]  # setuptools has no types there


@contextmanager
def alone() -> Generator[int]:
    """Within it this is the only build in the checkout; another one waits. Gives the descriptor of the lock."""
    folder = ROOT / build_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def run_ninja(plan: str, lock: int) -> None:
    """Builds what has changed since the last build of this plan; CompileError if anything fails.

    ninja inherits the lock: it may outlive a build that is killed.
    """
    file = build_folder() / "build.ninja"
    write_if_changed(ROOT / file, plan)
    digests = touch_changed()
    command = [ninja(), "--quiet", "-f", str(file), "-j", str(len(os.sched_getaffinity(0)))]
    if subprocess.run(command, cwd=ROOT, check=False, pass_fds=[lock]).returncode:
        raise CompileError("ninja failed; the reason is above")
    (ROOT / build_folder() / "digests.json").write_text(json.dumps(digests, indent=1))


def touch_changed() -> dict[str, str]:
    """Gives each source whose text is not that of the last build the time of now; returns the digests of all.

    ninja compares times only, and a file that was restored or copied with its time can be older than its object.
    """
    kept = ROOT / build_folder() / "digests.json"
    last: dict[str, str] = json.loads(kept.read_text()) if kept.exists() else {}
    paths = [
        path for root in (NATIVE, SIMULATOR) for path in root.rglob("*.*") if path.suffix in SOURCE_SUFFIXES
    ]
    digests = {
        _relative(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted([*paths, ROOT / "build_ffi.py"])
    }
    for name, digest in digests.items():
        if last.get(name) != digest:
            (ROOT / name).touch()
    return digests


def install(library: Path, target: Path) -> None:
    """Copies a library, unless the target is as new; by a rename, since a process may have the old one mapped."""
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
    """A wheel whose tag says that the extension speaks the stable ABI, where it does."""

    def finalize_options(self) -> None:
        if LIMITED_API:
            self.py_limited_api = "cp311"
        super().finalize_options()


def main(arguments: list[str]) -> None:
    """Writes the stubs, or one generated source."""
    match arguments:
        case ["--stub"]:
            import build_stubs

            build_stubs.write()
        case ["--generate", target]:
            generate(Path(target))
        case _:
            raise SystemExit("usage: build_ffi.py --stub | --generate FILE")


if __name__ == "__main__":
    main(sys.argv[1:])
