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


def computed_shape() -> onnx.ModelProto:
    """x [N, 12] to y [N * 3, 4]: nodes compute the 4, by a cast to float and back, which onnx does not follow."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], start=1, end=2),
        helper.make_node("Cast", ["shape"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["float", "three"], ["quarter"]),
        helper.make_node("Cast", ["quarter"], ["columns"], to=TensorProto.INT64),
        helper.make_node("Concat", ["rest", "columns"], ["new"], axis=0),
        helper.make_node("Reshape", ["x", "new"], ["y"]),
    ]
    constants = [
        onnx.TensorProto(name="three", dims=[1], data_type=TensorProto.FLOAT, float_data=[3]),
        onnx.TensorProto(name="rest", dims=[1], data_type=TensorProto.INT64, int64_data=[-1]),
    ]
    return model(nodes, [value("x", ["N", 12])], [value("y", ["a", "b"])], constants)


def running_sum() -> onnx.ModelProto:
    """x [T, 3] to y [T, 3], the sums of the first rows, and last [3], the sum of all: the first dimension is time."""
    nodes = [
        helper.make_node("CumSum", ["x", "axis"], ["y"]),
        helper.make_node("ReduceSum", ["x", "axes"], ["last"], keepdims=0),
    ]
    constants = [
        onnx.TensorProto(name="axis", dims=[], data_type=TensorProto.INT64, int64_data=[0]),
        onnx.TensorProto(name="axes", dims=[1], data_type=TensorProto.INT64, int64_data=[0]),
    ]
    outputs = [value("y", ["T", 3]), value("last", [3])]
    return model(nodes, [value("x", ["T", 3])], outputs, constants)


def centred() -> onnx.ModelProto:
    """x [N, 3] to y [N, 3], less the mean of each column: each row depends on all rows."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0]),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    return model(nodes, [value("x", ["N", 3])], [value("y", ["N", 3])])


def endless() -> onnx.ModelProto:
    """x [N, 3] to y [N, 3], by a loop that runs 2 ** 62 times."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["before"], ["after"])],
        "body",
        [value("turn", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("before", ["N", 3])],
        [value("on", [], TensorProto.BOOL), value("after", ["N", 3])],
    )
    node = helper.make_node("Loop", ["times", "", "x"], ["y"], body=body)
    times = onnx.TensorProto(name="times", dims=[], data_type=TensorProto.INT64, int64_data=[2**62])
    return model([node], [value("x", ["N", 3])], [value("y", ["N", 3])], [times])
