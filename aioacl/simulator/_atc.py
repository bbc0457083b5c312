"""The simulated atc: makes a `.om` of an ONNX model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from aioacl.simulator._dtypes import INT64, NCDHW, NCHW, ND, size_of
from aioacl.simulator._gears import Gears, Shapes, largest, parse_gears, parse_shapes
from aioacl.simulator._om import SHAPE_DATA, BadModel, Description, Tensor, write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aioacl.simulator._gears import Kind
    from aioacl.simulator._onnx import Port, Source

InputFormat = Literal["NCHW", "NCDHW", "ND"]
INPUT_FORMATS: Final[tuple[InputFormat, ...]] = ("NCHW", "NCDHW", "ND")
"""The formats that atc has for ONNX models."""

_RANKS: Final = {"NCHW": (4, NCHW), "NCDHW": (5, NCDHW)}
_MOST_BYTES: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Options:
    """The values of atc's options with the same names."""

    input_shape: str = ""
    dynamic_batch_size: str | None = None
    dynamic_image_size: str | None = None
    dynamic_dims: str | None = None
    input_format: InputFormat = "NCHW"

    def gears(self) -> Mapping[Kind, str | None]:
        """Returns the options that state gears, by the kind of gears."""
        return {
            "batch_size": self.dynamic_batch_size,
            "image_size": self.dynamic_image_size,
            "dims": self.dynamic_dims,
        }


def convert(path: Path, options: Options, name: str) -> bytes:
    """Returns the bytes of a `.om`. Raises OSError if the file cannot be read, and BadModel for all other mistakes."""
    return write(name, *_described(_source(path), options))


def _source(path: Path) -> Source:
    try:
        from aioacl.simulator._onnx import load  # noqa: PLC0415 - onnx is an optional dependency, and takes a second
    except ImportError as error:
        raise BadModel(
            f"expected the package onnx, which reads models, got: {error}; install it with `pip install 'aioacl[onnx]'`"
        ) from error
    return load(path)


def _described(source: Source, options: Options) -> tuple[Description, bytes]:
    given = parse_shapes(options.input_shape)
    shapes = _input_shapes(source.inputs, given)
    gears = parse_gears(options.gears(), _in_order(shapes, given))
    made = [shapes] if gears is None else [gears.shapes(gear, shapes) for gear in range(len(gears.values))]
    outputs = [source.output_shapes(each) for each in made]
    return _description(source, options, made, outputs, gears, shapes), source.content


def _in_order(shapes: Shapes, given: Shapes) -> Shapes:
    """Returns the shapes in the order of `--input_shape`."""
    return {name: shapes[name] for name in (*given, *(name for name in shapes if name not in given))}


# --- the shapes of the inputs -------------------------------------------------------------------------------------


def _input_shapes(inputs: tuple[Port, ...], given: Shapes) -> Shapes:
    names = [port.name for port in inputs]
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        raise BadModel(
            f"--input_shape: expected an input of the model ({', '.join(names) or 'it has none'}), got {unknown!r}; "
            "correct the name"
        )
    return {port.name: _input_shape(port, given.get(port.name)) for port in inputs}


def _input_shape(port: Port, given: tuple[int, ...] | None) -> tuple[int, ...]:
    stated = port.shape
    if given is None:
        if stated is not None and all(isinstance(dim, int) for dim in stated):
            return tuple(dim for dim in stated if isinstance(dim, int))
        raise BadModel(
            f"expected the shape of input {port.name!r}, which is {_shown(stated)} in the model, got none; "
            f'pass --input_shape "{port.name}:..."'
        )
    if stated is not None and (
        len(stated) != len(given)
        or any(isinstance(dim, int) and dim != number for dim, number in zip(stated, given, strict=True))
    ):
        raise BadModel(
            f"--input_shape: expected a shape that fits {_shown(stated)} of input {port.name!r} in the model, "
            f"got {_shown(given)}; correct the shape, or export the model with dynamic dimensions"
        )
    return given


def _shown(shape: tuple[int | str | None, ...] | None) -> str:
    return "unknown" if shape is None else f"[{','.join('?' if dim is None else str(dim) for dim in shape)}]"


# --- the description ----------------------------------------------------------------------------------------------


def _description(
    source: Source,
    options: Options,
    inputs: list[Shapes],
    outputs: list[list[tuple[int, ...]]],
    gears: Gears | None,
    shapes: Shapes,
) -> Description:
    """Describes the model. `inputs` and `outputs` have the shapes in each gear, `shapes` those with -1."""
    tensors = [
        _tensor(
            port, _format(options, shapes[port.name]), shapes[port.name], [made[port.name] for made in inputs]
        )
        for port in source.inputs
    ]
    results: list[Tensor] = []
    for place, port in enumerate(source.outputs):
        made = [each[place] for each in outputs]
        results.append(_tensor(port, ND, largest(made), made))
    if gears is None:
        return Description(tuple(tensors), tuple(results))
    width = len(gears.values[0])
    return Description(
        inputs=(*tensors, Tensor(SHAPE_DATA, INT64, ND, (width,), size_of(INT64, width))),
        outputs=tuple(results),
        batch_sizes=tuple(gear[0] for gear in gears.values) if gears.kind == "batch_size" else (),
        image_sizes=gears.values if gears.kind == "image_size" else (),
        dims=gears.values if gears.kind == "dims" else (),
        output_shapes=tuple(
            ",".join(map(str, (gear, place, *shape)))
            for gear, made in enumerate(outputs)
            for place, shape in enumerate(made)
        ),
        order=gears.order,
    )


def _format(options: Options, shape: tuple[int, ...]) -> int:
    """Returns the format of `--input_format` for inputs with its number of dimensions, and ND for others."""
    rank, number = _RANKS.get(options.input_format, (-1, ND))
    return number if len(shape) == rank else ND


def _tensor(port: Port, layout: int, shape: tuple[int, ...], made: list[tuple[int, ...]]) -> Tensor:
    """Describes a tensor. Its size is that of the largest shape in `made`."""
    nbytes = size_of(port.dtype, math.prod(largest(made)))
    if nbytes > _MOST_BYTES:
        raise BadModel(
            f"expected at most {_MOST_BYTES} bytes for {port.name!r}, got {nbytes}; use a smaller shape"
        )
    return Tensor(port.name, port.dtype, layout, shape, nbytes)
