"""The checks of an item for a model, before it is queued; how many rows an execution of the model can have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioacl._base.errors import NotSupported, ParameterError
from aioacl._models.arguments import _shape, _view, in_order

if TYPE_CHECKING:
    from aioacl._models.description import Description, Gear, TensorInfo

Shape = tuple[tuple[int, ...], ...]
SPLIT: Final = "Call the model itself, or convert it so that each input and output has the rows first."


class Rows(NamedTuple):
    """The checked arguments of an item.

    Attributes:
        arguments: the memory of each input.
        rows: the number of rows.
        shape: the dimensions of each input without the rows.
    """

    arguments: tuple[memoryview, ...]
    rows: int
    shape: Shape


class RowsOfModel:
    """What a batcher must know of a model.

    Attributes:
        description: its inputs, outputs and gears.
        gears: the numbers of rows that an execution can have, in order.
        max_rows: the most rows of an item.
    """

    def __init__(self, description: Description) -> None:
        self.description = description
        self._gears: dict[Shape, dict[int, Gear]] = {}
        for gear in description.gears:
            self._gears.setdefault(tuple(shape[1:] for shape in gear.inputs), {})[
                _rows(description, gear)
            ] = gear
        sizes = {tuple(sorted(of_shape)) for of_shape in self._gears.values()}
        if len(sizes) != 1:
            raise NotSupported(
                "expected the same numbers of rows for all shapes of the gears, got different ones",
                hint=SPLIT,
            )
        (self.gears,) = sizes
        self.max_rows: int = self.gears[-1]
        self._shapes = {shape: shape for shape in self._gears}

    def gear_for(self, shape: Shape, rows: int) -> Gear:
        """Returns the smallest gear of a shape that holds the rows."""
        gears = self._gears[shape]
        return gears[min(size for size in gears if size >= rows)]

    def any_shape(self) -> Shape:
        """Returns the shape of the first gear."""
        return next(iter(self._gears))

    def check(self, x: Any) -> tuple[Rows, int, Shape]:
        """Checks an item, and returns it with its rows and its shape.

        Raises:
            ParameterError: the item is wrong. The error names the input and both shapes.
        """
        inputs = self.description.inputs
        values = in_order(inputs, x, "input")
        arguments = tuple(_view(info, value, "input") for info, value in zip(inputs, values, strict=True))
        # One object for all equal shapes, so that a comparison of two items is quick.
        shape = self._shapes.get(tuple(_dims(argument)[1:] for argument in arguments))
        first = _dims(arguments[0])
        if shape is None or not first or any(_dims(argument)[:1] != first[:1] for argument in arguments):
            raise self._wrong_shape(inputs, arguments)
        if not 1 <= first[0] <= self.max_rows:
            raise ParameterError(
                f"expected an item of 1 to {self.max_rows} rows, got {first[0]}",
                hint="Split the item, or pass at least one row.",
            )
        return Rows(arguments, first[0], shape), first[0], shape

    def _wrong_shape(
        self, inputs: tuple[TensorInfo, ...], arguments: tuple[memoryview, ...]
    ) -> ParameterError:
        wanted = [
            " or ".join(_shape((None, *shape[at])) for shape in self._gears) for at in range(len(inputs))
        ]
        names = ", ".join(f"{info.name!r} {each}" for info, each in zip(inputs, wanted, strict=True))
        return ParameterError(
            f"expected the shapes {names}, got {', '.join(_shape(_dims(argument)) for argument in arguments)}",
            hint="Reshape the arrays; ? is the number of rows, from 1, which is the same in all inputs.",
        )


def _dims(argument: memoryview) -> tuple[int, ...]:
    return argument.shape or ()


def _rows(description: Description, gear: Gear) -> int:
    """Returns the rows of a gear. Raises NotSupported if an input or output does not have them first."""
    inputs = zip(description.inputs, gear.inputs, strict=True)
    outputs = zip(description.outputs, gear.outputs, strict=True)
    rows = gear.inputs[0][:1]
    for noun, pairs in (("input", inputs), ("output", outputs)):
        for info, shape in pairs:
            if not shape or shape[:1] != rows:
                raise NotSupported(
                    f"expected {noun}s with the same first dimension, got {noun} {info.name!r} of {_shape(shape)} "
                    f"for {_shape(rows)} rows",
                    hint=SPLIT,
                )
    return rows[0]
