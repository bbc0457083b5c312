"""The scripts of .ci report missing tests, parts and steps."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.part import PARTS

CI = Path(__file__).parents[1] / ".ci"


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """.ci/counts.py with a temporary file of minimums, and with fixed numbers in place of counts."""
    spec = importlib.util.spec_from_file_location("counts", CI / "counts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "MINIMUM", tmp_path / "minimum.toml")
    monkeypatch.setattr(module, "counts", lambda: {"test functions": 7, "branches": 5})
    return module


@pytest.mark.parametrize(
    ("minimum", "status"),
    [
        ('"test functions" = 7\nbranches = 5\n', 0),
        ('"test functions" = 6\n', 0),
        ('"test functions" = 7\nbranches = 6\n', 1),
        ('"test functions" = 7\nbranches = 5\n"native tests" = 1\n', 1),
    ],
    ids=["the same", "more", "fewer", "no longer counted"],
)
def test_counts_below_the_minimum_fail(counts: Any, minimum: str, status: int) -> None:
    counts.MINIMUM.write_text(minimum)
    assert counts.main([]) == status


def test_recorded_counts_are_the_minimum(counts: Any) -> None:
    assert counts.main(["--record"]) == 0
    assert counts.MINIMUM.read_text().endswith('"test functions" = 7\n"branches" = 5\n')


def test_slow_checks_run_all_parts_of_the_proofs() -> None:
    text = (CI / "slow").read_text()
    named = re.findall(r"tests\.reliability --slow ([\w \\\n]+)", text)
    assert sorted(" ".join(named).replace("\\", "").split()) == sorted(PARTS)


STEPS = """
set -euo pipefail
. .ci/steps.sh
fails() { false; true; }
breaks_off() { quiet "first" true; kill -9 $BASHPID; }
{step}
finish
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("step", "status"),
    [
        ("quiet step true; loud step true", 0),
        ("quiet step fails", 1),
        ("loud step fails", 1),
        ("aside beside quiet step fails; rejoin beside", 1),
        ("aside beside breaks_off; rejoin beside", 1),
        ("aside beside quiet step true; rejoin beside", 0),
    ],
)
def test_run_with_a_failing_step_fails(step: str, status: int) -> None:
    program = STEPS.replace("{step}", step)
    done = subprocess.run(["bash", "-c", program], cwd=CI.parent, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert ("FAILED" in done.stdout or "ended early" in done.stdout) == bool(status)


@pytest.mark.process
def test_slow_checks_refuse_an_unknown_part() -> None:
    listed = subprocess.run([CI / "slow", "--list"], capture_output=True, text=True, check=True)
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert {"tests", "torch", "sweep", "proofs", "mutants", "coverage"} <= set(names)
    refused = subprocess.run([CI / "slow", "nowhere"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith(".ci/slow: expected a part, got nowhere; the parts are:\n")
    assert refused.stderr.endswith(listed.stdout)
