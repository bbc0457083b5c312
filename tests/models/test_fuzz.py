"""Damaged `.onnx` files: a sample is loaded in a child, and the judge of the children's results is tested."""

from __future__ import annotations

import random

import pytest

from tests.models.fuzz import Result, damaged, fuzz, judge, judge_death, lines_of
from tests.simulator.modelfiles import needs_onnxruntime

FILES = 200


@pytest.mark.process
@needs_onnxruntime
def test_sample_of_damaged_files_is_loaded_or_refused() -> None:
    result = fuzz(FILES, seed=3)
    assert result.failures == []
    assert sum(result.counts.values()) == FILES
    assert result.counts["loaded"] > 0
    assert result.counts["refused by onnxruntime"] > 0


def test_damage_depends_on_the_seed_and_the_number_only() -> None:
    original = [random.Random(1).randbytes(500)]
    assert damaged(4, 1, original) == damaged(4, 1, original)
    assert len({damaged(number, seed, original) for number in range(20) for seed in (1, 2)}) == 40


def test_file_without_a_code_is_the_one_that_ended_the_child() -> None:
    assert list(lines_of("file 3\ncode 0\nnoise\nfile 4\n")) == [(3, "0"), (4, "")]
    assert list(lines_of("")) == []


@pytest.mark.parametrize("code", ["100000", "0 ['uses model 1']", "0 1"])
def test_other_code_or_a_leak_is_a_failure(code: str) -> None:
    result = Result()
    judge(7, code, result)
    assert result.failures == [f"file 7: expected one of the codes [0, 145006, 545001], got {code}"]


@pytest.mark.parametrize("alone", [True, False])
def test_death_counts_only_if_onnxruntime_alone_survives(alone: bool) -> None:
    result = Result()
    judge_death(7, -11, lambda _number: alone, result)
    assert (len(result.crashes), len(result.failures)) == ((1, 0) if alone else (0, 1))
