"""Model files for tests: containers that are written byte by byte, and small ONNX models."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import pytest

FLOAT, INT64 = 0, 9  # ACL's numbers of data types
ND = 2  # the number of a format
GEAR_INPUT = "ascend_mbatch_shape_data"
MARK = b"AIOACL-SIMULATED"
DESCRIPTION, PRIVATE = 8, 0x41494F00
ELEMENT_BYTES: Final = {FLOAT: 4, INT64: 8}

needs_onnxruntime = pytest.mark.skipif(
    find_spec("onnxruntime") is None or find_spec("onnx") is None,
    reason="executing a model needs onnxruntime and onnx; install aioacl[onnx]",
)


@dataclass(frozen=True)
class Tensor:
    """One input or output."""

    name: str
    dims: tuple[int, ...]
    dtype: int = FLOAT
    size: int = -1
    second_dims: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def nbytes(self) -> int:
        """The given size, otherwise the product of the dimensions that are known."""
        if self.size >= 0:
            return self.size
        count = ELEMENT_BYTES[self.dtype]
        for dim in self.dims:
            count *= max(dim, 0)
        return count


def packed(letter: str, values: Any) -> bytes:
    return struct.pack(f"<{len(values)}{letter}", *values)


def tensors(*each: Tensor) -> bytes:
    """The value of the parts 0 and 1."""
    parts = [struct.pack("<I", len(each))]
    for one in each:
        name = one.name.encode()
        dims, second = packed("q", one.dims), packed("q", one.second_dims)
        ranges = packed("q", [number for pair in one.ranges for number in pair])
        lengths = (len(name), len(dims), len(second), len(ranges))
        parts.append(
            struct.pack("<QiiIIII", one.nbytes, ND, one.dtype, *lengths) + name + dims + second + ranges
        )
    return b"".join(parts)


def batches(*sizes: int) -> bytes:
    """The value of part 2."""
    return struct.pack("<I", len(sizes)) + packed("Q", sizes)


def gears(*each: tuple[int, ...]) -> bytes:
    """The value of the parts 3 and 4."""
    lengths = packed("I", [len(gear) for gear in each])
    return struct.pack("<I", len(each)) + lengths + b"".join(packed("Q", gear) for gear in each)


def texts(*each: str) -> bytes:
    """The value of the parts 5 and 6."""
    encoded = [text.encode() for text in each]
    return struct.pack("<I", len(each)) + packed("I", [len(one) for one in encoded]) + b"".join(encoded)


def description(parts: dict[int, bytes]) -> bytes:
    return b"".join(struct.pack("<II", kind, len(value)) + value for kind, value in parts.items())


def private(onnx: bytes) -> bytes:
    """The partition with the ONNX model."""
    rest = struct.pack("<IIQ", 1, 0, len(onnx)) + onnx
    return hashlib.sha256(rest).digest() + rest


def container(
    partitions: dict[int, bytes], *, simulated: bool = False, dynamic: bool = False, wide: bool = True
) -> bytes:
    """The bytes of a file with these partitions. `wide` selects the table with offsets of 64 bits."""
    table, content = b"", b""
    for kind, value in partitions.items():
        row = (kind, 0, len(content), len(value)) if wide else (kind, len(content), len(value))
        table += struct.pack("<IIQQ" if wide else "<III", *row)
        content += value
    count = struct.pack("<II" if wide else "<I", *((len(partitions), 0) if wide else (len(partitions),)))
    rest = count + table + content
    header = bytearray(256)
    struct.pack_into("<III", header, 0, 0x444F4D49, 256, 0x10000000)
    struct.pack_into("<I", header, 76, len(rest))
    struct.pack_into("<Q", header, 184, len(rest) if wide else 0)
    header[193] = dynamic
    if simulated:
        header[208:224] = MARK
    return bytes(header) + rest


def genuine(*, wide: bool = True) -> bytes:
    """A model of a chip, with one input and one output."""
    parts = {0: tensors(Tensor("x", (2, 3))), 1: tensors(Tensor("y", (2, 3)))}
    return container({1: b"w" * 100, DESCRIPTION: description(parts)}, wide=wide)


def simulated(onnx: bytes, parts: dict[int, bytes], *, dynamic: bool = False) -> bytes:
    """A model of the simulator's atc."""
    return container(
        {DESCRIPTION: description(parts), PRIVATE: private(onnx)}, simulated=True, dynamic=dynamic
    )


def onnx_model(
    nodes: list[tuple[str, list[str], list[str]]],
    inputs: dict[str, list[int | str]],
    outputs: dict[str, list[int | str]],
    **constants: list[float],
) -> bytes:
    """An ONNX model of float tensors."""
    from onnx import TensorProto, helper  # onnx is optional

    def infos(shapes: dict[str, list[int | str]]) -> list[Any]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in shapes.items()]

    values = [
        helper.make_tensor(name, TensorProto.FLOAT, [len(each)], each) for name, each in constants.items()
    ]
    made = [helper.make_node(*node) for node in nodes]
    graph = helper.make_graph(made, "test", infos(inputs), infos(outputs), values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


def doubling_onnx(rows: int | str = 2) -> bytes:
    """An ONNX model that returns x + x, for x with that many rows of three numbers."""
    return onnx_model([("Add", ["x", "x"], ["y"])], {"x": [rows, 3]}, {"y": [rows, 3]})


def doubling() -> bytes:
    """A simulated model of `doubling_onnx()` with a fixed shape."""
    parts = {0: tensors(Tensor("x", (2, 3))), 1: tensors(Tensor("y", (2, 3)))}
    return simulated(doubling_onnx(), parts)
