"""Builds the shared objects: the cffi extension `aioacl._acl`, and the simulator, once for each release of CANN.

The table `aioacl/_native/acl_api.inc` and the header `engine.h` are the only sources of declarations: the cffi
declarations and the trampolines are made of them here, the typed stubs in build_stubs.py.

    python build_ffi.py --stub      writes the stubs

A trampoline is what Python calls for an ACL function: `aio_u_NAME` calls it as it is, `aio_g_NAME` passes the
gate of a device first.  Both keep the runtime's text on a failure, on the failing thread, at once.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

if TYPE_CHECKING:
    from collections.abc import Callable

    from setuptools import Extension

ROOT = Path(__file__).resolve().parent
NATIVE = ROOT / "aioacl" / "_native"
SIMULATOR = ROOT / "aioacl" / "simulator" / "csrc"
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
LIMITED_API = not FREE_THREADED  # there is no stable ABI for free-threaded builds
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes"]
C_FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-fvisibility=hidden", *WARNINGS]


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
    beside = path.parent / name
    return inlined(beside if beside.exists() else NATIVE / name, seen)


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


def _release_of(extension: Extension) -> str | None:
    """The release that a shared object of the simulator stands for; None for the cffi extension."""
    _, found, release = extension.name.partition(".libascendcl")
    return (release.removeprefix("-").replace("_", ".") or RELEASES[-1]) if found else None


def _relative(paths: list[Path]) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def _on_all_cores(compile_files: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Compiles file by file, as many at a time as there are cores: setuptools takes one after the other."""

    def compiled(sources: list[str], *arguments: Any, **options: Any) -> list[str]:
        def compile_one(source: str) -> list[str]:
            return compile_files([source], *arguments, **options)

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return [name for names in pool.map(compile_one, sources) for name in names]

    return compiled


class BuildNative(build_ext):
    """Generates the extension's source, and builds the simulator under the name that programs link with."""

    def finalize_options(self) -> None:
        super().finalize_options()
        for extension in self.extensions:
            self._describe(extension)

    def _describe(self, extension: Extension) -> None:
        simulator = _release_of(extension) is not None
        read = [
            path
            for folder in (NATIVE, SIMULATOR)
            for path in folder.rglob("*.*")
            if path.suffix in (".h", ".inc")
        ]
        extension.sources = _relative(list((SIMULATOR if simulator else NATIVE).glob("*.c")))
        extension.depends = [*_relative(read), "build_ffi.py"]
        extension.include_dirs = _relative([NATIVE, SIMULATOR])
        extension.extra_compile_args = list(C_FLAGS)
        extension.libraries = ["pthread", "dl", "m"] if simulator else ["pthread", "dl"]
        extension.py_limited_api = LIMITED_API and not simulator

    def build_extensions(self) -> None:
        self.compiler.compile = _on_all_cores(self.compiler.compile)
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        release = _release_of(ext)
        if release is not None:
            self._describe_release(ext, release)
        else:
            ext.sources = [*ext.sources, *self._generated()]
            if LIMITED_API:
                ext.define_macros = [("Py_LIMITED_API", "0x030B0000")]
        super().build_extension(ext)  # pyright: ignore[reportUnknownMemberType]  # untyped in setuptools

    def _describe_release(self, extension: Extension, release: str) -> None:
        """All releases are linked of the same objects but one, which says the release; only the newest has symbols."""
        folder = Path(self.build_temp)
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / f"exports-{release}.map"
        script.write_text(version_script(release))
        extension.extra_link_args = ["-Wl,-soname,libascendcl.so", f"-Wl,--version-script={script}"]
        if release == RELEASES[-1]:
            return
        others = [source for source in extension.sources if Path(source).name != "release.c"]
        extension.extra_objects = self.compiler.object_filenames(others, output_dir=self.build_temp)
        extension.extra_link_args.append("-Wl,--strip-debug")
        source = folder / f"release-{release}.c"
        source.write_text(f'#define SIM_RELEASE "{release}"\n#include "release.c"\n')
        extension.sources = [str(source)]

    def _generated(self) -> list[str]:
        folder = Path(self.build_temp)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "trampolines.c").write_text(trampolines())
        extension_source(folder / "_acl.c")
        return [str(folder / "trampolines.c"), str(folder / "_acl.c")]

    def get_ext_filename(self, fullname: str) -> str:
        if "libascendcl" in fullname:
            return fullname.replace(".", "/").replace("_", ".") + ".so"
        return str(super().get_ext_filename(fullname))  # type: ignore[no-untyped-call]  # setuptools has no types there


class Wheel(bdist_wheel):
    """A wheel whose tag says that the extension speaks the stable ABI, where it does."""

    def finalize_options(self) -> None:
        if LIMITED_API:
            self.py_limited_api = "cp311"
        super().finalize_options()


def main(arguments: list[str]) -> None:
    """Writes the stubs."""
    if arguments != ["--stub"]:
        raise SystemExit("usage: build_ffi.py --stub")
    import build_stubs

    build_stubs.write()


if __name__ == "__main__":
    main(sys.argv[1:])
