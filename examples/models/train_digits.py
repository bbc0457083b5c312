"""Trains a network that classifies handwritten digits, and exports it to ONNX.

    python -m pip install numpy onnx
    python examples/models/train_digits.py
    python -m aioacl simulator atc --model digits.onnx --framework 5 --output digits --input_shape "x:1,64"

The network is in plain NumPy: 64 inputs, 64 hidden units with ReLU, 10 outputs. Its training is gradient descent on all
training digits, with momentum and weight decay. The outputs are logits, not probabilities: the largest one is the class
in both cases, and a program can compute the softmax itself.

The trained weights are rounded to multiples of 2**-6, for two reasons. First, each run writes the same bytes. The
order in which BLAS adds numbers depends on the processor, and the sums differ in the last bits. These differences are
much smaller than the distance of any weight to the nearest place where rounding changes. Second, all sums of the
network are exact in float32. So every correct runtime computes the same logits, bit by bit.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DATA: Final = Path(__file__).parents[2] / "aioacl" / "data" / "digits.npz"
LARGEST_PIXEL: Final = 16
CLASSES: Final = 10
HIDDEN: Final = 64
HELD_OUT: Final = 5  # one digit of five is not used for training
STEPS: Final = 500
RATE, MOMENTUM, DECAY = 0.3, 0.9, 0.002
WEIGHT_STEP: Final = 2.0**-6
NAMES: Final = ("w1", "b1", "w2", "b2")
OPSET, IR_VERSION = 17, 8  # onnxruntime releases of several years run both


# --- the digits ---------------------------------------------------------------------------------------------------


def fetch(path: Path) -> None:
    """Writes the digits of scikit-learn, and the split, to a file."""
    datasets: Any = import_module("sklearn.datasets")  # only this function needs scikit-learn
    found = datasets.load_digits()
    count = len(found.target)
    # RandomState is kept for this purpose: its numbers are the same in all releases of NumPy.
    shuffled = np.random.RandomState(0).permutation(count)
    np.savez(
        path,
        images=found.images.astype(np.uint8),
        labels=found.target.astype(np.uint8),
        held_out=np.sort(shuffled[: count // HELD_OUT]).astype(np.uint16),
    )


def inputs(images: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Returns images as rows of 64 numbers from 0 to 1."""
    return images.reshape(len(images), -1) / LARGEST_PIXEL


# --- the training -------------------------------------------------------------------------------------------------


def initial(rows: int, columns: int, seed: int) -> NDArray[np.float64]:
    """Returns random weights of a layer, uniformly distributed with the variance 1 / rows."""
    limit = np.sqrt(3 / rows)
    weights: NDArray[np.float64] = np.random.RandomState(seed).uniform(-limit, limit, (rows, columns))
    return weights


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the probability of each class."""
    powers: NDArray[np.float64] = np.exp(logits - logits.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def gradients(
    weights: Sequence[NDArray[np.float64]], x: NDArray[np.float64], wanted: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    """Returns the gradient of the cross-entropy for each array of weights."""
    w1, b1, w2, b2 = weights
    hidden = np.maximum(x @ w1 + b1, 0)
    error = (softmax(hidden @ w2 + b2) - wanted) / len(x)
    hidden_error = (error @ w2.T) * (hidden > 0)
    return [x.T @ hidden_error, hidden_error.sum(axis=0), hidden.T @ error, error.sum(axis=0)]


def train(x: NDArray[np.float64], labels: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
    """Returns the weights and biases of both layers, in the order of NAMES."""
    weights = [
        initial(x.shape[1], HIDDEN, seed=0),
        np.zeros(HIDDEN),
        initial(HIDDEN, CLASSES, seed=1),
        np.zeros(CLASSES),
    ]
    speeds = [np.zeros_like(each) for each in weights]
    wanted = np.eye(CLASSES)[labels]
    for _ in range(STEPS):
        for place, gradient in enumerate(gradients(weights, x, wanted)):
            speeds[place] = MOMENTUM * speeds[place] - RATE * (gradient + DECAY * weights[place])
            weights[place] = weights[place] + speeds[place]
    return [(np.round(each / WEIGHT_STEP) * WEIGHT_STEP).astype(np.float32) for each in weights]


def right(
    weights: Sequence[NDArray[np.float32]], x: NDArray[np.float64], labels: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    """Returns for each digit whether the network finds its class."""
    w1, b1, w2, b2 = weights
    logits = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    found: NDArray[np.bool_] = logits.argmax(axis=1) == labels
    return found


# --- the export ---------------------------------------------------------------------------------------------------


def exported(weights: Sequence[NDArray[np.float32]]) -> bytes:
    """Returns the ONNX model. The first dimension has a name and not a number, so atc can convert it with gears."""
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["sums"]),
            helper.make_node("Relu", ["sums"], ["hidden"]),
            helper.make_node("Gemm", ["hidden", "w2", "b2"], ["y"]),
        ],
        "digits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", len(weights[0])])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(each, name) for name, each in zip(NAMES, weights, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return bytes(model.SerializeToString(deterministic=True))


def write(folder: Path, weights: Sequence[NDArray[np.float32]]) -> None:
    """Writes the ONNX model, and a file with the weights for programs that have NumPy only."""
    (folder / "digits.onnx").write_bytes(exported(weights))
    named: dict[str, Any] = dict(zip(NAMES, weights, strict=True))
    np.savez(folder / "digits_weights.npz", **named)


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a network that classifies handwritten digits.")
    parser.add_argument(
        "--data",
        type=Path,
        default=DATA,
        metavar="FILE",
        help="the digits; a missing file is made with scikit-learn (default: the file of the package)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="where to write digits.onnx and digits_weights.npz (default: the current folder)",
    )
    arguments = parser.parse_args()
    if not arguments.data.exists():
        fetch(arguments.data)
    with np.load(arguments.data) as file:
        x, labels, held_out = inputs(file["images"]), file["labels"], file["held_out"]
    training = np.setdiff1d(np.arange(len(labels)), held_out)
    weights = train(x[training], labels[training])
    write(arguments.output, weights)
    for what, places in (("training", training), ("held-out", held_out)):
        found = right(weights, x[places], labels[places])
        print(f"{what} digits: {found.sum()} of {len(found)} right ({found.mean():.1%})")


if __name__ == "__main__":
    main()
