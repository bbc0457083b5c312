"""The scripts of .ci notice what is missing."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest

CI = Path(__file__).parents[1] / ".ci"


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """.ci/counts.py, with a file of minimums of its own and numbers that need no counting."""
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


def test_counts_that_are_recorded_are_the_minimum(counts: Any) -> None:
    assert counts.main(["--record"]) == 0
    assert counts.MINIMUM.read_text().endswith('"test functions" = 7\n"branches" = 5\n')


@pytest.mark.process
def test_the_slow_checks_refuse_a_part_that_is_missing() -> None:
    listed = subprocess.run([CI / "slow", "--list"], capture_output=True, text=True, check=True)
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert {"tests", "sweep", "proofs", "mutants", "coverage"} <= set(names)
    refused = subprocess.run([CI / "slow", "nowhere"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith(".ci/slow: expected a part, got nowhere; the parts are:\n")
    assert refused.stderr.endswith(listed.stdout)
