"""`python -m benchmarks`: its options, and one run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import child
from benchmarks.gates import GATES
from benchmarks.suites import SUITES
from tests.support.command import finished

ROOT = Path(__file__).parents[2]


def test_unknown_suite_ends_with_a_message_that_names_the_suites(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["enqueue", "copies"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "got 'copies'" in said
    assert all(name in said for name in SUITES)


@pytest.mark.parametrize("more", [["enqueue"], ["--quick"], ["--pinned"]])
def test_write_without_a_full_run_is_refused(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.chosen(["--write", *more])
    assert ended.value.code == 2
    assert "--write" in capsys.readouterr().err


def test_readme_describes_each_suite() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text()
    assert [name for name in SUITES if f"| `{name}` |" not in text] == []


def test_pin_to_more_cores_than_there_are_raises_system_exit() -> None:
    with pytest.raises(SystemExit, match="allow the process more cores"):
        child.pin(len(os.sched_getaffinity(0)) + 1)


@pytest.mark.process
def test_quick_run_of_a_suite_judges_its_gates(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    ran = finished([sys.executable, "-m", "benchmarks", "enqueue", "--quick", "--json", str(file)], cwd=ROOT)
    found = json.loads(file.read_text())
    verdicts = {
        (row["suite"], row["name"], row["peer"]): row["verdict"] for row in found["rows"] if row["must"]
    }
    assert verdicts.keys() == {gate.key for gate in GATES if gate.suite == "enqueue"}
    assert ran.returncode == int("missed" in verdicts.values()), ran.stderr
    assert all(row["low"] <= row["median"] <= row["high"] for row in found["rows"])
    assert "enqueue: copy x raw call" in ran.stdout
