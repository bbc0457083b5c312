"""What a model takes and returns, as the runtime describes it (aclmdlDesc)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

from aioacl._base.container import SHAPE_DATA
from aioacl._base.dtypes import array_dtype, format_name, type_name
from aioacl._base.errors import NotSupported
from aioacl._base.ffi import ffi, lib, text_of
from aioacl._base.public import publish
from aioacl._base.unique import record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


ALL_INPUTS: Final = (1 << 64) - 1  # the index that selects the gears of dims

GearKind = Literal["batch", "image", "dims"]


@record
class TensorInfo:
    """One input or output of a model.

    Attributes:
        name: the name.
        shape: the dimensions. None is a dimension that depends on the gear.
        dtype: the name of the data type, for example "float32".
        format: the name of the format, for example "ND" or "NCHW".
        nbytes: the size in bytes; with gears, the size for the largest gear.
        batch_axis: the dimension that is the batch, an index of `shape`; None if there is none, or if the gears of the
            model are not batch sizes. A call may pass any number of rows in it, up to the largest gear.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    format: str
    nbytes: int
    batch_axis: int | None = None


@record
class ModelMemory:
    """The device memory that a model needs (aclmdlQuerySize).

    Attributes:
        workspace: the bytes of work memory of each instance.
        weights: the bytes of the weights, which all instances share.
    """

    workspace: int
    weights: int


class Gear(NamedTuple):
    """One set of shapes for which the model was compiled. A model without gears has one, whose value is None.

    Attributes:
        value: a batch size, a height and width, or all dimensions of all inputs.
        inputs: the shape of each input.
        outputs: the shape of each output.
    """

    value: int | tuple[int, ...] | None
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


class Description(NamedTuple):
    """The inputs, outputs and gears of a loaded model.

    Attributes:
        inputs: the inputs that a caller passes.
        outputs: the outputs.
        kind: the kind of the gears; None if the model has none.
        gears: the gears, in the order of the model.
        batched: for each output, whether it has a batch axis.
    """

    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    kind: GearKind | None
    gears: tuple[Gear, ...]
    batched: tuple[bool, ...]


class Desc:
    """The runtime's description of a model. Use it as a context manager.

    `fail` makes the error of a code, from the code and the ACL function.
    """

    def __init__(self, model: int, fail: Callable[[int, str], Exception]) -> None:
        self._fail = fail
        self.handle = lib.aio_u_aclmdlCreateDesc()
        if not self.handle:
            raise MemoryError
        code = lib.aio_u_aclmdlGetDesc(self.handle, model)
        if code:
            lib.aio_u_aclmdlDestroyDesc(self.handle)
            raise fail(code, "aclmdlGetDesc")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        lib.aio_u_aclmdlDestroyDesc(self.handle)

    def dims(self, call: str, index: int) -> tuple[int, ...]:
        """Returns the dimensions that an ACL function gives for one input or output."""
        dims: Any = ffi.new("aclmdlIODims *")
        code = getattr(lib, f"aio_u_{call}")(self.handle, index, dims)
        if code:
            raise self._fail(code, call)
        return tuple(dims.dims[at] for at in range(dims.dimCount))


def read_tensors(desc: Desc, side: Literal["Input", "Output"]) -> tuple[TensorInfo, ...]:
    """Returns the inputs, with the one that selects the gear, or the outputs."""

    def get(what: str) -> Any:
        return getattr(lib, f"aio_u_aclmdlGet{what}")

    return tuple(
        TensorInfo(
            text_of(get(f"{side}NameByIndex")(desc.handle, index)),
            _shown(desc.dims(f"aclmdlGet{side}Dims", index)),
            type_name(get(f"{side}DataType")(desc.handle, index)),
            format_name(get(f"{side}Format")(desc.handle, index)),
            get(f"{side}SizeByIndex")(desc.handle, index),
        )
        for index in range(get(f"Num{side}s")(desc.handle))
    )


def _shown(dims: Sequence[int]) -> tuple[int | None, ...]:
    return tuple(None if size < 0 else size for size in dims)


def read_gears(desc: Desc, inputs: Sequence[TensorInfo]) -> tuple[GearKind | None, list[Any]]:
    """Returns the kind of the gears and the value of each gear, in the order of the model."""
    batch: Any = ffi.new("aclmdlBatch *")
    if not lib.aio_u_aclmdlGetDynamicBatch(desc.handle, batch) and batch.batchCount:
        return "batch", [batch.batch[at] for at in range(batch.batchCount)]
    image: Any = ffi.new("aclmdlHW *")
    if not lib.aio_u_aclmdlGetDynamicHW(desc.handle, ALL_INPUTS, image) and image.hwCount:
        return "image", [tuple(image.hw[at]) for at in range(image.hwCount)]
    count: Any = ffi.new("size_t *")
    if lib.aio_u_aclmdlGetInputDynamicGearCount(desc.handle, ALL_INPUTS, count) or not count[0]:
        return None, []
    dims: Any = ffi.new("aclmdlIODims[]", count[0])
    if lib.aio_u_aclmdlGetInputDynamicDims(desc.handle, ALL_INPUTS, dims, count[0]):
        return None, []
    rank = sum(len(each.shape) for each in inputs)
    return "dims", [tuple(each.dims[at] for at in range(rank)) for each in dims]


