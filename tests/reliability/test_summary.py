"""The last lines of a run of the reliability tests list the parts with findings, and these findings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.reliability.part import PARTS, Outcome
from tests.reliability.summary import MOST_LINES, again
from tests.support import forkserver

RUN = """
import sys
from tests.reliability import __main__ as program
from tests.reliability.part import Outcome

figures = {"figure": [f"row {row}" for row in range(60)]}

def run_apart(name, scale, seed):
    return Outcome(figures, ["a finding\\nits second line"] if name == "walks" else [])

program.run_apart = run_apart
sys.exit(program.main(["--quick", "--seed=7", "walks", "stuck"]))
"""


@pytest.mark.process
def test_run_with_a_finding_ends_with_the_part_and_the_finding() -> None:
    ran = forkserver.run([sys.executable, "-c", RUN], cwd=Path(__file__).parents[2])
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout.splitlines()[-4:] == [
        "found by walks:",
        "  ! walks: a finding",
        "  ! walks: its second line",
        "something was found, --seed=7",
    ]


def test_run_without_a_finding_adds_no_lines() -> None:
    outcomes = {"walks": Outcome(), "model": Outcome(not_run="spin is missing")}
    assert again(outcomes, with_not_run=False) == []
    assert again(outcomes, with_not_run=True) == ["found by model:", "  ! model: spin is missing"]


def test_long_finding_is_cut_and_short_one_is_not() -> None:
    long = "\n".join(f"line {number}" for number in range(100))
    lines = again(
        {"walks": Outcome(findings=[long]), "stuck": Outcome(findings=["short"])}, with_not_run=True
    )
    assert lines[:3] == [
        "found by walks, stuck:",
        "  ! walks: line 0",
        "  ! walks: (72 more lines are above)",
    ]
    assert lines[-2:] == ["  ! walks: line 99", "  ! stuck: short"]
    assert len(lines) == 1 + MOST_LINES


@pytest.mark.parametrize("count", range(1, 41))
def test_findings_of_all_parts_stay_within_the_bound(count: int) -> None:
    finding = "\n".join(f"line {number}" for number in range(count))
    lines = again({name: Outcome(findings=[finding]) for name in PARTS}, with_not_run=True)
    assert len(lines) <= 1 + MOST_LINES
    assert all(f"  ! {name}: line 0" in lines for name in PARTS)
