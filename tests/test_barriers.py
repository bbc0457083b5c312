"""The code for aarch64 has the barriers on which the gate, the port and the counter of failures depend.

A stronger memory order of an x86 machine hides a barrier that is missing. So these tests read the instructions of the
objects from which scripts/wheels has linked the wheel for aarch64.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.wheel import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

MADE = ROOT / "build" / "wheels"
FOLDERS = [
    folder
    for _ in MADE.glob("*_aarch64.whl")  # without a wheel, the objects are of an earlier build
    for folder in MADE.glob("source-aarch64/build/native/*/objects/aioacl/_native")
]

# An update of memory that is both an acquire and a release: a pair of exclusive instructions, one instruction of
# ARMv8.1, or a call of the compiler's function that selects one of both.
LOAD, STORE, UPDATE, FENCE, WEAK = "load", "store", "update", "fence", "weak"
SEQUENTIAL: Final = (
    (LOAD, r"ldar[bh]?"),
    (STORE, r"stlr[bh]?"),
    (UPDATE, r"stlxr[bh]?|(cas|swp|ldadd|ldclr|ldset)al[bh]?|__aarch64_\w+_acq_rel"),
    (FENCE, r"dmb ish"),
    (
        WEAK,
        r"ldxr[bh]?|stxr[bh]?|ldapu?r[bh]?|(cas|swp|ldadd|ldclr|ldset)[al]?[bh]?|__aarch64_\w+_(relax|acq|rel)",
    ),
)
INSTRUCTION: Final = re.compile(r"^\s+[0-9a-f]+:\s+(?P<name>[a-z][\w.]*)(?:\s+(?P<rest>.*))?$")
RELOCATION: Final = re.compile(r"R_AARCH64_(?:CALL|JUMP)26\s+(?P<name>\w+)")

# What each function has to do, in this order; a name is a call of that function.
EXPECTED: Final = {
    # The call reads the word, counts itself, and only then reads whether the process is ending.
    ("gate", "aio_count_in"): (LOAD, UPDATE, LOAD, LOAD),
    ("gate", "aio_count_out"): (UPDATE,),
    ("gate", "aio_gate_set"): (LOAD, UPDATE),
    # The token is complete before it is in the list, and is no longer read after that.
    ("port", "aio_publish"): (UPDATE, UPDATE, "aio_port_ring", UPDATE),
    ("port", "aio_port_take"): (LOAD, "read", UPDATE),
    # The report is in the ring before the fence, and the counter is raised after it.
    ("report", "on_task_fail"): (UPDATE, UPDATE, FENCE, UPDATE, "aio_watcher_wake"),
    ("report", "on_exception"): (UPDATE, UPDATE, FENCE, UPDATE, "aio_watcher_wake"),
    ("report", "aio_reports_wait"): (LOAD, LOAD),
    ("attribution", "aio_failures_settle"): (FENCE, "aio_reports_wait"),
}


def operations(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields the function and the kind of each ordered access, and the name of each function that is called."""
    function = ""
    for line in lines:
        if head := re.match(r"^[0-9a-f]+ <(\w+)>:$", line):
            function = head[1]
        elif call := RELOCATION.search(line):
            kinds = [kind for kind, names in SEQUENTIAL if re.fullmatch(names, call["name"])]
            yield function, kinds[0] if kinds else call["name"]
        elif instruction := INSTRUCTION.match(line):
            text = instruction["name"] if instruction["name"] != "dmb" else f"dmb {instruction['rest']}"
            for kind, names in SEQUENTIAL:
                if re.fullmatch(names, text):
                    yield function, kind


def has_in_order(found: Iterable[str], expected: Iterable[str]) -> bool:
    """Whether all that is expected is found, in this order. The compiler may place more between them."""
    rest = iter(found)
    return all(each in rest for each in expected)


def disassembled(path: Path) -> list[str]:
    tool = shutil.which("llvm-objdump") or "objdump"
    command = [tool, "--disassemble", "--reloc", "--no-show-raw-insn", str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.wheels
@pytest.mark.parametrize("folder", FOLDERS, ids=["aarch64"] if FOLDERS else [])
@pytest.mark.parametrize(("file", "function"), EXPECTED, ids="-".join)
def test_function_on_aarch64_has_its_barriers(folder: Path, file: str, function: str) -> None:
    found = [kind for name, kind in operations(disassembled(folder / f"{file}.o")) if name == function]
    assert has_in_order(found, EXPECTED[file, function]), found
    assert WEAK not in found, found


PUBLISH = """
0000000000000010 <publish>:
      10:      \tldar\tx0, [x9]
      14:      \tldaxr\tx10, [x9]
      18:      \tstlxr\tw11, x10, [x9]
      1c:      \tdmb\tish
      20:      \tbl\t0x20 <publish+0x10>
\t\t0000000000000020:  R_AARCH64_CALL26\tring
      24:      \tswpal\tx0, x1, [x9]
      28:      \tbl\t0x28 <publish+0x18>
\t\t0000000000000028:  R_AARCH64_CALL26\t__aarch64_cas8_acq_rel
      2c:      \tret
"""


@pytest.mark.parametrize(
    ("change", "to", "kinds"),
    [
        ("", "", [LOAD, UPDATE, FENCE, "ring", UPDATE, UPDATE]),
        ("ldar", "ldr", [UPDATE, FENCE, "ring", UPDATE, UPDATE]),
        ("ldar", "ldapr", [WEAK, UPDATE, FENCE, "ring", UPDATE, UPDATE]),
        ("stlxr", "stxr", [LOAD, WEAK, FENCE, "ring", UPDATE, UPDATE]),
        ("\tish\n", "\tishst\n", [LOAD, UPDATE, "ring", UPDATE, UPDATE]),
        ("swpal", "swpa", [LOAD, UPDATE, FENCE, "ring", WEAK, UPDATE]),
        ("acq_rel", "relax", [LOAD, UPDATE, FENCE, "ring", UPDATE, WEAK]),
    ],
)
def test_weaker_instruction_is_not_taken_for_a_barrier(change: str, to: str, kinds: list[str]) -> None:
    assert list(operations(PUBLISH.replace(change, to).splitlines())) == [("publish", kind) for kind in kinds]


def test_barriers_in_another_order_are_not_those_expected() -> None:
    assert has_in_order([LOAD, UPDATE, FENCE], [LOAD, FENCE])
    assert not has_in_order([FENCE, LOAD], [LOAD, FENCE])
