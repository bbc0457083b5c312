"""examples/models/train_digits.py writes the files of the digits model, always with the same bytes."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aioacl._base.paths import DATA
from tests.support.command import finished

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("onnx", reason="the script exports with the package onnx: pip install 'aioacl[onnx]'")

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "models" / "train_digits.py"
# With these variables, OpenBLAS and NumPy use code for old processors, which adds numbers in another order.
OLD_PROCESSOR = {"OPENBLAS_CORETYPE": "Prescott"}


@pytest.mark.parametrize("more", [{}, OLD_PROCESSOR], ids=["this_processor", "old_processor"])
def test_training_writes_the_bytes_of_the_package_and_prints_the_text_of_the_page(
    more: dict[str, str], tmp_path: Path
) -> None:
    ran = finished(
        [sys.executable, "-W", "error", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **more},
        timeout=300,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == {"digits.onnx", "digits_weights.npz"}
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (DATA / path.name).read_bytes(), path.name
    assert ran.stdout in (ROOT / "docs" / "simulated-models.md").read_text()


def test_fetch_writes_the_digits_of_scikit_learn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests do not install scikit-learn, so it is replaced. Its load_digits returns floats and 64-bit labels."""
    with np.load(DATA / "digits.npz") as file:
        found = SimpleNamespace(
            images=file["images"].astype(np.float64), target=file["labels"].astype(np.int64)
        )
    replaced: Any = ModuleType("sklearn.datasets")
    replaced.load_digits = lambda: found
    monkeypatch.setitem(sys.modules, "sklearn", ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", replaced)
    fetch: Callable[[Path], None] = runpy.run_path(str(SCRIPT))["fetch"]
    fetch(tmp_path / "digits.npz")
    assert (tmp_path / "digits.npz").read_bytes() == (DATA / "digits.npz").read_bytes()
