"""What `simulator atc` notes about a model that it has written: what a load or a call of aioacl will make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aioacl._base.container import SHAPE_DATA
from aioacl._base.dtypes import format_name, type_name
from aioacl._base.errors import NotSupported
from aioacl._models.description import TensorInfo, batch_axis_of, must_be_runnable
from aioacl.simulator._onnx_child import Unanswered, padded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioacl.simulator._om import Description, Model, Tensor

LEAST_ROWS: Final = 2  # of a batch with a row that counts and a row that pads


def notes(model: Model) -> Iterator[str]:
    """Yields a sentence for each problem. Executes a model with batch sizes, to compare its results."""
    found = model.description
    if found is None or model.onnx is None:
        return
    yield from _refusal(found)
    if found.batch_sizes:
        yield from _padding(found, model.onnx)


def _refusal(found: Description) -> Iterator[str]:
    """Yields why `load_model` refuses the model."""
    geared = found.batch_sizes or found.image_sizes or found.dims
    try:
        must_be_runnable(
            [_info(each) for each in found.inputs],
            [_info(each) for each in found.outputs],
            "dims" if geared else None,
        )
    except NotSupported as error:
        yield f"load_model will refuse this model: {error}"


def _info(tensor: Tensor) -> TensorInfo:
    shape = tuple(None if size < 0 else size for size in tensor.shape)
    return TensorInfo(tensor.name, shape, type_name(tensor.dtype), format_name(tensor.format), tensor.nbytes)


def _padding(found: Description, onnx: bytes) -> Iterator[str]:
    """Yields a sentence for each output that depends on the rows with which aioacl pads a batch."""
    rows = min(size for size in found.batch_sizes if size >= LEAST_ROWS)
    shapes = {
        each.name: tuple(rows if size < 0 else size for size in each.shape)
        for each in found.inputs
        if each.name != SHAPE_DATA
    }
    batched = tuple(
        batch_axis_of(found.gear_shapes(at), found.batch_sizes) is not None
        for at in range(len(found.outputs))
    )
    names = [each.name for each in found.outputs]
    try:
        places = padded(onnx, shapes, found.order, batched)
    except Unanswered as error:
        yield f"whether the padding of a batch changes the outputs was not checked: {error}"
        for name, kept in zip(names, batched, strict=True):
            if not kept:
                yield f"output {name!r} may depend on the padding of a batch: its first dimension is not the batch"
        return
    for place in places:
        yield (
            f"output {names[place]!r} depends on the rows that pad a batch, so a call with fewer rows than its gear "
            "returns other values than the ONNX model; pass exactly as many rows as a gear, or convert the model with "
            "--dynamic_dims, whose gears are not padded"
        )
