"""ONNX models: reading a file, its inputs and outputs, and the shapes of the outputs for given shapes of the inputs.

This module needs the package `onnx`; only `_atc` imports it, and reports a missing package.

The shapes come from onnx's inference. It works on a copy of the model without large weights, because it may run a
hundred times, once for each gear. If it does not find a shape that the inputs may decide, onnxruntime folds constants:
see `_onnx_child`. If a dimension is still unknown, the model's own statement about the output is used: a number, or a
symbol that an input has too.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import onnx
from onnx.external_data_helper import load_external_data_for_model, uses_external_data

from aioacl._base.dtypes import FROM_ONNX
from aioacl.simulator._om import BadModel
from aioacl.simulator._onnx_child import Unanswered, because, fold
from aioacl.simulator._onnx_shapes import set_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

MOST_BYTES: Final = 2**31 - 1  # of a message of protobuf
_LARGE: Final = 1024  # elements; the weights that decide shapes are smaller

Dimension = int | str | None
"""A number, a symbol, or unknown."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a model. Its shape is None if the number of dimensions is unknown."""

    name: str
    dtype: int
    shape: tuple[Dimension, ...] | None


@dataclass(frozen=True, slots=True)
class OutputShapes:
    """The shapes of the outputs for each set of shapes of the inputs; -1 is a dimension that cannot be inferred.

    `reason` states why onnxruntime has found no shapes; "" if it has, or was not asked.
    """

    gears: list[list[tuple[int, ...]]]
    reason: str = ""


