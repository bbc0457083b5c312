"""The digits model: the ONNX model, the `.om` files that atc makes of it, and their execution on the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="models need the package onnx: pip install 'aioacl[onnx]'")
pytest.importorskip("onnxruntime", reason="models need the package onnxruntime: pip install 'aioacl[onnx]'")

import onnx

from aioacl import _digits
from aioacl._base.paths import DATA
from aioacl.simulator._atc import Options, convert
from tests.models import reference
from tests.simulator.modelcalls import data, execute, loaded
from tests.simulator.rawacl import device, good

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

pytestmark = pytest.mark.usefixtures("models")

IN, OUT = 4 * _digits.PIXELS, 4 * _digits.CLASSES


def one_of_each() -> NDArray[np.intp]:
    """The index of the first held-out digit of each class."""
    digits = _digits.digits()
    _, first = np.unique(digits.labels[digits.held_out], return_index=True)
    return digits.held_out[first]


def test_onnx_model_has_the_weights_that_numpy_uses() -> None:
    found = {each.name: each for each in onnx.load(_digits.ONNX).graph.initializer}
    weights = _digits._arrays(DATA / "digits_weights.npz")
    assert found.keys() == weights.keys()
    for name, each in found.items():
        assert np.array_equal(onnx.numpy_helper.to_array(each), weights[name]), name


def test_onnxruntime_computes_the_numbers_of_numpy_for_all_digits() -> None:
    images = _digits.digits().images
    session: Any = reference.opened(_digits.ONNX.read_bytes())
    (y,) = session.run(["y"], {"x": _digits.inputs(images)})
    assert np.array_equal(y.argmax(axis=1), _digits.expected(images))
    assert np.array_equal(y, _digits.outputs(images))


@pytest.mark.parametrize(
    ("path", "options"),
    [
        (_digits.MODEL, Options(input_shape="x:1,64")),
        (
            _digits.BATCH_MODEL,
            Options(input_shape="x:-1,64", dynamic_batch_size=",".join(map(str, _digits.BATCH_SIZES))),
        ),
    ],
    ids=["model", "batch_model"],
)
def test_om_file_is_what_atc_makes_of_the_onnx_model(path: Path, options: Options) -> None:
    assert convert(_digits.ONNX, options, path.stem) == path.read_bytes(), (
        "expected the present output of atc; convert aioacl/data/digits.onnx again, "
        "as docs/simulated-models.md describes"
    )


def test_model_classifies_held_out_digits() -> None:
    digits, chosen = _digits.digits(), one_of_each()
    right = 0
    with device(), loaded(_digits.MODEL) as model, data(IN) as inputs, data(OUT) as outputs:
        for place in chosen:
            inputs.write(0, _digits.inputs(digits.images[place])[0].tolist())
            assert execute(model, inputs, outputs) == 0
            y = outputs.read(0)
            assert y == _digits.outputs(digits.images[place])[0].tolist()
            right += y.index(max(y)) == digits.labels[place]
    assert (len(chosen), right) == (10, 9)  # the first 5 is similar to a 9


@pytest.mark.parametrize("batch", _digits.BATCH_SIZES)
def test_batch_model_computes_each_row_of_the_gear(batch: int) -> None:
    largest = _digits.BATCH_SIZES[-1]
    images = _digits.digits().images[:batch]
    with (
        device(),
        loaded(_digits.BATCH_MODEL) as model,
        data(IN * largest, 8) as inputs,
        data(OUT * largest) as outputs,
    ):
        inputs.write(0, _digits.inputs(images).ravel().tolist())
        good("aclmdlSetDynamicBatchSize", model, inputs.dataset, 1, batch)
        assert execute(model, inputs, outputs) == 0
        assert outputs.read(0)[: _digits.CLASSES * batch] == _digits.outputs(images).ravel().tolist()
