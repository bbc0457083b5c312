"""The digits in aioacl/data: the split, the sizes, and the network that NumPy evaluates."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from aioacl import _digits
from aioacl._base.paths import DATA

COUNTS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # of each digit, as the data set's page states
MOST_BYTES = 300_000
STEP = 2.0**-6  # of the weights


def test_digits_are_those_of_the_data_set() -> None:
    digits = _digits.digits()
    assert digits.images.shape == (1797, 8, 8)
    assert digits.images.dtype == np.uint8
    assert (digits.images.min(), digits.images.max()) == (0, _digits.LARGEST_PIXEL)
    assert np.bincount(digits.labels).tolist() == COUNTS


def test_split_is_disjoint_and_holds_out_a_fifth() -> None:
    digits = _digits.digits()
    assert sorted([*digits.training, *digits.held_out]) == list(range(1797))
    assert len(digits.held_out) == 1797 // 5


def test_split_is_fixed() -> None:
    shuffled = np.random.RandomState(0).permutation(1797)  # the same in all releases of NumPy
    assert _digits.digits().held_out.tolist() == sorted(shuffled[: 1797 // 5])


def test_each_digit_is_held_out_often_enough() -> None:
    digits = _digits.digits()
    assert np.bincount(digits.labels[digits.held_out]).min() >= 25


@pytest.mark.parametrize("name", ["images", "labels", "training", "held_out"])
def test_arrays_are_read_only_and_shared(name: str) -> None:
    array = getattr(_digits.digits(), name)
    assert array is getattr(_digits.digits(), name)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0


def test_files_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in DATA.iterdir()}
    assert {path.name for path in (_digits.ONNX, _digits.MODEL, _digits.BATCH_MODEL)} <= set(sizes)
    assert sum(sizes.values()) < MOST_BYTES, sizes


def test_network_classifies_held_out_digits() -> None:
    digits = _digits.digits()
    right = _digits.expected(digits.images[digits.held_out]) == digits.labels[digits.held_out]
    assert right.mean() >= 0.95


def test_input_has_a_row_of_numbers_from_0_to_1_for_each_image() -> None:
    images = _digits.digits().images
    x = _digits.inputs(images)
    assert x.shape == (1797, 64)
    assert x.dtype == np.float32
    assert (x.min(), x.max()) == (0.0, 1.0)
    assert np.array_equal(_digits.inputs(images[5]), x[5:6])


def test_output_of_one_image_is_a_row_of_the_output_of_all() -> None:
    images = _digits.digits().images
    y = _digits.outputs(images)
    assert y.shape == (1797, _digits.CLASSES)
    assert y.dtype == np.float32
    assert np.array_equal(_digits.outputs(images[5]), y[5:6])
    assert _digits.expected(images[5]).tolist() == [int(y[5].argmax())]


def test_sums_of_the_network_are_exact_in_float32() -> None:
    """All terms are multiples of a step, and no sum of their sizes needs more bits than a float32 has."""
    w1, b1, w2, b2 = (_digits._arrays(DATA / "digits_weights.npz")[name] for name in ("w1", "b1", "w2", "b2"))
    for each in (w1, b1, w2, b2):
        assert np.array_equal(each, np.round(each / STEP) * STEP)
    x = _digits.inputs(_digits.digits().images).astype(np.float64)
    pixel = 1 / _digits.LARGEST_PIXEL
    assert (x @ np.abs(w1) + np.abs(b1)).max() < 2**24 * pixel * STEP
    hidden = np.maximum(x @ w1 + b1, 0)
    assert (hidden @ np.abs(w2) + np.abs(b2)).max() < 2**24 * pixel * STEP * STEP


def test_without_numpy_the_module_is_imported_and_the_digits_name_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    module = runpy.run_path(str(Path(_digits.__file__)))
    with pytest.raises(
        ImportError, match=r"^expected the package numpy, .* install it with `pip install 'aioacl\[onnx\]'`"
    ):
        module["digits"]()