class Source:
    """A model that was read. `content` is the model in one piece, with its external data."""

    def __init__(self, model: onnx.ModelProto, content: bytes) -> None:
        self.content = content
        graph = model.graph
        weights = {each.name for each in graph.initializer} | {
            each.values.name for each in graph.sparse_initializer
        }
        # Before version 4 of the format, weights are listed as inputs too. Later a listed weight is a default value.
        self.inputs = tuple(_port(each, "input") for each in graph.input if each.name not in weights)
        self._skeleton = _skeleton(model)
        self.outputs = tuple(_port(each, "output") for each in self._typed_outputs())

    def _typed_outputs(self) -> list[onnx.ValueInfoProto]:
        """Returns the outputs; the inference finds the types that the model does not state."""
        stated = list(self._skeleton.graph.output)
        if all(each.type.WhichOneof("value") is not None for each in stated):
            return stated
        return list(_inferred(self._skeleton).graph.output)

    def output_shapes(self, gears: Sequence[Mapping[str, tuple[int, ...]]]) -> OutputShapes:
        """Returns the shapes of the outputs for each set of shapes of the inputs, which may have -1.

        Raises BadModel if the number of dimensions of an output is unknown.
        """
        models = [self._model(shapes) for shapes in gears]
        inferred = [self._inferred(model) for model in models]
        for shapes, model, each in zip(gears, models, inferred, strict=True):
            if any(shape is None or -1 in shape for shape in self._merged(shapes, each)):
                _inferred(model, strict=True)  # raises BadModel if an operator and its inputs do not fit
        folded, reason = self._folded(gears, inferred)
        made: list[list[tuple[int, ...]]] = []
        for shapes, *both in zip(gears, inferred, folded, strict=True):
            found = self._merged(shapes, [*map(_filled, *both)])
            made.append(
                [_known(port, shape, reason) for port, shape in zip(self.outputs, found, strict=True)]
            )
        return OutputShapes(made, reason)

    def _merged(
        self, shapes: Mapping[str, tuple[int, ...]], found: Sequence[tuple[Dimension, ...] | None]
    ) -> list[tuple[int, ...] | None]:
        symbols = _symbols(self.inputs, shapes)
        return [_merged(port, shape, symbols) for port, shape in zip(self.outputs, found, strict=True)]

    def corrected(self, gears: Sequence[Sequence[tuple[int, ...]]]) -> bytes:
        """Returns the model without the stated shapes of outputs that contradict the found ones.

        onnxruntime does not write an output to memory of another shape than the model states.
        """
        wrong = {
            port.name
            for place, port in enumerate(self.outputs)
            if any(_contradicts(port.shape, shapes[place]) for shapes in gears)
        }
        if not wrong:
            return self.content
        model = onnx.ModelProto.FromString(self.content)
        for each in model.graph.output:
            if each.name in wrong:
                each.type.tensor_type.ClearField("shape")
        content: bytes = model.SerializeToString(deterministic=True)
        return content

    def _model(self, shapes: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
        """Returns the model without large weights, and with these shapes of the inputs."""
        model = onnx.ModelProto()
        model.CopyFrom(self._skeleton)
        if any(port.shape != shapes[port.name] for port in self.inputs):
            _forget_shapes(model.graph)
        set_shapes(model, shapes)
        return model

    def _inferred(self, model: onnx.ModelProto) -> list[tuple[Dimension, ...] | None]:
        found = {each.name: _shape(each.type.tensor_type) for each in _inferred(model).graph.output}
        return [found.get(port.name) for port in self.outputs]

    def _folded(
        self,
        gears: Sequence[Mapping[str, tuple[int, ...]]],
        inferred: Sequence[Sequence[tuple[Dimension, ...] | None]],
    ) -> tuple[Sequence[Sequence[tuple[int | None, ...] | None]], str]:
        """Returns what onnxruntime finds, and why it finds nothing. It is asked only if it may find more."""
        nothing = [[None] * len(self.outputs)] * len(gears)
        if not any(map(_may_be_folded, gears, inferred)):
            return nothing, ""
        model = onnx.ModelProto()
        model.CopyFrom(self._skeleton)
        _forget_shapes(model.graph)
        try:
            return fold(model.SerializeToString(), gears), ""
        except Unanswered as error:
            return nothing, str(error)


# --- reading ------------------------------------------------------------------------------------------------------


def load(path: Path) -> Source:
    """Reads a model, with its external data. Raises OSError, and BadModel if it is not a usable model."""
    _must_be_small(path.stat().st_size)
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    _must_be_small(len(content))  # a device or a pipe has no size
    model = _parsed(content)
    external: list[onnx.TensorProto] = []
    for each in _messages(model):
        _must_be_text(each)
        if isinstance(each, onnx.TensorProto) and uses_external_data(each):
            external.append(each)
    if external:
        _must_be_small(len(content) + sum(_external_size(path.parent, tensor) for tensor in external))
        _load_external(model, path.parent)
        content = model.SerializeToString(deterministic=True)
    return Source(model, content)


def _must_be_small(size: int) -> None:
    if size > MOST_BYTES:
        raise BadModel(
            f"expected an ONNX model of less than 2 GiB with its external data, got {size} bytes; use a smaller model"
        )


def _parsed(content: bytes) -> onnx.ModelProto:
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(content)
    except Exception as error:  # noqa: BLE001 - protobuf has several parsers, and each has exceptions of its own
        raise BadModel(
            f"expected an ONNX model, got bytes that are not one ({error}); export the model again"
        ) from None
    if not model.ir_version or not model.graph.output:  # the parser accepts many bytes that are not a model
        raise BadModel("expected an ONNX model with at least one output, got none; export the model again")
    return model


def _messages(message: Any) -> Iterator[Any]:
    """Yields a message and all messages inside: nodes, tensors, attributes, nested graphs."""
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for each in _values(value):
                yield from _messages(each)


def _values(value: Any) -> Any:
    """Returns the values of a field, which may be repeated."""
    return value if hasattr(value, "__getitem__") and not isinstance(value, (str, bytes)) else (value,)


def _must_be_text(message: Any) -> None:
    """Raises BadModel if a text of a message is not UTF-8. protobuf then returns it as bytes."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            wrong = next((each for each in _values(value) if isinstance(each, bytes)), None)
            if wrong is not None:
                raise BadModel(
                    f"expected UTF-8 in the field {field.name}, got {wrong[:40]!r}; export the model again"
                )


def _external_size(folder: Path, tensor: onnx.TensorProto) -> int:
    """Returns the bytes of a tensor in its file; 0 if they are not known, and then reading them fails."""
    entries: dict[str, str] = {entry.key: entry.value for entry in tensor.external_data}
    try:
        if "length" in entries:
            return int(entries["length"])
        return (folder / entries["location"]).stat().st_size - int(entries.get("offset", "0"))
    except (OSError, ValueError, KeyError):
        return 0


def _load_external(model: onnx.ModelProto, folder: Path) -> None:
    try:
        load_external_data_for_model(model, os.fspath(folder))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        reason = " ".join(str(error).split())
        raise BadModel(
            f"expected the external data of the model in its folder, got: {reason}; put the data files beside the model"
        ) from None


def _port(value: onnx.ValueInfoProto, what: str) -> Port:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        got = "no type" if kind is None else kind.removesuffix("_type").replace("_", " ")
        raise BadModel(
            f"expected a tensor as {what} {value.name!r}, got {got}; export a model with tensors only"
        )
    tensor = value.type.tensor_type
    if tensor.elem_type not in FROM_ONNX:
        name = _TYPE_NAMES.get(tensor.elem_type, str(tensor.elem_type))
        raise BadModel(
            f"expected a data type of ACL for {what} {value.name!r}, got {name}; "
            "export the model with another type, or cast inside the model"
        )
    return Port(value.name, FROM_ONNX[tensor.elem_type], _shape(tensor))


_TYPE_NAMES: Final = {number: name for name, number in onnx.TensorProto.DataType.items()}


def _shape(tensor: onnx.TypeProto.Tensor) -> tuple[Dimension, ...] | None:
    if not tensor.HasField("shape"):
        return None
    return tuple(_dimension(dim) for dim in tensor.shape.dim)


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> Dimension:
    if dim.HasField("dim_value"):
        return (
            dim.dim_value if dim.dim_value >= 0 else None
        )  # some exporters write -1 for an unknown dimension
    return dim.dim_param or None


# --- shapes -------------------------------------------------------------------------------------------------------


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model with inputs in place of its large weights, which do not influence shapes."""
    copy, graph = onnx.ModelProto(ir_version=model.ir_version), model.graph
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    copy.graph.name = graph.name
    for field in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(copy.graph, field).extend(getattr(graph, field))
    listed = {each.name for each in graph.input}
    for weight in graph.initializer:
        if math.prod(weight.dims) <= _LARGE:
            copy.graph.initializer.append(weight)
        elif weight.name not in listed:
            copy.graph.input.append(
                onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims)
            )
    return copy


