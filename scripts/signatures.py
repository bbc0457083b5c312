"""Records the public API: each name with its signature, one line each, in tests/public_api.txt.

    .venv/bin/python scripts/signatures.py           writes the file
    .venv/bin/python scripts/signatures.py --check   prints the differences; status 1 if there are any

The names are those of the reference. griffe reads them from the sources. A change of the file needs an entry in
CHANGELOG.md; docs/stability.md states which changes are allowed.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import griffe

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts import reference  # after the path is set

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD: Final = reference.ROOT / "tests" / "public_api.txt"
COMMAND: Final = ".venv/bin/python scripts/signatures.py"
BASES: Final = reference.SHOWN_BASES | {"Exception", "Executor", "IntEnum", "Operation"}
"""The base classes that users may rely on. Other bases are private."""


def lines() -> Iterator[str]:
    """Each public name with its signature, and each member of a class."""
    for module, name in reference.public_names():
        yield from lines_of(f"{module}.{name}", reference.find(f"{module}.{name}"))
    for name in reference.fixtures():
        path = f"{reference.PLUGIN}.{name}"
        yield from lines_of(path, reference.find(path))


def lines_of(path: str, found: reference.Item) -> Iterator[str]:
    """The lines of one name."""
    if isinstance(found, griffe.Class):
        yield f"class {path}({', '.join(bases(found))})"
        if reference.described(found):  # otherwise users do not call the class
            yield from lines_of(f"{path}.__init__", reference.final(found.members["__init__"]))
        if used := reference.uses(found):
            yield f"{path}: {used}"
        for member in reference.members(found):
            yield from lines_of(f"{path}.{member.name}", member)
    elif isinstance(found, griffe.Function):
        call = " ".join(reference.signature(found).split()).replace("( ", "(").replace(", )", ")")
        yield f"{path}{call.removeprefix(found.name)}"
    elif isinstance(found, griffe.Attribute):
        yield f"{path}: {found.annotation}" if found.annotation is not None else path
    else:
        yield f"module {path}"


def bases(found: griffe.Class) -> list[str]:
    """The names of the direct and indirect bases that users may rely on."""
    named = {str(base).partition("[")[0] for each in [found, *reference.mro(found)] for base in each.bases}
    return sorted(named & BASES)


def difference(recorded: str, current: str) -> str:
    """The changed lines; an empty text if there are none."""
    compared = difflib.unified_diff(recorded.splitlines(), current.splitlines(), lineterm="", n=0)
    return "\n".join(line for line in compared if line[0] in "+-" and line[:3] not in ("+++", "---"))


def current() -> str:
    """The text of the file for the sources as they are."""
    return "\n".join(sorted(set(lines()))) + "\n"


def main() -> int:
    """Writes the file, or prints the differences; returns the exit status."""
    parser = argparse.ArgumentParser(description="Records the public API.")
    parser.add_argument("--check", action="store_true", help="write nothing; print the differences")
    if parser.parse_args().check:
        changed = difference(RECORD.read_text(), current())
        print(changed, end="\n" if changed else "")
        return bool(changed)
    RECORD.write_text(current())
    return 0


if __name__ == "__main__":
    sys.exit(main())
