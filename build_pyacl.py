"""Checks the table of pyACL's functions against ACL's, and makes a C function for each row that names an ACL function.

The C function takes and returns numbers in place of pointers, because a pointer is an int in pyACL. Its out-parameters
come last. In a process that was forked after its parent had used ACL, it returns AIO_PYACL_FORKED and calls nothing.
"""

from __future__ import annotations

import re
import runpy
from typing import TYPE_CHECKING, Any, Final

from build_ffi import ROOT, plain, table
from build_ffi import prototypes as trampolines_of

if TYPE_CHECKING:
    from build_ffi import Function

TABLE: Final = ROOT / "aioacl" / "_pyacl" / "table.py"
FORKED: Final = 100001  # ACL_ERROR_UNINITIALIZE
TYPES: Final = {
    "pointer": "uint64_t",
    "size": "uint64_t",
    "uint": "uint32_t",
    "int": "int32_t",
    "long": "int64_t",
    "float": "float",
    "text": "const char *",
}
BY_TYPE: Final = {
    "size_t": "size",
    "uint64_t": "size",
    "uint32_t": "uint",
    "uint16_t": "uint",
    "uint8_t": "uint",
    "aclFloat16": "uint",
    "int8_t": "int",
    "int16_t": "int",
    "int32_t": "int",
    "int": "int",
    "aclError": "int",
    "int64_t": "long",
    "float": "float",
    "void": "none",
}
PARAMETER: Final = re.compile(r"(?P<type>.*?)(?P<name>\w+)(?P<array>(?:\[\d*\])*)")
Module = dict[str, Any]


def read() -> Module:
    """The names of aioacl/_pyacl/table.py, which is read without the package."""
    return runpy.run_path(str(TABLE))


def _bare(c_type: str) -> str:
    return " ".join(c_type.replace("const", " ").split())


class Kinds:
    """The kind of each C type, from ACL's headers."""

    def __init__(self, structures: dict[str, str]) -> None:
        header = plain("acl_types.h")
        self._enums = set(re.findall(r"typedef enum[^}]*\}\s*(\w+);", header))
        self._handles = set(re.findall(r"typedef void \*\s*(\w+);", header))
        self._structures = {f"{c_type} *": kind for kind, c_type in structures.items()}

    def of_value(self, c_type: str) -> str:
        """The kind of an argument or of a returned value, or "" if there is none."""
        bare = _bare(c_type)
        if bare in self._enums:
            return "int"
        if bare == "char *":
            return "text" if c_type.startswith("const") else ""
        return BY_TYPE.get(bare) or ("pointer" if bare in self._handles or bare.endswith("*") else "")

    def of_result(self, c_type: str) -> str:
        """The kind of an out-parameter, or "" if C does not write through the parameter."""
        bare = _bare(c_type)
        if c_type.startswith("const") or not bare.endswith("*"):
            return ""
        return self._structures.get(bare) or self.of_value(bare[:-1].strip())


def _parameters(function: Function) -> dict[str, str]:
    """The C types of the parameters by their names."""
    found: dict[str, str] = {}
    for text in [] if function.params == "void" else function.params.split(","):
        match = PARAMETER.fullmatch(text.strip())
        assert match is not None, text
        found[match["name"]] = match["type"].strip() + ("*" if match["array"] else "")
    return found


def _misfit(row: Any, function: Function, kinds: Kinds) -> str:
    """What of a row does not fit its C function, or ""."""
    parameters = _parameters(function)
    given = [each for each in row.results if each.kind == "given"]
    results = [each for each in row.results if each.name and each not in given]
    names = [each.name for each in (*row.arguments, *results)]
    if sorted(names) != sorted(parameters):
        return f"expected the parameters {', '.join(parameters)}, got {', '.join(names)}"
    if [name for name in parameters if name in {each.name for each in row.arguments}] != [
        each.name for each in row.arguments
    ]:
        return "expected the arguments in the order of C"
    for each in row.arguments:
        if kinds.of_value(parameters[each.name]) != each.kind:
            return f"{each.name}: expected the kind of {parameters[each.name]}, got {each.kind}"
    for each in results:
        if kinds.of_result(parameters[each.name]) != each.kind:
            return f"{each.name}: expected the kind of {parameters[each.name]}, got {each.kind}"
    if row.code != (function.returns == "aclError"):
        return f"expected `ret` only for a function that returns aclError, got {function.returns}"
    if not row.code and [each.kind for each in row.results] != [kinds.of_value(function.returns)]:
        return f"expected the kind of {function.returns} as the only result"
    return ""


def misfits(rows: tuple[Any, ...], structures: dict[str, str]) -> list[str]:
    """The rows that do not fit the table of ACL functions, with the reasons."""
    functions = {function.name: function for function in table()}
    kinds = Kinds(structures)
    found: list[str] = []
    for row in rows:
        if row.c_name and row.c_name not in functions:
            found.append(f"{row.full_name}: acl_api.inc has no function {row.c_name}")
        elif row.how == "table" and (why := _misfit(row, functions[row.c_name], kinds)):
            found.append(f"{row.full_name}: {why}")
    return found


def _checked() -> list[tuple[Any, Function, dict[str, str]]]:
    """Each row of the general caller, with its C function and the structures. Raises SystemExit for a misfit."""
    names = read()
    rows = names["rows"]()
    structures: dict[str, str] = names["STRUCTURES"]
    wrong = misfits(rows, structures)
    if wrong:
        raise SystemExit("aioacl/_pyacl/rows: " + "; ".join(wrong))
    functions = {function.name: function for function in table()}
    return [(row, functions[row.c_name], structures) for row in rows if row.how == "table"]


