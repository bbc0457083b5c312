"""Offline models for tests: small ONNX models that the simulator's atc converts. The import needs the package onnx."""

from __future__ import annotations

import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import aioacl
from aioacl import simulator
from aioacl.simulator._atc import Options, convert
from tests.support.onnx_models import model, value

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx
    from numpy.typing import NDArray

    from aioacl._models.loading import Load
    from tests.support.onnx_models import Shape

needs_onnxruntime = pytest.mark.skipif(
    find_spec("onnxruntime") is None, reason="loading a model needs onnxruntime: pip install 'aioacl[onnx]'"
)

WEIGHTS: Final[NDArray[np.float32]] = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
ROWS: Final = 2
LARGE: Final = 1 << 19  # elements of `large`; with 4 bytes each, more than one chunk


def converted(source: onnx.ModelProto, **options: Any) -> bytes:
    """Returns the bytes of the .om file. Its name is "m"."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(source.SerializeToString())
        return convert(path, Options(**options), "m")


@cache
def product(batches: str = "") -> bytes:
    """y = x @ WEIGHTS, for x of [2, 3], or of batches of rows."""
    rows = "N" if batches else ROWS
    source = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [value("x", [rows, 3])],
        [value("y", [rows, 4])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    gears = {"input_shape": "x:-1,3", "dynamic_batch_size": batches} if batches else {}
    return converted(source, **gears)


def rows(first: float = 0, count: int = ROWS) -> NDArray[np.float32]:
    """An argument of `product`, whose values depend on `first`."""
    return np.arange(count * 3, dtype=np.float32).reshape(count, 3) + np.float32(first)


@cache
def identity(dtype: int = TensorProto.FLOAT, shape: tuple[int, ...] = (4,), node: str = "Identity") -> bytes:
    """y = x, or another function of one tensor that keeps its type and shape."""
    return converted(
        model([helper.make_node(node, ["x"], ["y"])], [value("x", shape, dtype)], [value("y", shape, dtype)])
    )


@cache
def sums(batches: str = "") -> bytes:
    """plus = a + b and minus = a - b, for a and b of [2, 3], or of batches of rows."""
    shape: Shape = ["N" if batches else ROWS, 3]
    source = model(
        [helper.make_node("Add", ["a", "b"], ["plus"]), helper.make_node("Sub", ["a", "b"], ["minus"])],
        [value("a", shape), value("b", shape)],
        [value("plus", shape), value("minus", shape)],
    )
    gears = {"input_shape": "a:-1,3;b:-1,3", "dynamic_batch_size": batches} if batches else {}
    return converted(source, **gears)


@cache
def totals() -> bytes:
    """y = the sum over the rows of each column, for batches of 2 or 4 rows of 3. The output has no batch."""
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    node.input.append("axes")
    source = model(
        [node],
        [value("x", ["N", 3])],
        [value("y", [3])],
        [numpy_helper.from_array(np.array([0], np.int64), "axes")],
    )
    return converted(source, input_shape="x:-1,3", dynamic_batch_size="2,4")


@cache
def negated_image(sizes: str = "2,4;4,2") -> bytes:
    """y = -x for images of one row, two channels, and one of these sizes."""
    shape: Shape = [1, 2, "H", "W"]
    source = model([helper.make_node("Neg", ["x"], ["y"])], [value("x", shape)], [value("y", shape)])
    return converted(source, input_format="NCHW", input_shape="x:1,2,-1,-1", dynamic_image_size=sizes)


@cache
def dims(gears: str = "2,3;4,5") -> bytes:
    """y = -x, for x of the shapes of the gears."""
    source = model(
        [helper.make_node("Neg", ["x"], ["y"])], [value("x", ["A", "B"])], [value("y", ["A", "B"])]
    )
    return converted(source, input_format="ND", input_shape="x:-1,-1", dynamic_dims=gears)


# --- the state of a loaded model ----------------------------------------------------------------------------------


def load_of(loaded: aioacl.Model) -> Load:
    """The present load of the model."""
    assert loaded._life.load is not None
    return loaded._life.load


def streams_of(loaded: aioacl.Model) -> list[aioacl.Stream]:
    """The streams of the slots."""
    return load_of(loaded)._streams[:-1]


def hold(loaded: aioacl.Model) -> None:
    """Holds the streams of all slots, so that no call ends."""
    for stream in streams_of(loaded):
        simulator.hold(stream)


def release(loaded: aioacl.Model) -> None:
    """Releases what `hold` has held."""
    for stream in streams_of(loaded):
        simulator.release(stream)


def all_free(loaded: aioacl.Model) -> bool:
    """Whether no call uses a slot."""
    slots = load_of(loaded).slots
    return slots.free == slots.all


def enqueued() -> int:
    """The number of executions that were enqueued."""
    return simulator.calls("aclmdlExecuteAsync")


def short_limits() -> Iterator[float]:
    """Time limits for calls that do not end, until one of the calls has enqueued its execution.

    On a slow machine, a limit may end earlier. So each limit is twice as long as the one before.
    """
    limit = 0.02
    while not enqueued():
        yield limit
        limit *= 2


def executions() -> int:
    """The number of executions of all loaded models that have succeeded."""
    return sum(each.executions for each in simulator.models())
