"""The table of ACL's codes is complete and consistent, and a code without a row also gets a record."""

from collections import Counter

import pytest

from aioacl._base.codes import (
    _HINTS,
    _ROWS,
    _SOURCES,
    DEVICE_ACTIONS,
    Action,
    Code,
    Family,
    _codes,
    _table,
    lookup,
)
from tests.sweep.injection import CODES


@pytest.mark.parametrize(
    ("code", "family", "action"),
    [
        (100000, Family.PARAMETER, "fix_code"),
        (107000, Family.PARAMETER, "fix_code"),
        (107001, Family.PARAMETER, "fix_code"),
        (145000, Family.PARAMETER, "fix_code"),
        (107002, Family.CONTEXT, "fix_code"),
        (107003, Family.CONTEXT, "fix_code"),
        (107017, Family.CONTEXT, "fix_code"),
        (507007, Family.CONTEXT, "fix_code"),
        (200000, Family.OUT_OF_MEMORY, "retry"),
        (207001, Family.OUT_OF_MEMORY, "retry"),
        (207018, Family.OUT_OF_MEMORY, "retry"),
        (245000, Family.OUT_OF_MEMORY, "retry"),
        (207005, Family.EXHAUSTED, "retry"),
        (207007, Family.EXHAUSTED, "retry"),
        (207008, Family.EXHAUSTED, "retry"),
        (207012, Family.EXHAUSTED, "retry"),
        (207014, Family.QUEUE_FULL, "retry"),
        (507002, Family.QUEUE_FULL, "retry"),
        (107019, Family.TIMEOUT, "retry"),
        (107020, Family.TASK_TIMEOUT, "new_stream"),
        (507012, Family.TIMEOUT, "retry"),
        (507046, Family.TIMEOUT, "retry"),
        (507047, Family.TIMEOUT, "retry"),
        (107022, Family.ABORTED, "retry"),
        (107023, Family.ABORTED, "retry"),
        (200001, Family.NOT_SUPPORTED, "fix_code"),
        (200006, Family.NOT_SUPPORTED, "fix_code"),
        (207000, Family.NOT_SUPPORTED, "fix_code"),
        (507000, Family.DEVICE_FAULT, "reset"),
        (507010, Family.DEVICE_FAULT, "reset"),
        (507001, Family.DEVICE_FAULT, "new_stream"),
        (507011, Family.DEVICE_FAULT, "new_stream"),
        (507013, Family.DEVICE_FAULT, "reset"),
        (507014, Family.TASK_TIMEOUT, "new_stream"),
        (507015, Family.DEVICE_FAULT, "new_stream"),
        (507017, Family.TASK_TIMEOUT, "new_stream"),
        (507034, Family.TASK_TIMEOUT, "new_stream"),
        (507042, Family.DEVICE_FAULT, "reset"),
        (507048, Family.TASK_TIMEOUT, "new_stream"),
        (507901, Family.DEVICE_FAULT, "reset"),
        (507915, Family.TASK_TIMEOUT, "new_stream"),
        (507899, Family.DEVICE_FAULT, "reset"),
        (507053, Family.DEVICE_FAULT, "repair"),
        (507054, Family.DEVICE_FAULT, "repair"),
        (507056, Family.DEVICE_FAULT, "repair"),
        (345102, Family.DEVICE_FAULT, "replace"),
        (100002, Family.OTHER, "fix_code"),
        (207006, Family.OTHER, "fix_code"),
        (500000, Family.OTHER, "fix_code"),
    ],
)
def test_known_code_has_the_expected_family_and_action(code: int, family: Family, action: str) -> None:
    known = lookup(code)
    assert (known.code, known.family, known.action) == (code, family, action)
    assert not known.name.startswith("ACL_ERROR_UNKNOWN")


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (100039, "stub"),
        (500000, "source set_env.sh"),
        (507000, "source set_env.sh"),
        (507899, "first error"),
        (207004, "ASCEND_RT_VISIBLE_DEVICES"),
    ],
)
def test_code_with_its_own_remedy_names_it_in_the_hint(code: int, word: str) -> None:
    assert word in lookup(code).hint