def shapes_of(kind: GearKind | None, value: Any, inputs: Sequence[TensorInfo]) -> tuple[tuple[int, ...], ...]:
    """Returns the shape of each input in a gear."""
    if kind == "dims":
        ends = [0]
        for each in inputs:
            ends.append(ends[-1] + len(each.shape))
        return tuple(tuple(value[begin:end]) for begin, end in itertools.pairwise(ends))
    shapes = list[tuple[int, ...]]()
    for each in inputs:
        sizes = iter([value] if kind == "batch" else value or ())
        shapes.append(tuple(next(sizes) if size is None else size for size in each.shape))
    return tuple(shapes)


def must_be_runnable(
    inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], kind: GearKind | None
) -> None:
    """Raises NotSupported if calls of aioacl cannot pass the tensors of the model."""
    for each in (*inputs, *outputs):
        if array_dtype(each.dtype) is None:
            raise NotSupported(
                f"expected tensors of types that an array can hold, got {each.name!r} of {each.dtype}",
                hint="Cast the tensor inside the model, or call the model through `aioacl.lowlevel`.",
            )
    if kind is None:  # with gears, each gear has fixed shapes
        _must_be_fixed("input", inputs, _CONVERT)
        _must_be_fixed("output", outputs, _STATE)


_CONVERT: Final = (
    "Convert the model with atc (for the simulator: `python -m aioacl simulator atc`) and fixed shapes in "
    "--input_shape, or --dynamic_batch_size, --dynamic_image_size or --dynamic_dims."
)
_STATE: Final = (
    "If the data decides a shape, call the model through `aioacl.lowlevel`; otherwise state the shapes in the "
    "outputs of the ONNX model, and convert it again."
)


def _must_be_fixed(what: str, tensors: Sequence[TensorInfo], hint: str) -> None:
    open_ones = [f"{each.name!r} of shape {_bracketed(each.shape)}" for each in tensors if None in each.shape]
    if open_ones:
        one = len(open_ones) == 1
        raise NotSupported(
            f"expected a model with fixed shapes or with gears, got {what if one else f'{what}s'} "
            f"{', '.join(open_ones)}, which {'is' if one else 'are'} known only when the model runs",
            hint=hint,
        )


def _bracketed(shape: Sequence[int | None]) -> str:
    return f"[{','.join('?' if size is None else str(size) for size in shape)}]"


def split_inputs(inputs: Sequence[TensorInfo]) -> tuple[tuple[TensorInfo, ...], int]:
    """Returns the inputs that a caller passes, and the bytes of the input that selects the gear, or 0.

    The input that selects the gear is the last one, if the model has gears.
    """
    if inputs and inputs[-1].name == SHAPE_DATA:
        return tuple(inputs[:-1]), inputs[-1].nbytes
    return tuple(inputs), 0


def with_batch(inputs: Sequence[TensorInfo], kind: GearKind | None) -> tuple[TensorInfo, ...]:
    """Returns the inputs with their batch axes. The gears of batch sizes change the first dimension only."""
    return tuple(
        replace(each, batch_axis=0) if kind == "batch" and each.shape[:1] == (None,) else each
        for each in inputs
    )


def with_open_dimensions(
    outputs: Sequence[TensorInfo], kind: GearKind | None, gears: Sequence[Gear]
) -> tuple[TensorInfo, ...]:
    """Returns the outputs with their batch axes, and with None for each dimension that depends on the gear.

    The runtime describes an output with its shape in the largest gear.
    """
    if kind is None:
        return tuple(outputs)
    made = list[TensorInfo]()
    for at, info in enumerate(outputs):
        shapes = [gear.outputs[at] for gear in gears]
        axis = batch_axis_of(shapes, [gear.value for gear in gears]) if kind == "batch" else None
        made.append(replace(info, shape=open_shape(shapes, axis), batch_axis=axis))
    return tuple(made)


def batch_axis_of(shapes: Sequence[tuple[int, ...]], batches: Sequence[Any]) -> int | None:
    """Returns 0 if the first dimension of an output is the batch in every gear, else None."""
    is_batch = (shape[:1] == (batch,) for shape, batch in zip(shapes, batches, strict=True))
    return 0 if all(is_batch) else None


def open_shape(shapes: Sequence[tuple[int, ...]], axis: int | None) -> tuple[int | None, ...]:
    """Returns the dimensions of an output, with None for the batch axis and for each one that depends on the gear."""
    return tuple(
        None if at == axis or len({*sizes}) > 1 else sizes[0]
        for at, sizes in enumerate(zip(*shapes, strict=True))
    )


publish("aioacl", ["ModelMemory", "TensorInfo"], of=__name__)
