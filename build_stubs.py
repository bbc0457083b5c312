"""Makes the typed stubs from the table and the headers that build_ffi.py reads. The build puts them into the package.

`aioacl/_acl.pyi` is the stub of the compiled module. The stubs in `aioacl/lowlevel` are for users: ACL's functions with
the C names of their parameters, and the enumerators with their values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import build_pyacl
from build_ffi import plain, prototypes, table

if TYPE_CHECKING:
    from build_ffi import Function

# --- aioacl/_acl.pyi ----------------------------------------------------------------------------------------------

ENGINE_HEAD: Final = '''"""Made by the build from acl_api.inc and engine.h."""

from collections.abc import Callable
from typing import Any, Final

class CData:
    """A C value or pointer."""

    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...
    def __setitem__(self, index: int, value: Any, /) -> None: ...
    def __add__(self, offset: int, /) -> CData: ...
    def __len__(self) -> int: ...
    def __call__(self, *arguments: object) -> Any: ...

class Ffi:
    """The part of cffi.FFI that aioacl uses."""

    NULL: Final[CData]
    def new(self, declaration: Any, init: object = ..., /) -> CData: ...
    def cast(self, declaration: str, value: object, /) -> CData: ...
    def string(self, value: CData, maximum: int = ..., /) -> bytes: ...
    def unpack(self, value: CData, length: int, /) -> list[int]: ...
    def buffer(self, value: CData, size: int = ..., /) -> memoryview: ...
    def from_buffer(self, declaration: str, source: object, require_writable: bool = ..., /) -> CData: ...
    def sizeof(self, declaration: str | CData, /) -> int: ...
    def typeof(self, value: object, /) -> Any: ...
    def getctype(self, c_type: object, suffix: str = ..., /) -> Any: ...
    def gc(self, value: CData, destructor: Callable[[CData], object] | None, /) -> CData: ...
    def callback(
        self, declaration: str, function: Callable[..., object], /, error: int = ...
    ) -> CData: ...

class Lib:
    """The engine's functions and the trampolines."""

'''

INTEGERS = {
    "int",
    "int8_t",
    "uint8_t",
    "int16_t",
    "uint16_t",
    "aclFloat16",
    "int32_t",
    "uint32_t",
    "int64_t",
    "uint64_t",
    "size_t",
    "aio_pass",
    "aio_result",
    "aclError",
}
PROTOTYPE = re.compile(r"^([\w \*]+?)\b(\w+)\(([^;]*)\);", re.MULTILINE)
ENUM = re.compile(r"enum\s*\w*\s*\{([^}]*)\}")
ENUM_TYPE = re.compile(r"typedef enum[^}]*\}\s*(\w+);")


def _python_type(c_type: str, enums: set[str], *, parameter: bool = False) -> str:
    bare = c_type.replace("const", "").strip()
    if " ".join(c_type.split()) in ("const char *", "const char*"):
        return "bytes | CData" if parameter else "CData"
    if bare in INTEGERS or bare in enums:
        return "int"
    return {"void": "None", "float": "float"}.get(bare, "CData")


def _python_params(params: str, enums: set[str]) -> str:
    if params in ("", "void"):
        return "self"
    typed = [
        _python_type(
            re.sub(r"\w+((\[\d*\])*)$", lambda m: "*" if m.group(1) else "", param.strip()),
            enums,
            parameter=True,
        )
        for param in params.split(",")
    ]
    return ", ".join(["self", *(f"a{i}: {kind}" for i, kind in enumerate(typed)), "/"])


def _constants(header: str) -> list[str]:
    names = [re.findall(r"(\w+)\s*=", body) for body in ENUM.findall(header)]
    return [f"    {name}: Final[int]" for group in names for name in group]


def _engine() -> str:
    """The text of `_acl.pyi`."""
    header = re.sub(r"\n {4,}", " ", plain("engine.h"))
    enums = set(ENUM_TYPE.findall(header))
    functions = [(returns, name, params) for returns, name, params in PROTOTYPE.findall(header)]
    for row in table():
        functions += [match for made in prototypes(row) for match in PROTOTYPE.findall(f"{made};")]
    lines = [
        f"    def {name}({_python_params(' '.join(params.split()), enums)}) -> {_python_type(returns, enums)}: ..."
        for returns, name, params in functions
        if "typedef" not in returns
    ]
    body = "\n".join([*_constants(header), *lines])
    return f"{ENGINE_HEAD}{body}\n\nffi: Final[Ffi]\nlib: Final[Lib]\n"


# --- aioacl/lowlevel/_functions.pyi -------------------------------------------------------------------------------

FUNCTIONS_HEAD: Final = '''"""Made by the build from acl_api.inc."""

