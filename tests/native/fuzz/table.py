"""Generates calls.c: one call for each function of the simulator's table, with drawn arguments.

The meaning of a parameter follows from its type and, for time-outs and lengths of arrays, from its name. There are no
rules for single functions, so a new function of the table is fuzzed without a change here. The drawn lengths of
arrays are correct, because no library can find out where a client's array ends.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from typing import Final

from build_ffi import NATIVE, SIMULATOR, header_folders, include_flags

MARKS: Final = """
#define ACL_FN(kind, ret, name, params, args, since) @F|ret|name|params
#define ACL_FN_BY_VALUE(kind, ret, name, params, args, words, since) @F|ret|name|params
#define ACL_FN_VALUE(kind, ret, none, name, params, args, since) @F|ret|name|params
#define ACL_FN_VOID(kind, name, params, args, since) @F|void|name|params
#include "sim_api.inc"
"""
PARAMETER: Final = re.compile(r"(?P<type>.*?)(?P<name>\w+)(?P<array>(?:\[\w*\])*)$")
LENGTH: Final = re.compile(r"num|count|size|len|dims|max", re.IGNORECASE)
ENDS: Final = re.compile(r"Destroy|Free|UnLoad|Unload|Release|Close|Unregister|Unmap")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function."""

    type: str
    name: str

    @property
    def plain(self) -> str:
        """The type without const."""
        return re.sub(r"\s+", " ", re.sub(r"\bconst\b", "", self.type)).strip()


@dataclass(frozen=True)
class Function:
    """One line of the table."""

    returns: str
    name: str
    parameters: tuple[Parameter, ...]

    @property
    def has_array(self) -> bool:
        """Whether a parameter may be an array or a text."""
        return any("*" in one.type and one.plain not in ("void *", "void **") for one in self.parameters)


def _parameter(text: str) -> Parameter:
    found = PARAMETER.match(text.strip())
    assert found is not None, text
    kind = found["type"].strip()
    return Parameter(f"{kind} (*){found['array'][2:]}" if found["array"] else kind, found["name"])


def functions() -> list[Function]:
    """All functions that the simulator exports."""
    command = ["cc", "-E", "-P", "-xc", "-", *include_flags()]
    done = subprocess.run(command, input=MARKS, capture_output=True, text=True, check=True)
    rows = [line.split("|", 3)[1:] for line in done.stdout.splitlines() if line.startswith("@F")]
    return [Function(returns.strip(), name.strip(), tuple(_split(params))) for returns, name, params in rows]


def _split(params: str) -> list[Parameter]:
    inner = params.strip()[1:-1].strip()
    parts = [] if inner in ("", "void") else inner.split(",")
    return [_parameter(one) for one in parts if one.strip() != "..."]


class Types:
    """The types of the headers."""

    def __init__(self) -> None:
        api = [path for folder in header_folders(NATIVE / "api") for path in sorted(folder.glob("*.h"))]
        headers = [*api, SIMULATOR / "core" / "sim_types.h", NATIVE / "acl_types.h"]
        text = "\n".join(header.read_text() for header in headers)
        self.callbacks = set(re.findall(r"typedef [\w ]+\**\(\*(\w+)\)", text))
        self.handles = re.findall(r"typedef void \*(\w+);", text)
        self.opaque = re.findall(r"typedef struct \w+ (\w+);", text)
        bodies = re.findall(r"\}\s*(\w+);", text) + re.findall(r"struct (\w+) \{", text)
        self.opaque = [name for name in self.opaque if name not in bodies]
        enums = set(re.findall(r"typedef enum \w*\s*\{[^}]*\}\s*(\w+);", text))
        self.structs = set(bodies) - enums
        self.kinds = ["memory", *dict.fromkeys(self.handles + self.opaque)]

    def kind(self, plain: str) -> int | None:
        """The number of the kind of handle, or None if the type is not a handle."""
        name = plain.removesuffix(" *") if plain.removesuffix(" *") in self.opaque else plain
        known = name in self.handles or (name in self.opaque and plain.endswith(" *"))
        return self.kinds.index(name) if known else None

    def draw(self, parameter: Parameter, *, exact_length: bool) -> str:
        """The C expression that draws an argument."""
        plain, kind = parameter.plain, self.kind(parameter.plain)
        if kind is not None:
            return f"draw_handle({kind})"
        if plain in self.callbacks:
            return f"({plain})(uintptr_t)draw_function()"
        if plain.endswith("*") and (inner := self.kind(plain[:-1].strip())) is not None:
            return f"draw_out({inner})"
        if plain == "void **":
            return "draw_out(FUZZ_MEMORY)"
        if plain == "void *":
            return "draw_memory()"
        if plain == "char *":
            return "draw_text()"
        if "*" in plain:
            return "draw_scratch()"
        if re.search(r"timeout", parameter.name, re.IGNORECASE):
            return f"({plain})draw_timeout()"
        if exact_length and LENGTH.search(parameter.name):
            return f"({plain})draw_length()"
        return f"({plain})draw_number()"


