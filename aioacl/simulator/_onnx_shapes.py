"""Sets the shapes of the inputs of an ONNX model; also the child process of `_onnx_child` does that."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx


def set_shapes(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Sets the shapes by the names of the inputs; -1 is an unknown dimension."""
    for each in model.graph.input:
        if each.name in shapes:
            _set_shape(each, shapes[each.name])


def _set_shape(value: onnx.ValueInfoProto, shape: Sequence[int]) -> None:
    tensor = value.type.tensor_type
    tensor.ClearField("shape")
    tensor.shape.SetInParent()
    for number in shape:
        dim = tensor.shape.dim.add()
        if number >= 0:
            dim.dim_value = number