def _declared(row: Any, function: Function, structures: dict[str, str]) -> str:
    """The C declaration, without a semicolon."""
    returns = (
        "int32_t" if row.code else "void" if row.results[0].kind == "none" else TYPES[row.results[0].kind]
    )
    ins = [f"{TYPES[each.kind]} {each.name}" for each in row.arguments]
    outs = [
        f"{structures.get(each.kind) or TYPES[each.kind]} *{each.name}"
        for each in row.results
        if row.code and each.kind != "given"
    ]
    return f"{returns} aio_p_{function.name}({', '.join([*ins, *outs]) or 'void'})"


def prototypes() -> list[str]:
    """The C prototypes of the functions."""
    return [f"{_declared(*each)};" for each in _checked()]


def _call(row: Any, function: Function) -> str:
    """The call of the trampoline, with every argument converted to its C type."""
    pointers = {each.name for each in row.arguments if each.kind == "pointer"}
    words = [
        f"({c_type})(uintptr_t){name}" if name in pointers else f"({c_type}){name}"
        for name, c_type in _parameters(function).items()
    ]
    # A function without an error code makes or reads a description. It never waits, so it needs no trampoline, which
    # would let the end of the process wait for the call.
    prefix = "aio_u_" if row.code else "aio_acl."
    call = f"{prefix}{function.name}({', '.join(words)})"
    return f"(uint64_t)(uintptr_t){call}" if not row.code and row.results[0].kind == "pointer" else call


BODY: Final = """{declared} {{
    if ({refused})
        return{absent};
    {give}{call};
}}
"""


def source() -> str:
    """The C source of the functions."""
    parts = ['#include "internal.h"\n']
    for row, function, structures in _checked():
        parts.append(f"{trampolines_of(function)[0]};")
        nothing = function.returns == "void"
        absent = f" {FORKED}" if row.code else "" if nothing else f" ({function.none or 0})"
        if not row.code and not nothing and row.results[0].kind == "pointer":
            absent = " 0"
        parts.append(
            BODY.format(
                declared=_declared(row, function, structures),
                refused="atomic_load(&aio_in_child)"
                + ("" if row.code else f" || !aio_present[AIO_FN_{function.name}]"),
                absent=absent,
                give="" if nothing else "return ",
                call=_call(row, function),
            )
        )
    return "\n".join(parts)


# --- stubs --------------------------------------------------------------------------------------------------------

PYTHON: Final = {
    **dict.fromkeys(("pointer", "size", "uint", "int", "long", "given", "unsupported"), "int"),
    "float": "float",
    "text": "str",
    "bytes": "bytes",
    "list": "list[Any]",
    "tuple": "tuple[int, ...]",
    "dict": "dict[str, Any]",
    "callable": "Callable[..., object]",
    "array": "Any",
    "object": "Any",
    "none": "None",
}
HEAD: Final = '''"""Made by the build from aioacl/_pyacl/rows/{module}.txt."""

'''
IMPORTS: Final = {"collections.abc": ("Callable",), "typing": ("Any", "SupportsIndex")}
CODES: Final = re.compile(r'^    \((\d+), "(ACL_\w+)", Family', re.MULTILINE)


def _python_type(kind: str) -> str:
    return PYTHON.get(kind, "dict[str, Any]")


def _accepted(kind: str) -> str:
    return "SupportsIndex" if _python_type(kind) == "int" else _python_type(kind)


def _stub_of(row: Any) -> str:
    optional = [" | None = None" if each.optional else "" for each in row.arguments]
    typed = [
        f"{each.name}: {_accepted(each.kind)}{more}"
        for each, more in zip(row.arguments, optional, strict=True)
    ]
    parameters = ", ".join([*typed, "/"] if typed else [])
    kinds = [_python_type(each.kind) for each in row.results]
    if not row.code and len(kinds) == 1:
        returns = f"{kinds[0]} | None" if row.results[0].kind == "text" else kinds[0]
    else:
        returns = f"tuple[{', '.join([*kinds, *['int'] * row.code])}]" if kinds else "int"
    calls = f"Calls {row.c_name}." if row.c_name else "Calls no ACL function."
    text = "Not implemented." if row.how == "unsupported" else calls
    return f'def {row.name}({parameters}) -> {returns}:\n    """{text}"""'


def stub(module: str) -> str:
    """The typed stub of a module; that of `acl` has the name "__init__"."""
    module = "acl" if module == "__init__" else module
    names = read()
    parts = [_stub_of(row) for row in names["rows"]() if row.module == module]
    head = HEAD.format(module=module)
    body = "\n".join(parts)
    for source_of, imported in IMPORTS.items():
        used = [name for name in imported if re.search(rf"\b{name}\b", body)]
        head += f"from {source_of} import {', '.join(used)}\n" if used else ""
    head += "\n"
    if module == "acl":
        others = [each for each in names["MODULES"] if each != "acl"]
        head += "\n".join(f"from aioacl.pyacl import {each} as {each}" for each in others) + "\n"
        head += "from aioacl.lowlevel.constants import *\n\n"
        codes = (ROOT / "aioacl" / "_base" / "codes.py").read_text()
        parts = [*(f"{name}: int" for _, name in CODES.findall(codes)), *parts]
    return head + "\n".join(parts) + "\n"
