"""Small ONNX models. The import needs the package onnx."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import onnx
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Sequence

Shape: TypeAlias = "Sequence[int | str | None] | None"
OPSET = 17  # with version 8 of the format; onnxruntime releases of several years run both
IR_VERSION = 8


def value(name: str, shape: Shape, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """An input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> onnx.TensorProto:
    """An initializer of zeros."""
    return onnx.TensorProto(
        name=name,
        dims=shape,
        data_type=dtype,
        raw_data=bytes(helper.tensor_dtype_to_np_dtype(dtype).itemsize * max(1, _product(shape))),
    )


def _product(shape: Sequence[int]) -> int:
    product = 1
    for dim in shape:
        product *= dim
    return product


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[onnx.TensorProto] = (),
    ir_version: int = IR_VERSION,
) -> onnx.ModelProto:
    """A model, which need not be valid."""
    graph = helper.make_graph(nodes, "graph", inputs, outputs, weights)
    domains = {node.domain for node in nodes} - {""}
    opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in sorted(domains))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def linear(batch: int | str = "N", inputs: int = 64, outputs: int = 10) -> onnx.ModelProto:
    """One matrix product: x [batch, inputs] to y [batch, outputs]."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return model(
        [node],
        [value("x", [batch, inputs])],
        [value("y", [batch, outputs])],
        [weight("w", [inputs, outputs])],
    )


def relu(shape: Shape, output: Shape, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """x to y, of the same type."""
    return model(
        [helper.make_node("Relu", ["x"], ["y"])], [value("x", shape, dtype)], [value("y", output, dtype)]
    )
