"""The table of pyACL's functions: one row a function, in the files of the folder `rows`.

The build reads this file too, before the package exists. So it imports nothing from the package. The build checks each
row against the table of ACL functions, and makes a C function for each row that names one (build_pyacl.py).

A row has four columns:

    malloc | aclrtMalloc | size:size policy:int | devPtr:pointer ret

- The name of the function in its module.
- Its C function. `hand` before it means that a Python function of this package converts the arguments. `-` means that
  there is none: the function returns ACL_ERROR_FEATURE_UNSUPPORTED, or is written by hand without a C function.
- The arguments, as NAME:KIND. An argument in brackets may be missing. The names are those of the C parameters.
- The results, as NAME:KIND. `ret` is the error code, which comes last. A kind without a name is the only result.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

FOLDER: Final = Path(__file__).resolve().parent / "rows"
MODULES: Final = ("acl", "rt", "mdl", "util", "media", "prof", "op")

How = Literal["table", "hand", "unsupported"]

NUMBERS: Final = ("pointer", "size", "uint", "int", "long")
STRUCTURES: Final = {
    "dims": "aclmdlIODims",
    "batch": "aclmdlBatch",
    "hw": "aclmdlHW",
    "range": "aclmdlIODimsRange",
    "aipp": "aclAippInfo",
    "uuid": "aclrtUuid",
    "utilization": "aclrtUtilizationInfo",
    "version": "aclCANNPackageVersion",
}
"""The kinds of results that C writes into a structure, and Python returns as a dict."""
OBJECTS: Final = ("text", "float", "bytes", "list", "tuple", "dict", "callable", "array", "object")
SPECIAL: Final = ("given", "none", "unsupported")
"""`given`: the first argument is returned. `none`: None. `unsupported`: the code itself."""
KINDS: Final = frozenset({*NUMBERS, *STRUCTURES, *OBJECTS, *SPECIAL})
RET: Final = "ret"


@dataclass(frozen=True)
class Field:
    """One argument or result."""

    name: str
    kind: str
    optional: bool = False


@dataclass(frozen=True)
class Row:
    """One function of pyACL.

    Attributes:
        module: the module without "acl.", or "acl".
        name: the name in that module.
        c_name: the C function, or "".
        how: "table" if the general caller calls it, "hand" if a Python function does, "unsupported" if nothing does.
        arguments: in the order of the call.
        results: in the order of the tuple, without the code.
        code: whether an error code comes last.
    """

    module: str
    name: str
    c_name: str
    how: How
    arguments: tuple[Field, ...]
    results: tuple[Field, ...]
    code: bool

    @property
    def full_name(self) -> str:
        """The name as a program writes it: "acl.rt.malloc"."""
        return f"acl.{self.name}" if self.module == "acl" else f"acl.{self.module}.{self.name}"

    @property
    def signature(self) -> str:
        """The call as a program writes it: "acl.rt.malloc(size, policy)"."""
        names = [f"[{each.name}]" if each.optional else each.name for each in self.arguments]
        return f"{self.full_name}({', '.join(names)})"


def _field(word: str, where: str) -> Field:
    optional = word.startswith("[") and word.endswith("]")
    name, colon, kind = word.strip("[]").partition(":")
    if not colon:
        name, kind = "", name
    if kind not in KINDS:
        raise ValueError(f"{where}: expected a kind of aioacl/_pyacl/table.py, got {kind!r}")
    return Field(name, kind, optional)


def parse(module: str, line: str) -> Row:
    """Returns the row of a line. Raises ValueError if the line is not a row."""
    cells = [cell.strip() for cell in line.split("|")]
    where = f"{module}.txt, {cells[0]}"
    if len(cells) != 4:
        raise ValueError(f"{where}: expected 4 columns, got {len(cells)}")
    name, function, arguments, results = cells
    word, _, c_name = function.rpartition(" ")
    c_name = "" if c_name == "-" else c_name
    how: How = "hand" if word == "hand" else "table" if c_name else "unsupported"
    words = results.split()
    code = words[-1] == RET
    return Row(
        module,
        name,
        c_name,
        how,
        tuple(_field(each, where) for each in arguments.split()),
        tuple(_field(each, where) for each in words[: len(words) - code]),
        code,
    )


def rows() -> tuple[Row, ...]:
    """Returns all rows, in the order of the files. Raises ValueError for a line that is not a row, or a name twice."""
    found = [
        parse(module, line)
        for module in MODULES
        for line in (FOLDER / f"{module}.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    names = [row.full_name for row in found]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"expected one row for each name, got two for {twice}")
    return tuple(found)
