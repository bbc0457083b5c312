"""Reads the table of ACL functions, and writes the C sources that are generated from it.

The only sources of declarations are the table `aioacl/_native/acl_api.inc` and the header `engine.h`, with the files
that they include. This module makes the cffi declarations and the trampolines from them; build_stubs.py makes the typed
stubs, and build_ninja.py builds the libraries.

    python build_ffi.py --generate FILE   writes one generated source or stub; the build calls this

C files and headers are also searched in nested folders. A folder without any C file or header is an error, because a
move of files would otherwise drop sources without a message.

A trampoline is the C function that Python calls for an ACL function. `aio_u_NAME` only calls the ACL function;
`aio_g_NAME` enters the gate of a device first. After a failure, both trampolines save the runtime's error text at once,
on the calling thread.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent
NATIVE = ROOT / "aioacl" / "_native"
BINDING = ROOT / "aioacl" / "_binding"  # C that uses Python.h, beside the engine
SIMULATOR = ROOT / "simulator" / "libascendcl"
RUNTIME = ROOT / "simulator" / "libruntime"
PYACL_ROWS = ROOT / "aioacl" / "_pyacl" / "rows"  # the table of pyACL's functions, which build_pyacl.py reads
CONTROLS = ROOT / "aioacl" / "simulator"  # aclsim.h, which the package contains
HEADERS = (NATIVE, SIMULATOR, CONTROLS)
LIMITED_API = "-DPy_LIMITED_API=0x030B0000"  # Python's stable ABI, as of Python 3.11


def must_have_gil() -> None:
    """SystemExit for a free-threaded Python: it has no stable ABI, and the C of `_binding` relies on the GIL."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise SystemExit(
            f"aioacl needs a Python with the GIL, got the free-threaded build {sys.executable}; "
            "build with the usual build of that Python"
        )


# --- sources ------------------------------------------------------------------------------------------------------


def c_files(folder: Path) -> list[Path]:
    """The C files in a folder and the folders below it, sorted. Raises SystemExit if there are none."""
    found = sorted(folder.rglob("*.c"))
    if not found:
        raise SystemExit(f"expected C files in {folder}, found none; correct the path")
    return found


def header_folders(*roots: Path) -> list[Path]:
    """The folders with headers, at and below the roots, sorted, for the compiler's -I options.

    Raises SystemExit if a root has no headers. It also does so if two headers have the same name, because the order of
    the -I options would decide which header is used.
    """
    headers = [sorted(root.rglob("*.h")) for root in roots]
    for root, found in zip(roots, headers, strict=True):
        if not found:
            raise SystemExit(f"expected headers in {root}, found none; correct the path")
    paths = [path for found in headers for path in found]
    twice = [name for name, count in Counter(path.name for path in paths).items() if count > 1]
    if twice:
        places = ", ".join(str(path) for path in paths if path.name == twice[0])
        raise SystemExit(f"expected headers with different names, got {places}; rename one")
    return sorted({path.parent for path in paths})


def include_flags(*more: Path) -> list[str]:
    """The -I options for the headers of the engine, of the simulator, and in the folders `more`."""
    return [f"-I{folder}" for folder in header_folders(*HEADERS, *more)]


# --- the table ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """One line of the table."""

    kind: str
    returns: str
    none: str  # the value to return if the function is absent; empty: no value
    name: str
    params: str
    args: str
    since: str

    @property
    def guarded(self) -> bool:
        """Whether calls of the function enter the gate of a device."""
        return self.kind not in ("FREE", "CONTROL") and self.returns == "aclError"


ROW = re.compile(
    r"^ACL_FN(?P<macro>|_VALUE|_VOID)\((?P<kind>\w+),\s*"
    r"(?:(?P<returns>[^,(]+?),\s*)?(?:(?P<none>[\w.]+),\s*)?(?P<name>acl\w+),\s*"
    r'\((?P<params>[^)]*)\),\s*\((?P<args>[^)]*)\),\s*"(?P<since>[^"]+)"\)',
    re.MULTILINE,
)
INCLUDE = re.compile(r'^#include "([\w/.]+)"$', re.MULTILINE)


