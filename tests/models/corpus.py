"""The models of onnx's backend tests, with the inputs that the tests have.

A model without inputs of its own, such as those of the light set, gets random inputs, always the same.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import DATA_DIR, load_model_tests

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS: Final = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")

RANDOM: Final = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
"""The operators whose results differ from run to run. Dropout is one too if it trains."""


@dataclass(frozen=True)
class Case:
    """A model, and the values of its inputs by their places, each as a shape and bytes."""

    kind: str
    name: str
    model: onnx.ModelProto
    inputs: list[Any]
    path: Path | None = None

    @property
    def content(self) -> bytes:
        """The file of the model."""
        return self.path.read_bytes() if self.path is not None else self.model.SerializeToString()


@dataclass(frozen=True)
class Value:
    """A tensor."""

    shape: tuple[int, ...]
    content: bytes


def cases(kinds: tuple[str, ...] = KINDS) -> Iterator[Case]:
    """Yields all cases of the kinds, in a fixed order."""
    for kind in kinds:
        if kind == "light":
            for path in sorted(Path(DATA_DIR, kind).glob("*.onnx")):
                yield Case(kind, path.stem, onnx.load(path), [], path)
            continue
        for test in sorted(load_model_tests(kind=kind), key=lambda test: test.name):
            if test.model is not None:
                values = list(test.data_sets[0][0]) if test.data_sets else []
                yield Case(kind, test.name, test.model, values)
            elif test.model_dir is not None:
                folder = Path(test.model_dir)
                yield Case(
                    kind, test.name, onnx.load(folder / "model.onnx"), _stored(folder), folder / "model.onnx"
                )


def _stored(folder: Path) -> list[Any]:
    paths = folder.glob("test_data_set_0/input_*.pb")
    ordered = sorted(paths, key=lambda path: int(re.findall(r"\d+", path.stem)[-1]))
    return [path.read_bytes() for path in ordered]


def is_random(model: onnx.ModelProto) -> bool:
    """Whether the model has an operator whose results differ from run to run, also in nested graphs and functions."""
    return any(
        node.op_type in RANDOM or (node.op_type == "Dropout" and _trains(node)) for node in _nodes(model)
    )


def _trains(node: onnx.NodeProto) -> bool:
    """Whether a Dropout may train: its third input decides, since version 12."""
    return len(node.input) > 2 and bool(node.input[2])


def _nodes(message: Any) -> Iterator[onnx.NodeProto]:
    for _, value in message.ListFields():
        repeated = hasattr(value, "__getitem__") and not isinstance(value, (str, bytes))
        for each in value if repeated else (value,):
            if isinstance(each, onnx.NodeProto):
                yield each
            if hasattr(each, "ListFields") and not isinstance(each, onnx.TensorProto):
                yield from _nodes(each)


def value_of(stored: Any, dtype: int) -> Value:
    """Returns an input as a tensor of ONNX's data type `dtype`. Raises ValueError if it has another type."""
    if isinstance(stored, bytes):
        stored = onnx.TensorProto.FromString(stored)
    if not isinstance(stored, onnx.TensorProto):
        stored = numpy_helper.from_array(np.asarray(stored))
    if stored.data_type != dtype:
        raise ValueError(f"expected data type {dtype}, got {stored.data_type}")
    packed = numpy_helper.from_array(numpy_helper.to_array(stored))
    return Value(tuple(packed.dims), packed.raw_data)


def random_value(name: str, shape: tuple[int, ...]) -> Value:
    """Returns random float32 numbers from 0 to 1, which depend on the name only."""
    chance = np.random.default_rng(zlib.crc32(name.encode()))
    return Value(shape, chance.random(shape, dtype=np.float32).tobytes())
