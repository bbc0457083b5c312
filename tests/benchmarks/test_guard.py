"""benchmarks/guard.py: which baseline the guard uses, and when the guard fails."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from benchmarks import guard
from tests.support.command import finished

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process  # git

BASE = {"enqueue": 4000.0, "await": 9000.0, "call": 60_000.0}
KEY = "cpython-3.11.0 gcc-12.2.0 glibc-2.36 x86_64"


@pytest.fixture
def baselines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The path of the file of baselines, which does not exist yet. The guard uses a new repository and a fixed key."""
    for command in (
        "init -q",
        "config user.name a",
        "config user.email a@b",
        "commit -q --allow-empty -m first",
    ):
        subprocess.run(["git", "-C", str(tmp_path), *command.split()], check=True)
    path = tmp_path / "instructions.json"
    monkeypatch.setattr(guard, "ROOT", tmp_path)
    monkeypatch.setattr(guard, "BASELINES", path)
    monkeypatch.setattr(guard, "key", lambda: KEY)
    monkeypatch.setattr(guard, "need_valgrind", lambda: None)
    return path


def measured(monkeypatch: pytest.MonkeyPatch, **numbers: dict[str, float]) -> list[str]:
    """Sets the numbers of the "old" and the "new" checkout. Returns the checkouts that the guard measures."""
    asked: list[str] = []

    def numbers_of(what: str) -> dict[str, float]:
        asked.append(what)
        return numbers.get("old" if len(what) == 40 else "new", BASE)

    monkeypatch.setattr(guard, "numbers_of", numbers_of)
    return asked


@pytest.mark.parametrize(("await_", "status"), [(10_350.0, 0), (10_351.0, 1)])
def test_number_more_than_15_percent_above_its_baseline_fails(
    baselines: Path, monkeypatch: pytest.MonkeyPatch, await_: float, status: int
) -> None:
    baselines.write_text(json.dumps({KEY: BASE}))
    asked = measured(monkeypatch, new={**BASE, "await": await_})
    assert guard.main([]) == status
    assert asked == [str(guard.ROOT)]


def test_machine_without_a_baseline_is_compared_with_the_commit_of_the_last_change(
    baselines: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    baselines.write_text(json.dumps({"another machine": BASE}))
    for command in ("add .", "commit -q -m baselines", "commit -q --allow-empty -m later"):
        subprocess.run(["git", "-C", str(baselines.parent), *command.split()], check=True)
    asked = measured(monkeypatch, old=BASE, new={**BASE, "enqueue": 5000.0})
    assert guard.main([]) == 1
    head = finished(["git", "-C", str(baselines.parent), "rev-parse", "HEAD~1"], check=True)
    assert asked == [str(guard.ROOT), head.stdout.strip()]
    assert f"commit {head.stdout[:8]}, measured now" in capsys.readouterr().out


def test_checkout_without_history_is_refused_with_the_remedy(
    baselines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch)
    with pytest.raises(RuntimeError, match="use a clone with its history"):
        guard.main([])
    assert not baselines.exists()


def test_record_keeps_the_baselines_of_other_machines(
    baselines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    baselines.write_text(json.dumps({"another machine": BASE}))
    measured(monkeypatch, new={"enqueue": 1.4, "await": 2.6, "call": 3.5})
    assert guard.main(["--record"]) == 0
    assert json.loads(baselines.read_text()) == {
        "another machine": BASE,
        KEY: {"enqueue": 1, "await": 3, "call": 4},
    }


def test_key_names_python_compiler_c_library_and_machine() -> None:
    python, compiler, libc, machine = guard.key().split()
    assert python.startswith("cpython-3.")
    assert compiler.rpartition("-")[2][0].isdigit()
    assert "-" in libc
    assert machine
