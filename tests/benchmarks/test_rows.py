"""The statistics and the gates of the benchmarks."""

from __future__ import annotations

import pytest

from benchmarks.gates import GATES
from benchmarks.rows import (
    Added,
    Gate,
    Row,
    Spread,
    added_row,
    exit_status,
    judge,
    missing,
    noise,
    ratio_row,
    ratios,
    skipped_row,
)
from benchmarks.suites import SUITES


def row_of(value: float | None, *, pinned: bool = True) -> Row:
    spread = None if value is None else Spread(value, value, value)
    return Row("copy", "up", "memcpy", "x", spread, pinned=pinned)


def test_spread_of_repeats_is_their_median_and_range() -> None:
    assert Spread.of([5.0, 1.0, 2.0]) == Spread(2.0, 1.0, 5.0)


def test_spread_of_no_repeat_raises_value_error() -> None:
    with pytest.raises(ValueError, match="at least one repeat"):
        Spread.of([])


def test_ratios_are_taken_repeat_by_repeat() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    row = ratio_row("await", "time", "peer", [2.0, 9.0, 8.0], [1.0, 3.0, 2.0])
    assert row.spread == Spread(3.0, 2.0, 4.0)


def test_ratios_of_series_of_different_lengths_raise_value_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


def test_noise_of_equal_values_is_zero_and_grows_with_their_deviation() -> None:
    assert noise([3.0, 3.0, 3.0]) == 0
    assert 0 < noise([2.0, 3.0, 4.0]) < noise([1.0, 3.0, 5.0])
    assert noise([1.0, 3.0, 5.0] * 4) < noise([1.0, 3.0, 5.0])


def test_added_time_of_each_repeat_is_its_time_minus_the_time_of_the_task() -> None:
    assert Added.to([10.0, 20.0], [12.0, 25.0]).values == (2.0, 5.0)


def test_added_time_above_the_noise_gives_the_ratio_of_each_repeat() -> None:
    row = added_row("await", "added", "peer", Added((2.0, 2.2, 2.4)), Added((4.0, 4.4, 4.8)))
    assert row.spread == Spread(0.5, 0.5, 0.5)
    assert row.note == ""


def test_added_time_within_the_noise_gives_an_upper_bound() -> None:
    ours = Added((-3.0, 0.5, 4.0))
    row = added_row("await", "added", "peer", ours, Added((10.0, 10.0, 10.0)))
    assert not ours.measurable
    assert row.spread is not None
    assert row.spread.median == pytest.approx((0.5 + ours.noise) / 10)
    assert "upper bound" in row.note


def test_added_time_of_a_peer_within_the_noise_gives_no_value() -> None:
    row = added_row("await", "added", "peer", Added((1.0, 1.0, 1.0)), Added((-9.0, 0.1, 9.0)))
    assert row.spread is None
    assert "within the noise" in row.note


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.5, "aim"), (0.6, "must"), (1.0, "must"), (1.1, "missed"), (None, "noise")]
)
def test_gate_with_an_upper_limit_judges_each_value(value: float | None, verdict: str) -> None:
    gate = Gate("copy", "up", "memcpy", must=1.0, aim=0.5)
    assert judge([row_of(value)], [gate])[0].verdict == verdict


@pytest.mark.parametrize(("value", "verdict"), [(2.0, "aim"), (1.9, "must"), (1.3, "must"), (1.2, "missed")])
def test_gate_with_a_lower_limit_judges_each_value(value: float, verdict: str) -> None:
    gate = Gate("copy", "up", "memcpy", must=1.3, aim=2.0, at_least=True)
    assert judge([row_of(value)], [gate])[0].verdict == verdict


def test_gate_without_a_must_is_never_missed() -> None:
    gate = Gate("copy", "up", "memcpy", must=None, aim=1.2)
    assert [judge([row_of(value)], [gate])[0].verdict for value in (1.0, 9.0)] == ["aim", "reported"]


def test_row_of_an_unpinned_process_is_never_judged() -> None:
    gate = Gate("copy", "up", "memcpy", must=1.0, aim=None)
    judged = judge([row_of(9.0, pinned=False)], [gate])
    assert (judged[0].gate, judged[0].verdict) == (None, "reported")


@pytest.mark.parametrize(("value", "status"), [(0.9, 0), (1.1, 1), (None, 0)])
def test_exit_status_is_1_if_a_must_is_missed(value: float | None, status: int) -> None:
    gates = [Gate("copy", "up", "memcpy", must=1.0, aim=None)]
    other = Row("copy", "down", "memcpy", "x", Spread(9.0, 9.0, 9.0))
    assert exit_status(judge([other, row_of(value)], gates)) == status


def test_gate_without_a_row_is_missing_if_its_suite_ran() -> None:
    gates = [Gate("copy", "up", "memcpy", 1, None), Gate("copy", "dowm", "memcpy", 1, None)]
    assert missing([row_of(1.0)], gates, ["copy"]) == gates[1:]
    assert missing([row_of(1.0, pinned=False)], gates, ["copy"]) == gates
    assert missing([], gates, ["await"]) == []


def test_gates_have_different_keys_and_name_suites() -> None:
    keys = [gate.key for gate in GATES]
    assert len(keys) == len(set(keys))
    assert {gate.suite for gate in GATES} <= SUITES.keys()


def test_aim_of_each_gate_is_at_least_as_strict_as_its_must() -> None:
    for gate in GATES:
        if gate.must is not None and gate.aim is not None:
            assert gate.aim >= gate.must if gate.at_least else gate.aim <= gate.must, gate


def test_row_of_a_peer_that_is_not_installed_is_not_judged_and_not_missing() -> None:
    gate = Gate("model", "call", "OpenVINO", 0.9, 0.7)
    row = skipped_row("model", "call", "OpenVINO", "openvino")
    assert "openvino is not installed" in row.note
    assert [(each.gate, each.verdict) for each in judge([row], [gate])] == [(None, "reported")]
    assert missing([row], [gate], ["model"]) == []