def inlined(path: Path, seen: set[Path] | None = None) -> str:
    """A file's text, in which the first inclusion of each of our own headers is replaced by the header's text."""
    seen = set() if seen is None else seen
    if path in seen:
        return ""
    seen.add(path)
    return INCLUDE.sub(lambda match: _included(path, match[1], seen), path.read_text())


def _included(path: Path, name: str, seen: set[Path]) -> str:
    for folder in (path.parent, NATIVE, *header_folders(*HEADERS)):
        if (folder / name).exists():
            return inlined(folder / name, seen)
    raise SystemExit(
        f"expected an include of a header of the header folders, got {name} in {path}; correct the name"
    )


def table() -> list[Function]:
    """The rows of acl_api.inc, in order."""
    text = inlined(NATIVE / "acl_api.inc")
    rows = [_function(match) for match in ROW.finditer(text)]
    if len(rows) != len(re.findall(r"^ACL_FN", text, re.MULTILINE)):
        raise SystemExit(
            "acl_api.inc: expected every row to match ROW in build_ffi.py, but one does not; correct it"
        )
    return rows


def _function(match: re.Match[str]) -> Function:
    part = {name: " ".join((text or "").split()) for name, text in match.groupdict().items()}
    returns = "void" if part["macro"] == "_VOID" else part["returns"]
    none = "AIO_ABSENT" if returns == "aclError" else part["none"]
    return Function(part["kind"], returns, none, part["name"], part["params"], part["args"], part["since"])


def plain(header: str) -> str:
    """A header and our own headers that it includes, without comments and preprocessor lines."""
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
    """The declarations for cffi."""
    lines = [plain("engine.h")]
    lines += [f"{prototype};" for row in table() for prototype in prototypes(row)]
    return "\n".join([*lines, *_pyacl_prototypes()])


def _pyacl_prototypes() -> list[str]:
    import build_pyacl  # imports this module

    return build_pyacl.prototypes()


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

# These functions take the runtime's lock on the streams of a context; see streamlock.c. With True, a success shows that
# the call has had the lock.
STREAM_LOCK: Final = {
    "aclrtCreateStream": True,
    "aclrtCreateStreamWithConfig": True,
    "aclrtDestroyStream": True,
    "aclrtDestroyStreamForce": True,
    "aclrtStreamAbort": False,
    "aclrtSynchronizeDeviceWithTimeout": False,
    "aclmdlLoadFromFileWithMem": False,
    "aclmdlLoadFromMemWithMem": False,
    "aclmdlUnload": False,
}

LOCKING = """    bool notes = aio_locking_begin(aio_pass_device(pass));
    code = aio_acl.{name}({args});
    aio_locking_end(aio_pass_device(pass), notes, {had});
"""

PLAIN = """    code = aio_acl.{name}({args});
"""

