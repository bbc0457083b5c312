"""The figures of the demo's last part, and the reasons why it is left out."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from aioacl._cli._demo_digits import NEEDS_MODEL, Inference, Rates, Times, refusal
from aioacl._library.load import LibraryInfo

GOOD = Inference(
    digits=1797,
    held_out=359,
    results=1797,
    wrong=0,
    duplicates=0,
    lost=0,
    accuracy=0.95,
    resets=1,
    repeated=3,
    seconds=1.0,
    rates=None,
    failures=(),
)


SIMULATOR = LibraryInfo("simulator", "/somewhere/libascendcl.so", "argument")
CARD = LibraryInfo("ascend", "/somewhere/libascendcl.so", "argument")


@pytest.mark.parametrize(
    ("slots", "bound"),
    [(1, 1000 / 9), (2, 200.0), (3, 200.0), (64, 200.0)],
)
def test_bound_is_that_of_the_slowest_stage_or_of_too_few_slots(slots: int, bound: float) -> None:
    assert Times(0.002, 0.005, 0.002).bound(slots) == pytest.approx(bound)


def test_rates_give_the_overlap_and_the_share_of_the_bound() -> None:
    rates = Rates(100.0, 190.0, Times(0.002, 0.005, 0.002))
    assert (rates.overlap, rates.bound, rates.share) == pytest.approx((1.9, 200.0, 0.95))


def test_bound_of_a_card_is_not_known() -> None:
    rates = Rates(100.0, 190.0, None)
    assert (rates.overlap, rates.bound, rates.share) == (1.9, None, None)


def test_good_results_are_well() -> None:
    assert GOOD.well


@pytest.mark.parametrize(
    "changed",
    [
        {"wrong": 1},
        {"duplicates": 1},
        {"lost": 1},
        {"accuracy": 0.949},
        {"resets": 0},
        {"failures": ("one",)},
    ],
    ids=repr,
)
def test_each_bad_result_is_not_well(changed: dict[str, object]) -> None:
    assert not replace(GOOD, **changed).well  # type: ignore[arg-type] # the values have the types of their fields


def test_card_needs_a_model() -> None:
    assert refusal(CARD, None) == NEEDS_MODEL
    assert refusal(CARD, "digits.om") is None


def test_card_needs_no_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert refusal(CARD, "digits.om") is None
    assert refusal(SIMULATOR, None) == "onnxruntime is not installed: pip install 'aioacl[onnx]'"


def test_library_of_onnxruntime_may_be_named_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setenv("AIOACL_SIM_ONNXRUNTIME", "/opt/libonnxruntime.so")
    assert refusal(SIMULATOR, None) is None


def test_all_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numpy", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delenv("AIOACL_SIM_ONNXRUNTIME", raising=False)
    assert refusal(SIMULATOR, None) == ("numpy and onnxruntime are not installed: pip install 'aioacl[onnx]'")
