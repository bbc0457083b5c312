"""A sample of the models of onnx's backend tests gives the same bits on the simulator as in onnxruntime."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("onnx", reason="models need the package onnx: pip install 'aioacl[onnx]'")
pytest.importorskip("onnxruntime", reason="models need the package onnxruntime: pip install 'aioacl[onnx]'")

import onnx
from onnx import TensorProto, helper

from tests.models.check import judge
from tests.models.corpus import Case, is_random
from tests.support import onnx_models as made
from tests.support.command import finished

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
ARRAY = made.weight("", [2, 3])


def case(model: onnx.ModelProto, *inputs: onnx.TensorProto) -> Case:
    return Case("made", "case", model, [each.SerializeToString() for each in inputs])


def converted(model: onnx.ModelProto, inputs: Sequence[onnx.TensorProto], folder: Path) -> tuple[str, str]:
    verdict = judge(case(model, *inputs), None, folder / "m.onnx")
    return verdict.status, verdict.reason


@pytest.mark.process
def test_sample_of_the_models_gives_the_bits_of_onnxruntime() -> None:
    done = finished([sys.executable, "-m", "tests.models", "--every", "80"], cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = [int(number) for number in re.findall(r"(\d+) equal", done.stdout)]
    assert len(counts) == 5
    assert sum(counts) >= 20


def test_model_that_fits_is_converted(tmp_path: Path) -> None:
    assert converted(made.relu(["N", 3], ["N", 3]), [ARRAY], tmp_path) == ("converted", "")


@pytest.mark.process
def test_wrong_shape_in_the_model_is_found(tmp_path: Path) -> None:
    status, reason = converted(_with_wrong_output(), [ARRAY], tmp_path)
    assert status == "wrong"
    assert "expected the shape (2, 0) of output 'y', atc states (2, 5)" in reason


def _with_wrong_output() -> onnx.ModelProto:
    """A model that states a wrong dimension of an output, which depends on the data."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["m"]),
        helper.make_node("Identity", ["m"], ["y"]),
    ]
    return made.model(nodes, [made.value("x", [2, 3])], [made.value("y", [2, 5], TensorProto.INT64)])


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (made.relu([2, 3], [2, 3], TensorProto.STRING), "onnxruntime does not open it: InvalidGraph"),
        (
            made.model([helper.make_node("RandomUniformLike", ["x"], ["y"])], [made.value("x", [2, 3])], []),
            "its results are random",
        ),
    ],
)
def test_model_that_cannot_be_compared_is_left_out(
    model: onnx.ModelProto, reason: str, tmp_path: Path
) -> None:
    assert converted(model, [ARRAY], tmp_path) == ("left out", reason)


def test_random_operator_in_a_nested_graph_is_found() -> None:
    inner = helper.make_graph(
        [helper.make_node("Bernoulli", ["x"], ["z"])], "inner", [], [made.value("z", [2])]
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    assert is_random(made.model([node], [made.value("c", [], TensorProto.BOOL)], [made.value("y", [2])]))


@pytest.mark.parametrize(("inputs", "random"), [(["x"], False), (["x", "r"], False), (["x", "r", "t"], True)])
def test_dropout_is_random_only_if_it_may_train(inputs: list[str], random: bool) -> None:
    assert is_random(made.model([helper.make_node("Dropout", inputs, ["y"])], [], [])) == random
