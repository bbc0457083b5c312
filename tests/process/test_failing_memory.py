"""Host memory, threads or descriptors run out in the extension, in each public operation, at each allocation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.command import finished

HERE = Path(__file__).parent
SECONDS = 240
COMPILED_WITH = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC")
MODEL = "model" if find_spec("onnxruntime") else "none"


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that lets allocations fail, for LD_PRELOAD."""
    target = tmp_path_factory.mktemp("failing") / "failing_memory.so"
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    source = str(HERE / "failing_memory.c")
    subprocess.run([*compiler.split(), *COMPILED_WITH, source, "-o", str(target)], check=True)
    return target


@pytest.mark.slow  # seconds usually, but a step that waits for a time limit takes up to a minute
@pytest.mark.parametrize("waits", ["watch", "thread"])
def test_operation_without_memory_raises_and_the_next_one_succeeds(failing: Path, waits: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AIOACL_")}
    done = finished(
        [sys.executable, "-W", "error", str(HERE / "failing_steps.py"), str(failing), waits, MODEL],
        env={**clean, "LD_PRELOAD": str(failing)},
        timeout=SECONDS,
    )
    assert (done.returncode, done.stderr) == (0, "")
    counts = {name: int(raised) for name, _, raised in map(str.split, done.stdout.splitlines())}
    assert counts["copies_pinned_memory"] >= 1  # else no allocation was counted
    assert counts["copies_pageable_memory"] >= 2
    assert counts["opens_and_closes"] >= 1