def _forget_shapes(graph: onnx.GraphProto) -> None:
    """Removes what the model states about the shapes of other values than inputs: it may not hold for this gear."""
    del graph.value_info[:]
    for each in graph.output:
        each.type.tensor_type.ClearField("shape")


def _inferred(model: onnx.ModelProto, *, strict: bool = False) -> onnx.ModelProto:
    """Returns the model with the shapes that onnx infers. Only a strict inference raises an error for a wrong shape."""
    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=strict, data_prop=True)
    except (
        onnx.shape_inference.InferenceError,
        onnx.checker.ValidationError,
        ValueError,
        RuntimeError,
    ) as error:
        reason = " ".join(str(error).split())
        raise BadModel(
            f"expected a model whose shapes can be inferred, got: {reason}; correct the model or --input_shape"
        ) from None


def _symbols(inputs: tuple[Port, ...], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Returns the numbers of the symbols in the shapes of the inputs, if all inputs agree."""
    found: dict[str, set[int]] = {}
    for port in inputs:
        for dim, number in zip(port.shape or (), shapes[port.name], strict=False):
            if isinstance(dim, str):
                found.setdefault(dim, set()).add(number)
    return {symbol: numbers.pop() for symbol, numbers in found.items() if len(numbers) == 1}


def _contradicts(stated: tuple[Dimension, ...] | None, found: tuple[int, ...]) -> bool:
    return stated is not None and (
        len(stated) != len(found)
        or any(isinstance(dim, int) and dim != number >= 0 for dim, number in zip(stated, found, strict=True))
    )


def _may_be_folded(
    shapes: Mapping[str, tuple[int, ...]], inferred: Sequence[tuple[Dimension, ...] | None]
) -> bool:
    """Whether the shapes of the inputs may decide more of the outputs than was inferred."""
    fixed = all(-1 not in shape for shape in shapes.values())
    return any(
        shape is None or (fixed and any(not isinstance(dim, int) for dim in shape)) for shape in inferred
    )


def _filled(
    inferred: tuple[Dimension, ...] | None, folded: tuple[int | None, ...] | None
) -> tuple[Dimension, ...] | None:
    """Returns the inferred shape with the dimensions that only the folding has found."""
    if folded is None or inferred is None or len(folded) != len(inferred):
        return inferred if folded is None else folded
    return tuple(dim if isinstance(dim, int) else other for dim, other in zip(inferred, folded, strict=True))


def _merged(
    port: Port, inferred: tuple[Dimension, ...] | None, symbols: dict[str, int]
) -> tuple[int, ...] | None:
    """Returns the shape of an output: the inferred dimensions, and where they are missing, the stated ones."""
    shape = port.shape if inferred is None else inferred
    if shape is None:
        return None
    stated = port.shape if port.shape is not None and len(port.shape) == len(shape) else shape
    known = (dim if isinstance(dim, int) else other for dim, other in zip(shape, stated, strict=True))
    return tuple(
        symbols.get(dim, -1) if isinstance(dim, str) else -1 if dim is None else dim for dim in known
    )


def _known(port: Port, shape: tuple[int, ...] | None, reason: str) -> tuple[int, ...]:
    if shape is None:
        raise BadModel(
            f"expected a model that decides the number of dimensions of output {port.name!r}, got an operator without "
            f"shape inference{because(reason)}; state the shape in the model's outputs"
        )
    return shape
