"""The arguments of a call of a model, checked before C, and the memory of its results.

An argument is any object with a C-contiguous buffer of the right type and shape, or such a DLPack tensor in host
memory. Nothing is converted: a conversion would copy, and would hide a mistake. The arguments are read on the model's
thread, so they must not be changed until the call has ended. `check_arguments` of C accepts the usual arguments;
`check_call` checks all others, and raises the errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

from aioacl._base.dtypes import array_dtype, holds, item_formats, item_name, itemsize_of
from aioacl._base.errors import NotSupported, ParameterError
from aioacl._base.ffi import Arguments, Spec, ffi, pointer
from aioacl._base.options import SHOWN_ITEMS, repr_of
from aioacl._handles.host_tensor import host_tensor
from aioacl._handles.memory import DeviceBuffer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioacl._models.description import Description, Gear, TensorInfo

ARRAYS_HINT: Final = (
    "Pass an array, a list or tuple with one array for each, or a dict of arrays by name. "
    "`numpy.asarray(values, dtype)` makes an array of a list of numbers."
)
_CONTIGUOUS: Final = {
    "input": "Pass `numpy.ascontiguousarray(x)`.",
    "output": "Pass a contiguous array, for example one of `numpy.empty`.",
}
KINDS: Final = {None: 0, "batch": 1, "image": 2, "dims": 3}  # enum aio_gears


def spec_of(description: Description) -> Spec:
    """Returns what C needs to check arguments and to make results."""

    def arrays() -> tuple[Any, tuple[Any, ...]]:
        np = numpy_or_error()
        return np.empty, tuple(np.dtype(array_dtype(info.dtype)) for info in description.outputs)

    return Spec(
        KINDS[description.kind],
        tuple(
            (item_formats(info.dtype), itemsize_of(info.dtype), _sizes(info.shape))
            for info in description.inputs
        ),
        tuple(
            (itemsize_of(info.dtype), info.nbytes, batched)
            for info, batched in zip(description.outputs, description.batched, strict=True)
        ),
        tuple(
            (_values(gear), tuple(size for shape in gear.inputs for size in shape), gear.outputs)
            for gear in description.gears
        ),
        tuple(info.name for info in description.outputs),
        arrays,
    )


def _sizes(shape: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(-1 if size is None else size for size in shape)


def _values(gear: Gear) -> tuple[int, ...]:
    value = gear.value
    return () if value is None else (value,) if isinstance(value, int) else value


def output_shapes(description: Description, arguments: Arguments) -> list[tuple[int, ...]]:
    """Returns the shape of each result. Padding is not part of a result."""
    rows = arguments.rows
    return [
        (rows, *shape[1:]) if batched and rows is not None else shape
        for shape, batched in zip(description.gears[arguments.gear].outputs, description.batched, strict=True)
    ]


def check_call(description: Description, spec: Spec, given: Any) -> Arguments:
    """Checks the arguments of a call. Raises ParameterError, which names the input and both shapes."""
    inputs = description.inputs
    values = in_order(inputs, given, "input")
    # The views that were checked: a second request of an argument's buffer may return other memory.
    views = tuple(_view(info, value, "input") for info, value in zip(inputs, values, strict=True))
    gear, rows = _gear_for(description, views)
    return Arguments(spec, views, description.gears.index(gear), rows)


def in_order(tensors: Sequence[TensorInfo], given: Any, noun: str, hint: str = ARRAYS_HINT) -> Sequence[Any]:
    """Returns one value for each tensor, in the order of the model. `hint` is that of a wrong number of values."""
    names = [info.name for info in tensors]
    if _is_mapping(given):
        if {*given} != {*names}:
            raise ParameterError(
                f"expected {noun}s named {', '.join(map(repr, names))}, got {_named(given)}",
                hint=f"Pass one array for each name, and nothing else; the model lists them in `model.{noun}s`.",
            )
        return [given[name] for name in names]
    # A copy, because the values are read more than once, and the list may change between a check and a use.
    values = tuple(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else (given,)
    if len(values) != len(names):
        raise ParameterError(
            f"expected {_counted(len(names), noun)} ({', '.join(map(repr, names))}), got {len(values)}",
            hint=hint,
        )
    return values


def _named(given: Mapping[Any, Any]) -> str:
    return f"{len(given)} names" if len(given) > SHOWN_ITEMS else ", ".join(map(repr_of, given)) or "none"


def _is_mapping(given: Any) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(given, Mapping)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _view(info: TensorInfo, value: Any, noun: str) -> memoryview:
    """Checks the type of an argument or a target; the caller checks its shape."""
    view = _memory(info, value, noun)
    # "=" is the native order too, without alignment. NumPy gives it to arrays that a message was deserialised into.
    item = view.format.lstrip("@=")
    if view.c_contiguous and holds(item, view.itemsize, info.dtype):
        return view
    where = f"{noun} {info.name!r}: expected {_wanted(info)}"
    got = f"{item_name(item, view.itemsize)} {_shape(view.shape or ())}"
    if not holds(item, view.itemsize, info.dtype):
        raise ParameterError(
            f"{where}, got {got}",
            hint=_conversion(info, value, noun),
        )
    raise ParameterError(f"{where}, got {got}, which is not contiguous", hint=_CONTIGUOUS[noun])


def _memory(info: TensorInfo, value: Any, noun: str) -> memoryview:
    """Returns the buffer of an argument, or that of a DLPack tensor in host memory."""
    if isinstance(value, DeviceBuffer):
        raise ParameterError(
            f"{noun} {info.name!r}: expected an array in host memory, got a DeviceBuffer",
            hint="Pass device memory to `model.enqueue(inputs, outputs)`, or download it to an array first.",
        )
    try:
        return memoryview(value)
    except (TypeError, ValueError, BufferError) as error:
        try:
            tensor = host_tensor(value, writable=noun == "output") if isinstance(error, TypeError) else None
        except ParameterError as refused:
            raise ParameterError(f"{noun} {info.name!r}: {refused.message}", hint=refused.hint) from refused
        if tensor is not None:
            return memoryview(tensor)
        raise ParameterError(
            f"{noun} {info.name!r}: expected {_wanted(info)}, got {_kind_of(value)}",
            hint="Await it first, and pass the result."
            if isinstance(value, Awaitable)
            else "Pass an array of NumPy, another object with a contiguous buffer, or a tensor in host memory.",
        ) from error


def _conversion(info: TensorInfo, value: Any, noun: str) -> str:
    dtype = array_dtype(info.dtype)
    if noun == "output":
        return f"Make the array with `numpy.empty(shape, {dtype!r})`."
    if hasattr(value, "astype"):
        return f"Convert it first, for example with `x.astype({dtype!r})`."
    return f"Make an array of it first, for example with `numpy.frombuffer(x, {dtype!r}).reshape(shape)`."


def _kind_of(value: Any) -> str:
    return "a list" if isinstance(value, list) else "a tuple" if isinstance(value, tuple) else repr_of(value)


def _wanted(info: TensorInfo) -> str:
    carrier = array_dtype(info.dtype)
    via = f" (as {carrier})" if carrier != info.dtype else ""
    return f"{info.dtype}{via} {_shape(info.shape)}"


def _shape(shape: Sequence[int | None]) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape)}]"


# --- gears --------------------------------------------------------------------------------------------------------


def _gear_for(description: Description, views: Sequence[memoryview]) -> tuple[Gear, int | None]:
    """Returns the gear for the shapes of the arguments, and the number of rows of a batch."""
    for info, view in zip(description.inputs, views, strict=True):
        fits = len(info.shape) == len(_shape_of(view)) and all(
            wanted in (None, got) for wanted, got in zip(info.shape, _shape_of(view), strict=True)
        )
        if not fits:
            raise ParameterError(
                f"input {info.name!r}: expected the shape {_shape(info.shape)}, got {_shape(_shape_of(view))}",
                hint=_shape_hint(info.shape, _shape_of(view)),
            )
    if description.kind == "batch":
        return _gear_for_batch(description, views)
    shapes = tuple(map(_shape_of, views))
    for gear in description.gears:
        if gear.inputs == shapes:
            return gear, None
    raise ParameterError(
        f"expected shapes of one of the model's gears, got {', '.join(map(_shape, shapes))}; the gears are "
        + "; ".join(", ".join(map(_shape, gear.inputs)) for gear in description.gears),
        hint="Resize the arrays to a gear; only batches are padded.",
    )


def _shape_hint(wanted: Sequence[int | None], got: tuple[int, ...]) -> str:
    if wanted and wanted[0] in (None, 1) and tuple(wanted[1:]) == got:
        return f"The first dimension is missing: pass `x.reshape({', '.join(map(str, (1, *got)))})`."
    if None in wanted:
        return "Reshape the array; ? is any size that the model's gears have."
    return "Reshape the array, or convert the model for that shape."


def _gear_for_batch(description: Description, views: Sequence[memoryview]) -> tuple[Gear, int]:
    rows = {
        info.name: _shape_of(view)[0]
        for info, view in zip(description.inputs, views, strict=True)
        if None in info.shape
    }
    if len({*rows.values()}) > 1:
        raise ParameterError(
            f"expected the same number of rows in all inputs, got {', '.join(f'{n!r} {c}' for n, c in rows.items())}",
            hint="Pass the same batch in each input.",
        )
    count = next(iter(rows.values()), 1)
    fitting = [gear for gear in description.gears if _batch(gear) >= count]
    if not fitting or not count:
        raise ParameterError(
            f"expected a batch of 1 to {max(map(_batch, description.gears))} rows, got {count}; "
            f"the gears are {', '.join(str(_batch(gear)) for gear in description.gears)}",
            hint="Split the batch, or convert the model with a larger --dynamic_batch_size."
            if count
            else "Pass at least one row.",
        )
    return min(fitting, key=_batch), count


def _shape_of(view: memoryview) -> tuple[int, ...]:
    return view.shape or ()


def _batch(gear: Gear) -> int:
    assert isinstance(gear.value, int), "a gear of the kind batch is a number"
    return gear.value


# --- results ------------------------------------------------------------------------------------------------------


def check_out(description: Description, arguments: Arguments, out: Any) -> tuple[memoryview, ...]:
    """Checks the arrays that a caller passes for the results."""
    targets = list[memoryview]()
    shapes = output_shapes(description, arguments)
    for info, value, shape in zip(
        description.outputs, in_order(description.outputs, out, "output"), shapes, strict=True
    ):
        view = _view(info, value, "output")
        if view.readonly:
            raise ParameterError(
                f"output {info.name!r}: expected a writable array, got a read-only one",
                hint="Pass an array that can be written to, for example one of `numpy.empty`.",
            )
        if _shape_of(view) != shape:
            raise ParameterError(
                f"output {info.name!r}: expected the shape {_shape(shape)}, got {_shape(_shape_of(view))}",
                hint=f"Make the array with `numpy.empty({shape}, {array_dtype(info.dtype)!r})`.",
            )
        targets.append(view)
    _must_be_apart(description.outputs, targets)
    return tuple(targets)


def _must_be_apart(outputs: Sequence[TensorInfo], targets: Sequence[memoryview]) -> None:
    """Raises ParameterError if two outputs share memory, because the later one would overwrite the earlier one."""
    if len(targets) == 1:
        return
    spans = sorted(
        (pointer(ffi.from_buffer("char[]", view)), view.nbytes, info.name)
        for info, view in zip(outputs, targets, strict=True)
        if view.nbytes
    )
    for (at, nbytes, name), (next_at, _, next_name) in pairwise(spans):
        if at + nbytes > next_at:
            raise ParameterError(
                f"expected an array of its own for each output, got one with memory of both {name!r} and {next_name!r}",
                hint="Make each array with `numpy.empty`.",
            )


def numpy_or_error() -> Any:
    """Returns NumPy, or raises NotSupported."""
    try:
        import numpy as np  # noqa: PLC0415 - NumPy is optional
    except ImportError as error:
        raise NotSupported(
            "expected NumPy for the results of a model, but it cannot be imported",
            hint="Install NumPy, or pass `out=` with an object that has a writable buffer.",
        ) from error
    return np
