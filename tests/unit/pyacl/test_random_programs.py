"""Random programs of calls of `acl` end with codes, not with a crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def ends(seed: int, count: int) -> None:
    """Runs the programs in a process of their own, and fails with the seed of the program that has crashed."""
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.support.pyacl_programs", str(seed), str(count)],
        cwd=ROOT,
        env={**os.environ, "AIOACL_LIBRARY": "simulator"},
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,  # ends a program that hangs
    )
    last = ended.stdout.splitlines()[-1:]
    assert (ended.returncode, last) == (0, ["done"]), (
        f"program {last} ended with {ended.returncode}:\n{ended.stderr}"
    )


@pytest.mark.process
def test_89_random_programs_end_with_codes() -> None:
    ends(seed=1, count=300)


@pytest.mark.slow
def test_89_ten_thousand_random_programs_end_with_codes() -> None:
    ends(seed=1_000, count=10_000)
