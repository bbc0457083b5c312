"""Handwritten digits, and a network that classifies them. The files are in `aioacl/data`.

examples/models/train_digits.py trains the network and exports it to ONNX. The simulated atc has converted the ONNX
model to both `.om` files: once for one image, and once with batch sizes. NumPy is an optional dependency, so it is
imported when the first array is needed.

All sums of the network are exact in float32. So `outputs` and every correct runtime compute the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from aioacl._base.paths import DATA

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

ONNX: Final = DATA / "digits.onnx"
MODEL: Final = DATA / "digits.om"
BATCH_MODEL: Final = DATA / "digits_batches.om"
BATCH_SIZES: Final = (1, 2, 4, 8, 16, 32)
"""The gears of BATCH_MODEL."""

PIXELS: Final = 64
CLASSES: Final = 10
LARGEST_PIXEL: Final = 16

_DIGITS: Final = DATA / "digits.npz"
_WEIGHTS: Final = DATA / "digits_weights.npz"


@dataclass(frozen=True, slots=True, eq=False)
class Digits:
    """1,797 digits. The arrays are read-only, because all callers share them.

    Attributes:
        images: [1797, 8, 8]; a pixel is a number from 0 to 16.
        labels: [1797]; the digit of each image.
        training: the indices of the digits with which the network was trained.
        held_out: the indices of the other digits, a fifth of all.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    training: NDArray[np.intp]
    held_out: NDArray[np.intp]


@cache
def digits() -> Digits:
    """Returns the digits. Raises ImportError without NumPy."""
    arrays = _arrays(_DIGITS)
    images, labels, held_out = arrays["images"], arrays["labels"], arrays["held_out"].astype("intp")
    is_training = labels >= 0
    is_training[held_out] = False
    (training,) = is_training.nonzero()
    for each in (images, labels, training, held_out):
        each.flags.writeable = False
    return Digits(images, labels, training, held_out)


def inputs(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Returns the input `x` of the network for images [n, 8, 8] or one image: [n, 64], with numbers from 0 to 1."""
    x: NDArray[np.float32] = images.reshape(-1, PIXELS).astype("float32")
    x /= LARGEST_PIXEL
    return x


def outputs(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Returns the output `y` of the network, computed with NumPy: [n, 10], the logit of each class."""
    weights = _arrays(_WEIGHTS)
    hidden = (inputs(images) @ weights["w1"] + weights["b1"]).clip(min=0)
    y: NDArray[np.float32] = hidden @ weights["w2"] + weights["b2"]
    return y


def expected(images: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Returns the digit that the network finds for each image: [n]."""
    classes: NDArray[np.intp] = outputs(images).argmax(axis=1)
    return classes


@cache
def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Returns the arrays of a file by their names."""
    try:
        import numpy as np  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise ImportError(
            f"expected the package numpy, which reads {path.name}, got: {error}; "
            "install it with `pip install 'aioacl[onnx]'`"
        ) from error
    with np.load(path) as file:
        return dict(file)