@pytest.mark.parametrize(
    ("code", "family"),
    [
        (107999, Family.PARAMETER),
        (199999, Family.PARAMETER),
        (207999, Family.EXHAUSTED),
        (399999, Family.OTHER),
        (507999, Family.DEVICE_FAULT),
        (599999, Family.DEVICE_FAULT),
        (1, Family.OTHER),
        (99999, Family.OTHER),
        (400000, Family.OTHER),
        (600000, Family.OTHER),
        (1070000, Family.OTHER),
        (-1, Family.OTHER),
        (-507015, Family.OTHER),
        (2**31 - 1, Family.OTHER),
        (-(2**31), Family.OTHER),
        (2**64, Family.OTHER),
    ],
)
def test_unknown_code_keeps_its_number_and_has_the_family_of_its_range(code: int, family: Family) -> None:
    unknown = lookup(code)
    assert (unknown.code, unknown.name, unknown.family) == (code, f"ACL_ERROR_UNKNOWN_{code}", family)


def test_table_holds_each_row_and_nothing_else() -> None:
    assert sorted(_codes()) == sorted(row[0] for row in _ROWS)
    assert all(lookup(code) is record for code, record in _codes().items())


@pytest.mark.parametrize(
    ("first", "last"), [(100000, 100045), (107000, 107045), (207000, 207021), (507000, 507057)]
)
def test_the_dense_ranges_have_no_gap(first: int, last: int) -> None:
    assert [code for code in range(first, last + 1) if code not in _codes()] == []


def test_hints_are_short_sentences() -> None:
    assert [
        hint for hint in _HINTS if len(hint) > 100 or not hint.endswith(".") or not hint[0].isupper()
    ] == []


Row = tuple[int, str, Family, Action]
ROW: Row = (1, "ACL_ERROR_ONE", Family.OTHER, "retry")


@pytest.mark.parametrize(
    ("rows", "hints", "complaint"),
    [
        ([ROW, (1, "ACL_ERROR_TWO", Family.OTHER, "retry")], {}, "one row for the code 1, got two"),
        ([ROW, (1, "ACL_ERROR_TWO", Family.OTHER, "new_stream")], {}, "one row for the code 1, got two"),
        ([ROW, ROW], {"Wait.": (1,)}, "one row for the code 1, got two; remove one of them"),
        ([ROW, (2, *ROW[1:])], {}, "one row for the name ACL_ERROR_ONE, got two"),
        ([ROW], {"Wait.": (1,), "Hurry.": (1,)}, "one hint for the code 1, got two"),
        ([ROW], {"Wait.": (1, 7)}, r"only for codes of the table, got \[7\]"),
        ([(*ROW[:3], "new_stream")], {}, r"a source for each new_stream code.*\[1\]"),
    ],
)
def test_contradiction_in_the_table_is_refused(rows, hints, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        _table(rows, hints)


def test_hint_is_added_to_the_row_of_its_code() -> None:
    assert _table([ROW], {"Wait.": (1,)}) == {1: Code(1, "ACL_ERROR_ONE", Family.OTHER, "retry", "Wait.")}


def test_code_with_two_sources_is_refused() -> None:
    with pytest.raises(ValueError, match="one source for the code 1, got two"):
        _table([(*ROW[:3], "new_stream")], {}, {"runtime source": (1,), "a run": (1,)})


def test_source_for_a_code_without_the_action_new_stream_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a source for each new_stream code.*\[1\]"):
        _table([ROW], {}, {"runtime source": (1,)})


def test_source_for_a_code_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"only for codes of the table, got \[7\]"):
        _table([ROW], {}, {"runtime source": (7,)})


def test_code_with_new_stream_names_its_source() -> None:
    named = {code: source for source, codes in _SOURCES.items() for code in codes}
    assert named == {known.code: known.source for known in _codes().values() if known.action == "new_stream"}


def test_sweep_of_faults_tries_one_code_of_each_pair_of_family_and_action() -> None:
    assert set(CODES) <= set(_codes())
    tried = Counter((lookup(code).family, lookup(code).action) for code in CODES)
    pairs = {(known.family, known.action) for known in _codes().values() if known.code}
    wrong = {pair: tried[pair] for pair in pairs | set(tried) if tried[pair] != 1}
    expected = (
        "expected CODES of tests/sweep/injection.py to have one code for each pair of family and action"
    )
    assert wrong == {}, f"{expected}, got these numbers of codes: {wrong}; correct CODES"


@pytest.mark.parametrize(
    "code", [507010, 507053, 507054, 507055, 507056, 507057, 507899, 507901, 507904, 507914, 345102]
)
def test_code_about_the_whole_device_needs_a_reset_or_more(code: int) -> None:
    assert lookup(code).action in DEVICE_ACTIONS


def test_code_without_a_row_needs_a_reset() -> None:
    assert lookup(507999).action == "reset"


def test_a_record_is_frozen() -> None:
    with pytest.raises(AttributeError):
        lookup(0).name = "other"  # type: ignore[misc]