GUARDED = """{returns} aio_g_{name}({params}) {{
    aio_frame frame;
    int code = aio_begin(&frame, pass, AIO_{kind}, AIO_FN_{name});
    if (code)
        return code;
{call}    aio_end(&frame, code);
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
            had = "code" if STREAM_LOCK.get(row.name) else "AIO_UNKNOWN"
            call = (LOCKING if row.name in STREAM_LOCK else PLAIN).format(**values, had=had)
            parts.append(GUARDED.format(**values, params=_guarded_params(row), call=call))
    return "\n".join(parts)


# --- building -----------------------------------------------------------------------------------------------------


def extension_source(target: Path) -> None:
    """Writes the C source of the cffi extension."""
    from cffi import FFI

    builder = FFI()
    builder.cdef(declarations())
    source = '#include "internal.h"\n' + _declared()
    builder.set_source("aioacl._acl", source, py_limited_api=True)
    with redirect_stdout(StringIO()):  # cffi prints the name of the file
        builder.emit_c_code(str(target))


def _declared() -> str:
    lines = [f"{prototype};" for row in table() for prototype in prototypes(row)]
    return "\n".join([*lines, *_pyacl_prototypes()])


# --- the simulator's exports --------------------------------------------------------------------------------------

RELEASES = ("8.1", "8.5", "9.0", "9.1", "master")
WITHOUT_RUNTIME = ("8.1",)  # in these releases, libascendcl.so does not need libruntime.so
EXPORT = re.compile(
    r'^ACL_FN\w*\((?:(?!^ACL_FN).)*?\b(?P<name>acl\w+),\s*\((?:(?!^ACL_FN).)*?"(?P<since>[^"]+)"\)$',
    re.MULTILINE | re.DOTALL,
)


def exports() -> dict[str, str]:
    """The ACL functions that the simulator exports, each with the CANN release that introduced it."""
    text = inlined(SIMULATOR / "core" / "sim_api.inc")
    found = {match["name"]: match["since"] for match in EXPORT.finditer(text)}
    if len(found) != len(re.findall(r"^ACL_FN", text, re.MULTILINE)):
        raise SystemExit(
            "sim_api.inc: expected every row to match EXPORT in build_ffi.py, but one does not; correct it"
        )
    return found


def version_script(release: str) -> str:
    """The linker's version script: it exports the functions of this and of older releases, and the controls."""
    age = RELEASES.index
    names = [name for name, since in exports().items() if age(since) <= age(release)]
    return f"{{\n  global: {'; '.join([*names, 'aclsim_*'])};\n  local: *;\n}};\n"


# --- generated sources --------------------------------------------------------------------------------------------

GENERATED: Final = ("_acl.c", "trampolines.c", "pyacl.c")
# The paths of the generated stubs in the checkout, in the folder of the build, and in the wheel.
PYACL_STUBS: Final = tuple(
    f"aioacl/pyacl/{name}.pyi" for name in ("__init__", "rt", "mdl", "util", "media", "prof", "op")
)
STUBS: Final = (
    "aioacl/_acl.pyi",
    "aioacl/lowlevel/_functions.pyi",
    "aioacl/lowlevel/constants.pyi",
    *PYACL_STUBS,
)


def generate(target: Path) -> None:
    """Writes the generated source of that name if its text has changed. Raises SystemExit for an unknown name."""
    if target.name == "_acl.c":
        made = target.with_suffix(".new")
        extension_source(made)
        text = made.read_text()
        made.unlink()
    elif target.name == "trampolines.c":
        text = trampolines()
    elif target.name == "pyacl.c":
        import build_pyacl

        text = build_pyacl.source()
    elif target.suffix == ".pyi":
        import build_stubs

        text = build_stubs.stub(target.as_posix())
    elif (release := target.stem.removeprefix("exports-")) in RELEASES:
        text = version_script(release)
    elif (release := target.stem.removeprefix("release-")) in RELEASES:
        text = f'#define SIM_RELEASE "{release}"\n#include "release.c"\n'
    else:
        raise SystemExit(
            f"{target}: expected one of {', '.join([*GENERATED, *STUBS])}, exports-RELEASE.map, release-RELEASE.c"
        )
    write_if_changed(target, text)


def write_if_changed(target: Path, text: str) -> None:
    """Writes the file, unless it has this text already. A write without a change would make ninja build again."""
    if not target.exists() or target.read_text() != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def main(arguments: list[str]) -> None:
    """Writes one generated source or stub."""
    match arguments:
        case ["--generate", target]:
            generate(Path(target))
        case _:
            raise SystemExit("usage: build_ffi.py --generate FILE")


if __name__ == "__main__":
    main(sys.argv[1:])
