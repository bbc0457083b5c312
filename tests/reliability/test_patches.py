"""The tables of the reliability tests fit the code. Otherwise at most a slow run would notice an outdated entry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aioacl
from tests.reliability import coverage, mutants, rebuilt, truth_bugs
from tests.reliability.mutants import Patch, patches
from tests.reliability.names import missing, unmatched
from tests.reliability.part import Scale

if TYPE_CHECKING:
    from types import ModuleType

PACKAGE = Path(aioacl.__file__).parent


@pytest.mark.parametrize("kind", ["bug", "small", "mutant"])
def test_patch_of_each_kind_matches_its_file(kind: str) -> None:
    def source(patch: Patch) -> str:
        return ((rebuilt.ENGINE if patch.in_c else PACKAGE) / patch.file).read_text()

    assert all(patch.apply(source(patch)) != source(patch) for patch in patches(kind))


def test_bugs_of_the_truth_part_match_their_files() -> None:
    for bug in truth_bugs.BUGS:
        text = (rebuilt.ENGINE / bug.file).read_text()
        assert bug.apply(text) != text


@pytest.mark.parametrize("part", [coverage, mutants], ids=["coverage", "mutants"])
def test_names_in_the_tables_of_a_part_exist(part: ModuleType) -> None:
    assert part.problems() == []


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("tests/nowhere", "a file or folder"),
        ("tests/kit.py::test_nowhere", "a test test_nowhere"),
        ("tests/unit/base/test_states.py::TestNone::test_nowhere", "a test test_nowhere"),
    ],
)
def test_missing_name_is_reported(name: str, lacks: str) -> None:
    (problem,) = missing(["tests", name])
    assert problem.startswith(f"{name}: expected {lacks}")


def test_expression_with_a_word_of_no_test_is_reported() -> None:
    (problem,) = unmatched(
        "not uvloop and (not random_sequences or nowhere)",
        [
            "tests/unit/base/test_states.py",
            "tests/unit/lifecycle/test_admission.py",
            "tests/unit/lifecycle/test_counts.py",
        ],
        ("uvloop",),
    )
    assert problem.startswith("-k nowhere: ")


def test_part_with_a_missing_module_ends_with_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "LIFECYCLE", ("_nowhere",))
    monkeypatch.setattr(mutants, "FIRST", {"_nowhere": ()})
    for part in (coverage, mutants):
        (finding,) = part.run(Scale.QUICK, 1).findings
        assert finding.startswith("aioacl/_nowhere.py: expected a file")


def test_exemption_for_removed_code_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "module": "_lifecycle/procedures/reset",
        "was": "nothing of the kind",
        "becomes": "",
        "because": "",
    }
    monkeypatch.setattr(mutants, "survivors", lambda: {"survivor": [row], "family": [{"was": "^nor this$"}]})
    single, family = mutants.problems()
    assert "`nothing of the kind` is not in _lifecycle/procedures/reset" in single
    assert "^nor this$ matches no line" in family
