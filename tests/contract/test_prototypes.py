"""For each release, the simulator has the same declarations as CANN's headers."""

from __future__ import annotations

from collections import Counter

import pytest

from aioacl import simulator
from aioacl.simulator._releases import RELEASES, Release
from tests import elf
from tests.contract.declared import (
    WITHDRAWN,
    declared,
    enumerations,
    enumerators,
    normalised,
    prototypes,
    types_text,
)

# These functions had no parameters before 9.1. A callee cannot notice the difference.
CHANGED = {f"aclrtSnapShotProcess{step}" for step in ("Lock", "Unlock", "Backup", "Restore")}


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("aclError  f( void )", "aclError f(void)"),
        ("aclError f()", "aclError f(void)"),
        ("const char *f(const char *const a, size_t  *b)", "const char *f(const char *const, size_t *)"),
        ("aclError f(void **a, int64_t b[][2])", "aclError f(void **, int64_t[][2])"),
        ("void f(int (* const g)(const int *, int), int a)", "void f(int (*const)(const int *, int), int)"),
        ("void f(const char *a, ...)", "void f(const char *, ...)"),
    ],
)
def test_prototype_is_normalised(text: str, normal: str) -> None:
    assert normalised(text) == normal


def test_simulator_declares_all_functions_of_the_headers() -> None:
    assert {prototype.name for prototype in prototypes()} == declared().keys()


def test_simulator_declares_all_functions_of_the_main_header() -> None:
    names = {p.name for p in prototypes() if p.header == "acl_rt.h" and "9.1" in p.releases}
    assert len(names) > 350
    assert names <= declared().keys()


def test_released_function_is_in_all_later_releases() -> None:
    for name, function in declared().items():
        releases = [release for p in prototypes() if p.name == name for release in p.releases]
        assert releases == list(RELEASES[RELEASES.index(releases[0]) :]), name
        assert releases[0] == function.since, name


def test_prototypes_equal_those_of_the_newest_headers() -> None:
    newest = {prototype.name: prototype.text for prototype in prototypes()}
    assert {name: newest[name] for name in declared()} == {
        name: function.normal for name, function in declared().items()
    }


def test_older_headers_have_the_same_prototypes_with_known_exceptions() -> None:
    many = Counter(prototype.name for prototype in prototypes())
    assert {name for name, count in many.items() if count > 1} == CHANGED


@pytest.mark.parametrize("cann", RELEASES)
def test_library_of_a_release_exports_exactly_what_its_headers_declare(cann: Release) -> None:
    exported = elf.exports(simulator.library_path(cann))
    released = {prototype.name for prototype in prototypes() if cann in prototype.releases}
    assert {name for name in exported if not name.startswith("aclsim_")} == released
    assert elf.soname(simulator.library_path(cann)) == "libascendcl.so"


def test_all_releases_have_the_same_controls() -> None:
    controls = [
        {name for name in elf.exports(simulator.library_path(cann)) if name.startswith("aclsim_")}
        for cann in RELEASES
    ]
    assert all(each == controls[-1] for each in controls)
    assert controls[-1]


# --- enumerators --------------------------------------------------------------------------------------------------


def test_enumerators_equal_those_of_the_newest_headers() -> None:
    newest = {(enum, name): value for _, _, enum, name, value in enumerators() if name not in WITHDRAWN}
    ours = {
        (enum, name): value
        for enum, body in enumerations(types_text()).items()
        for name, value in body.items()
    }
    assert len(ours) > 500
    assert ours == newest


def test_enumerators_have_the_same_values_in_all_releases() -> None:
    values: dict[str, set[str]] = {}
    for _, _, _, name, value in enumerators():
        values.setdefault(name, set()).add(value)
    assert {name for name, found in values.items() if len(found) > 1} == {"ACL_PROF_ARGS_MAX"}