from typing import TypeAlias

from aioacl._base.ffi import CData
from aioacl._handles.event import Event
from aioacl._handles.memory import DeviceBuffer
from aioacl._handles.pinned import PinnedBuffer
from aioacl._handles.stream import Stream
from aioacl.lowlevel._calls import Place

Memory: TypeAlias = CData | DeviceBuffer | PinnedBuffer

class Functions:
    """ACL's functions as methods with the C names of their parameters."""

    def __init__(self, place: Place | None = ...) -> None: ...
'''

PARAMETER = re.compile(r"(?P<before>.*?)(?P<name>\w+)(?P<after>(?:\[\d*\])*)")
ACCEPTED = {
    "const char *": "bytes | CData",
    "const void *": "bytes | Memory",
    "void *": "Memory",
    "aclrtStream": "CData | Stream",
    "aclrtEvent": "CData | Event",
}


def _accepted(c_type: str, enums: set[str]) -> str:
    """The Python types that a parameter accepts."""
    kind = " ".join(c_type.split()).removesuffix("const").rstrip()
    by_value = kind.removeprefix("const ")
    return ACCEPTED.get(kind) or ACCEPTED.get(by_value) or _python_type(by_value, enums)


def _parameter(text: str, enums: set[str]) -> str:
    match = PARAMETER.fullmatch(text.strip())
    assert match is not None, text
    c_type = match["before"].strip() + ("*" if match["after"] else "")
    return f"{match['name']}: {_accepted(c_type, enums)}"


def _method(row: Function, enums: set[str]) -> str:
    params = "" if row.params == "void" else row.params
    typed = [_parameter(param, enums) for param in params.split(",") if param]
    answers = row.name in ("aclrtPeekAtLastError", "aclrtGetLastError")
    returns = "None" if row.returns == "aclError" and not answers else _python_type(row.returns, enums)
    prototype = f"{row.returns} {row.name}({row.params}), since CANN {row.since}."
    return f'    def {row.name}({", ".join(["self", *typed])}) -> {returns}:\n        """{prototype}"""'


def _functions() -> str:
    enums = set(ENUM_TYPE.findall(plain("acl_types.h")))
    return FUNCTIONS_HEAD + "\n".join(_method(row, enums) for row in table()) + "\n"


# --- aioacl/lowlevel/constants.pyi --------------------------------------------------------------------------------

CONSTANTS_HEAD: Final = '''"""Made by the build from _native/api."""

from typing import Final
'''

ENUMERATION = re.compile(r"\benum\s*\w*\s*\{(?P<body>[^}]*)\}\s*(?P<name>\w*);")
ENUMERATOR = re.compile(r"(\w+)\s*=\s*(-?\w+)")


def _constants_stub() -> str:
    parts = [CONSTANTS_HEAD]
    for enum in ENUMERATION.finditer(plain("acl_types.h")):
        values = [f"{name}: Final = {value}" for name, value in ENUMERATOR.findall(enum["body"])]
        parts.append("\n".join([f"# {enum['name'] or 'flags'}", *values]) + "\n")
    return "\n".join(parts)


def stub(path: str) -> str:
    """The text of the stub with this path in the package. Raises SystemExit for an unknown path."""
    folder, _, name = path.rpartition("/")
    if folder == "pyacl" or folder.endswith("/pyacl"):
        return build_pyacl.stub(name.removesuffix(".pyi"))
    makers = {"_acl.pyi": _engine, "_functions.pyi": _functions, "constants.pyi": _constants_stub}
    if name not in makers:
        raise SystemExit(f"expected one of {', '.join(makers)}, got {name}")
    return makers[name]()
