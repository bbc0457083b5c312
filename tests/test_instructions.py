"""benchmarks/instructions.py reads the output of callgrind, and compares counts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[1] / "benchmarks" / "instructions.py"
SIMULATOR = "/venv/aioacl/simulator/libascendcl-9.0.so"

WRITTEN = f"""\
# callgrind format
version: 1
creator: callgrind-3.19.0
pid: 7
cmd:  python work.py
part: 1
thread: 1

desc: I1 cache: 
desc: Timerange: Basic block 0 - 9
desc: Trigger: Program termination
positions: line
events: Ir
summary: 1171

ob=(1) /usr/lib/libpython3.11.so
fl=(1) ceval.c
fn=(1) _PyEval_EvalFrameDefault
100 20
+4 10
cfi=(2) enqueue.c
cob=(2) /venv/aioacl/_acl.abi3.so
cfn=(2) aio_copy
calls=3 12
* 1141
-2 1

ob=(2)
fl=(2)
fn=(2)
12 30
cob=(3) {SIMULATOR}
cfn=(3) aclrtMemcpyAsync
calls=3 0x40
+1 1100
fi=(4) gate.h
0x1f 10

ob=(3)
fn=(3)
0 1100

ob=(1)
fl=(1)
fn=(4) _PyFrame_Clear
7 5
totals: 1176
"""  # noqa: W291 - callgrind ends lines with a space


@pytest.fixture(scope="module")
def instructions() -> Any:
    spec = importlib.util.spec_from_file_location("instructions", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_file_of_callgrind_is_summed_by_object_without_the_cost_of_callees(instructions: Any) -> None:
    assert instructions.instructions_by_object(WRITTEN.splitlines()) == {
        "/usr/lib/libpython3.11.so": 36,
        "/venv/aioacl/_acl.abi3.so": 40,
        SIMULATOR: 1100,
    }


def test_simulator_of_any_release_is_not_counted(instructions: Any) -> None:
    counts = {"/a/libascendcl.so": 1, SIMULATOR: 2, "/a/libascendcl.so.1": 4, "/a/_acl.abi3.so": 8, "": 16}
    assert instructions.ours(counts) == 24


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("events: Ir Dr", "expected the event Ir"), ("12 3 4", "expected a position and a cost")],
)
def test_file_with_other_events_is_refused(instructions: Any, line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        instructions.instructions_by_object([line])


@pytest.mark.parametrize(
    ("trigger", "label"), [("Client Request: await 2", ("await", 2)), ("Program termination", None)]
)
def test_label_of_a_file_is_its_kind_and_factor(
    instructions: Any, trigger: str, label: tuple[str, int] | None
) -> None:
    lines = ["version: 1", "part: 6", "desc: Timerange: 1 - 2", f"desc: Trigger: {trigger}", "events: Ir"]
    assert instructions.label_of(lines) == label


def counts(count: int, **disturbed: int) -> dict[tuple[str, int], int]:
    """Returns the instructions of a run: 5 for counting, 100 for an enqueue, 50 for an await, 200 for a call."""
    cost = {"nothing": 5, "enqueue": 105, "await": 55, "call": 205}
    return {
        (kind, times): 1000 + cost[kind] * times * count + (disturbed.get(kind, 0) if times == 2 else 0)
        for kind in cost
        for times in (1, 2)
    }


def test_cost_of_an_operation_does_not_include_the_counting(instructions: Any) -> None:
    assert instructions.each(counts(16), 16) == {"enqueue": 100.0, "await": 50.0, "call": 200.0}


def test_summary_has_the_lowest_counts_and_the_spread(instructions: Any) -> None:
    runs = [counts(16), counts(16, enqueue=32), counts(16, nothing=16)]
    assert instructions.summary(runs, 16) == {
        "enqueue": {"instructions": 100.0, "spread": 0.03},
        "await": {"instructions": 50.0, "spread": 0.02},
        "call": {"instructions": 200.0, "spread": 0.005},
    }


@pytest.mark.parametrize(("at_most", "status"), [("1.03", 1), ("1.06", 0)])
def test_ratio_above_the_limit_fails(
    instructions: Any, monkeypatch: pytest.MonkeyPatch, at_most: str, status: int
) -> None:
    result = {"ratios": {"enqueue": 0.9, "await": 1.05}}
    monkeypatch.setattr(instructions, "compare", lambda *_: result)
    assert instructions.main(["old", "new", "--at-most", at_most]) == status
