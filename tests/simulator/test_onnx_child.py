"""The child process that runs onnxruntime for the simulated atc: its limits, and models that it cannot run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("onnx", reason="the child needs the package onnx: pip install 'aioacl[onnx]'")
pytest.importorskip(
    "onnxruntime", reason="the child needs the package onnxruntime: pip install 'aioacl[onnx]'"
)

from onnx import TensorProto, helper

from aioacl.simulator import _onnx_child
from aioacl.simulator._onnx_child import Unanswered, fold, padded
from tests.support import onnx_models as made

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process


def test_shape_that_depends_on_the_data_stays_unknown() -> None:
    node = helper.make_node("NonZero", ["x"], ["y"])
    source = made.model([node], [made.value("x", [4])], [made.value("y", None, TensorProto.INT64)])
    assert fold(source.SerializeToString(), [{"x": (4,)}]) == [[(1, None)]]


def test_bytes_that_are_no_model_have_no_answer() -> None:
    with pytest.raises(Unanswered):
        fold(b"not a model", [{}])


def test_child_does_not_import_files_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "numpy", "onnx", "onnxruntime"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    assert fold(made.linear().SerializeToString(), [{"x": (2, 64)}]) == [[(2, 10)]]


def test_child_without_memory_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_onnx_child, "MEMORY_BYTES", 1 << 20)
    with pytest.raises(Unanswered):
        fold(made.linear().SerializeToString(), [{"x": (2, 64)}])


def test_child_that_does_not_end_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_onnx_child, "SECONDS", 1)
    monkeypatch.setattr(_onnx_child, "WAITS", 600)
    with pytest.raises(Unanswered, match="it needed more than 1 seconds of processor time"):
        padded(made.endless().SerializeToString(), {"x": (2, 3)}, ["x"], [True])
