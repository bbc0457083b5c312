"""The simulated atc: makes a `.om` of an ONNX model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from aioacl._base.container import SHAPE_DATA
from aioacl._base.dtypes import INT64, NCDHW, NCHW, ND, size_of
from aioacl.simulator._gears import largest, parse_gears, parse_shapes, shape_of
from aioacl.simulator._om import BadModel, Description, Tensor, write
from aioacl.simulator._onnx_child import because

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from aioacl.simulator._gears import Gears, Kind, Ranges, Shapes
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


@dataclass(frozen=True, slots=True)
class _Plan:
    """The shapes of a conversion, by the names of the inputs and by the places of the outputs.

    `sizes` and `results` have the shapes that decide the sizes of the tensors: those of each gear; or the only shapes;
    or the largest ones, with -1 for dimensions without a limit.
    """

    inputs: dict[str, Ranges]
    outputs: list[tuple[int, ...]]
    sizes: list[Shapes]
    results: list[list[tuple[int, ...]]]
    gears: Gears | None = None
    reason: str = ""  # why onnxruntime has found no shapes

    @property
    def dynamic(self) -> bool:
        """Whether some shapes are known only when the model runs."""
        return self.gears is None and any(-1 in shape for shape in (*self.shapes.values(), *self.outputs))

    @property
    def shapes(self) -> Shapes:
        """The shapes of the inputs, with -1."""
        return {name: shape_of(ranges) for name, ranges in self.inputs.items()}


def convert(path: Path, options: Options, name: str, note: Callable[[str], object] | None = None) -> bytes:
    """Returns the bytes of a `.om`. Raises OSError if the file cannot be read, and BadModel for all other mistakes.

    Calls `note` with the reason if the shapes of outputs stay unknown because onnxruntime does not fold them.
    """
    source = _source(path)
    given = parse_shapes(options.input_shape)
    inputs = _inputs(source.inputs, given)
    gears = parse_gears(options.gears(), _in_order(inputs, given))
    plan = _plan(source, inputs) if gears is None else _geared(source, inputs, gears)
    if plan.reason and plan.dynamic and note is not None:
        note(plan.reason)
    content = source.corrected([plan.outputs, *plan.results])
    return write(name, _description(source, options, plan), content, dynamic=plan.dynamic)


def _source(path: Path) -> Source:
    try:
        from aioacl.simulator._onnx import load  # noqa: PLC0415 - onnx is an optional dependency, and takes a second
    except ImportError as error:
        raise BadModel(
            f"expected the package onnx, which reads models, got: {error}; install it with `pip install 'aioacl[onnx]'`"
        ) from error
    return load(path)


def _in_order(inputs: dict[str, Ranges], given: dict[str, Ranges]) -> dict[str, Ranges]:
    """Returns the inputs in the order of `--input_shape`."""
    return {name: inputs[name] for name in (*given, *(name for name in inputs if name not in given))}


def _plan(source: Source, inputs: dict[str, Ranges]) -> _Plan:
    shapes = {name: shape_of(ranges) for name, ranges in inputs.items()}
    most = {name: tuple(most for _, most in ranges) for name, ranges in inputs.items()}
    found = source.output_shapes([shapes] if most == shapes else [shapes, most])
    return _Plan(inputs, found.gears[0], [most], [found.gears[-1]], reason=found.reason)


def _geared(source: Source, inputs: dict[str, Ranges], gears: Gears) -> _Plan:
    shapes = {name: shape_of(ranges) for name, ranges in inputs.items()}
    sizes = [gears.shapes(gear, shapes) for gear in range(len(gears.values))]
    found = source.output_shapes(sizes)
    for made in found.gears:
        for port, shape in zip(source.outputs, made, strict=True):
            if -1 in shape:
                raise BadModel(
                    f"expected a shape of output {port.name!r} that each gear decides, got {_shown(shape)}"
                    f"{because(found.reason)}; convert the model without gears, or state the shape in the model's "
                    "outputs, with the names of dimensions that its inputs have"
                )
    outputs = [largest(list(each)) for each in zip(*found.gears, strict=True)]
    return _Plan(inputs, outputs, sizes, found.gears, gears)


# --- the shapes of the inputs -------------------------------------------------------------------------------------


def _inputs(inputs: tuple[Port, ...], given: dict[str, Ranges]) -> dict[str, Ranges]:
    names = [port.name for port in inputs]
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        raise BadModel(
            f"--input_shape: expected an input of the model ({', '.join(names) or 'it has none'}), got {unknown!r}; "
            "correct the name"
        )
    return {port.name: _input(port, given.get(port.name)) for port in inputs}


def _input(port: Port, given: Ranges | None) -> Ranges:
    stated = port.shape
    if given is None:
        if stated is not None and all(isinstance(dim, int) for dim in stated):
            return tuple((dim, dim) for dim in stated if isinstance(dim, int))
        raise BadModel(
            f"expected the shape of input {port.name!r}, which is {_shown(stated)} in the model, got none; "
            f'pass --input_shape "{port.name}:..."'
        )
    if stated is not None and (
        len(stated) != len(given)
        or any(isinstance(dim, int) and ends != (dim, dim) for dim, ends in zip(stated, given, strict=True))
    ):
        raise BadModel(
            f"--input_shape: expected a shape that fits {_shown(stated)} of input {port.name!r} in the model, "
            f"got {_shown(shape_of(given))}; correct the shape, or export the model with dynamic dimensions"
        )
    return given


def _shown(shape: tuple[int | str | None, ...] | None) -> str:
    return "unknown" if shape is None else f"[{','.join('?' if dim is None else str(dim) for dim in shape)}]"


# --- the description ----------------------------------------------------------------------------------------------


def _description(source: Source, options: Options, plan: _Plan) -> Description:
    shapes, gears = plan.shapes, plan.gears
    inputs = tuple(
        _tensor(
            port,
            _format(options, shapes[port.name]),
            shapes[port.name],
            [made[port.name] for made in plan.sizes],
            plan.inputs[port.name] if plan.dynamic else (),
        )
        for port in source.inputs
    )
    outputs = tuple(
        _tensor(port, ND, plan.outputs[place], [made[place] for made in plan.results])
        for place, port in enumerate(source.outputs)
    )
    if gears is None:
        return Description(inputs, outputs)
    width = len(gears.values[0])
    return Description(
        inputs=(*inputs, Tensor(SHAPE_DATA, INT64, ND, (width,), size_of(INT64, width))),
        outputs=outputs,
        batch_sizes=tuple(gear[0] for gear in gears.values) if gears.kind == "batch_size" else (),
        image_sizes=gears.values if gears.kind == "image_size" else (),
        dims=gears.values if gears.kind == "dims" else (),
        output_shapes=tuple(
            ",".join(map(str, (gear, place, *shape)))
            for gear, made in enumerate(plan.results)
            for place, shape in enumerate(made)
        ),
        order=gears.order,
    )


def _format(options: Options, shape: tuple[int, ...]) -> int:
    """Returns the format of `--input_format` for inputs with its number of dimensions, and ND for others."""
    rank, number = _RANKS.get(options.input_format, (-1, ND))
    return number if len(shape) == rank else ND


def _tensor(
    port: Port, layout: int, shape: tuple[int, ...], made: list[tuple[int, ...]], ranges: Ranges = ()
) -> Tensor:
    """Describes a tensor. Its size is that of the largest shape in `made`; 0 if a dimension has no limit."""
    unlimited = any(-1 in each for each in made)
    nbytes = 0 if unlimited else size_of(port.dtype, math.prod(largest(made)))
    if nbytes > _MOST_BYTES:
        raise BadModel(
            f"expected at most {_MOST_BYTES} bytes for {port.name!r}, got {nbytes}; use a smaller shape"
        )
    return Tensor(port.name, port.dtype, layout, shape, nbytes, ranges=ranges)
