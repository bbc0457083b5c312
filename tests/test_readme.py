"""The README does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.process
def test_the_example_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    assert len(example.splitlines()) <= 15
    program = tmp_path / "example.py"
    program.write_text(example)
    ran = subprocess.run(
        [sys.executable, "-W", "error", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.fullmatch(r"hello True\ndevice 0: open at generation 2; .*\n", ran.stdout)


SAYS = ["hello\n", "new_stream True\n", "[2, 4, 6]\n"]  # a plain thread, the failed stream, and the kernel


@pytest.mark.process
@pytest.mark.parametrize(("number", "said"), list(enumerate(SAYS)))
def test_the_examples_of_the_reference_run(tmp_path: Path, number: int, said: str) -> None:
    page = (ROOT / "docs" / "reference.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    assert len(examples) == len(SAYS)
    program = tmp_path / "example.py"
    program.write_text(examples[number])
    ran = subprocess.run(
        [sys.executable, "-W", "error", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, said, "")


def test_the_commands_are_there() -> None:
    commands = re.findall(r"^\$ \./(\w+)", README, flags=re.MULTILINE)
    assert commands == ["demo", "test"]
    for command in commands:
        assert (ROOT / command).stat().st_mode & 0o111, f"{command} can be run"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target