def _call(types: Types, function: Function) -> str:
    lines = []
    for number, parameter in enumerate(function.parameters):
        plain = parameter.plain
        if plain in types.structs and "*" not in plain:
            lines.append(f"    {plain} a{number};\n    draw_bytes(&a{number}, sizeof a{number});")
        elif "(*)" in parameter.type:
            lines.append(f"    {parameter.type.replace('(*)', f'(*a{number})')} = draw_scratch();")
        else:
            lines.append(
                f"    {parameter.type} a{number} = {types.draw(parameter, exact_length=function.has_array)};"
            )
    call = f"{function.name}({', '.join(f'a{i}' for i in range(len(function.parameters)))})"
    return (
        f"static void call_{function.name}(void) {{\n"
        + "\n".join([*lines, _answer(types, function, call)])
        + "\n}\n"
    )


def _answer(types: Types, function: Function, call: str) -> str:
    plain = Parameter(function.returns, "").plain
    if plain == "void":
        return f"    {call};\n    fuzz_done(1);"
    if plain == "aclError":
        return f"    fuzz_done({call});"
    kind = types.kind(plain)
    return (
        f"    fuzz_keep({kind}, {call});\n    fuzz_done(1);"
        if kind is not None
        else f"    (void){call};\n    fuzz_done(1);"
    )


def _end(types: Types, function: Function) -> tuple[int, str] | None:
    if len(function.parameters) != 1 or not ENDS.search(function.name):
        return None
    plain = function.parameters[0].plain
    kind = 0 if plain == "void *" else types.kind(plain)
    return None if kind is None else (kind, function.name)


def source() -> str:
    """The text of calls.c."""
    types, table = Types(), functions()
    ends = [end for function in table if (end := _end(types, function)) is not None]
    parts = [
        '#include <string.h>\n\n#include "fuzz.h"\n#include "sim_types.h"\n',
        "#define ACL_FN(kind, ret, name, params, args, since) ret name params;",
        '#include "sim_api.inc"\n#undef ACL_FN\n',
        *(_call(types, function) for function in table),
        "const fuzz_call_t fuzz_calls[] = {",
        *(f'    {{"{function.name}", call_{function.name}}},' for function in table),
        "};\nconst size_t fuzz_call_count = sizeof fuzz_calls / sizeof *fuzz_calls;\n",
        *(f"static void end_{name}(void *handle) {{\n    {name}(handle);\n}}\n" for _, name in ends),
        "const fuzz_end_t fuzz_ends[] = {",
        *(f"    {{{kind}, end_{name}}}," for kind, name in ends),
        "};\nconst size_t fuzz_end_count = sizeof fuzz_ends / sizeof *fuzz_ends;\n",
        f"const size_t fuzz_kind_count = {len(types.kinds)};\n",
        "int fuzz_kind_of(const char *name) {",
        *(
            f'    if (strcmp(name, "{kind}") == 0) {{\n        return {i};\n    }}'
            for i, kind in enumerate(types.kinds)
        ),
        "    return 0;\n}\n",
    ]
    return "\n".join(parts)
