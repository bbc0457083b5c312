"""The declarations of aioacl agree with the vendor's headers. A compiler reads both and reports differences."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from cffi import FFI

import build_ffi
from tests.contract import vendor
from tests.contract.declared import WITHDRAWN, declared, enumerations, types_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMPILERS = [
    pytest.param(
        name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")
    )
    for name in ("gcc", "clang")
]
FLAGS = ("-std=c11", "-Wall", "-Werror", "-Wno-deprecated-declarations", "-c", "-o", "/dev/null")


def compile_with(compiler: str, folder: Path, source: str) -> None:
    """Compiles a program that includes the vendor's headers. A failure shows the output of the compiler."""
    program = folder / "program.c"
    program.write_text(f"{vendor.inclusions()}\n{source}\n")
    command = [compiler, *FLAGS, f"-I{vendor.include_folder()}", str(program)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]


LACKING = {
    *("aclmdlGetAttribute", "aclmdlSetAttribute", "aclmdlLoadFromModel"),
    *("aclrtGetPhyDevIdByUserDevId", "aclrtGetUserDevIdByPhyDevId"),
}


@cache
def _words() -> frozenset[str]:
    return frozenset(re.findall(r"\w+", vendor.text()))


def _has(name: str) -> bool:
    return name in _words()


# --- functions ----------------------------------------------------------------------------------------------------


def test_vendor_headers_lack_only_newer_functions() -> None:
    """The headers are slightly older than CANN 9.1. test_prototypes.py checks the functions that are not in them."""
    lacking = [function for name, function in declared().items() if not _has(name)]
    assert {function.name for function in lacking if function.since != "master"} == LACKING
    assert {name for name, function in declared().items() if function.since == "master"} <= {
        function.name for function in lacking
    }


@pytest.mark.parametrize("compiler", COMPILERS)
def test_functions_can_be_declared_again_after_the_vendor_headers(compiler: str, tmp_path: Path) -> None:
    """A second prototype that is incompatible with the first one is an error."""
    ours = next(line for line in types_text().splitlines() if "acldumpMessageCallback" in line)
    again = [f"{function.prototype};" for name, function in declared().items() if _has(name)]
    assert len(again) > 550
    compile_with(compiler, tmp_path, "\n".join([ours, *again]))


def test_prototype_that_differs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="conflicting types"):
        compile_with("gcc", tmp_path, "aclError aclrtSynchronizeStream(int32_t stream);")


# --- enumerations -------------------------------------------------------------------------------------------------


def test_enumerations_have_all_enumerators_of_the_vendor_headers() -> None:
    """aioacl's enumerations come from the newest headers, so they may have more enumerators."""
    theirs, ours = enumerations(vendor.text()), enumerations(types_text())
    both = ours.keys() & theirs.keys()
    assert len(both) > 75
    more = {name for enum in both for name in theirs[enum].keys() - ours[enum].keys()}
    assert more <= WITHDRAWN, more


@pytest.mark.parametrize("compiler", COMPILERS)
def test_enumerators_have_the_values_of_the_vendor_headers(compiler: str, tmp_path: Path) -> None:
    checks = [
        f'_Static_assert((long long){name} == {value}, "{name}");'
        for body in enumerations(types_text()).values()
        for name, value in body.items()
        if _has(name)
        and name != "ACL_PROF_ARGS_MAX"  # the number of enumerators, which newer headers increase
    ]
    assert len(checks) > 450
    compile_with(compiler, tmp_path, "\n".join(checks))


@pytest.mark.parametrize("compiler", COMPILERS)
def test_flags_have_the_values_of_the_vendor_headers(compiler: str, tmp_path: Path) -> None:
    flags = re.findall(r"(ACL_\w+) = (0x\w+)", build_ffi.plain("api/flags.h"))
    assert len(flags) > 50
    compile_with(
        compiler, tmp_path, "\n".join(f'_Static_assert({name} == {value}, "");' for name, value in flags)
    )


# --- structures ---------------------------------------------------------------------------------------------------


@cache
def _ffi() -> FFI:
    ffi = FFI()
    ffi.cdef(types_text())
    return ffi


def _structures() -> list[str]:
    ffi = _ffi()
    names = [name for name in ffi.list_types()[0] if ffi.typeof(name).kind in ("struct", "union")]
    return [name for name in names if ffi.typeof(name).fields is not None]


def _members(structure: Any, outer: int = 0) -> Iterator[tuple[str, int, int]]:
    """Yields the name, offset and size of each member, including the members of anonymous unions."""
    for name, field in structure.fields:
        if name:
            open_ended = field.type.kind == "array" and field.type.length is None
            yield name, outer + field.offset, 0 if open_ended else _ffi().sizeof(field.type)
        else:
            yield from _members(field.type, outer + field.offset)


def _layout(name: str) -> Iterator[str]:
    structure: Any = _ffi().typeof(name)  # Any: the stubs of cffi let sizeof() accept only values
    yield f'_Static_assert(sizeof({name}) == {_ffi().sizeof(structure)}, "size of {name}");'
    yield f'_Static_assert(_Alignof({name}) == {_ffi().alignof(structure)}, "alignment of {name}");'
    for member, offset, size in _members(structure):
        if not _has(member):  # a member of newer headers, in space that these headers reserve
            continue
        where = f"{name}.{member}"
        yield f'_Static_assert(offsetof({name}, {member}) == {offset}, "offset of {where}");'
        yield f'_Static_assert(sizeof((({name} *)0)->{member}) == {size}, "size of {where}");'


@pytest.mark.parametrize("compiler", COMPILERS)
def test_structures_have_the_layout_of_the_vendor_headers(compiler: str, tmp_path: Path) -> None:
    names = [name for name in _structures() if _has(name)]
    assert len(names) > 60
    compile_with(compiler, tmp_path, "\n".join(check for name in names for check in _layout(name)))
